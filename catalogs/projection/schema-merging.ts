/**
 * Merges schemas: `intersectSchemas` for schemas that apply together, `uniteSchemas` for variants of one object. No
 * name is lost.
 */

import {
  isJsonObject,
  isNever,
  type JsonSchema,
  ownValue,
  sameJson,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
  valuesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { joinBranches } from './union-branches.ts';

/**
 * Combines both schemas in one node. Where two keywords conflict the first stays: the projection is wider, and the
 * validator enforces the rest.
 */
export function intersectSchemas(first: JsonSchema, second: JsonSchema): JsonSchema {
  const merged: JsonSchema = { ...second, ...first };
  const types = commonTypes(first, second);
  if (types.length > 0) merged.type = types.length === 1 ? types[0] : types;
  mergeProperties(first, second, merged);
  const required = [...new Set([...stringsOf(first.required), ...stringsOf(second.required)])];
  if (required.length > 0) merged.required = required;
  const values = commonValues(first, second);
  if (values !== undefined) {
    merged.enum = values;
    delete merged.const;
  }
  if (isJsonObject(first.items) && isJsonObject(second.items))
    merged.items = intersectSchemas(first.items, second.items);
  for (const keyword of ['allOf', 'words', 'needs'] as const) {
    const list = [...asList(first[keyword]), ...asList(second[keyword])];
    if (list.length > 0) merged[keyword] = list;
  }
  mergeUnions(first, second, merged);
  mergeNull(first, second, merged);
  for (const keyword of ['minimum', 'exclusiveMinimum', 'minLength', 'minItems'])
    tighten(merged, [keyword, first, second], Math.max);
  for (const keyword of ['maximum', 'exclusiveMaximum', 'maxLength', 'maxItems'])
    tighten(merged, [keyword, first, second], Math.min);
  return merged;
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function commonTypes(first: JsonSchema, second: JsonSchema): readonly string[] {
  const left = typesOf(first);
  const right = typesOf(second);
  if (left.length === 0 || right.length === 0) return left.length > 0 ? left : right;
  const admits = (types: readonly string[], type: string): boolean =>
    types.includes(type) || (type === 'integer' && types.includes('number'));
  const common = [...left.filter((type) => admits(right, type)), ...right.filter((type) => admits(left, type))];
  return common.length > 0 ? [...new Set(common)] : left;
}

function mergeProperties(first: JsonSchema, second: JsonSchema, merged: JsonSchema): void {
  if (isJsonObject(first.properties) && isJsonObject(second.properties)) {
    const both = [
      ...schemaEntries(first.properties),
      ...schemaEntries(second.properties).filter(([name]) => ownValue(first.properties, name) === undefined),
    ];
    merged.properties = Object.fromEntries(
      both.map(([name, node]) => {
        const other = ownValue(second.properties, name);
        return [name, isJsonObject(other) && other !== node ? intersectSchemas(node, other) : node];
      }),
    );
  }
  // Two closed halves of an allOf would exclude each other, which no author means for the model.
  const [left, right] = [first.additionalProperties, second.additionalProperties];
  if (isJsonObject(left) && isJsonObject(right) && isNever(left) !== isNever(right))
    merged.additionalProperties = isNever(left) ? right : left;
}

/** Removes `nullable` if one of the schemas names types without null. */
function mergeNull(first: JsonSchema, second: JsonSchema, merged: JsonSchema): void {
  const refuses = [first, second].some(
    (node) => node.nullable !== true && (typesOf(node).length > 0 || node.anyOf !== undefined),
  );
  if (refuses) delete merged.nullable;
}

/** A second union cannot be next to the first one. The validator enforces it, and words describe it. */
function mergeUnions(first: JsonSchema, second: JsonSchema, merged: JsonSchema): void {
  for (const keyword of ['anyOf', 'oneOf'] as const) {
    if (first[keyword] === undefined || second[keyword] === undefined || sameJson(first[keyword], second[keyword]))
      continue;
    merged.words = [...new Set([...stringsOf(merged.words), 'some combinations are refused; the error says which'])];
  }
}

function commonValues(first: JsonSchema, second: JsonSchema): readonly unknown[] | undefined {
  const [left, right] = [valuesOf(first), valuesOf(second)];
  if (left === undefined || right === undefined) return undefined;
  const common = left.filter((value) => right.some((other) => sameJson(value, other)));
  return common.length > 0 ? common : left;
}

function tighten(
  merged: JsonSchema,
  [keyword, first, second]: readonly [string, JsonSchema, JsonSchema],
  choose: (...values: number[]) => number,
): void {
  const numbers = [first[keyword], second[keyword]].filter((bound): bound is number => typeof bound === 'number');
  if (numbers.length > 0) merged[keyword] = choose(...numbers);
}

/**
 * Returns one object that accepts every variant. It has all their properties, and requires what all of them require.
 */
export function uniteSchemas(variants: readonly JsonSchema[]): JsonSchema {
  const names = [...new Set(variants.flatMap((variant) => schemaEntries(variant.properties).map(([name]) => name)))];
  const properties = names.map((name) => {
    const nodes = variants.map((variant) => ownValue(variant.properties, name)).filter(isJsonObject);
    return [name, nodes.reduce(widest)] as const;
  });
  const required = stringsOf(variants[0]?.required).filter((name) =>
    variants.every((variant) => stringsOf(variant.required).includes(name)),
  );
  const united: JsonSchema = { type: 'object', properties: Object.fromEntries(properties) };
  if (required.length > 0) united.required = required;
  const open = variants
    .map((variant) => variant.additionalProperties)
    .filter(isJsonObject)
    .filter((node) => !isNever(node));
  if (open.length > 0) united.additionalProperties = open.reduce(widest);
  const words = [...variants.flatMap((variant) => stringsOf(variant.words)), ...variantWords(variants)];
  if (words.length > 0) united.words = [...new Set(words)];
  const description = variants.map((variant) => variant.description).find((text) => typeof text === 'string');
  if (description !== undefined && variants.length === 1) united.description = description;
  return united;
}

/** Returns a node that accepts what either accepts. */
function widest(left: JsonSchema, right: JsonSchema): JsonSchema {
  if (sameJson(withoutKeywords(left, ['description']), withoutKeywords(right, ['description']))) return left;
  const description = left.description ?? right.description;
  const named = description === undefined ? {} : { description };
  const [one, two] = [valuesOf(left), valuesOf(right)];
  const [type] = typesOf(left);
  const same = typesOf(left).length === 1 && typesOf(right).length === 1 && type === typesOf(right)[0];
  if (
    one !== undefined &&
    two !== undefined &&
    (same || [...one, ...two].every((value) => typeof value === 'string'))
  ) {
    return {
      ...named,
      ...(type === undefined ? {} : { type }),
      enum: [...one, ...two.filter((value) => !one.some((other) => sameJson(value, other)))],
    };
  }
  if (same && type !== 'object' && type !== 'array') return { ...named, type };
  if (same && type === 'object') return { ...uniteSchemas([left, right]), ...named };
  const branches = [left, right].flatMap((node) =>
    Array.isArray(node.anyOf) ? schemasOf(node.anyOf) : [withoutKeywords(node, ['description'])],
  );
  return joinBranches(branches, named);
}

/** Returns the property whose single value distinguishes the variants, if there is one. */
function discriminator(variants: readonly JsonSchema[]): string | undefined {
  const valueOf = (variant: JsonSchema, name: string): unknown => {
    const node = ownValue(variant.properties, name);
    const values = isJsonObject(node) ? valuesOf(node) : undefined;
    return values?.length === 1 ? values[0] : undefined;
  };
  return schemaEntries(variants[0]?.properties)
    .map(([name]) => name)
    .find((name) => {
      const values = variants.map((variant) => valueOf(variant, name));
      return values.every((value) => typeof value === 'string') && new Set(values).size === values.length;
    });
}

/** Returns which names belong to which variant: `crop: width; rotate: degrees`. */
function variantWords(variants: readonly JsonSchema[]): readonly string[] {
  const key = variants.length > 1 ? discriminator(variants) : undefined;
  if (key === undefined) return [];
  const parts = variants.map((variant) => {
    const node = ownValue(variant.properties, key);
    const value = isJsonObject(node) ? valuesOf(node)?.[0] : undefined;
    const names = schemaEntries(variant.properties)
      .map(([name]) => name)
      .filter((name) => name !== key);
    return `${String(value)}: ${names.length > 0 ? names.join(', ') : 'nothing more'}`;
  });
  return [`${key} decides: ${parts.join('; ')}`];
}
