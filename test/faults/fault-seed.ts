/** The random numbers of the fault tests: one fixed seed in CI; other seeds and more rounds with `npm run faults`. */
/** `npm run faults` sets a new seed each time. */
export const SEED = Number(process.env.TOLLGATE_FAULT_SEED ?? 20_261_123);
/** Factor for the number of rounds. */
export const TIMES = Number(process.env.TOLLGATE_FAULT_TIMES ?? 1);

/** Returns numbers from 0 to 1, the same for the same seed. */
export function numbers(seed: number = SEED): () => number {
  let state = seed;
  const next = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  // The first number of a small seed is small.
  next();
  return next;
}

/** Returns a random element of a list. */
export function oneOf<T>(list: readonly [T, ...T[]], chance: () => number): T {
  return list[Math.floor(chance() * list.length)] ?? list[0];
}

/** Returns a list in random order. */
export function shuffled<T>(list: readonly T[], chance: () => number): readonly T[] {
  return list
    .map((one) => ({ one, at: chance() }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one);
}
