/** Owns the seed of property tests: one and the same at the gate, so that a change is judged by itself; another at every run by hand. */
import fc from 'fast-check';

if (process.env['CI'] !== undefined) fc.configureGlobal({ seed: 20_261_122 });
