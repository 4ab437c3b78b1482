/** Reads a canonical schema node together with what its references, `allOf` and branches add, as one node. */
import {
  isJsonObject,
  isNever,
  type JsonSchema,
  schemaEntries,
  schemasOf,
  stringsOf,
  typesOf,
} from '../../../catalogs/schemas/json-schema.ts';

/** Definitions of a canonical schema by their reference. */
export type DefinitionTable = ReadonlyMap<string, JsonSchema>;

/** Nodes that are read as one. */
const MAX_PARTS = 32;

/** Returns the definitions of a canonical schema, `#` included. */
export function definitionsOf(root: JsonSchema): DefinitionTable {
  const named = schemaEntries(root.$defs).map(([name, node]) => [`#/$defs/${name}`, node] as const);
  return new Map([['#', root], ...named]);
}

/**
 * Returns one node without `$ref`, `allOf`, `anyOf` and `oneOf`. Of a union, it takes the first branch that is not
 * null, or with `everyBranch` the members of all branches, of which only those are required that the node itself
 * requires.
 */
export function flatNode(node: JsonSchema, definitions: DefinitionTable, everyBranch = false): JsonSchema {
  const parts: JsonSchema[] = [];
  const open = [node];
  for (let next = open.shift(); next !== undefined && parts.length < MAX_PARTS; next = open.shift()) {
    if (parts.includes(next)) continue;
    parts.push(next);
    const target = typeof next.$ref === 'string' ? definitions.get(next.$ref) : undefined;
    open.push(...(target === undefined ? [] : [target]), ...schemasOf(next.allOf));
    for (const branches of [schemasOf(next.anyOf), schemasOf(next.oneOf)]) open.push(...chosen(branches, everyBranch));
  }
  return merged(parts);
}

function chosen(branches: readonly JsonSchema[], everyBranch: boolean): readonly JsonSchema[] {
  if (everyBranch) return branches.map(({ required: _, ...branch }) => branch);
  const usable = branches.find((branch) => !isNever(branch) && typesOf(branch).join() !== 'null');
  return usable === undefined ? branches.slice(0, 1) : [usable];
}

function merged(parts: readonly JsonSchema[]): JsonSchema {
  const properties = new Map<string, JsonSchema>();
  for (const part of parts)
    for (const [name, child] of schemaEntries(part.properties)) {
      const known = properties.get(name);
      // A branch often names a member only to require it, or to give it one value.
      if (known === undefined || Object.keys(known).length === 0) properties.set(name, child);
      else if (isJsonObject(child)) properties.set(name, { ...known, ...child });
    }
  const required = [...new Set(parts.flatMap((part) => stringsOf(part.required)))];
  const { $ref: _, allOf: _all, anyOf: _any, oneOf: _one, ...all } = Object.assign({}, ...[...parts].reverse());
  return { ...all, properties: Object.fromEntries(properties), required };
}
