/**
 * `npm run faults -- --minutes N` runs the random fault tests with new seeds and more rounds. To repeat a failed seed,
 * set TOLLGATE_FAULT_SEED.
 */
import { runRounds } from '../rounds.ts';

/** Factor for the number of rounds. */
const TIMES = '5';

runRounds({
  name: 'faults',
  tests: [
    'faults/killed-gateways',
    'faults/killed-code-runs',
    'faults/stops-under-load',
    'faults/archive-kills',
    'supervisor/killed-facade',
    'audit/chain-archive',
    'runtime/snapshot-swap',
    'stdio/orphans',
  ].map((name) => `test/${name}.test.ts`),
  env: (seed) => ({ TOLLGATE_FAULT_SEED: seed, TOLLGATE_FAULT_TIMES: process.env.TOLLGATE_FAULT_TIMES ?? TIMES }),
});
