/**
 * Repairs a schema to one dialect, without references that lead outside or in circles. A schema that cannot be
 * evaluated safely is refused.
 */

import { isJsonObject, type JsonSchema, LIST_KEYWORDS, SCHEMA_LIMITS, SINGLE_KEYWORDS } from './json-schema.ts';
import { checkGraph } from './reference-graph.ts';
import { RefTable } from './reference-table.ts';
import { copyJson } from './schema-copy.ts';
import { dependentNames, needsNullBranch, plainKeywords, requiredNames } from './schema-keywords.ts';
import { pathBelow, type TransformLog } from './transform-log.ts';

/** The repaired schema, in draft 2020-12: references all read `#` or `#/$defs/…`; or why the schema is refused. */
export type Canonical = { readonly schema: JsonSchema; readonly log: TransformLog } | { readonly quarantined: string };

interface Work {
  readonly refs: RefTable;
  readonly root: unknown;
  readonly names: Map<unknown, string>;
  readonly queue: { readonly raw: unknown; readonly name: string }[];
  readonly log: TransformLog;
  /** Before 2019-09 a `$ref` hides its siblings. */
  readonly refAlone: boolean;
}

interface Place {
  readonly path: string;
  readonly depth: number;
}

class Refused extends Error {}

const WRAPPERS = ['inputSchema', 'input_schema', 'parameters', 'schema', 'json', 'json_schema'];
const OLD_DRAFT = /draft-0[3-7]/;

/** Returns the repaired schema of a server. Never changes the input; never throws. */
export function canonicalize(input: unknown, as: 'input' | 'output' = 'input'): Canonical {
  if (latest !== undefined && latest.input === input && latest.as === as) return latest.canonical;
  const canonical = repair(input, as);
  if (isJsonObject(input)) latest = { input, as, canonical };
  return canonical;
}

/**
 * The last result, because a tool is audited, projected and validated in a row. Older ones would need too much memory.
 */
let latest: { readonly input: unknown; readonly as: string; readonly canonical: Canonical } | undefined;

function repair(input: unknown, as: 'input' | 'output'): Canonical {
  const copy = copyJson(input);
  if ('quarantined' in copy) return copy;
  const log: TransformLog = [];
  const raw = as === 'input' ? repairRoot(copy.value, log) : copy.value;
  const root: JsonSchema = isJsonObject(raw) ? raw : {};
  const refAlone = typeof root.$schema === 'string' && OLD_DRAFT.test(root.$schema);
  const work: Work = { refs: new RefTable(root), root, names: new Map([[root, '#']]), queue: [], log, refAlone };
  try {
    const schema = canonNode(root, { path: '', depth: 0 }, work);
    const defs: [string, JsonSchema][] = [];
    for (let next = work.queue.shift(); next !== undefined; next = work.queue.shift()) {
      defs.push([next.name, canonNode(next.raw, { path: pathBelow('/$defs', next.name), depth: 0 }, work)]);
    }
    if (defs.length > 0) schema.$defs = Object.fromEntries(defs);
    const fault = checkGraph(schema);
    return fault === undefined ? { schema, log } : { quarantined: fault };
  } catch (error) {
    if (error instanceof Refused) return { quarantined: error.message };
    // Thousands of definitions may refer to each other in a chain.
    if (error instanceof RangeError) return { quarantined: 'SCHEMA_LIMIT: its references lead too deep' };
    throw error;
  }
}

function repairRoot(value: unknown, log: TransformLog): JsonSchema {
  const raw = unwrap(value, log);
  if (raw.type === 'object') return raw;
  log.push({ transform: 'root-object', effect: 'repair', path: '' });
  return { ...raw, type: 'object' };
}

function unwrap(value: unknown, log: TransformLog): JsonSchema {
  if (!isJsonObject(value)) return {};
  const keys = Object.keys(value).filter((key) => key !== '$schema');
  const only = keys[0];
  const wrapped = keys.length === 1 && only !== undefined && WRAPPERS.includes(only) ? value[only] : undefined;
  const nested =
    isJsonObject(value.properties) &&
    typeof value.properties.type === 'string' &&
    isJsonObject(value.properties.properties);
  const inner = nested ? value.properties : wrapped;
  if (!isJsonObject(inner)) return value;
  log.push({ transform: 'unwrap', effect: 'repair', path: '' });
  return inner;
}

function canonNode(raw: unknown, { path, depth }: Place, work: Work): JsonSchema {
  if (raw === false) return { not: {} };
  if (!isJsonObject(raw)) return {};
  if (depth > SCHEMA_LIMITS.depth) throw new Refused(`SCHEMA_LIMIT: nested deeper than ${SCHEMA_LIMITS.depth} levels`);
  const repaired = (transform: string): void => void work.log.push({ transform, effect: 'repair', path });
  const node = plainKeywords(raw, repaired);
  const ref = reference(raw, path, work);
  if (ref !== undefined) node.$ref = ref;
  if (ref !== undefined && work.refAlone) return keepAnnotations(node);
  const child = (value: unknown, ...steps: (string | number)[]): JsonSchema =>
    canonNode(value, { path: pathBelow(path, ...steps), depth: depth + 1 }, work);
  objectKeywords(raw, node, child);
  arrayKeywords(raw, node, child);
  for (const keyword of LIST_KEYWORDS) {
    const list = raw[keyword];
    if (keyword !== 'prefixItems' && Array.isArray(list) && list.length > 0)
      node[keyword] = list.map((item, index) => child(item, keyword, index));
  }
  for (const keyword of SINGLE_KEYWORDS) {
    if (keyword !== 'items' && isSchema(raw[keyword])) node[keyword] = child(raw[keyword], keyword);
  }
  dropGhosts(node, repaired);
  return needsNullBranch(raw) ? { anyOf: [node, { type: 'null' }] } : node;
}

function isSchema(value: unknown): boolean {
  return isJsonObject(value) || typeof value === 'boolean';
}

function keepAnnotations(node: JsonSchema): JsonSchema {
  return Object.fromEntries(
    Object.entries(node).filter(([key]) => key === '$ref' || key === 'description' || key === 'default'),
  );
}

function reference(raw: JsonSchema, path: string, work: Work): string | undefined {
  const ref = raw.$ref ?? raw.$dynamicRef ?? raw.$recursiveRef;
  if (typeof ref !== 'string') return undefined;
  const target = work.refs.resolve(ref);
  if (target === 'external') throw new Refused('SCHEMA_REF: a $ref leads outside the schema; nothing is fetched');
  if (target === 'dangling') {
    work.log.push({ transform: 'dangling-ref', effect: 'repair', path });
    return undefined;
  }
  let name = work.names.get(target.node);
  if (name === undefined) {
    name = freeName(target.name, new Set(work.names.values()));
    // A boolean has no identity: two `true` targets may be two definitions.
    if (isJsonObject(target.node)) work.names.set(target.node, name);
    work.queue.push({ raw: target.node, name });
  }
  return name === '#' ? '#' : `#/$defs/${name}`;
}

function freeName(wanted: string, taken: ReadonlySet<string>): string {
  const base = wanted.replace(/[^A-Za-z0-9_]/g, '_').slice(0, 40) || '_';
  for (let count = 1; ; count += 1) {
    const name = count === 1 ? base : `${base}_${count}`;
    if (!taken.has(name)) return name;
  }
}

type Child = (value: unknown, ...steps: (string | number)[]) => JsonSchema;

function objectKeywords(raw: JsonSchema, node: JsonSchema, child: Child): void {
  for (const keyword of ['properties', 'patternProperties'] as const) {
    const map = raw[keyword];
    if (isJsonObject(map))
      node[keyword] = Object.fromEntries(
        Object.entries(map).map(([name, value]) => [name, child(value, keyword, name)]),
      );
  }
  const required = requiredNames(raw);
  if (required.length > 0) node.required = required;
  const needs = dependentNames(raw);
  if (Object.keys(needs).length > 0) node.dependentRequired = needs;
  const conditions = [raw.dependencies, raw.dependentSchemas].flatMap((map) =>
    isJsonObject(map) ? Object.entries(map) : [],
  );
  const schemas = conditions.filter(([, value]) => isSchema(value));
  if (schemas.length > 0)
    node.dependentSchemas = Object.fromEntries(
      schemas.map(([name, value]) => [name, child(value, 'dependentSchemas', name)]),
    );
}

function arrayKeywords(raw: JsonSchema, node: JsonSchema, child: Child): void {
  const old = Array.isArray(raw.items) ? raw.items : undefined;
  const tuple = old ?? (Array.isArray(raw.prefixItems) ? raw.prefixItems : undefined);
  if (tuple !== undefined && tuple.length > 0)
    node.prefixItems = tuple.map((item, index) => child(item, 'prefixItems', index));
  const rest = old === undefined ? raw.items : raw.additionalItems;
  if (isSchema(rest)) node.items = child(rest, 'items');
}

/** A closed object cannot contain an undeclared name, so requiring one would refuse every call. */
function dropGhosts(node: JsonSchema, repaired: (transform: string) => void): void {
  const closed =
    isJsonObject(node.additionalProperties) &&
    'not' in node.additionalProperties &&
    node.patternProperties === undefined;
  if (!closed || !isJsonObject(node.properties) || !Array.isArray(node.required)) return;
  const declared = node.properties;
  const real = node.required.filter((name) => Object.hasOwn(declared, String(name)));
  if (real.length === node.required.length) return;
  repaired('ghost-required');
  if (real.length > 0) node.required = real;
  else delete node.required;
}
