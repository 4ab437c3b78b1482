/** Tests that a run can be repeated: the same answers in the same order give the same run, whatever the delays. */
import fc from 'fast-check';
import { afterAll, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { programs, transcriptOf } from './generated-programs.ts';
import { closeShared, valueOfCode } from './sandbox-runs.ts';

afterAll(closeShared);

/** Runs in `npm test`; `npm run fuzz` makes more. */
const RUNS = process.env.TOLLGATE_FUZZ_SEED === undefined ? 15 : 400;

it('equal answers in equal order give equal calls, output and value' + verifies('CM-16'), {
  timeout: 600_000,
}, async () => {
  const kinds = new Set<string>();
  await fc.assert(
    fc.asyncProperty(programs, fc.infiniteStream(fc.nat(1_000)), async (code, numbers) => {
      const number = (): number => numbers.next().value ?? 0;
      const first = await transcriptOf(
        code,
        (open) => open[number() % Math.max(1, open.length)],
        () => number() % 4,
      );
      const again = await transcriptOf(
        code,
        (_open, answered) => first.order[answered],
        () => number() % 3,
      );
      expect(again).toEqual(first);
      expect(first.calls.map(({ seq }) => seq).sort((a, b) => a - b)).toEqual(first.calls.map((_, at) => at + 1));
      kinds.add(`${first.outcome.kind}${first.order.join() === [...first.order].sort((a, b) => a - b).join()}`);
    }),
    { numRuns: RUNS },
  );
  // Some answers came in another order than the calls.
  expect([...kinds].sort()).toEqual(['returnedfalse', 'returnedtrue']);
});

it('another seed or start gives other numbers and times, the same gives the same' + verifies('CM-16'), async () => {
  const code = 'return [Math.random(), Math.random(), Date.now(), new Date().getTime(), Date.now()]';
  const [first, again] = [await valueOfCode(code), await valueOfCode(code)];
  expect(again).toEqual(first);
  const [one, two, ...times] = first as number[];
  expect(one).not.toBe(two);
  expect(times).toEqual([1_800_000_000_000, 1_800_000_000_001, 1_800_000_000_002]);
  const other = (await valueOfCode(code, { seed: 'another', startedAt: 5 })) as number[];
  expect(other.slice(0, 2)).not.toContain(one);
  expect(other.slice(2)).toEqual([5, 6, 7]);
});
