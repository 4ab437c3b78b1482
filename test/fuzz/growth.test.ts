/**
 * Every reader of bytes from outside gets growing inputs: four times the input may cost six times the processor time, best of five.
 * No reader throws anything but its error type.
 *
 * What the measure guarantees: the input grows by four until one run costs LEAST_MS, or has MOST_CHARS characters; there a reader
 * is found whose quadratic part costs a fifth of its linear part or more. A smaller part at that size is not found. `npm run fuzz` looks at
 * forty times the processor time and 128 times the characters, and finds parts that are smaller in proportion.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { cpuMs, MOST_GROWTH, tooFast } from '../bench/growth.ts';
import { verifies } from '../verifies.ts';
import { READERS } from './readers.ts';
import { CORPUS, grow, type Shape, shapes } from './shapes.ts';
import { SLOW_TARGETS, TARGETS, type Target } from './targets.ts';

/** The gate runs the corpus over the rows of TARGETS and READERS; by hand (npm run fuzz) all rows get it, at larger sizes, and new shapes. */
const BY_HAND = process.env.TOLLGATE_FUZZ_SEED !== undefined;
const GATE = [...TARGETS, ...READERS];
const ROWS = (BY_HAND ? [...GATE, ...SLOW_TARGETS] : GATE).map((target) => [target.name, target] as const);
/** Shapes made anew for each reader when run by hand. */
const RUNS = Number(process.env.TOLLGATE_FUZZ_SHAPES ?? 3);
const FIRST_CHARS = 1_024;
const [LEAST_MS, MOST_CHARS] = BY_HAND ? [20, 1_048_576] : [0.5, 8_192];
/** Sixteen times as much is the longest message. */
const MOST_FROM = 1_048_576;
/** A run over MOST_CHARS and four times as many that costs less is too short to be measured. */
const NOTHING_MS = 0.5;
/** Seconds that one row may take on a machine that does other work. */
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

/** Judges the sizes up to which the wire takes an input: what it refuses does not reach a reader behind it. */
async function judgeLegal(target: Target, shape: Shape): Promise<void> {
  try {
    await judge(target, shape);
  } catch (thrown) {
    // Those of the reader itself are guarded.
    if (!(thrown instanceof TollgateError)) throw thrown;
  }
}

/** Finds the size at which a run is long enough, compares it with four times the size, and measures again with care when that is too much. */
async function judge(target: Target, shape: Shape): Promise<void> {
  const inputOf = (chars: number): unknown => target.make(grow(shape, chars));
  let chars = FIRST_CHARS / 4;
  let ms = 0;
  for (let input: unknown; ms < LEAST_MS && chars < MOST_CHARS; ) {
    chars *= 4;
    input = inputOf(chars);
    ms = await timed(target, input);
    // The first run compiles the code.
    if (ms >= LEAST_MS) ms = Math.min(ms, await timed(target, input));
  }
  const four = inputOf(chars * 4);
  // The least of three: the collector, or another process in the caches, costs as much as a run.
  for (let again = 0; again < 3; again += 1)
    if ((await timed(target, four)) <= Math.max(ms * MOST_GROWTH, NOTHING_MS)) return;
  const growing = {
    make: inputOf,
    run: (input: unknown) => guarded(() => target.run(input)),
    from: Math.min(ms < LEAST_MS ? chars * 4 : chars, MOST_FROM),
  };
  expect(await tooFast(growing), JSON.stringify(shape)).toBeUndefined();
}

describe('four times the input costs at most six times the time' + verifies('TR-40', 'TR-41', 'TR-45'), () => {
  it.each(ROWS)(
    '%s: the corpus',
    async (_name, target) => {
      for (const shape of CORPUS) await judgeLegal(target, shape);
    },
    TIMEOUT_MS,
  );

  it.each(BY_HAND ? ROWS : [])(
    '%s: new shapes',
    async (_name, target) => {
      await fc.assert(
        fc.asyncProperty(shapes, (shape) => judgeLegal(target, shape)),
        { numRuns: RUNS, endOnFailure: true },
      );
    },
    TIMEOUT_MS,
  );
});

describe('the measure itself', () => {
  it(
    'finds a quadratic reader, also behind a linear part, and passes a linear one',
    async () => {
      const quadratic = (text: string): number => {
        let found = 0;
        for (let at = 0; at < text.length; at += 64) found += text.slice(at).split('a').length;
        return found;
      };
      const target = (run: (text: string) => unknown): Target => ({
        name: 'x',
        make: (text) => text,
        run: run as Target['run'],
      });
      const shape = { before: '', unit: 'a', after: '' };
      // A cold run takes as long as four times the input: the real rows repeat their shapes, this one has one.
      for (let run = 0; run < 50; run += 1) quadratic('a'.repeat(4_096));
      await expect(judge(target(quadratic), shape)).rejects.toThrow('ms for');
      // By hand only: each quadratic reader takes half a minute to judge.
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
