/**
 * Runs test/fuzz and test/races with new seeds: `npm run fuzz -- --minutes N`. Set TOLLGATE_FUZZ_SEED to run a failed
 * seed again.
 */
import { runRounds } from '../rounds.ts';

/** Shapes for each reader, and operations of the race test, in one round. */
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
