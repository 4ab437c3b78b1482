/** `npm run fuzz -- --minutes N`: test/fuzz and test/races with new seeds. A failed seed is run again with TOLLGATE_FUZZ_SEED. */
import { runRounds } from '../rounds.ts';

/** Shapes for each reader, and operations of the race test, of one round. */
const SHAPES = '20';
const RACE_OPERATIONS = '20000';

runRounds({
  name: 'fuzz',
  tests: ['test/fuzz', 'test/races'],
  env: (seed) => ({
    TOLLGATE_FUZZ_SEED: seed,
    TOLLGATE_FUZZ_SHAPES: process.env.TOLLGATE_FUZZ_SHAPES ?? SHAPES,
    TOLLGATE_RACE_OPERATIONS: process.env.TOLLGATE_RACE_OPERATIONS ?? RACE_OPERATIONS,
  }),
});
