/** Finds nodes of a schema, by the location that a validator reports or by a position in the arguments. */

import {
  isJsonObject,
  type JsonSchema,
  ownValue,
  schemaEntries,
  schemasOf,
  typesOf,
  valuesOf,
} from '../schemas/json-schema.ts';
import { referenceTarget } from '../schemas/reference-graph.ts';

/** A place in a value: names and indices from the root. */
export type ValuePosition = readonly (string | number)[];

/** Returns the node of a keyword location of the interpreter: `#/properties/a/$ref/type` without its last step. */
export function nodeAt(root: JsonSchema, location: string): JsonSchema | undefined {
  let node: unknown = root;
  for (const step of location.split('/').slice(1, -1)) {
    const name = decode(step);
    if (name === '$ref' && isJsonObject(node) && typeof node.$ref === 'string') node = referenceTarget(root, node.$ref);
    else node = Array.isArray(node) ? (node as readonly unknown[])[Number(name)] : ownValue(node, name);
  }
  return isJsonObject(node) ? node : undefined;
}

/** Returns the position of an instance location. Steps into a list are numbers. */
export function positionOf(value: unknown, location: string): ValuePosition {
  let node = value;
  return location
    .split('/')
    .slice(1)
    .map((step) => {
      const name = decode(step);
      const key = Array.isArray(node) ? Number(name) : name;
      node = childAt(node, key);
      return key;
    });
}

function decode(step: string): string {
  return decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
}

/** Returns the value at a position; undefined if there is none. */
export function valueAt(value: unknown, position: ValuePosition): unknown {
  return position.reduce(childAt, value);
}

function childAt(node: unknown, key: string | number): unknown {
  return typeof node === 'object' && node !== null && Object.hasOwn(node, key)
    ? (node as Record<string | number, unknown>)[key]
    : undefined;
}

/**
 * Returns a copy of `value` with `change` applied at a position. If `change` returns undefined, the name is removed.
 */
export function replaceAt(value: unknown, position: ValuePosition, change: (old: unknown) => unknown): unknown {
  const [key, ...rest] = position;
  if (key === undefined) return change(value);
  if (Array.isArray(value))
    return value.map((item: unknown, index) => (index === key ? replaceAt(item, rest, change) : item));
  if (!isJsonObject(value)) return value;
  const entries = Object.entries(value).map(([name, child]): [string, unknown] => [
    name,
    name === key ? replaceAt(child, rest, change) : child,
  ]);
  const added: [string, unknown][] =
    Object.hasOwn(value, key) || rest.length > 0 ? [] : [[String(key), change(undefined)]];
  return Object.fromEntries([...entries, ...added].filter(([, child]) => child !== undefined));
}

/** Returns the names that a schema at a position declares, in all branches of unions. */
export function declaredNames(root: JsonSchema, position: ValuePosition): ReadonlySet<string> {
  const names = new Set<string>();
  for (const node of nodesAt(root, position)) for (const [name] of schemaEntries(node.properties)) names.add(name);
  return names;
}

/**
 * Returns true if a schema at a position names null as a type or value. A schema that accepts anything does not count.
 */
export function namesNull(root: JsonSchema, position: ValuePosition): boolean {
  return nodesAt(root, position).some(
    (node) => typesOf(node).includes('null') || valuesOf(node)?.includes(null) === true,
  );
}

function nodesAt(root: JsonSchema, position: ValuePosition): readonly JsonSchema[] {
  return position.reduce<readonly JsonSchema[]>(
    (nodes, key) =>
      expand(
        root,
        nodes.flatMap((node) => steps(node, key)),
      ),
    expand(root, [root]),
  );
}

function steps(node: JsonSchema, key: string | number): readonly JsonSchema[] {
  if (typeof key === 'number') {
    const place = schemasOf(node.prefixItems)[key] ?? node.items;
    return isJsonObject(place) ? [place] : [];
  }
  const declared = ownValue(node.properties, key) ?? node.additionalProperties;
  return isJsonObject(declared) ? [declared] : [];
}

/** Returns the nodes, and all nodes that apply to the same value: targets of references, and branches. */
function expand(root: JsonSchema, nodes: readonly JsonSchema[]): readonly JsonSchema[] {
  const seen = new Set<JsonSchema>();
  const stack = [...nodes];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (seen.has(node)) continue;
    seen.add(node);
    const target = referenceTarget(root, node.$ref);
    if (target !== undefined) stack.push(target);
    for (const keyword of ['anyOf', 'oneOf', 'allOf'] as const) stack.push(...schemasOf(node[keyword]));
    for (const keyword of ['then', 'else'] as const) if (isJsonObject(node[keyword])) stack.push(node[keyword]);
    stack.push(...schemaEntries(node.dependentSchemas).map(([, child]) => child));
  }
  return [...seen];
}
