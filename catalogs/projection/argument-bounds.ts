/** Shows the bounds that policy puts on arguments: in the schema before it is projected, and in words. */

import { isJsonObject, type JsonSchema, stringsOf } from '../schemas/json-schema.ts';
import { definedFields } from '../text/collections.ts';
import { briefJson } from './constraint-words.ts';

/** A bound on one argument of every call that policy allows. `path` names it from the top; all given fields apply. */
export interface ArgumentBound {
  readonly path: readonly string[];
  readonly oneOf?: readonly unknown[];
  readonly noneOf?: readonly unknown[];
  readonly prefix?: string;
  /** Regular expression for the whole value. */
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly above?: number;
  readonly below?: number;
  /** True: it is required. False: it is forbidden. */
  readonly present?: boolean;
}

const MAX_LISTED = 8;

/**
 * Returns a copy of an input schema with the bounds on top-level arguments. Only for what is shown: arguments are
 * validated by the whole schema, and decided by policy. An argument that the schema does not declare is only described
 * in words.
 */
export function tightenSchema(schema: JsonSchema, bounds: readonly ArgumentBound[]): JsonSchema {
  return bounds.reduce(
    (tight, bound) => (bound.path.length === 1 ? tightenOne(tight, bound.path[0] ?? '', bound) : tight),
    schema,
  );
}

function tightenOne(schema: JsonSchema, name: string, bound: ArgumentBound): JsonSchema {
  const properties = schema.properties;
  const node: unknown = isJsonObject(properties) && Object.hasOwn(properties, name) ? properties[name] : undefined;
  if (!isJsonObject(properties) || node === undefined || typeof node === 'boolean') return schema;
  if (bound.present === false) return withoutName(schema, properties, name);
  const required = bound.noneOf === undefined && bound.above === undefined && bound.below === undefined;
  return {
    ...schema,
    properties: { ...properties, [name]: join(node as JsonSchema, rulesOf(bound)) },
    ...(required ? { required: [...new Set([...stringsOf(schema.required), name])] } : {}),
  };
}

function withoutName(schema: JsonSchema, properties: JsonSchema, name: string): JsonSchema {
  if (stringsOf(schema.required).includes(name)) return schema;
  return { ...schema, properties: Object.fromEntries(Object.entries(properties).filter(([key]) => key !== name)) };
}

function rulesOf({ oneOf, noneOf, prefix, pattern, minimum, maximum, above, below }: ArgumentBound): JsonSchema {
  const text = prefix === undefined ? pattern : `^${prefix.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}`;
  return definedFields({
    enum: oneOf && [...oneOf],
    not: noneOf && { enum: [...noneOf] },
    pattern: text,
    minimum,
    maximum,
    exclusiveMinimum: above,
    exclusiveMaximum: below,
  });
}

/**
 * One node cannot have two constraints with the same keyword: the stricter numbers and the common values are used,
 * everything else is joined.
 */
function join(node: JsonSchema, rules: JsonSchema): JsonSchema {
  const joined: Record<string, unknown> = { ...node };
  const rest: Record<string, unknown> = {};
  for (const [key, rule] of Object.entries(rules)) {
    const own = node[key];
    if (own === undefined) joined[key] = rule;
    else if (typeof own === 'number' && typeof rule === 'number')
      joined[key] = /aximum$/.test(key) ? Math.min(own, rule) : Math.max(own, rule);
    else if (key === 'enum' && Array.isArray(own) && Array.isArray(rule))
      joined[key] = own.filter((value) => rule.some((other) => JSON.stringify(other) === JSON.stringify(value)));
    else rest[key] = rule;
  }
  const listed: unknown = joined.enum;
  const without = rules.not;
  if (Array.isArray(listed) && isJsonObject(without) && Array.isArray(without.enum)) {
    const gone = new Set(without.enum.map((value) => JSON.stringify(value)));
    joined.enum = listed.filter((value) => !gone.has(JSON.stringify(value)));
    if (joined.not === without) delete joined.not;
  }
  // An empty list of values is not a valid schema, and validators would accept every value.
  if (Array.isArray(joined.enum) && joined.enum.length === 0) return { not: {} };
  return Object.keys(rest).length === 0 ? joined : { allOf: [joined, rest] };
}

/** Returns a bound in a few words, such as `amount at most 100`. */
export function boundWords({
  path,
  oneOf,
  noneOf,
  prefix,
  pattern,
  minimum,
  maximum,
  above,
  below,
  present,
}: ArgumentBound): string {
  const words = [
    ...(oneOf === undefined ? [] : [oneOf.length === 1 ? `must be ${briefJson(oneOf[0])}` : `one of ${listed(oneOf)}`]),
    ...(noneOf === undefined ? [] : [`not ${listed(noneOf)}`]),
    ...(prefix === undefined ? [] : [`begins with ${briefJson(prefix)}`]),
    ...(pattern === undefined ? [] : [`matches ${pattern}`]),
    ...(minimum === undefined ? [] : [`at least ${minimum}`]),
    ...(maximum === undefined ? [] : [`at most ${maximum}`]),
    ...(above === undefined ? [] : [`above ${above}`]),
    ...(below === undefined ? [] : [`below ${below}`]),
    ...(present === undefined ? [] : [present ? 'must be given' : 'must not be given']),
  ];
  return `${path.join('.')} ${words.join(' and ')}`;
}

function listed(values: readonly unknown[]): string {
  return `${values.slice(0, MAX_LISTED).map(briefJson).join(', ')}${values.length > MAX_LISTED ? ', …' : ''}`;
}
