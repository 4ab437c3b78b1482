/** Owns what a profile without unions shows in their place: merged objects, a list rather than a scalar, JSON text for the rest. */
import { joinBranches } from './branches.ts';
import type { Rendering } from './emit.ts';
import { unite } from './merge.ts';
import { isObject, type Schema, schemasOf, strings, typesOf, without } from './schema.ts';
import { shape } from './words.ts';

/** The node with its union reduced as the rendering asks; `text: true` marks a value that is written as JSON text. */
export function chooseUnion(node: Schema, rendering: Rendering): Schema {
  const branches = schemasOf(node.anyOf);
  if (branches.length === 0) return node;
  if (rendering.profile.unions === 'merge') return collapse(node, branches, rendering);
  if (!rendering.mergeVariants) return node;
  const objects = branches.filter((branch) => typesOf(branch)[0] === 'object');
  if (objects.length < 2) return node;
  const rest = branches.filter((branch) => !objects.includes(branch));
  return rest.length === 0 ? around(unite(objects), node) : { ...node, anyOf: [unite(objects), ...rest] };
}

function around(chosen: Schema, node: Schema): Schema {
  const outer = without(node, ['anyOf']);
  const words = [...strings(outer.words), ...strings(chosen.words)];
  return { ...chosen, ...outer, ...(words.length > 0 ? { words } : {}) };
}

/** One type for a union, and nothing that an obedient model could not write any more (transform 8 is never used). */
function collapse(node: Schema, branches: readonly Schema[], rendering: Rendering): Schema {
  const kinds = new Set(branches.map((branch) => typesOf(branch)[0]));
  rendering.log.push({ transform: 'merge-variants', effect: 'widen', path: '' });
  const only = (kind: string): readonly Schema[] => branches.filter((branch) => typesOf(branch)[0] === kind);
  if (kinds.size === 1 && kinds.has('object')) return around(unite(branches), node);
  if (!kinds.has('object') && kinds.has('array')) return around(uniteArrays(only('array')), node);
  if (kinds.has('object')) return { ...node, text: true };
  if ([...kinds].every((kind) => kind === 'number' || kind === 'integer')) return around({ type: 'number' }, node);
  return around({ type: 'string', words: [shape({ anyOf: branches })] }, node);
}

function uniteArrays(arrays: readonly Schema[]): Schema {
  const [first = {}] = arrays;
  if (arrays.length === 1) return first;
  const items = arrays.map((array) => array.items).filter(isObject);
  return {
    type: 'array',
    items: joinBranches(
      items.flatMap((item) => (Array.isArray(item.anyOf) ? schemasOf(item.anyOf) : [item])),
      {},
    ),
  };
}
