/** Owns the tests of reading one message: what is refused, what is kept to the byte; refuses nothing itself. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  jsonMembers,
  type MessageSender,
  parseJsonDoc,
  readMessage,
  type WireMessage,
} from '../../adapters/rpc/message-parser.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

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
  it('keeps the text of params and arguments to the byte', () => {
    const args = '{ "a" : 1.50, "é\\u0061": [1 ,2] }';
    const message = request(
      ` {"params" : {"arguments": ${args} , "name":"t"}, "id":"x", "jsonrpc":"2.0", "method":"tools/call", "extra": 1 } `,
    );
    expect(message.args?.text).toBe(args);
    expect(message.args?.value).toEqual({ a: 1.5, éa: [1, 2] });
    expect(message.params?.text).toBe(`{"arguments": ${args} , "name":"t"}`);
    expect(message.id).toBe('x');
  });

  it('reads a request without params and a notification', () => {
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

  it('finds the arguments behind an escaped key', () => {
    expect(request(call('{"name":"t","\\u0061rguments":{"k":2}}')).args?.text).toBe('{"k":2}');
  });

  it('lets arguments use any keys, those of the protocol in another case too', () => {
    expect(request(call('{"name":"t","arguments":{"Name":1,"METHOD":2,"name":3}}')).args?.value).toEqual({
      Name: 1,
      METHOD: 2,
      name: 3,
    });
  });

  it.each([
    ['a key twice', call('{"name":"a","name":"b"}'), 'WIRE_DUPLICATE_KEY'],
    ['a key twice by escapes', call('{"na\\u006de":"a","name":"b"}'), 'WIRE_DUPLICATE_KEY'],
    [
      'a key twice deep in the arguments',
      call('{"name":"a","arguments":{"x":[{"y":1,"z":{},"y":2}]}}'),
      'WIRE_DUPLICATE_KEY',
    ],
    ['__proto__ twice', call('{"name":"a","arguments":{"__proto__":1,"__proto__":2}}'), 'WIRE_DUPLICATE_KEY'],
    ['Name beside name', call('{"name":"a","Name":"b"}'), 'WIRE_AMBIGUOUS_KEY'],
    ['Arguments alone', call('{"name":"a","Arguments":{}}'), 'WIRE_AMBIGUOUS_KEY'],
    ['METHOD', '{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"x"}', 'WIRE_AMBIGUOUS_KEY'],
    ['URI', '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a","URI":"b"}}', 'WIRE_AMBIGUOUS_KEY'],
    ['a long s that folds to s', '{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}', 'WIRE_AMBIGUOUS_KEY'],
    ['a lone high surrogate', call('{"name":"a","arguments":{"s":"\\ud800"}}'), 'WIRE_LONE_SURROGATE'],
    ['a lone low surrogate', call('{"name":"a","arguments":{"s":"x\\uDC00y"}}'), 'WIRE_LONE_SURROGATE'],
    [
      'a lone surrogate among other escapes',
      call('{"name":"a","arguments":{"s":"\\u00e9\\ud7ff\\uD83D\\uDE00\\ue000\\uDFFF"}}'),
      'WIRE_LONE_SURROGATE',
    ],
    ['two high surrogates', call('{"name":"a","arguments":{"s":"\\ud800\\ud800"}}'), 'WIRE_LONE_SURROGATE'],
    ['a lone surrogate in a key', call('{"name":"a","arguments":{"\\udfff":1}}'), 'WIRE_LONE_SURROGATE'],
    ['a batch', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 'WIRE_BATCH'],
    ['an empty batch', '[]', 'WIRE_BATCH'],
    ['a scalar', '7', 'WIRE_VERSION'],
    ['a null', 'null', 'WIRE_VERSION'],
    ['a null id', '{"jsonrpc":"2.0","id":null,"method":"ping"}', 'WIRE_ID'],
    ['an object id', '{"jsonrpc":"2.0","id":{},"method":"ping"}', 'WIRE_ID'],
    ['a fractional id', '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 'WIRE_ID'],
    ['a boolean id', '{"jsonrpc":"2.0","id":true,"method":"ping"}', 'WIRE_ID'],
    ['an id that a double rounds', '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}', 'WIRE_ID'],
    ['an id of minus zero', '{"jsonrpc":"2.0","id":-0,"method":"ping"}', 'WIRE_ID'],
    ['another version', '{"jsonrpc":"1.0","id":1,"method":"ping"}', 'WIRE_VERSION'],
    ['no version', '{"id":1,"method":"ping"}', 'WIRE_VERSION'],
    ['no method', '{"jsonrpc":"2.0","id":1}', 'WIRE_VERSION'],
    ['a request that is an answer too', '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', 'WIRE_VERSION'],
    ['an answer with both', '{"jsonrpc":"2.0","id":1,"error":{},"result":{}}', 'WIRE_VERSION'],
    ['an empty method', '{"jsonrpc":"2.0","id":1,"method":""}', 'WIRE_METHOD'],
    ['a method that is a number', '{"jsonrpc":"2.0","id":1,"method":5}', 'WIRE_METHOD'],
    ['params as a list', call('[]'), 'WIRE_PARAMS'],
    ['params as a scalar', call('"x"'), 'WIRE_PARAMS'],
    ['params as null', call('null'), 'WIRE_PARAMS'],
    ['a name that is a list', call('{"name":["a"]}'), 'WIRE_PARAMS'],
    ['a call without name', call('{}'), 'WIRE_PARAMS'],
    ['an answer that is a scalar', '{"jsonrpc":"2.0","id":1,"result":5}', 'WIRE_PARAMS'],
    ['a call without id', '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}', 'WIRE_NOTIFICATION_CALL'],
    ['text', 'hello', 'WIRE_PARSE'],
    ['nothing', '', 'WIRE_PARSE'],
    ['a byte order mark', '\ufeff{"jsonrpc":"2.0","id":1,"method":"ping"}', 'WIRE_PARSE'],
    ['two messages', '{"jsonrpc":"2.0","id":1,"method":"ping"}{}', 'WIRE_PARSE'],
    ['an unterminated string', '{"jsonrpc":"2.0","id":1,"method":"pi', 'WIRE_PARSE'],
    ['an unterminated escape', '{"a":"\\', 'WIRE_PARSE'],
    ['a broken escape in a key', '{"\\x":1}', 'WIRE_PARSE'],
    ['too many closings', ']]]}}}', 'WIRE_PARSE'],
  ])('refuses %s', (_name, text, code) => {
    expect(refusal(text).code).toBe(code);
  });

  it('refuses invalid UTF-8, surrogates encoded as bytes included', () => {
    expect(refusal(Buffer.from([0x7b, 0xff, 0x7d])).code).toBe('WIRE_UTF8');
    expect(
      refusal(Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xed, 0xa0, 0x80]), Buffer.from('"}')])).code,
    ).toBe('WIRE_UTF8');
  });

  it('names the id of a refused message when it stands there once', () => {
    expect(refusal(call('{"name":"a","name":"b"}', '"me"')).id).toBe('me');
    expect(refusal('{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}').id).toBeNull();
    expect(refusal('{"jsonrpc":"2.0","id":[1],"method":"ping"}').id).toBeNull();
    expect(refusal('{"id":x,"method":"ping"}').id).toBeNull();
    expect(refusal(`{"params":${'['.repeat(70)}${']'.repeat(70)},"id":4}`)).toEqual({ code: 'WIRE_DEPTH', id: 4 });
  });

  it('never shows what was sent in a refusal', () => {
    const message = read('{"password":"hunter2",}');
    expect(message.kind === 'invalid' && `${message.error.message}${message.error.next}`).not.toContain('hunter2');
  });
});

describe('hostile sizes', () => {
  it('accepts 64 levels and refuses 65', () => {
    const nested = (depth: number): string =>
      call(`{"name":"t","arguments":${'{"a":'.repeat(depth - 2)}1${'}'.repeat(depth - 2)}}`);
    expect(read(nested(64)).kind).toBe('request');
    expect(refusal(nested(65))).toEqual({ code: 'WIRE_DEPTH', id: 1 });
  });

  it('survives a depth of a million and two hundred thousand keys', () => {
    expect(refusal('['.repeat(1_000_000)).code).toBe('WIRE_DEPTH');
    expect(refusal('{"a":'.repeat(5000) + '1' + '}'.repeat(5000)).code).toBe('WIRE_DEPTH');
    const keys = (length: number): string => Array.from({ length }, (_, i) => `"k${i}":1`).join(',');
    expect(read(call(`{"name":"t","arguments":{${keys(200_000)}}}`)).kind).toBe('request');
    expect(refusal(call(`{"name":"t","arguments":{${keys(50_000)},"k7":1}}`)).code).toBe('WIRE_DUPLICATE_KEY');
  });

  it('does not pollute through __proto__ or constructor', () => {
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
  ])('carries %s', (text) => {
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
  ])('marks %s as not carried', (text) => {
    expect(parseJsonDoc(text).exact).toBe(false);
  });

  it('says so for the arguments alone, whatever stands beside them', () => {
    const beside = request(call('{"name":"t","arguments":{"a":1},"_meta":{"n":9007199254740993}}'));
    expect([beside.params?.exact, beside.args?.exact]).toEqual([false, true]);
    expect(request(call('{"name":"t","arguments":{"a":-0}}')).args).toMatchObject({ exact: false, text: '{"a":-0}' });
  });

  it('takes whole pairs and other escapes, and judges a number of five million digits in linear time', () => {
    expect(parseJsonDoc('"\\u00e9\\ud7ff\\uD83D\\uDE00\\ue000"').value).toBe('é\ud7ff😀\ue000');
    expect(parseJsonDoc(`0.${'1'.repeat(5_000_000)}`).exact).toBe(false);
    expect(refusal(`${'1'.repeat(5_000_000)}+`).code).toBe('WIRE_PARSE');
  });

  it('does not mistake digits in strings for numbers', () => {
    expect(parseJsonDoc('{"a":"9007199254740993","-0":"1e400"}').exact).toBe(true);
  });
});

describe('answers of servers', () => {
  it('keeps the text of the result', () => {
    const message = read('{"result":{"content":[ ],"n":12345678901234567890},"jsonrpc":"2.0","id":3}', 'server');
    expect(message).toMatchObject({
      kind: 'result',
      id: 3,
      result: { text: '{"content":[ ],"n":12345678901234567890}', exact: false },
    });
  });

  it('tolerates unknown keys, keys in another case, half pairs and null params', () => {
    expect(read('{"jsonrpc":"2.0","id":1,"result":{"t":"\\ud800"},"Extra":1,"ID":2}', 'server').kind).toBe('result');
    expect(read('{"jsonrpc":"2.0","method":"notifications/x","params":null}', 'server')).toMatchObject({
      kind: 'notification',
      params: undefined,
    });
  });

  it('takes a null beside the other part of an answer for absent', () => {
    expect(read('{"jsonrpc":"2.0","id":1,"result":{},"error":null}', 'server').kind).toBe('result');
    expect(read('{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":"x"}}', 'server').kind).toBe(
      'error',
    );
  });

  it('keeps the words of errors whose code is no number', () => {
    const error = (text: string): unknown => {
      const message = read(`{"jsonrpc":"2.0","id":1,"error":${text}}`, 'server');
      return message.kind === 'error' ? message.error : message;
    };
    expect(error('{"code":-32000,"message":"own","data":[1]}')).toEqual({ code: -32000, message: 'own', data: [1] });
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

  it.each([
    ['neither', '{"jsonrpc":"2.0","id":1}', 1],
    ['nulls', '{"jsonrpc":"2.0","id":1,"result":null,"error":null}', 1],
    ['both', '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}', 1],
    ['a scalar result', '{"jsonrpc":"2.0","id":1,"result":"x"}', 1],
    ['a result without id', '{"jsonrpc":"2.0","result":{}}', null],
    [
      'a result with a key twice, of which a reader may see either',
      '{"jsonrpc":"2.0","id":1,"result":{"text":"a","text":"b"}}',
      1,
    ],
    ['noise', 'Server listening', null],
    ['a batch', '[]', null],
    ['513 levels', `{"jsonrpc":"2.0","id":1,"result":${'{"a":'.repeat(513)}1${'}'.repeat(513)}}`, 1],
  ])('answers UPSTREAM_INVALID to %s', (_name, text, id) => {
    expect(refusal(text, 'server')).toEqual({ code: 'UPSTREAM_INVALID', id });
  });
});

describe('properties', () => {
  const json = fc.json({ maxDepth: 6 });

  it('reads what JSON.parse reads, with slices equal to the bytes', () => {
    fc.assert(
      fc.property(json, fc.string(), (text, name) => {
        const line = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":${text},"_meta":{}}}`;
        const message = read(line);
        // fast-check writes keys twice now and then, and halves of pairs: those are refused.
        if (message.kind === 'invalid')
          return ['WIRE_DUPLICATE_KEY', 'WIRE_LONE_SURROGATE'].includes(message.error.code);
        expect(message).toMatchObject({ kind: 'request', args: { text: text.trim() } });
        expect(message.kind === 'request' && message.args?.value).toEqual(JSON.parse(text));
        return true;
      }),
      { numRuns: 500 },
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
      { numRuns: 1000 },
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
      { numRuns: 500 },
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
      { numRuns: 3000 },
    );
  });

  it('never throws on any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        readMessage(Buffer.from(bytes), 'client');
        readMessage(Buffer.from(bytes), 'server');
      }),
      { numRuns: 1000 },
    );
  });
});

describe('members', () => {
  it('gives the spans of the outermost object only, in order', () => {
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

describe('parseDoc', () => {
  it('throws the code of what is wrong', () => {
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

/** A second opinion: the reviver sees each object's own keys only once, so keys are counted from the text by a small parser. */
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
