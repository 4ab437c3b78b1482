/**
 * Divides the work between `npm test`, which runs a fixed part of long matrices, rounds and properties within minutes,
 * and `npm run test:all`, which runs all of it.
 */

/** True if everything runs: `npm run test:all`, or a third of it (TOLLGATE_TESTS=1/3). */
export const RUNS_ALL = process.env.TOLLGATE_TESTS !== undefined;

/** Returns how many rounds or runs to make: `all` of them in `npm run test:all`, otherwise `part`. */
export function roundsOf(all: number, part: number): number {
  return RUNS_ALL ? all : part;
}

/** Returns all rows in `npm run test:all`, otherwise `most` of them at equal distances, with the first and the last. */
export function partOf<T>(rows: readonly T[], most: number): readonly T[] {
  if (RUNS_ALL || rows.length <= most) return rows;
  const step = (rows.length - 1) / Math.max(1, most - 1);
  return Array.from({ length: most }, (_, at) => rows[Math.round(at * step)] as T);
}

/** The seed of property tests. `npm run fuzz` sets a new one each time. */
export const PROPERTY_SEED = Number(process.env.TOLLGATE_FUZZ_SEED ?? 20_261_122);
