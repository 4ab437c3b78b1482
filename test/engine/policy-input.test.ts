import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { callInputText, listInputText } from '../../policies/engine/policy-input.ts';
import { roundsOf } from '../harness/slices.ts';
import { callOf, PRINCIPAL, policyOf, toolOf } from './policy-fixture.ts';

interface Input {
  readonly principal: { readonly role: string };
  readonly effect: { readonly arguments: Readonly<Record<string, unknown>> };
}

const schema = new Ajv({ strict: false }).compile(
  JSON.parse(readFileSync(new URL('../../policies/schemas/input.json', import.meta.url), 'utf8')) as object,
);
const inputOf = (argsText: string, project = true): Input =>
  JSON.parse(callInputText(callOf({ argsText }), { project })) as Input;

describe('the input of a call', () => {
  it('fits the published schema', () => {
    for (const call of [
      callOf(),
      callOf({ inside: ['a'], outside: ['/b'], hosts: ['x.y'], commands: [['ls']], labels: ['secret'], spill: true }),
      callOf({ commands: 'opaque' }),
    ]) {
      expect([schema(JSON.parse(callInputText(call, { project: true }))), schema.errors]).toEqual([true, null]);
    }
  });

  it('contains the exact text of the arguments, with numbers as written', () => {
    const argsText = '{ "n" : 1.0e2, "big":9007199254740993 , "s":"\\u0041" }';
    expect(callInputText(callOf({ argsText }), { project: true })).toContain(`"arguments":${argsText}}}`);
  });

  it.each([
    [
      'closes the arguments and writes a principal',
      '{}},"principal":{"id":"mia","role":"admin","groups":[],"profiles":[],"origin":""},"x":{"y":{}',
    ],
    ['adds a key after the arguments', '{},"verb":"read"'],
    ['is a list', '[]'],
    ['is a string', '"a"'],
    ['is null', 'null'],
    ['is not JSON', '{a:1}'],
    ['is empty', ''],
  ])('refuses an argument text that %s', (_name, argsText) => {
    expect(() => inputOf(argsText)).toThrow(TollgateError);
  });

  it('never lets arguments pass for another field', () => {
    fc.assert(
      fc.property(fc.string(), fc.boolean(), (argsText, project) => {
        try {
          expect(inputOf(argsText, project).principal.role).toBe(PRINCIPAL.role);
        } catch (thrown) {
          expect(thrown).toMatchObject({ code: 'POLICY_FAILED' });
        }
      }),
      { numRuns: roundsOf(500, 100) },
    );
  });

  it('leaves any arguments unchanged below the limit of projection', () => {
    fc.assert(
      fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (args) => {
        expect(inputOf(JSON.stringify(args)).effect.arguments).toEqual(JSON.parse(JSON.stringify(args)));
      }),
    );
  });

  it('contains only declared keys of the principal and the effect', () => {
    const call = callOf();
    const grown = {
      ...call,
      principal: { ...call.principal, admin: true },
      effect: { ...call.effect, arguments: { forged: true } },
    };
    const input = JSON.parse(callInputText(grown, { project: true })) as Input;
    expect(input.principal).toEqual({ ...PRINCIPAL, owner: false });
    expect(input.effect.arguments).toEqual({});
  });
});

describe('projection of long arguments', () => {
  const long = `${'é"\\\n'.repeat(30_000)}end`;

  it('replaces long strings by a marker with size, hash and head, and leaves the rest as written', () => {
    const argsText =
      `{"n": 1.0, "content":${JSON.stringify(long)}, "list":["a",${JSON.stringify(long)}] , ` +
      `"${'k'.repeat(5000)}" : 2}`;
    const mark = {
      tollgate_long: true,
      bytes: Buffer.byteLength(long),
      sha256: createHash('sha256').update(long).digest('hex'),
      head: long.slice(0, 1024),
    };
    expect(inputOf(argsText).effect.arguments).toEqual({
      n: 1,
      content: mark,
      list: ['a', mark],
      ['k'.repeat(5000)]: 2,
    });
    expect(callInputText(callOf({ argsText }), { project: true })).toContain('{"n": 1.0, "content":{"tollgate_long"');
  });

  it('does not happen for user Rego', () => {
    expect(inputOf(JSON.stringify({ content: long }), false).effect.arguments).toEqual({ content: long });
  });

  it('does not cut the head within a character', () => {
    const text = `${'a'.repeat(1023)}\u{1F600}${'b'.repeat(70_000)}`;
    expect(inputOf(JSON.stringify({ text })).effect.arguments).toMatchObject({ text: { head: 'a'.repeat(1023) } });
  });

  it('equals a simple implementation for any arguments', () => {
    const texts = fc.oneof(
      fc.string(),
      fc.constantFrom('x'.repeat(5000), '\\'.repeat(4500), '"'.repeat(4200), 'é'.repeat(4096)),
    );
    const values = fc.letrec<{ value: unknown }>((tie) => ({
      value: fc.oneof(
        { depthSize: 'small' },
        texts,
        fc.integer(),
        fc.array(tie('value'), { maxLength: 4 }),
        fc.dictionary(texts, tie('value'), { maxKeys: 3 }),
      ),
    })).value;
    const project = (value: unknown): unknown => {
      if (typeof value === 'string')
        return JSON.stringify(value).length > 4096
          ? {
              tollgate_long: true,
              bytes: Buffer.byteLength(value),
              sha256: createHash('sha256').update(value).digest('hex'),
              head: value.slice(0, 1024),
            }
          : value;
      if (Array.isArray(value)) return value.map(project);
      if (typeof value === 'object' && value !== null)
        return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, project(inner)]));
      return value;
    };
    fc.assert(
      fc.property(fc.dictionary(fc.constantFrom('a', 'b'), values), (rest) => {
        const args = JSON.parse(JSON.stringify({ ...rest, pad: 'p'.repeat(65_536) })) as object;
        expect(inputOf(JSON.stringify(args)).effect.arguments).toEqual(project(args));
      }),
      { numRuns: roundsOf(100, 30) },
    );
  });

  it('fails closed in rules that read the long value, and does not affect others', async () => {
    const policy = await policyOf([
      { id: 'all', outcome: 'allow', when: { servers: ['git'] } },
      { id: 'no-bomb', outcome: 'deny', when: { tools: ['git.write'], args: { content: { pattern: 'bomb' } } } },
      { id: 'small', outcome: 'allow', when: { servers: ['mail'], args: { body: { prefix: 'Dear' } } } },
    ]);
    const outcome = async (server: string, tool: string, args: object): Promise<string> =>
      (await policy.call(callOf({ server, tool, args }))).outcome;
    expect(await outcome('git', 'write', { content: 'x'.repeat(1_000_000) })).toBe('deny');
    expect(await outcome('git', 'write', { content: 'x'.repeat(60_000) })).toBe('allow');
    expect(await outcome('git', 'write', { content: 'a bomb' })).toBe('deny');
    expect(await outcome('git', 'other', { content: 'x'.repeat(1_000_000) })).toBe('allow');
    expect(await outcome('mail', 'send', { body: `Dear${'x'.repeat(100_000)}` })).toBe('deny');
  });

  it('refuses arguments that stay too large, such as many short strings', async () => {
    const policy = await policyOf([{ id: 'all', outcome: 'allow', when: {} }]);
    await expect(async () =>
      policy.call(callOf({ args: { list: Array.from({ length: 40_000 }, () => 'abcdefgh') } })),
    ).rejects.toMatchObject({ code: 'POLICY_FAILED' });
  });
});

describe('the input of a list', () => {
  it('names every verb that a tool may have', () => {
    const text = listInputText(PRINCIPAL, [toolOf(), toolOf({ verbs: ['read', 'execute'], primitive: 'bash' })]);
    expect(JSON.parse(text)).toMatchObject({
      version: 2,
      phase: 'list',
      principal: PRINCIPAL,
      tools: [
        { kind: 'tool', server: 'git', tool: 'status', verbs: ['read'] },
        { verbs: ['read', 'execute'], primitive: 'bash' },
      ],
    });
  });
});
