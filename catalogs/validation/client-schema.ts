/** Owns the output schema that a client is shown: as it came if every client can compile it, else repaired; a client that cannot compile one schema refuses the whole list. */
import { canonicalize } from '../schemas/canonical-schema.ts';
import {
  isJsonObject,
  type JsonSchema,
  LIST_KEYWORDS,
  mapChildren,
  SINGLE_KEYWORDS,
  withoutKeywords,
} from '../schemas/json-schema.ts';

type Judge = (value: unknown, root: JsonSchema) => boolean;

const TYPES: ReadonlySet<unknown> = new Set(['string', 'number', 'integer', 'boolean', 'object', 'array', 'null']);
const isText: Judge = (value) => typeof value === 'string';
const isNumber: Judge = (value) => typeof value === 'number';
const isCount: Judge = (value) => Number.isInteger(value) && (value as number) >= 0;
const isFlag: Judge = (value) => typeof value === 'boolean';
const isNever: Judge = () => false;
const isPattern: Judge = (value) => typeof value === 'string' && compiles(value);
const isSchema: Judge = (value, root) =>
  typeof value === 'boolean' || (isJsonObject(value) && isCompilable(value, root));
const isList =
  (each: Judge): Judge =>
  (value, root) =>
    Array.isArray(value) && value.length > 0 && value.every((item) => each(item, root));
const isMap =
  (each: Judge): Judge =>
  (value, root) =>
    isJsonObject(value) && Object.values(value).every((item) => each(item, root));
const isNames: Judge = (value) => Array.isArray(value) && value.every((item) => typeof item === 'string');
const either =
  (...judges: readonly Judge[]): Judge =>
  (value, root) =>
    judges.some((judge) => judge(value, root));

/**
 * The keywords that a compiler reads, and what it takes. An `$id` is never passed on: clients keep compiled schemas by it, so that a tool
 * could put its schema in the place of another one's.
 */
const KEYWORDS: ReadonlyMap<string, Judge> = new Map([
  ...['$schema', '$comment', 'format', 'title', 'description'].map((key) => [key, isText] as const),
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'].map((key) => [key, isNumber] as const),
  ...[
    'minLength',
    'maxLength',
    'minItems',
    'maxItems',
    'minProperties',
    'maxProperties',
    'minContains',
    'maxContains',
  ].map((key) => [key, isCount] as const),
  ...[
    '$id',
    'id',
    '$anchor',
    '$dynamicAnchor',
    '$recursiveAnchor',
    '$dynamicRef',
    '$recursiveRef',
    'nullable',
    '$vocabulary',
  ].map((key) => [key, isNever] as const),
  ...SINGLE_KEYWORDS.map((key) => [key, isSchema] as const),
  ...LIST_KEYWORDS.map((key) => [key, isList(isSchema)] as const),
  ...['properties', 'dependentSchemas', '$defs', 'definitions'].map((key) => [key, isMap(isSchema)] as const),
  ['multipleOf', (value) => typeof value === 'number' && value > 0],
  ['uniqueItems', isFlag],
  [
    'type',
    either(
      (value) => TYPES.has(value),
      isList((value) => TYPES.has(value)),
    ),
  ],
  ['enum', isList(() => true)],
  ['required', isNames],
  ['dependentRequired', isMap(isNames)],
  ['dependencies', isMap(either(isNames, isSchema))],
  ['items', either(isSchema, isList(isSchema))],
  ['additionalItems', isSchema],
  ['pattern', isPattern],
  [
    'patternProperties',
    (value, root) => isJsonObject(value) && Object.keys(value).every(compiles) && isMap(isSchema)(value, root),
  ],
  [
    '$ref',
    (value, root) =>
      typeof value === 'string' && /^#(?:\/(?:\$defs|definitions)\/[\w.-]+)?$/.test(value) && leads(value, root),
  ],
]);

/** Returns the schema for clients. `schema`: of a tool that is not in quarantine. */
export function clientSchema(schema: JsonSchema): JsonSchema {
  if (isCompilable(schema, schema)) return schema;
  const canonical = canonicalize(schema, 'output');
  return 'quarantined' in canonical ? { type: 'object' } : withoutOddPatterns(canonical.schema);
}

function isCompilable(schema: JsonSchema, root: JsonSchema): boolean {
  return Object.entries(schema).every(([key, value]) => KEYWORDS.get(key)?.(value, root) ?? true);
}

function leads(ref: string, root: JsonSchema): boolean {
  const target = ref
    .split('/')
    .slice(1)
    .reduce<unknown>((node, step) => (isJsonObject(node) && Object.hasOwn(node, step) ? node[step] : undefined), root);
  return typeof target === 'boolean' || isJsonObject(target);
}

function compiles(pattern: string): boolean {
  try {
    new RegExp(pattern, 'u');
    return true;
  } catch {
    return false;
  }
}

/** A rule that no client can check is none: Tollgate checks results by the whole schema. */
function withoutOddPatterns(node: JsonSchema): JsonSchema {
  const { pattern, patternProperties: names } = node;
  const odd = [
    ...(typeof pattern === 'string' && !compiles(pattern) ? ['pattern'] : []),
    ...(isJsonObject(names) && !Object.keys(names).every(compiles)
      ? ['patternProperties', 'additionalProperties', 'unevaluatedProperties']
      : []),
  ];
  return mapChildren(withoutKeywords(node, odd), withoutOddPatterns);
}
