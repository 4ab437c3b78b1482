/** `npm run faults -- --minutes N`: the fault tests that go by chance, with new seeds and more rounds than at the gate. A failed seed is run again with TOLLGATE_FAULT_SEED. */
import { runRounds } from '../rounds.ts';

/** How many times the rounds of the gate. */
const TIMES = '5';

runRounds({
  name: 'faults',
  tests: ['killed-gateways', 'stops-under-load', 'archive-kills'].map((name) => `test/faults/${name}.test.ts`),
  env: (seed) => ({ TOLLGATE_FAULT_SEED: seed, TOLLGATE_FAULT_TIMES: process.env.TOLLGATE_FAULT_TIMES ?? TIMES }),
});
