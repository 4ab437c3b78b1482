/**
 * Knows which keywords of JSON Schema contain schemas, and walks by them. A property with the name of a keyword is
 * never taken for one.
 */

/** A JSON Schema node. Inside Tollgate, boolean schemas are written as `{}` and `{ not: {} }`. */
export type JsonSchema = Record<string, unknown>;

/** Keywords whose value maps names to schemas. The names are data, never keywords. */
const MAP_KEYWORDS = ['properties', 'patternProperties', 'dependentSchemas', '$defs'] as const;
/** Keywords whose value is a list of schemas. */
export const LIST_KEYWORDS = ['anyOf', 'oneOf', 'allOf', 'prefixItems'] as const;
/** Keywords whose value is one schema. */
export const SINGLE_KEYWORDS = [
  'items',
  'additionalProperties',
  'not',
  'if',
  'then',
  'else',
  'propertyNames',
  'contains',
  'unevaluatedProperties',
  'unevaluatedItems',
] as const;
/** Keywords whose schemas apply to the same value as the node itself. */
export const IN_PLACE_KEYWORDS = ['anyOf', 'oneOf', 'allOf', 'not', 'if', 'then', 'else', 'dependentSchemas'] as const;

/** Limits for one schema: levels of nesting, schemas and values, bytes of compact JSON. */
export const SCHEMA_LIMITS = { depth: 64, nodes: 20_000, bytes: 256 * 1024 } as const;

/** Returns true for a JSON object. */
export function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the value as a list of strings, without other values. */
export function stringsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === 'string') : [];
}

/** Returns the own value under `key`: inherited names such as `constructor` count as absent. */
export function ownValue(map: unknown, key: string): unknown {
  return isJsonObject(map) && Object.hasOwn(map, key) ? map[key] : undefined;
}

/** Returns the entries of `properties` or another map keyword; none if it is absent. */
export function schemaEntries(map: unknown): readonly (readonly [string, JsonSchema])[] {
  return isJsonObject(map)
    ? Object.entries(map).filter((entry): entry is [string, JsonSchema] => isJsonObject(entry[1]))
    : [];
}

/** Returns the schemas of a list keyword; none if it is absent. */
export function schemasOf(list: unknown): readonly JsonSchema[] {
  return Array.isArray(list) ? list.filter(isJsonObject) : [];
}

type Kind = 'map' | 'list' | 'single';
const KINDS = new Map<string, Kind>([
  ...MAP_KEYWORDS.map((keyword) => [keyword, 'map'] as const),
  ...LIST_KEYWORDS.map((keyword) => [keyword, 'list'] as const),
  ...SINGLE_KEYWORDS.map((keyword) => [keyword, 'single'] as const),
]);

/**
 * Returns a copy of `node` in which `change(child, ...steps)` replaces the direct subschemas. The steps name the place
 * below the node: a keyword, and a name or an index if the keyword contains several.
 */
export function mapChildren(
  node: JsonSchema,
  change: (child: JsonSchema, ...steps: (string | number)[]) => JsonSchema,
): JsonSchema {
  const copy: JsonSchema = {};
  for (const keyword of Object.keys(node)) {
    const value = node[keyword];
    const kind = typeof value === 'object' ? KINDS.get(keyword) : undefined;
    if (kind === 'list') copy[keyword] = schemasOf(value).map((child, index) => change(child, keyword, index));
    // fromEntries defines own keys, so a property called __proto__ stays a property.
    else if (kind === 'map')
      copy[keyword] = Object.fromEntries(
        schemaEntries(value).map(([name, child]) => [name, change(child, keyword, name)]),
      );
    else copy[keyword] = kind === 'single' && isJsonObject(value) ? change(value, keyword) : value;
  }
  return copy;
}

/** Returns the direct subschemas, or those under the given keywords. */
export function childrenOf(node: JsonSchema, keywords: readonly string[] = Object.keys(node)): readonly JsonSchema[] {
  const found: JsonSchema[] = [];
  for (const keyword of keywords) {
    const value = node[keyword];
    const kind = typeof value === 'object' ? KINDS.get(keyword) : undefined;
    if (kind === 'list') found.push(...schemasOf(value));
    else if (kind === 'map') for (const [, child] of schemaEntries(value)) found.push(child);
    else if (kind === 'single' && isJsonObject(value)) found.push(value);
  }
  return found;
}

/** Returns true if no value is valid: `{ not: {} }`. */
export function isNever(node: JsonSchema): boolean {
  return isJsonObject(node.not) && Object.keys(node.not).length === 0;
}

/** Returns the types that a node names; none if it names none. */
export function typesOf(node: JsonSchema): readonly string[] {
  return typeof node.type === 'string' ? [node.type] : stringsOf(node.type);
}

/** Returns the values that a node names with `enum` or `const`; undefined if it has neither. */
export function valuesOf(node: JsonSchema): readonly unknown[] | undefined {
  if (Object.hasOwn(node, 'const')) return [node.const];
  return Array.isArray(node.enum) ? node.enum : undefined;
}

/** Returns `node` without the given keywords. */
export function withoutKeywords(node: JsonSchema, keywords: readonly string[]): JsonSchema {
  const rest: JsonSchema = {};
  for (const key of Object.keys(node)) if (!keywords.includes(key)) rest[key] = node[key];
  return rest;
}

/** Compares JSON values, ignoring the order of keys. */
export function sameJson(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((item, index) => sameJson(item, right[index]));
  }
  if (!isJsonObject(left) || !isJsonObject(right)) return false;
  const keys = Object.keys(left);
  return (
    keys.length === Object.keys(right).length &&
    keys.every((key) => Object.hasOwn(right, key) && sameJson(left[key], right[key]))
  );
}
