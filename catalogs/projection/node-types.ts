/**
 * Determines the type of a node: afterwards it names one type, or is a union, or means anything, and has only keywords
 * of its type.
 */

import {
  isJsonObject,
  type JsonSchema,
  ownValue,
  stringsOf,
  typesOf,
  valuesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { wordSet } from '../text/word-set.ts';
import { orList, shapeWords } from './constraint-words.ts';

/** The keywords of each type. */
const BOUND: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  [
    'object',
    wordSet(`
      properties required additionalProperties patternProperties propertyNames minProperties maxProperties
      unevaluatedProperties needs
    `),
  ],
  [
    'array',
    wordSet('items prefixItems contains minContains maxContains minItems maxItems uniqueItems unevaluatedItems'),
  ],
  ['string', wordSet('minLength maxLength pattern format')],
  ['number', wordSet('minimum maximum exclusiveMinimum exclusiveMaximum multipleOf')],
]);
const ALL_BOUND = new Set([...BOUND.values()].flatMap((keywords) => [...keywords]));
/** Keywords that belong to the whole node, whatever its type. */
const SHARED = ['description', 'default', 'words', 'nullable'];

/**
 * Returns a node with one type or a union. A list of types becomes a union, `null` becomes the mark `nullable`, and a
 * missing type is read from values and keywords.
 */
export function settleType(input: JsonSchema): JsonSchema {
  if (input.anyOf !== undefined || input.not !== undefined) return input;
  const node = withValues(input);
  const types = typesOf(node);
  const real = types.filter((type) => type !== 'null' && !(type === 'integer' && types.includes('number')));
  const nullable = types.includes('null') ? { nullable: true } : {};
  if (types.length > 0 && real.length === 0) return { ...shared(node), ...nullable, nothingElse: true };
  if (real.length > 1)
    return { ...shared(node), ...nullable, anyOf: real.map((type) => forType(withoutKeywords(node, SHARED), type)) };
  const [type] = real.length === 1 ? real : inferType(node);
  return type === undefined
    ? { ...shared(node), ...nullable, ...(node.nothingElse === true ? { nothingElse: true } : {}) }
    : { ...forType(node, type), ...nullable };
}

function shared(node: JsonSchema): JsonSchema {
  return Object.fromEntries(Object.entries(node).filter(([key]) => SHARED.includes(key)));
}

/** Joins `const` and `enum` to one list without null. The types of the values narrow a missing or wider type. */
function withValues(node: JsonSchema): JsonSchema {
  const values = valuesOf(node);
  if (values === undefined) return node;
  const declared = typesOf(node);
  const kinds = [...new Set(values.map(typeOf))].filter(
    (kind) => declared.length === 0 || declared.includes(kind) || (kind === 'integer' && declared.includes('number')),
  );
  const rest = values.filter((value) => value !== null);
  const base = withoutKeywords(node, ['const', 'enum']);
  const type = declared.length === 1 ? declared : kinds;
  return { ...base, ...(type.length > 0 ? { type } : {}), ...(rest.length > 0 ? { enum: rest } : {}) };
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

function inferType(node: JsonSchema): readonly string[] {
  const named = [...BOUND].find(([, keywords]) =>
    [...keywords].some((keyword) => keyword !== 'needs' && node[keyword] !== undefined),
  );
  return named === undefined ? [] : [named[0]];
}

function forType(node: JsonSchema, type: string): JsonSchema {
  const keep = BOUND.get(type === 'integer' ? 'number' : type);
  const kept = Object.fromEntries(
    Object.entries(node).filter(
      ([key]) => !ALL_BOUND.has(key) || keep?.has(key) || (key === 'format' && type !== 'boolean'),
    ),
  );
  const values = Array.isArray(node.enum) ? node.enum.filter((value) => fits(value, type)) : undefined;
  const typed: JsonSchema = {
    ...withoutKeywords(kept, ['enum']),
    type,
    ...(values !== undefined && values.length > 0 ? { enum: values } : {}),
  };
  return type === 'array' ? withoutTuple(typed) : typed;
}

function fits(value: unknown, type: string): boolean {
  const kind = typeOf(value);
  return kind === type || (type === 'number' && kind === 'integer');
}

/** A tuple becomes a list of whatever any place accepts; the places are described in words. */
function withoutTuple(node: JsonSchema): JsonSchema {
  if (!Array.isArray(node.prefixItems)) return node;
  const places = node.prefixItems.filter(isJsonObject);
  const rest = ownValue(node, 'items');
  const words = `${places.length} items: ${places.map((place) => shapeWords(place)).join(', ')}`;
  const open = isJsonObject(rest) && rest.not === undefined ? [rest] : [];
  return {
    ...withoutKeywords(node, ['prefixItems', 'minItems', 'maxItems']),
    items: { anyOf: [...places, ...open] },
    words: [...stringsOf(node.words), words],
    tuple: true,
  };
}

/** Returns which names a union of required names asks for: `give a or b`. */
export function requiredWords(branches: readonly JsonSchema[]): string {
  return `give ${orList([...new Set(branches.map((branch) => stringsOf(branch.required).join(' and ')))])}`;
}
