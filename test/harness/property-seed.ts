/** Sets up property tests: one fixed seed, unless `npm run fuzz` gives another one, and the report of a failure. */

import fc from 'fast-check';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { PROPERTY_SEED } from './slices.ts';

// The message contains the cause next to the seed and the counterexample. Of some runs, only the message is left.
fc.configureGlobal({ includeErrorInReport: true, seed: PROPERTY_SEED });

// The paths of helper programs are a setting of the process, which test files share. Each file starts with the default.
useHelpers({ programs: {}, writable: [] });
