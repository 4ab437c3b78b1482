/** Measures how the processor time of one thing grows with its input: four times the input may cost six times the time (n log n, and noise). */

/** What four times the input may cost, in times. */
export const MOST_GROWTH = 6;
/** What is measured takes at least this long; shorter runs are repeated. */
const LEAST_MS = 10;
/** One run that takes longer is too expensive, however it grows. */
const MOST_MS = 4_000;
/** Two steps in a row that each cost more than this many times are no cache: the third is not measured. */
const CERTAIN_GROWTH = 12;
const ROUNDS = 5;
/** Of an input that costs less even when it is large, the growth is noise. */
const NOTHING_MS = 0.05;
/** What costs less at 64 times the first size is memory that is not in a cache. */
const LITTLE_MS = 5;
/** No message is longer. */
const MOST_UNITS = 16 * 1_048_576;

/** Something whose cost depends on the size of an input. */
export interface Growing<T> {
  /** Makes an input of about `size` units, the same for the same size. */
  readonly make: (size: number) => T;
  readonly run: (input: T) => unknown;
  /** The smaller size: large enough for the growth to show, small enough for the caches of a processor. */
  readonly from?: number;
}

/** Returns what was measured if the time grows too fast, else undefined. An excess must show in each of three measurements: other programs use the caches too. */
export async function tooFast<T>(growing: Growing<T>): Promise<string | undefined> {
  let words: string | undefined;
  for (let count = 0; count < 3; count += 1) {
    words = await excess(growing);
    if (words === undefined) return undefined;
  }
  return words;
}

/**
 * An excess is measured over two more steps, and each must exceed: leaving the caches of a processor costs more than six times too, but not
 * three times in a row.
 */
async function excess<T>({ make, run, from = 4_096 }: Growing<T>): Promise<string | undefined> {
  const took: number[] = [];
  for (const times of [1, 4, 16, 64]) {
    const ms = await best(make(from * times), run);
    const before = took.at(-1);
    took.push(ms);
    const words = `${took.map((one) => one.toFixed(2)).join(', ')} ms for ${from} units and four times as many in each step`;
    if (ms > MOST_MS) return words;
    if (before === undefined) continue;
    if (ms < NOTHING_MS || ms <= before * MOST_GROWTH) return undefined;
    if (times > 4 && took.every((one, at) => one > CERTAIN_GROWTH * (took[at - 1] ?? 0))) return words;
    if (times === 64 || from * times * 4 > MOST_UNITS) return ms < LITTLE_MS || took.length < 3 ? undefined : words;
  }
  return undefined;
}

/** The least processor time of one run in milliseconds, of five rounds; of fewer when one takes very long. */
async function best<T>(input: T, run: (input: T) => unknown): Promise<number> {
  const once = await timed(input, run, 1);
  if (once > MOST_MS) return once;
  const runs = Math.ceil(LEAST_MS / Math.max(once, 0.01));
  let least = Infinity;
  let spent = 0;
  for (let round = 0; round < ROUNDS && spent < MOST_MS; round += 1) {
    const ms = await timed(input, run, runs);
    least = Math.min(least, ms / runs);
    spent += ms;
  }
  return least;
}

async function timed<T>(input: T, run: (input: T) => unknown, runs: number): Promise<number> {
  const began = cpuMs();
  for (let count = 0; count < runs; count += 1) await run(input);
  return cpuMs() - began;
}

/** Milliseconds of processor time of this process so far: the sum, as many kernels only estimate which part of it was the program's own. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
