/**
 * The output schema for clients: unchanged if every client can compile it, otherwise repaired. A client that cannot
 * compile one schema refuses the whole list of tools.
 */

import { canonicalize } from '../schemas/canonical-schema.ts';
import {
  isJsonObject,
  type JsonSchema,
  LIST_KEYWORDS,
  mapChildren,
  SINGLE_KEYWORDS,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { wordSet } from '../text/word-set.ts';

/** Returns true if clients accept this value of a keyword. `root`: the whole schema. */
type KeywordTest = (value: unknown, root: JsonSchema) => boolean;

const TYPES: ReadonlySet<unknown> = wordSet('string number integer boolean object array null');
const isText: KeywordTest = (value) => typeof value === 'string';
const isNumber: KeywordTest = (value) => typeof value === 'number';
const isCount: KeywordTest = (value) => Number.isInteger(value) && (value as number) >= 0;
const isFlag: KeywordTest = (value) => typeof value === 'boolean';
const isNever: KeywordTest = () => false;
const isPattern: KeywordTest = (value) => typeof value === 'string' && compiles(value);
const isSchema: KeywordTest = (value, root) =>
  typeof value === 'boolean' || (isJsonObject(value) && isCompilable(value, root));
const isList =
  (each: KeywordTest): KeywordTest =>
  (value, root) =>
    Array.isArray(value) && value.length > 0 && value.every((item) => each(item, root));
const isMap =
  (each: KeywordTest): KeywordTest =>
  (value, root) =>
    isJsonObject(value) && Object.values(value).every((item) => each(item, root));
const isNames: KeywordTest = (value) => Array.isArray(value) && value.every((item) => typeof item === 'string');
const either =
  (...tests: readonly KeywordTest[]): KeywordTest =>
  (value, root) =>
    tests.some((test) => test(value, root));

/**
 * The keywords that a compiler reads, and the values that it accepts. An `$id` is never passed on, because clients keep
 * compiled schemas by it: with it, a tool could replace the schema of another tool.
 */
const KEYWORDS: ReadonlyMap<string, KeywordTest> = new Map([
  ...allOf('$schema $comment format title description', isText),
  ...allOf('minimum maximum exclusiveMinimum exclusiveMaximum', isNumber),
  ...allOf('minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains', isCount),
  ...allOf('$id id $anchor $dynamicAnchor $recursiveAnchor $dynamicRef $recursiveRef nullable $vocabulary', isNever),
  ...allOf('properties dependentSchemas $defs definitions', isMap(isSchema)),
  ...SINGLE_KEYWORDS.map((key) => [key, isSchema] as const),
  ...LIST_KEYWORDS.map((key) => [key, isList(isSchema)] as const),
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
      typeof value === 'string' && /^#(?:\/(?:\$defs|definitions)\/[\w.-]+)?$/.test(value) && hasTarget(value, root),
  ],
]);

/** Returns the same test for several keywords. */
function allOf(keywords: string, test: KeywordTest): readonly (readonly [string, KeywordTest])[] {
  return [...wordSet(keywords)].map((keyword) => [keyword, test] as const);
}

/** Returns the schema for clients. `schema` is that of a tool that is not in quarantine. */
export function clientSchema(schema: JsonSchema): JsonSchema {
  if (isCompilable(schema, schema)) return schema;
  const canonical = canonicalize(schema, 'output');
  return 'quarantined' in canonical ? { type: 'object' } : withoutBrokenPatterns(canonical.schema);
}

function isCompilable(schema: JsonSchema, root: JsonSchema): boolean {
  return Object.entries(schema).every(([key, value]) => KEYWORDS.get(key)?.(value, root) ?? true);
}

/** Returns true if a reference has a target. */
function hasTarget(ref: string, root: JsonSchema): boolean {
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

/** Removes patterns that do not compile. Tollgate itself checks results against the whole schema. */
function withoutBrokenPatterns(node: JsonSchema): JsonSchema {
  const { pattern, patternProperties: names } = node;
  const broken = [
    ...(typeof pattern === 'string' && !compiles(pattern) ? ['pattern'] : []),
    ...(isJsonObject(names) && !Object.keys(names).every(compiles)
      ? ['patternProperties', 'additionalProperties', 'unevaluatedProperties']
      : []),
  ];
  return mapChildren(withoutKeywords(node, broken), withoutBrokenPatterns);
}
