/** Sets up property tests: a fixed seed at the gate, another one in each run by hand, and the report of a failure. */

import fc from 'fast-check';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';

/** A seed in the environment (npm run fuzz) has priority. The gate has its own. */
const given = process.env.TOLLGATE_FUZZ_SEED;
const seed = given !== undefined ? Number(given) : process.env.CI === undefined ? undefined : 20_261_122;

// The message contains the cause next to the seed and the counterexample. Of some runs, only the message is left.
fc.configureGlobal({ includeErrorInReport: true, ...(seed === undefined ? {} : { seed }) });

// The paths of helper programs are a setting of the process, which test files share. Each file starts with the default.
useHelpers({ programs: {}, writable: [] });
