/**
 * Tests that every reader of bytes from outside takes about linear time: four times the input may cost six times the
 * processor time, best of five. A reader may throw only its own error type.
 *
 * The input grows by four until one run costs LEAST_MS or has MOST_CHARS characters. At this size, the test finds a
 * reader whose quadratic part costs at least a fifth of its linear part. `npm run fuzz` uses forty times the processor
 * time and 128 times the characters, and finds smaller parts.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { cpuMs, MOST_GROWTH, tooFast } from '../bench/growth.ts';
import { groupInFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { READERS } from './readers.ts';
import { CORPUS, grow, type Shape, shapes } from './shapes.ts';
import { SLOW_TARGETS, TARGETS, type Target } from './targets.ts';

/**
 * `npm test` runs a part of the corpus over each row of TARGETS and READERS, `npm run test:all` half of it. `npm run
 * fuzz` runs all rows with larger sizes and new shapes.
 */
const BY_HAND = process.env.TOLLGATE_FUZZ_SEED !== undefined;
const GATE = [...TARGETS, ...READERS];
const ROWS = (BY_HAND ? [...GATE, ...SLOW_TARGETS] : GATE).map((target) => [target.name, target] as const);
/** The suite gives each row one of this many shapes of the corpus. */
const ONE_OF = roundsOf(2, 11);
/** Returns the shapes of a row: all by hand, and every second or eleventh one in the suite, others in the next row. */
const shapesOf = (target: Target): readonly Shape[] => {
  const row = ROWS.findIndex(([, one]) => one === target);
  return BY_HAND ? CORPUS : CORPUS.filter((_, at) => (at + row) % ONE_OF === 0);
};
/** New shapes for each reader in `npm run fuzz`. */
const RUNS = Number(process.env.TOLLGATE_FUZZ_SHAPES ?? 3);
const FIRST_CHARS = 1_024;
const [LEAST_MS, MOST_CHARS] = BY_HAND ? [20, 1_048_576] : [0.5, 8_192];
/** One sixteenth of the longest message. */
const MOST_FROM = 1_048_576;
/** A run over four times MOST_CHARS that costs less is too short to be measured. */
const NOTHING_MS = 0.5;
/** Time limit of one row on a busy machine. */
const TIMEOUT_MS = 600_000;

async function guarded(run: () => unknown): Promise<void> {
  try {
    await run();
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
  }
}

async function timed({ run }: Target, input: unknown): Promise<number> {
  const began = cpuMs();
  await guarded(() => run(input));
  return cpuMs() - began;
}

/** Reads only texts that the wire accepts. A larger text does not reach the readers behind it. */
async function judgeLegal(target: Target, shape: Shape): Promise<void> {
  try {
    await judge(target, shape);
  } catch (thrown) {
    // The error type of the reader is expected.
    if (!(thrown instanceof TollgateError)) throw thrown;
  }
}

/**
 * Finds a size at which a run is long enough, compares it with four times the size, and measures again more carefully
 * if the result is too large.
 */
async function judge(target: Target, shape: Shape): Promise<void> {
  const inputOf = (chars: number): unknown => target.make(grow(shape, chars));
  let chars = FIRST_CHARS / 4;
  let ms = 0;
  for (let input: unknown; ms < LEAST_MS && chars < MOST_CHARS; ) {
    chars *= 4;
    input = inputOf(chars);
    ms = await timed(target, input);
    // The first run includes the compilation of the code.
    if (ms >= LEAST_MS) ms = Math.min(ms, await timed(target, input));
  }
  const four = inputOf(chars * 4);
  // The least of three, because garbage collection or another process can cost as much as a run.
  for (let again = 0; again < 3; again += 1)
    if ((await timed(target, four)) <= Math.max(ms * MOST_GROWTH, NOTHING_MS)) return;
  const growing = {
    make: inputOf,
    run: (input: unknown) => guarded(() => target.run(input)),
    from: Math.min(ms < LEAST_MS ? chars * 4 : chars, MOST_FROM),
  };
  expect(await tooFast(growing), JSON.stringify(shape)).toBeUndefined();
}

describe(
  'four times the input costs at most six times the processor time' + verifies('TR-40', 'TR-41', 'TR-45'),
  () => {
    it.each(partOf(ROWS, 28))(
      'for %s with the shapes of the corpus',
      async (_name, target) => {
        for (const shape of shapesOf(target)) await judgeLegal(target, shape);
      },
      TIMEOUT_MS,
    );

    it.each(BY_HAND ? ROWS : [])(
      'for %s with new shapes',
      async (_name, target) => {
        await fc.assert(
          fc.asyncProperty(shapes, (shape) => judgeLegal(target, shape)),
          { numRuns: RUNS, endOnFailure: true },
        );
      },
      TIMEOUT_MS,
    );
  },
);

groupInFull('the measurement', () => {
  it(
    'finds a quadratic reader, also behind a linear part, and passes a linear one',
    async () => {
      const quadratic = (text: string): number => {
        let found = 0;
        for (let at = 0; at < text.length; at += 8) found += text.slice(at).split('a').length;
        return found;
      };
      const target = (run: (text: string) => unknown): Target => ({
        name: 'x',
        make: (text) => text,
        run: run as Target['run'],
      });
      const shape = { before: '', unit: 'a', after: '' };
      // A first run can take as long as a run with four times the input. Real rows have many shapes, this row has one.
      for (let run = 0; run < 50; run += 1) quadratic('a'.repeat(4_096));
      await expect(judge(target(quadratic), shape)).rejects.toThrow('ms for');
      // Only in `npm run fuzz`, because each quadratic reader takes half a minute.
      if (BY_HAND)
        await expect(
          judge(
            target((text) => [text.split('a').length, quadratic(text.slice(0, text.length / 4))]),
            shape,
          ),
        ).rejects.toThrow('ms for');
      await judge(
        target((text) => text.split('a').length),
        shape,
      );
    },
    TIMEOUT_MS,
  );
});
