/** Compiles a schema with Ajv: for tools that are called often, and for values so large that the interpreter would take too long. */
import { createRequire } from 'node:module';
import type { ErrorObject } from 'ajv';
import { type JsonSchema, mapChildren } from '../schemas/json-schema.ts';
import { canonicalJson } from '../tools/definition-pin.ts';
import type { PreparedSchema } from './prepared-schema.ts';
import { type Fault, faultAt, faultOf } from './validation-faults.ts';
import { positionOf } from './value-position.ts';

const require = createRequire(import.meta.url);

/** References followed for one value. A schema whose branches refer to itself could take exponential time. */
const MAX_REFERENCES = 20_000_000;

/** A compiled schema. It stops at the first fault. */
export interface CompiledSchema {
  valid(value: unknown): boolean;
  /** The fault because of which the last value was not valid. */
  lastFault(value: unknown): Fault;
}

/** Returns the compiled form; undefined when the compiler refuses the schema. */
export function compileSchema(prepared: PreparedSchema): CompiledSchema | undefined {
  const { Ajv2020 } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  // A compiler of its own for each schema: a shared one keeps every schema that it ever saw.
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
    const valid = (value: unknown): boolean => {
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
      valid,
      lastFault: (value) =>
        failed === 'not judged'
          ? faultAt([], 'cannot be checked: it is nested too deeply or too long')
          : asFault(failed, prepared, value),
    };
  } catch {
    return undefined;
  }
}

/** A keyword of ours, beside each `$ref`. */
const COUNTED = 'tollgate-counted';

function countReferences(node: JsonSchema): JsonSchema {
  const copy = mapChildren(node, (child) => countReferences(child));
  return typeof copy.$ref === 'string' ? { ...copy, [COUNTED]: true } : copy;
}

/** No two items are equal as JSON. Linear in their size, but for the order of keys. */
export function areDistinct(items: readonly unknown[]): boolean {
  const seen = new Set<unknown>();
  for (const item of items) {
    // The prefix keeps objects apart from texts that read like them.
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

/** Ajv puts what holds everything else last; its locations count from the root, as ours do. */
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
