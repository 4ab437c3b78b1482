/** Owns the public face of validation: judge a value by a server's schema, tell what is wrong, repair what a host mangled. */

export { type ArgumentRepair, repairArguments } from './argument-repair.ts';
export { clientSchema } from './client-schema.ts';
export { type Fault, formatFaults } from './validation-faults.ts';
export { createValidator, type Validator } from './validator.ts';
