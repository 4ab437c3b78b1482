/** Owns how property tests begin and how they tell of a failure: with one and the same seed at the gate, so that a change is judged by itself, and another at every run by hand. */

import fc from 'fast-check';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';

/** A seed from outside (npm run fuzz) wins; the gate has one of its own. */
const given = process.env.TOLLGATE_FUZZ_SEED;
const seed = given !== undefined ? Number(given) : process.env.CI === undefined ? undefined : 20_261_122;

// What failed stands in the message, beside the seed and the counterexample: a report that leaves out the cause of an error is all that is left of some runs.
fc.configureGlobal({ includeErrorInReport: true, ...(seed === undefined ? {} : { seed }) });

// Where helpers are is a setting of the whole process, which files of tests share: none takes over what the one before set.
useHelpers({ programs: {}, writable: [] });
