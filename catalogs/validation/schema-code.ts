/**
 * The code that the build generates from our own schemas. It tells quickly whether a value fits. To find the faults of
 * a value, the caller compiles the whole schema.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);

/** The schemas with generated code, relative to the package root or dist/. The code is in the same folder. */
export const CODED_SCHEMAS = [
  'facade/config/tollgate.schema.json',
  'policies/schemas/rules.json',
  'policies/schemas/suite.json',
] as const;

/** Returns the file with the code of a schema. */
export function codeFile(schema: string): string {
  return schema.replace(/\.json$/, '.check.cjs');
}

/**
 * Returns true if a value surely fits one of our schemas. False if it does not, or if there is no generated code, as
 * in the sources: then the caller compiles the schema and finds the faults. Compiling takes up to 0.2 s, which a valid
 * file should not cost at each start.
 */
export function surelyFits(schema: URL, value: unknown): boolean {
  const file = codeFile(fileURLToPath(schema));
  return existsSync(file) && (require(file) as (value: unknown) => boolean)(value);
}

/** Returns the code of a schema, as a CommonJS module. */
export function makeSchemaCode(schema: object): string {
  const { Ajv } = require('ajv') as typeof import('ajv');
  const { default: standalone } = require('ajv/dist/standalone') as {
    readonly default: (ajv: object, validate: unknown) => string;
  };
  const ajv = new Ajv({
    strict: true,
    allowUnionTypes: true,
    messages: false,
    inlineRefs: false,
    code: { source: true },
  });
  return standalone(ajv, ajv.compile(schema));
}
