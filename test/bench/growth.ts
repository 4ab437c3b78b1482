/** Measures how processor time grows with the input: four times the input may take six times as long (n log n). */

/** The largest allowed factor of the time for four times the input. */
export const MOST_GROWTH = 6;
/** The shortest measurement, ms; shorter runs are repeated. */
const LEAST_MS = 10;
/** The longest allowed run, ms, whatever its growth. */
const MOST_MS = 4_000;
/** Two steps in a row with more than this factor are not caused by caches; a third is not measured. */
const CERTAIN_GROWTH = 12;
const ROUNDS = 5;
/** If a large input takes less, ms, its growth is noise. */
const NOTHING_MS = 0.05;
/** If 64 times the first size takes less, ms, the growth comes from caches. */
const LITTLE_MS = 5;
/** The longest message. */
const MOST_UNITS = 16 * 1_048_576;

/** The time of `loop` on the machine on which limits in milliseconds were chosen, ms. */
const USUAL_LOOP_MS = 120;

/**
 * Returns how many times slower this machine is now than the one on which limits in milliseconds were chosen; at least
 * 1. Other programs on the same core also make it slower. Takes about a second.
 */
export function slowness(): number {
  const bytes = Buffer.alloc(MOST_UNITS, 'abcdefgh');
  // The first two runs are not compiled yet.
  const took = [1, 2, 3, 4].map(() => {
    const began = cpuMs();
    loop(bytes);
    return cpuMs() - began;
  });
  return Math.max(1, Math.max(...took.slice(2)) / USUAL_LOOP_MS);
}

/**
 * Returns the limit of a time, ms: `limit`, or more on a machine that is slower now. It measures the machine only if
 * the time exceeds `limit`.
 */
export function limitNow(took: number, limit: number): number {
  return took < limit ? limit : limit * slowness();
}

function loop(bytes: Buffer): number {
  let sum = 0;
  for (let round = 0; round < 4; round += 1)
    for (let at = 0; at < bytes.length; at += 1) sum = (sum * 31 + (bytes[at] as number)) | 0;
  return sum;
}

/**
 * Options of tests that limit processor time. Other work of the process or of the machine may exceed a limit once; code
 * that is too slow exceeds it in each of three attempts.
 */
export const THREE_ATTEMPTS = { retry: 2 } as const;

/** Work whose time depends on the size of its input. */
export interface Growing<T> {
  /** Returns an input of about `size` units, always the same for one size. */
  readonly make: (size: number) => T;
  readonly run: (input: T) => unknown;
  /** The first size: large enough to measure, small enough for the caches of the processor. */
  readonly from?: number;
}

/** Returns a message if the time grows too fast in each of three measurements; other programs cause noise. */
export async function tooFast<T>(growing: Growing<T>): Promise<string | undefined> {
  let words: string | undefined;
  for (let count = 0; count < 3; count += 1) {
    words = await excess(growing);
    if (words === undefined) return undefined;
  }
  return words;
}

/**
 * Measures an excess over two more steps, which must exceed too. Leaving the caches of the processor also takes more
 * than six times as long, but not three times in a row.
 */
async function excess<T>({ make, run, from = 4_096 }: Growing<T>): Promise<string | undefined> {
  const took: number[] = [];
  for (const times of [1, 4, 16, 64]) {
    // With `--expose-gc`: what earlier measurements left is not collected during this one.
    globalThis.gc?.();
    const ms = await best(make(from * times), run);
    const before = took.at(-1);
    took.push(ms);
    const milliseconds = took.map((one) => one.toFixed(2)).join(', ');
    const words = `${milliseconds} ms for ${from} units and four times as many in each step`;
    if (ms > MOST_MS) return words;
    if (before === undefined) continue;
    if (ms < NOTHING_MS || ms <= before * MOST_GROWTH) return undefined;
    if (times > 4 && took.every((one, at) => one > CERTAIN_GROWTH * (took[at - 1] ?? 0))) return words;
    if (times === 64 || from * times * 4 > MOST_UNITS) return ms < LITTLE_MS || took.length < 3 ? undefined : words;
  }
  return undefined;
}

/** Returns the least processor time of a run of five rounds, ms; of fewer rounds if one takes very long. */
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

/** Returns the processor time of this process, ms: user and system, because kernels only estimate their shares. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
