/** Replaces every reference by its target. Recursion is unrolled a little and then shown as an open object. */

import { type JsonSchema, mapChildren, schemaEntries, typesOf, withoutKeywords } from '../schemas/json-schema.ts';
import { pathBelow, type TransformLog } from '../schemas/transform-log.ts';
import { intersectSchemas } from './schema-merging.ts';

/** Limit of schemas in one inlined tree. Above it, recursion is unrolled less. */
const MAX_NODES = 3_000;
/** How often one target may appear on one path, and how many references in total; tried in this order. */
const ATTEMPTS = [
  [2, 64],
  [1, 64],
  [1, 6],
  [1, 3],
  [1, 1],
] as const;

interface Walk {
  readonly targets: ReadonlyMap<string, JsonSchema>;
  readonly unroll: number;
  readonly maxRefs: number;
  readonly log: TransformLog;
  nodes: number;
}

/** The position of the walk; `trail` are the references that led there. */
interface Place {
  readonly path: string;
  readonly trail: readonly string[];
}

class TooMany extends Error {}

/** Returns the schema without `$ref` and `$defs`. Local keywords take precedence over those of the target. */
export function inlineReferences(root: JsonSchema, log: TransformLog): JsonSchema {
  const body = withoutKeywords(root, ['$defs']);
  const targets = new Map<string, JsonSchema>([
    ['#', body],
    ...schemaEntries(root.$defs).map(([name, node]) => [`#/$defs/${name}`, node] as const),
  ]);
  for (const [unroll, maxRefs] of ATTEMPTS) {
    const walk: Walk = { targets, unroll, maxRefs, log: [], nodes: 0 };
    try {
      const tree = visit(body, { path: '', trail: [] }, walk);
      log.push(...walk.log);
      return tree;
    } catch (error) {
      if (!(error instanceof TooMany)) throw error;
    }
  }
  log.push({ transform: 'recursion', effect: 'widen', path: '' });
  return openLike(body, '#');
}

function visit(node: JsonSchema, { path, trail }: Place, walk: Walk): JsonSchema {
  walk.nodes += 1;
  if (walk.nodes > MAX_NODES && walk.maxRefs > 1) throw new TooMany();
  const ref = node.$ref;
  const rest = typeof ref === 'string' ? withoutKeywords(node, ['$ref']) : node;
  const inner = mapChildren(rest, (child, ...steps) => visit(child, { path: pathBelow(path, ...steps), trail }, walk));
  if (typeof ref !== 'string') return inner;
  const target = walk.targets.get(ref) ?? {};
  if (trail.length >= walk.maxRefs || trail.filter((step) => step === ref).length >= walk.unroll) {
    walk.log.push({ transform: 'recursion', effect: 'widen', path });
    return intersectSchemas(inner, openLike(target, ref));
  }
  walk.log.push({ transform: 'inline', effect: 'lossless', path });
  return intersectSchemas(inner, visit(target, { path, trail: [...trail, ref] }, walk));
}

/** Returns the schema that ends the unrolling: an open object for an object, otherwise any value. */
function openLike(target: JsonSchema, ref: string): JsonSchema {
  const name = ref === '#' ? 'the whole arguments' : ref.slice('#/$defs/'.length);
  const object = typesOf(target).includes('object') || target.properties !== undefined;
  return object
    ? { type: 'object', additionalProperties: {}, description: `same shape as ${name}` }
    : { description: `same shape as ${name}` };
}
