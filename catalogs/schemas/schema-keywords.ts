/** The keywords that Tollgate understands, each in one form. A value in another form is repaired or dropped. */

import { cleanDescription } from '../text/hostile-text.ts';
import { wordSet } from '../text/word-set.ts';
import { isJsonObject, type JsonSchema, ownValue, stringsOf } from './json-schema.ts';

/** No profile shows more of one description; the whole text stays with the server's definition. */
const MAX_DESCRIPTION = 2_000;
const TYPES = wordSet('string number integer boolean object array null');
const NUMBERS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'];
const COUNTS = wordSet('minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains');
const TEXTS = ['format', 'pattern'];

/**
 * Returns the keywords of `raw` that contain no schema, in the form of draft 2020-12; `repaired(name)` is called for
 * each changed one. Booleans of draft-04, OpenAPI's `nullable` and upper-case types become what they mean.
 */
export function plainKeywords(raw: JsonSchema, repaired: (transform: string) => void): JsonSchema {
  const node: JsonSchema = {};
  readType(raw, node, repaired);
  for (const key of TEXTS) if (typeof raw[key] === 'string' && raw[key] !== '') node[key] = raw[key];
  const description =
    typeof raw.description === 'string' ? cleanDescription(raw.description, { max: MAX_DESCRIPTION }) : '';
  if (description !== '') node.description = description;
  for (const key of NUMBERS) if (typeof raw[key] === 'number') node[key] = raw[key];
  for (const key of COUNTS) if (Number.isInteger(raw[key]) && (raw[key] as number) >= 0) node[key] = raw[key];
  if (typeof node.multipleOf === 'number' && node.multipleOf <= 0) delete node.multipleOf;
  if (raw.uniqueItems === true) node.uniqueItems = true;
  // Default, const and enum are data of the instance, whatever keys they have.
  for (const key of ['default', 'const']) if (Object.hasOwn(raw, key)) node[key] = raw[key];
  if (Array.isArray(raw.enum) && raw.enum.length > 0) node.enum = raw.enum;
  exclusiveBounds(raw, node, repaired);
  nullable(raw, node);
  return node;
}

function readType(raw: JsonSchema, node: JsonSchema, repaired: (transform: string) => void): void {
  if (raw.type === undefined) return;
  const named = typeof raw.type === 'string' ? [raw.type] : stringsOf(raw.type);
  const types = [...new Set(named.map((name) => name.toLowerCase()))].filter((name) => TYPES.has(name));
  if (types.length !== named.length || named.some((name) => !TYPES.has(name))) repaired('type');
  if (types.length === 1) node.type = types[0];
  else if (types.length > 1) node.type = types;
}

function exclusiveBounds(raw: JsonSchema, node: JsonSchema, repaired: (transform: string) => void): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof raw[exclusive] !== 'boolean') continue;
    repaired('draft-04');
    if (raw[exclusive] === true && typeof raw[bound] === 'number') {
      node[exclusive] = raw[bound];
      delete node[bound];
    }
  }
}

function nullable(raw: JsonSchema, node: JsonSchema): void {
  if (raw.nullable !== true) return;
  const type = node.type;
  if (type !== undefined) node.type = [...new Set([...(Array.isArray(type) ? type : [type]), 'null'])];
  if (Array.isArray(node.enum) && !node.enum.includes(null)) node.enum = [...node.enum, null];
}

/** Returns true if OpenAPI's `nullable` is on a node without a type, so that a union has to say it. */
export function needsNullBranch(raw: JsonSchema): boolean {
  return (
    raw.nullable === true &&
    raw.type === undefined &&
    (raw.$ref !== undefined || raw.anyOf !== undefined || raw.oneOf !== undefined || raw.allOf !== undefined)
  );
}

/**
 * Returns the names that a node requires: its list, the keys of an object, and properties with `required: true`
 * (draft-03).
 */
export function requiredNames(raw: JsonSchema): readonly string[] {
  const listed = isJsonObject(raw.required)
    ? Object.keys(raw.required).filter((key) => ownValue(raw.required, key) === true)
    : stringsOf(raw.required);
  const marked = Object.entries(isJsonObject(raw.properties) ? raw.properties : {})
    .filter(([, child]) => isJsonObject(child) && child.required === true)
    .map(([name]) => name);
  return [...new Set([...listed, ...marked])];
}

/** Returns, by name, the names that it requires: `dependentRequired`, and lists in `dependencies` of older drafts. */
export function dependentNames(raw: JsonSchema): Record<string, readonly string[]> {
  const entries = ['dependencies', 'dependentRequired'].flatMap((keyword) =>
    Object.entries(isJsonObject(raw[keyword]) ? raw[keyword] : {}),
  );
  return Object.fromEntries(
    entries.filter(([, names]) => Array.isArray(names)).map(([name, names]) => [name, stringsOf(names)]),
  );
}
