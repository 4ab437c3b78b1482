/** Measures how the processor time of one thing grows with its input: four times the input may cost six times the time (n log n, and noise). */
import { openThreadClock, ownThread } from '../policies/thread-clock.ts';

/** What four times the input may cost, in times. */
export const MOST_GROWTH = 6;
/** Shorter runs say nothing about growth. */
const LEAST_MS = 10;
/** One run that takes longer is too expensive, however it grows. */
const MOST_MS = 4_000;
const ROUNDS = 5;

/** Something whose cost depends on the size of an input. */
export interface Growing<T> {
  /** Makes an input of about `size` units, the same for the same size. */
  readonly make: (size: number) => T;
  readonly run: (input: T) => unknown;
  /** The first size tried. */
  readonly from?: number;
  /** The largest size tried; below, sizes grow until a run can be measured. */
  readonly to?: number;
}

/**
 * Returns what was measured if the time grows too fast, else undefined. A first excess is measured over two more steps, because a step
 * into a slower cache, or the first collection of garbage, also costs more than six times, but only once.
 */
export async function tooFast<T>({ make, run, from = 1_024, to = 4 * 1024 * 1024 }: Growing<T>): Promise<string | undefined> {
  for (let size = from; size <= to; size *= 4) {
    const small = await best(() => make(size), run);
    if (small > MOST_MS) return `${size} units took ${Math.round(small)} ms`;
    if (small < LEAST_MS && size * 4 <= to) continue;
    const base = Math.max(small, LEAST_MS);
    const large = await best(() => make(size * 4), run);
    if (large <= base * MOST_GROWTH) return undefined;
    const larger = large > MOST_MS ? Infinity : await best(() => make(size * 16), run);
    if (larger <= base * MOST_GROWTH ** 2) return undefined;
    return `${size} units took ${small.toFixed(1)} ms, four times as many ${large.toFixed(1)} ms, 16 times as many ${larger.toFixed(1)} ms`;
  }
  return undefined;
}

/** The least processor time of this thread in milliseconds, of five runs; of fewer when one takes very long. */
async function best<T>(make: () => T, run: (input: T) => unknown): Promise<number> {
  const input = make();
  let least = Infinity;
  let spent = 0;
  for (let round = 0; round < ROUNDS && spent < MOST_MS; round += 1) {
    const began = threadMs();
    await run(input);
    const took = threadMs() - began;
    least = Math.min(least, took);
    spent += took;
  }
  return least;
}

const clock = openThreadClock(ownThread());

function threadMs(): number {
  const own = clock.ms();
  if (own !== undefined) return own;
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
