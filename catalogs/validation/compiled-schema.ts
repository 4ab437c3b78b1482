/** Compiles schemas with Ajv, for tools that are called often and for values that are too large for the interpreter. */
import { createRequire } from 'node:module';
import type { ErrorObject } from 'ajv';
import { type JsonSchema, mapChildren } from '../schemas/json-schema.ts';
import { canonicalJson } from '../tools/definition-pin.ts';
import type { PreparedSchema } from './prepared-schema.ts';
import { type Fault, faultAt, faultOf } from './validation-faults.ts';
import { positionOf } from './value-position.ts';

const require = createRequire(import.meta.url);

/**
 * Limit of references that are followed for one value. A schema whose branches refer to itself could take exponential
 * time.
 */
const MAX_REFERENCES = 20_000_000;

/** A compiled schema. It stops at the first fault of a value. */
export interface CompiledSchema {
  isValid(value: unknown): boolean;
  /** Returns the fault of the last value, which was not valid. */
  lastFault(value: unknown): Fault;
}

/** Returns the compiled form; undefined if the compiler refuses the schema. */
export function compileSchema(prepared: PreparedSchema): CompiledSchema | undefined {
  const { Ajv2020 } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  // Each schema has its own compiler, because a compiler keeps every schema that it compiled.
  const ajv = new Ajv2020({
    strict: false,
    validateSchema: false,
    meta: false,
    ownProperties: true,
    allErrors: false,
    logger: false,
    code: { optimize: false },
    multipleOfPrecision: 12,
  });
  for (const [name, test] of prepared.formats) ajv.addFormat(name, test);
  let references = 0;
  const countReference = (): boolean => {
    references += 1;
    if (references > MAX_REFERENCES) throw new Error('too many references');
    return true;
  };
  ajv.removeKeyword('uniqueItems').addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    validate: (wanted: boolean, items: readonly unknown[]) => !wanted || areDistinct(items),
  });
  ajv.addKeyword({ keyword: COUNTED, errors: false, validate: countReference });
  try {
    const validate = ajv.compile(countReferences(prepared.schema));
    let failed: readonly ErrorObject[] | 'not judged' = [];
    const isValid = (value: unknown): boolean => {
      references = 0;
      try {
        const fits = validate(value) === true;
        failed = fits ? [] : (validate.errors ?? []);
        return fits;
      } catch {
        failed = 'not judged';
        return false;
      }
    };
    return {
      isValid,
      lastFault: (value) =>
        failed === 'not judged'
          ? faultAt([], 'cannot be checked: it is nested too deeply or too long')
          : asFault(failed, prepared, value),
    };
  } catch {
    return undefined;
  }
}

/** Our own keyword, next to each `$ref`. */
const COUNTED = 'tollgate-counted';

function countReferences(node: JsonSchema): JsonSchema {
  const copy = mapChildren(node, (child) => countReferences(child));
  return typeof copy.$ref === 'string' ? { ...copy, [COUNTED]: true } : copy;
}

/** Returns true if no two items are equal as JSON. Linear in their size, except for sorting keys. */
export function areDistinct(items: readonly unknown[]): boolean {
  const seen = new Set<unknown>();
  for (const item of items) {
    // Without the prefixes, an object would equal a text with the same JSON.
    const key =
      typeof item === 'object' && item !== null
        ? `{}${canonicalJson(item)}`
        : typeof item === 'string'
          ? `"${item}`
          : item;
    if (seen.has(key)) return false;
    seen.add(key);
  }
  return true;
}

/** Returns the outermost error of Ajv, which is the last, as a fault. */
function asFault(errors: readonly ErrorObject[], prepared: PreparedSchema, value: unknown): Fault {
  const error = errors.at(-1);
  if (error === undefined) return faultAt([], 'does not fit the schema');
  const at = positionOf(value, `#${error.instancePath.replaceAll('%', '%25')}`);
  if (error.keyword === 'anyOf' || error.keyword === 'oneOf')
    return faultAt(at, 'fits none of the variants, or more than one');
  const unit = {
    keyword: error.keyword,
    keywordLocation: error.schemaPath,
    instanceLocation: `#${error.instancePath.replaceAll('%', '%25')}`,
    error: '',
  };
  return (
    faultOf(unit, { root: prepared.schema, value, patterns: prepared.patterns })[0] ??
    faultAt(at, 'does not fit the schema')
  );
}
