/** Hides pinned arguments: policy fixes their values, so the model neither sees nor needs them. */

import { isJsonObject, type JsonSchema, stringsOf } from '../schemas/json-schema.ts';
import { RefTable } from '../schemas/reference-table.ts';

/**
 * Returns a copy of an input schema in which the pinned top-level arguments are neither declared nor required. Only for
 * what is shown: arguments with the pins filled in are validated by the whole schema. The input is not changed.
 */
export function withoutPinned(
  schema: Record<string, unknown>,
  pinnedNames: readonly string[],
): Record<string, unknown> {
  if (pinnedNames.length === 0) return schema;
  const pinned = new Set(pinnedNames);
  return strip(openRoot(schema), pinned, 0);
}

/** Resolves a root that is only a reference. Otherwise its arguments could not be hidden. */
function openRoot(schema: JsonSchema): JsonSchema {
  if (typeof schema.$ref !== 'string') return schema;
  const target = new RefTable(schema).resolve(schema.$ref);
  if (typeof target === 'string' || !isJsonObject(target.node) || target.node === schema) return schema;
  const { $ref: _followed, ...rest } = schema;
  return { ...target.node, ...rest };
}

function strip(node: JsonSchema, pinned: ReadonlySet<string>, depth: number): JsonSchema {
  const copy: JsonSchema = { ...node };
  if (isJsonObject(node.properties))
    copy.properties = Object.fromEntries(Object.entries(node.properties).filter(([name]) => !pinned.has(name)));
  if (Array.isArray(node.required)) copy.required = stringsOf(node.required).filter((name) => !pinned.has(name));
  // Branches at the root describe the same arguments; deeper objects have their own arguments.
  for (const keyword of ['anyOf', 'oneOf', 'allOf'] as const) {
    const list = node[keyword];
    if (depth < 8 && Array.isArray(list))
      copy[keyword] = list.map((branch: unknown) => (isJsonObject(branch) ? strip(branch, pinned, depth + 1) : branch));
  }
  for (const keyword of ['then', 'else'] as const) {
    const branch = node[keyword];
    if (depth < 8 && isJsonObject(branch)) copy[keyword] = strip(branch, pinned, depth + 1);
  }
  return copy;
}
