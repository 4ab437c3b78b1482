/**
 * The words in a description for constraints that the shown schema has no keyword for. They never contain instructions.
 */

import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  valuesOf,
} from '../schemas/json-schema.ts';
import { wordSet } from '../text/word-set.ts';

const MAX_WORD = 300;
/** Keywords that have words. */
const RULES = wordSet(`
  minLength maxLength format pattern minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems
  uniqueItems minProperties maxProperties patternProperties propertyNames enum const default
`);

/** Returns the constraints of a node that leave its schema, in short phrases. */
export function constraintWords(node: JsonSchema): readonly string[] {
  if (!Object.keys(node).some((key) => RULES.has(key))) return [];
  return [
    ...fromTo(node, ['minLength', 'maxLength'], 'characters'),
    ...textWords(node),
    ...boundWords(node),
    ...fromTo(node, ['minItems', 'maxItems'], 'items'),
    ...(node.uniqueItems === true ? ['unique'] : []),
    ...fromTo(node, ['minProperties', 'maxProperties'], 'names'),
    ...nameWords(node),
    ...valueWords(node),
    ...(Object.hasOwn(node, 'default') && node.default !== null ? [`default ${briefJson(node.default)}`] : []),
  ].map((word) => cutWord(word));
}

/** Returns the text for a pair of limits: both form a range, a single one is named after its keyword. */
function fromTo(node: JsonSchema, [low, high]: readonly [string, string], unit: string): readonly string[] {
  const [min, max] = [node[low], node[high]];
  if (min !== undefined && max !== undefined)
    return [min === max ? `exactly ${String(min)} ${unit}` : `${String(min)} to ${String(max)} ${unit}`];
  if (min !== undefined) return [`${low} ${String(min)}`];
  return max === undefined ? [] : [`${high} ${String(max)}`];
}

function textWords(node: JsonSchema): readonly string[] {
  // A space at the end would be lost in prose, and the pattern would say more than it does.
  return ['format', 'pattern']
    .filter((key) => typeof node[key] === 'string')
    .map((key) => `${key}: ${String(node[key]).replace(/(?<!\\) $/, '[ ]')}`);
}

function boundWords(node: JsonSchema): readonly string[] {
  const bounds = [
    ['exclusiveMinimum', '>'],
    ['minimum', '>='],
    ['exclusiveMaximum', '<'],
    ['maximum', '<='],
  ] as const;
  const words = bounds
    .filter(([key]) => typeof node[key] === 'number')
    .map(([key, sign]) => `${sign} ${String(node[key])}`);
  return node.multipleOf === undefined ? words : [...words, `multiple of ${String(node.multipleOf)}`];
}

function nameWords(node: JsonSchema): readonly string[] {
  const patterns = schemaEntries(node.patternProperties).map(
    ([pattern, child]) => `names matching ${pattern}: ${shapeWords(child)}`,
  );
  const names = ownValue(node, 'propertyNames');
  const rule = isJsonObject(names) ? constraintWords({ ...names, default: null }).join(', ') : '';
  return rule === '' ? patterns : [...patterns, `names: ${rule}`];
}

/** Values that the shown schema cannot list: numbers, booleans, and sets that mix them. */
function valueWords(node: JsonSchema): readonly string[] {
  const values = valuesOf(node);
  if (values === undefined || values.every((value) => typeof value === 'string')) return [];
  if (values.length === 1) return [`Only ${briefJson(values[0])} is allowed.`];
  return [`one of ${values.slice(0, 40).map(briefJson).join(', ')}${values.length > 40 ? ', …' : ''}`];
}

/** Returns one JSON value, short. */
export function briefJson(value: unknown): string {
  return cutWord(JSON.stringify(value) ?? 'null', 80);
}

/** Cuts one phrase, at whole code points. */
export function cutWord(word: string, max = MAX_WORD): string {
  if (word.length <= max) return word;
  const end = /[\uD800-\uDBFF]/.test(word.charAt(max - 2)) ? max - 2 : max - 1;
  return `${word.slice(0, end)}…`;
}

/** Returns the structure of a node in a few words: `{e:{f:string}}`, `string or number`. */
export function shapeWords(node: JsonSchema, depth = 0): string {
  const suffix = node.nullable === true ? ' or null' : '';
  if (Array.isArray(node.anyOf))
    return (
      schemasOf(node.anyOf)
        .map((branch) => shapeWords(branch, depth))
        .join(' or ') + suffix
    );
  const [type] = typesOf(node);
  if (type === 'array') return `[${isJsonObject(node.items) ? shapeWords(node.items, depth + 1) : 'any'}]${suffix}`;
  if (type !== 'object') return (type ?? 'any') + suffix;
  const names = schemaEntries(node.properties).filter(([, child]) => !isNever(child));
  if (names.length === 0 || depth > 3) return `object${suffix}`;
  return `{${names
    .slice(0, 12)
    .map(([name, child]) => `${name}:${shapeWords(child, depth + 1)}`)
    .join(', ')}${names.length > 12 ? ', …' : ''}}${suffix}`;
}

/** Returns `a or b`, `a, b or c`. */
export function orList(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} or ${parts.at(-1) ?? ''}`;
}

/** Returns what a condition asks for: `mode is a`; undefined if it cannot be said shortly. */
export function conditionWords(condition: unknown): string | undefined {
  if (!isJsonObject(condition)) return undefined;
  const parts = schemaEntries(condition.properties).map(([name, node]) => {
    const values = valuesOf(node);
    return values === undefined
      ? undefined
      : `${name} is ${orList(values.map((value) => (typeof value === 'string' ? value : briefJson(value))))}`;
  });
  const given = stringsOf(condition.required)
    .filter((name) => ownValue(condition.properties, name) === undefined)
    .map((name) => `${name} is given`);
  const all = [...parts, ...given];
  return all.length === 0 || all.includes(undefined) ? undefined : all.join(' and ');
}
