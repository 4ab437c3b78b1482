/** Owns the code that the build makes of our own schemas: it says at once whether a value fits; refuses to explain a no, for which the schema is compiled whole. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);

/** The schemas that have code, relative to the package root or dist/. The code stands beside each. */
export const CODED_SCHEMAS = [
  'facade/config/tollgate.schema.json',
  'policies/schemas/rules.json',
  'policies/schemas/suite.json',
] as const;

/** The file with the code of a schema, by the file of the schema. */
export function codeFile(schema: string): string {
  return schema.replace(/\.json$/, '.check.cjs');
}

/**
 * Whether a value fits one of our schemas, a file. False where the build has made no code, as in the sources: whoever asks compiles
 * the schema then, which also tells the faults. That costs up to a fifth of a second, and a sound file should not pay it at each start.
 */
export function surelyFits(schema: URL, value: unknown): boolean {
  const file = codeFile(fileURLToPath(schema));
  return existsSync(file) && (require(file) as (value: unknown) => boolean)(value);
}

/** The code of a schema, as a CommonJS module. */
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
