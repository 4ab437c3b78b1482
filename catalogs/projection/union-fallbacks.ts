/** What a profile without unions shows instead: merged objects, a list rather than a scalar, JSON text for the rest. */

import type { SchemaProfile } from '../profiles/schema-profile.ts';
import {
  isJsonObject,
  type JsonSchema,
  schemasOf,
  stringsOf,
  typesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import type { TransformLog } from '../schemas/transform-log.ts';
import { shapeWords } from './constraint-words.ts';
import type { Renames } from './property-names.ts';
import { uniteSchemas } from './schema-merging.ts';
import { joinBranches } from './union-branches.ts';

/**
 * Returns the node with its union replaced by what the profile can show. `text: true` marks a schema whose values are
 * written as JSON text.
 */
export function chooseUnion(node: JsonSchema, rendering: Rendering): JsonSchema {
  const branches = schemasOf(node.anyOf);
  if (branches.length === 0) return node;
  if (rendering.profile.unions === 'merge') return collapse(node, branches, rendering);
  if (!rendering.mergeVariants) return node;
  const objects = branches.filter((branch) => typesOf(branch)[0] === 'object');
  if (objects.length < 2) return node;
  const rest = branches.filter((branch) => !objects.includes(branch));
  return rest.length === 0 ? around(uniteSchemas(objects), node) : { ...node, anyOf: [uniteSchemas(objects), ...rest] };
}

function around(chosen: JsonSchema, node: JsonSchema): JsonSchema {
  const outer = withoutKeywords(node, ['anyOf']);
  const words = [...stringsOf(outer.words), ...stringsOf(chosen.words)];
  return { ...chosen, ...outer, ...(words.length > 0 ? { words } : {}) };
}

/** Returns one type for a union. Every value that the union accepts can still be written. */
function collapse(node: JsonSchema, branches: readonly JsonSchema[], rendering: Rendering): JsonSchema {
  const kinds = new Set(branches.map((branch) => typesOf(branch)[0]));
  rendering.log.push({ transform: 'merge-variants', effect: 'widen', path: '' });
  const only = (kind: string): readonly JsonSchema[] => branches.filter((branch) => typesOf(branch)[0] === kind);
  if (kinds.size === 1 && kinds.has('object')) return around(uniteSchemas(branches), node);
  if (!kinds.has('object') && kinds.has('array')) return around(uniteArrays(only('array')), node);
  if (kinds.has('object')) return { ...node, text: true };
  if ([...kinds].every((kind) => kind === 'number' || kind === 'integer')) return around({ type: 'number' }, node);
  return around({ type: 'string', words: [shapeWords({ anyOf: branches })] }, node);
}

function uniteArrays(arrays: readonly JsonSchema[]): JsonSchema {
  const [first = {}] = arrays;
  if (arrays.length === 1) return first;
  const items = arrays.map((array) => array.items).filter(isJsonObject);
  return {
    type: 'array',
    items: joinBranches(
      items.flatMap((item) => (Array.isArray(item.anyOf) ? schemasOf(item.anyOf) : [item])),
      {},
    ),
  };
}
/** One rendering: the same tree can be written with more or less detail. */
export interface Rendering {
  readonly profile: SchemaProfile;
  readonly renames: Renames;
  readonly log: TransformLog;
  readonly maxDescription: number;
  readonly maxDepth: number;
  readonly mergeVariants: boolean;
}
