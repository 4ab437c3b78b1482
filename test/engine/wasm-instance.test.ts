/**
 * Tests that an instance with copied data equals one that loaded the data: byte for byte, before and after it grew, and
 * after a trap.
 */
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { callInputText, listInputText } from '../../policies/engine/policy-input.ts';
import { ENTRYPOINTS, readLibrary } from '../../policies/engine/policy-library.ts';
import { compileParts } from '../../policies/engine/policy-loader.ts';
import { type LoadableModule, openModule, WasmInstance } from '../../policies/engine/wasm/wasm-instance.ts';
import { WasmPolicy } from '../../policies/engine/wasm/wasm-policy.ts';
import { roundsOf } from '../harness/slices.ts';
import { callOf, documentOf, PRINCIPAL, parts, toolOf } from './policy-fixture.ts';

const MIB = 1024 * 1024;
const { wasm } = readLibrary();
const encode = (text: string): ArrayBuffer => new TextEncoder().encode(text).slice().buffer;

let from: LoadableModule;
let data: string;
beforeAll(async () => {
  from = openModule(wasm, 64 * MIB);
  const when = (number: number): object =>
    [
      { tools: [`git.t${number}`] },
      { paths: [`p${number}/**`, '**/*.pem'] },
      { args: { n: { min: number }, 'ä.b': { pattern: `^é${number}+$` } } },
      { hosts: [`h${number}.example.org`] },
      { commands: [`grep r${number}`] },
    ][number % 5] ?? {};
  const rules = Array.from({ length: 120 }, (_, number) => ({
    id: `r${number}`,
    outcome: ['deny', 'ask', 'allow'][number % 3],
    message: `Nö ${number} 😀`,
    when: when(number),
  }));
  ({ data } = await compileParts(parts({ rules: [documentOf(rules)] })));
});

/** Both have little more memory than they need, so that a large evaluation makes them grow. */
async function both(
  limits = { inputBytes: MIB, growthBytes: MIB, memoryBytes: 5 * MIB },
): Promise<readonly [loaded: WasmPolicy, copied: WasmPolicy]> {
  const options = { limits, entrypoints: [ENTRYPOINTS.call, ENTRYPOINTS.list] };
  const loaded = new WasmPolicy(wasm, data, options);
  return [loaded, await WasmPolicy.copy(wasm, data, { ...options, image: loaded.image() })];
}

function answerOf(policy: WasmPolicy, entrypoint: string, input: string): string {
  try {
    return JSON.stringify(policy.evaluate(entrypoint, input, '2026-01-02T03:04:05Z'));
  } catch (thrown) {
    return thrown instanceof TollgateError ? thrown.code : String(thrown);
  }
}

const WORD = fc.oneof(
  fc.constantFrom('p1/a', 'p2/x.pem', 'éé12', 'ä', 'rm4', ''),
  fc.string({ unit: 'grapheme', maxLength: 8 }),
);
const NUMBER = fc.nat({ max: 130 });
const CALL = fc.record({
  tool: NUMBER.map((number) => `t${number}`),
  verb: fc.constantFrom('read', 'write', 'execute'),
  inside: fc.array(
    WORD.filter((word) => word !== ''),
    { maxLength: 3 },
  ),
  hosts: fc.array(
    NUMBER.map((number) => `h${number}.example.org`),
    { maxLength: 2 },
  ),
  args: fc.record({ n: NUMBER, ä: fc.record({ b: WORD }), more: fc.jsonValue({ maxDepth: 3 }) }, { requiredKeys: [] }),
});
const CALL_TEXT = CALL.map(
  (call) => [ENTRYPOINTS.call, callInputText(callOf({ server: 'git', ...call } as never), { project: false })] as const,
);
const LIST_TEXT = fc.array(NUMBER, { minLength: 1, maxLength: 20 }).map(
  (numbers) =>
    [
      ENTRYPOINTS.list,
      listInputText(
        PRINCIPAL,
        numbers.map((number) => toolOf({ server: 'git', tool: `t${number}` })),
      ),
    ] as const,
);
/** Some inputs make it grow, some more than the limit, and the last one overflows the stack. */
const MUCH = fc
  .constantFrom(100_000, 400_000, 900_000)
  .map(
    (count) =>
      [
        ENTRYPOINTS.call,
        callInputText(callOf({ server: 'git', args: { n: 'x'.repeat(count) } }), { project: false }),
      ] as const,
  );
const DEEP = fc.constant([
  ENTRYPOINTS.call,
  `{"effect":{"arguments":${'['.repeat(100_000)}${']'.repeat(100_000)}}}`,
] as const);

describe('an instance with data from the memory of another', () => {
  it('gives the same bytes as the instance that loaded the data, after any queries', async () => {
    const [loaded, copied] = await both();
    const seen = new Set<string>();
    const asked = (call: object): readonly [readonly [string, string]] => [
      [ENTRYPOINTS.call, callInputText(callOf({ server: 'git', ...call }), { project: false })],
    ];
    const examples = [
      { tool: 't0' },
      { tool: 't10' },
      { tool: 't5' },
      ...[100_000, 400_000, 900_000, 100_000].map((count) => ({ args: { n: 'x'.repeat(count) } })),
    ].map(asked);
    const question = fc.oneof(
      { weight: 12, arbitrary: CALL_TEXT },
      { weight: 4, arbitrary: LIST_TEXT },
      { weight: 1, arbitrary: MUCH },
      { weight: 1, arbitrary: DEEP },
    );
    fc.assert(
      fc.property(question, ([entrypoint, input]) => {
        const before = copied.memoryBytes;
        const answer = answerOf(copied, entrypoint, input);
        expect(answer).toBe(answerOf(loaded, entrypoint, input));
        expect(copied.memoryBytes).toBe(loaded.memoryBytes);
        if (copied.memoryBytes > before && before > 0) seen.add('grew');
        if (copied.memoryBytes < before && copied.memoryBytes > 0) seen.add('renewed');
        seen.add(/POLICY_FAILED|"deny"|"ask"|"allow"/.exec(answer)?.[0] ?? answer);
      }),
      { numRuns: roundsOf(250, 80), examples },
    );
    expect([...seen]).toEqual(
      expect.arrayContaining(['POLICY_FAILED', 'grew', 'renewed', '"deny"', '"ask"', '"allow"']),
    );
  }, 60_000);

  it('has the same heap, as does a copy of the copy, also after queries, growth and renewal', async () => {
    const first = WasmInstance.load(from, encode(data));
    const second = await WasmInstance.copy(from, first.image());
    const third = await WasmInstance.copy(from, second.image());
    const much = callInputText(callOf({ server: 'git', args: { n: 'x'.repeat(500_000) } }), { project: false });
    const { heap, address, pages } = first.image();
    expect(address).toBeLessThan(pages * 65_536);
    for (const one of [first, second, third]) {
      one.evaluate(ENTRYPOINTS.call, much, { time: '' });
      for (const each of [one, one.renewed()])
        expect([
          Buffer.from(each.image().heap).equals(Buffer.from(heap)),
          each.image().address,
          each.image().pages,
        ]).toEqual([true, address, pages]);
      expect([one.growth > 0, one.renewed().growth]).toEqual([true, 0]);
    }
  });

  it('copies data of any size, also if it is not a multiple of the chunk size', async () => {
    for (const size of [0, 1, 2 * MIB - 1, 5 * MIB]) {
      const loaded = WasmInstance.load(from, encode(JSON.stringify({ text: 'x'.repeat(size) })));
      const copied = await WasmInstance.copy(from, loaded.image());
      expect([Buffer.from(copied.image().heap).equals(Buffer.from(loaded.image().heap)), copied.bytes]).toEqual([
        true,
        loaded.bytes,
      ]);
    }
  });

  it('accepts data in shared memory, and restarts from them after a trap', async () => {
    const shared = new Uint8Array(new SharedArrayBuffer(Buffer.byteLength(data)));
    shared.set(Buffer.from(data));
    const image = new WasmPolicy(wasm, shared, { entrypoints: [] }).image();
    const one = await WasmPolicy.copy(wasm, shared, {
      image,
      entrypoints: [ENTRYPOINTS.call],
      limits: { inputBytes: MIB },
    });
    const [[, input] = ['', '']] = fc.sample(CALL_TEXT, { numRuns: 1, seed: 7 });
    const before = answerOf(one, ENTRYPOINTS.call, input);
    expect(before).toContain('outcome');
    expect(answerOf(one, ENTRYPOINTS.call, fc.sample(DEEP, 1)[0]?.[1] ?? '')).toBe('POLICY_FAILED');
    expect(one.memoryBytes).toBe(0);
    expect(answerOf(one, ENTRYPOINTS.call, input)).toBe(before);
  });

  it('refuses data and modules that cannot be loaded', async () => {
    const image = WasmInstance.load(from, encode('{}')).image();
    await expect(WasmPolicy.copy(new Uint8Array(8), '{}', { image, entrypoints: [] })).rejects.toMatchObject({
      code: 'POLICY_INVALID',
    });
    await expect(WasmPolicy.copy(wasm, '{}', { image, entrypoints: ['none/such'] })).rejects.toMatchObject({
      code: 'POLICY_INVALID',
    });
  });
});
