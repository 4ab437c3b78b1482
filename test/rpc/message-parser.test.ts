/** Tests the parser of one message: what is refused, and which texts stay unchanged. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import {
  jsonMembers,
  type MessageSender,
  parseJsonDoc,
  readMessage,
  type WireMessage,
} from '../../adapters/rpc/message-parser.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { roundsOf } from '../harness/slices.ts';

const REFUSED = parse(readFileSync(path.join(import.meta.dirname, 'refused-messages.yaml'), 'utf8')) as {
  readonly client: readonly { name: string; text?: string; params?: string; code: string }[];
  readonly server: readonly { name: string; text: string; id: number | null }[];
};

const read = (text: string | Buffer, side: MessageSender = 'client'): WireMessage =>
  readMessage(Buffer.from(text as string), side);
const call = (params: string, id = '1'): string =>
  `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":${params}}`;

function refusal(text: string | Buffer, side: MessageSender = 'client'): { code: string; id: unknown } {
  const message = read(text, side);
  if (message.kind !== 'invalid') throw new Error(`accepted as ${message.kind}`);
  return { code: message.error.code, id: message.id };
}

function request(text: string): Extract<WireMessage, { kind: 'request' }> {
  const message = read(text);
  if (message.kind !== 'request') throw new Error(message.kind === 'invalid' ? message.error.code : message.kind);
  return message;
}

describe('requests of clients', () => {
  it('keep the text of params and arguments to the byte', () => {
    const args = '{ "a" : 1.50, "é\\u0061": [1 ,2] }';
    const message = request(
      ` {"params" : {"arguments": ${args} , "name":"t"}, "id":"x", "jsonrpc":"2.0", "method":"tools/call", "extra": 1 } `,
    );
    expect(message.args?.text).toBe(args);
    expect(message.args?.value).toEqual({ a: 1.5, éa: [1, 2] });
    expect(message.params?.text).toBe(`{"arguments": ${args} , "name":"t"}`);
    expect(message.id).toBe('x');
  });

  it('may have no params, and may be notifications', () => {
    expect(request('{"jsonrpc":"2.0","id":0,"method":"ping"}')).toEqual({
      kind: 'request',
      id: 0,
      method: 'ping',
      params: undefined,
      args: undefined,
    });
    expect(read('{"jsonrpc":"2.0","method":"notifications/initialized"}')).toEqual({
      kind: 'notification',
      method: 'notifications/initialized',
      params: undefined,
    });
  });

  it('may name the arguments with an escaped key', () => {
    expect(request(call('{"name":"t","\\u0061rguments":{"k":2}}')).args?.text).toBe('{"k":2}');
  });

  it('may have any keys in their arguments, also keys of the protocol in another case', () => {
    expect(request(call('{"name":"t","arguments":{"Name":1,"METHOD":2,"name":3}}')).args?.value).toEqual({
      Name: 1,
      METHOD: 2,
      name: 3,
    });
  });

  it.each(REFUSED.client)('are refused with $name', ({ text, params = '', code }) => {
    expect(refusal(text ?? call(params)).code).toBe(code);
  });

  it('are refused with invalid UTF-8, also with encoded surrogates', () => {
    expect(refusal(Buffer.from([0x7b, 0xff, 0x7d])).code).toBe('WIRE_UTF8');
    expect(
      refusal(Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xed, 0xa0, 0x80]), Buffer.from('"}')])).code,
    ).toBe('WIRE_UTF8');
  });

  it('keep their id in a refusal if it is unique', () => {
    expect(refusal(call('{"name":"a","name":"b"}', '"me"')).id).toBe('me');
    expect(refusal('{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}').id).toBeNull();
    expect(refusal('{"jsonrpc":"2.0","id":[1],"method":"ping"}').id).toBeNull();
    expect(refusal('{"id":x,"method":"ping"}').id).toBeNull();
    expect(refusal(`{"params":${'['.repeat(70)}${']'.repeat(70)},"id":4}`)).toEqual({ code: 'WIRE_DEPTH', id: 4 });
  });

  it('are never quoted in a refusal', () => {
    const message = read('{"password":"hunter2",}');
    expect(message.kind === 'invalid' && `${message.error.message}${message.error.next}`).not.toContain('hunter2');
  });
});

describe('hostile sizes', () => {
  it('are accepted up to 64 levels, and refused with 65', () => {
    const nested = (depth: number): string =>
      call(`{"name":"t","arguments":${'{"a":'.repeat(depth - 2)}1${'}'.repeat(depth - 2)}}`);
    expect(read(nested(64)).kind).toBe('request');
    expect(refusal(nested(65))).toEqual({ code: 'WIRE_DEPTH', id: 1 });
  });

  it('are survived: a depth of a million, and two hundred thousand keys', () => {
    expect(refusal('['.repeat(1_000_000)).code).toBe('WIRE_DEPTH');
    expect(refusal('{"a":'.repeat(5000) + '1' + '}'.repeat(5000)).code).toBe('WIRE_DEPTH');
    const keys = (length: number): string => Array.from({ length }, (_, i) => `"k${i}":1`).join(',');
    expect(read(call(`{"name":"t","arguments":{${keys(200_000)}}}`)).kind).toBe('request');
    expect(refusal(call(`{"name":"t","arguments":{${keys(50_000)},"k7":1}}`)).code).toBe('WIRE_DUPLICATE_KEY');
  });

  it('do not pollute prototypes through __proto__ or constructor', () => {
    const message = request(
      call('{"name":"t","arguments":{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}}'),
    );
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect((message.args?.value as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.keys(message.args?.value as object)).toEqual(['__proto__', 'constructor']);
  });
});

describe('numbers', () => {
  it.each([
    '0',
    '1',
    '-1',
    '1.5',
    '1.50',
    '15e-1',
    '0.1',
    '1e3',
    '9007199254740991',
    '9007199254740992',
    '123456789012345',
    '1.7976931348623157e308',
    '0.0',
    '100000000000000000000',
    '5e-324',
    '1E+2',
    '-0.5',
  ])('hold %s exactly', (text) => {
    expect(parseJsonDoc(text).exact).toBe(true);
  });

  it.each([
    '9007199254740993',
    '-0',
    '-0.0',
    '1e400',
    '-1e400',
    '1e-400',
    '0.1234567890123456789',
    '12345678901234567890',
    '[1,{"a":-0e5}]',
  ])('mark %s as inexact', (text) => {
    expect(parseJsonDoc(text).exact).toBe(false);
  });

  it('mark the arguments separately from other params', () => {
    const beside = request(call('{"name":"t","arguments":{"a":1},"_meta":{"n":9007199254740993}}'));
    expect([beside.params?.exact, beside.args?.exact]).toEqual([false, true]);
    expect(request(call('{"name":"t","arguments":{"a":-0}}')).args).toMatchObject({ exact: false, text: '{"a":-0}' });
  });

  it('take linear time with five million digits; escapes are no numbers', () => {
    expect(parseJsonDoc('"\\u00e9\\ud7ff\\uD83D\\uDE00\\ue000"').value).toBe('é\ud7ff😀\ue000');
    expect(parseJsonDoc(`0.${'1'.repeat(5_000_000)}`).exact).toBe(false);
    expect(refusal(`${'1'.repeat(5_000_000)}+`).code).toBe('WIRE_PARSE');
  });

  it('are not found in strings', () => {
    expect(parseJsonDoc('{"a":"9007199254740993","-0":"1e400"}').exact).toBe(true);
  });
});

describe('answers of servers', () => {
  it('keep the text of the result', () => {
    const message = read('{"result":{"content":[ ],"n":12345678901234567890},"jsonrpc":"2.0","id":3}', 'server');
    expect(message).toMatchObject({
      kind: 'result',
      id: 3,
      result: { text: '{"content":[ ],"n":12345678901234567890}', exact: false },
    });
  });

  it('may have unknown keys, keys in another case, lone surrogates and null params', () => {
    expect(read('{"jsonrpc":"2.0","id":1,"result":{"t":"\\ud800"},"Extra":1,"ID":2}', 'server').kind).toBe('result');
    expect(read('{"jsonrpc":"2.0","method":"notifications/x","params":null}', 'server')).toMatchObject({
      kind: 'notification',
      params: undefined,
    });
  });

  it('may have a null result or error, which counts as absent', () => {
    expect(read('{"jsonrpc":"2.0","id":1,"result":{},"error":null}', 'server').kind).toBe('result');
    expect(read('{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}', 'server').kind).toBe(
      'error',
    );
  });

  it('keep the text of errors whose code is not a number', () => {
    const error = (text: string): unknown => {
      const message = read(`{"jsonrpc":"2.0","id":1,"error":${text}}`, 'server');
      return message.kind === 'error' ? message.error : message;
    };
    expect(error('{"code":-32000,"message":"own","data":[1]}')).toEqual({
      code: -32000,
      message: 'own',
      data: [1],
      text: '{"code":-32000,"message":"own","data":[1]}',
    });
    expect(error('{"code":"E_ACCESS","message":"no access"}')).toEqual({
      code: -32603,
      message: 'no access',
      data: { code: 'E_ACCESS' },
    });
    expect(error('{"code":"E","message":"m","data":1}')).toEqual({ code: -32603, message: 'm', data: 1 });
    expect(error('"plain words"')).toEqual({ code: -32603, message: 'plain words' });
    expect(error('{"code":1}')).toMatchObject({
      code: 1,
      message: expect.stringContaining('without a message') as string,
    });
    expect(error('7')).toMatchObject({ code: -32603 });
  });

  it.each(REFUSED.server)('are UPSTREAM_INVALID with $name', ({ text, id }) => {
    expect(refusal(text, 'server')).toEqual({ code: 'UPSTREAM_INVALID', id });
  });

  it('are UPSTREAM_INVALID with 513 levels', () => {
    const text = `{"jsonrpc":"2.0","id":1,"result":${'{"a":'.repeat(513)}1${'}'.repeat(513)}}`;
    expect(refusal(text, 'server')).toEqual({ code: 'UPSTREAM_INVALID', id: 1 });
  });
});

describe('the parser', () => {
  const json = fc.json({ maxDepth: 6 });

  it('reads what JSON.parse reads, with unchanged texts', () => {
    fc.assert(
      fc.property(json, fc.string(), (text, name) => {
        const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":${text},"_meta":{}}}`;
        const message = read(line);
        // fast-check sometimes writes duplicate keys and lone surrogates, which are refused.
        if (message.kind === 'invalid')
          return ['WIRE_DUPLICATE_KEY', 'WIRE_LONE_SURROGATE'].includes(message.error.code);
        expect(message).toMatchObject({ kind: 'request', args: { text: text.trim() } });
        expect(message.kind === 'request' && message.args?.value).toEqual(JSON.parse(text));
        return true;
      }),
      { numRuns: roundsOf(500, 100) },
    );
  });

  it('calls a text exact only if a round trip keeps every number', () => {
    const number = fc.oneof(
      fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
      fc.bigInt().map(String),
      fc.stringMatching(/^-?(0|[1-9]\d{0,25})(\.\d{1,25})?([eE][+-]?\d{1,3})?$/),
    );
    fc.assert(
      fc.property(number, (text) => {
        const doc = parseJsonDoc(text);
        const back = JSON.stringify(doc.value);
        if (doc.exact) expect(sameDecimal(back, text)).toBe(true);
        else expect(back === 'null' || back === '0' || !sameDecimal(back, text)).toBe(true);
      }),
      { numRuns: roundsOf(1000, 150) },
    );
  });

  it('finds a duplicate exactly where a strict walk finds one', () => {
    const key = fc.constantFrom('a', 'b', '\\u0061', '__proto__', '1');
    const tree = fc.letrec<{ node: string }>((tie) => ({
      node: fc.oneof(
        { depthSize: 'small' },
        fc.constant('1'),
        fc
          .array(fc.tuple(key, tie('node')), { maxLength: 4 })
          .map((entries) => `{${entries.map(([k, v]) => `"${k}":${v}`).join(',')}}`),
        fc.array(tie('node'), { maxLength: 3 }).map((items) => `[${items.join(',')}]`),
      ),
    })).node;
    fc.assert(
      fc.property(tree, (text) => {
        expect(accepts(text)).toBe(!hasDuplicate(text));
      }),
      { numRuns: roundsOf(500, 100) },
    );
  });

  it('never throws on mutated bytes, and never accepts what JSON.parse refuses', () => {
    const seed = Buffer.from(call('{"name":"t","arguments":{"s":"a\\u00e9\\ud83d\\ude00é","n":[1,-2.5e3,true,null]}}'));
    const change = fc.tuple(fc.nat(seed.length - 1), fc.nat(255), fc.constantFrom('set', 'insert', 'cut'));
    fc.assert(
      fc.property(
        fc.array(change, { minLength: 1, maxLength: 4 }),
        fc.constantFrom<MessageSender>('client', 'server'),
        (changes, side) => {
          let bytes: Buffer = Buffer.from(seed);
          for (const [at, byte, how] of changes) bytes = mutate(bytes, { at: at % (bytes.length + 1), byte, how });
          const message = readMessage(bytes, side);
          if (message.kind !== 'invalid') expect(() => JSON.parse(bytes.toString('utf8')) as unknown).not.toThrow();
        },
      ),
      { numRuns: roundsOf(3000, 300) },
    );
  });

  it('never throws on any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        readMessage(Buffer.from(bytes), 'client');
        readMessage(Buffer.from(bytes), 'server');
      }),
      { numRuns: roundsOf(1000, 150) },
    );
  });
});

describe('jsonMembers', () => {
  it('returns the members of the outermost object only, in order', () => {
    const text = ' { "a" : {"b":1} , "c\\n": [1,{"d":2}],"e":"x,}" ,"f":-1.5e3 }';
    expect(jsonMembers(text).map(({ key, start, end }) => [key, text.slice(start, end)])).toEqual([
      ['a', '{"b":1}'],
      ['c\n', '[1,{"d":2}]'],
      ['e', '"x,}"'],
      ['f', '-1.5e3'],
    ]);
    expect(jsonMembers('[1,{"a":2}]')).toEqual([]);
    expect(jsonMembers('{}')).toEqual([]);
  });
});

describe('parseJsonDoc', () => {
  it('throws the code of the fault', () => {
    const code = (text: string): string => {
      try {
        parseJsonDoc(text);
      } catch (thrown) {
        if (thrown instanceof TollgateError) return thrown.code;
      }
      return 'none';
    };
    expect([
      code('{'),
      code('{"a":1,"a":2}'),
      code('"\\ud800"'),
      code('"\ud800"'),
      code('['.repeat(65) + ']'.repeat(65)),
      code('{"a":"\ud83d\ude00"}'),
    ]).toEqual([
      'WIRE_PARSE',
      'WIRE_DUPLICATE_KEY',
      'WIRE_LONE_SURROGATE',
      'WIRE_LONE_SURROGATE',
      'WIRE_DEPTH',
      'none',
    ]);
  });
});

function accepts(text: string): boolean {
  try {
    parseJsonDoc(text);
    return true;
  } catch {
    return false;
  }
}

/** Finds duplicate keys with a small second parser of the text, because a reviver of JSON.parse sees each key once. */
function hasDuplicate(text: string): boolean {
  let at = 0;
  let found = false;
  const value = (): void => {
    if (text[at] === '{') object();
    else if (text[at] === '[') list();
    else at++;
  };
  const object = (): void => {
    const keys = new Set<string>();
    for (at++; text[at] !== '}'; ) {
      const end = text.indexOf('"', at + 1);
      const key = JSON.parse(text.slice(at, end + 1)) as string;
      if (keys.has(key)) found = true;
      keys.add(key);
      at = end + 2;
      value();
      if (text[at] === ',') at++;
    }
    at++;
  };
  const list = (): void => {
    for (at++; text[at] !== ']'; ) {
      value();
      if (text[at] === ',') at++;
    }
    at++;
  };
  value();
  return found;
}

/** Compares two decimals as exact fractions. */
function sameDecimal(left: string, right: string): boolean {
  const parts = (text: string): [bigint, number] => {
    const [, sign, whole, fraction = '', exponent = '0'] =
      /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
    return [BigInt(`${sign}${whole}${fraction}`), Number(exponent) - fraction.length];
  };
  if (left === 'null') return false;
  const [a, powerA] = parts(left);
  const [b, powerB] = parts(right);
  const low = Math.min(powerA, powerB);
  return a * 10n ** BigInt(powerA - low) === b * 10n ** BigInt(powerB - low);
}

function mutate(bytes: Buffer, { at, byte, how }: { at: number; byte: number; how: string }): Buffer {
  const head = bytes.subarray(0, at);
  if (how === 'cut') return Buffer.concat([head, bytes.subarray(at + 1)]);
  return Buffer.concat([head, Buffer.from([byte]), bytes.subarray(how === 'set' ? at + 1 : at)]);
}
