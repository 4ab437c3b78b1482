/** Owns the public face of validation: judge a value by a server's schema, tell what is wrong, repair what a host mangled. */
export { clientSchema } from './validation/client-schema.ts';
export { type Fault, formatFaults } from './validation/faults.ts';
export { createValidator, type Validator } from './validation/judge.ts';
export { type Repair, repairArgs } from './validation/repair.ts';
