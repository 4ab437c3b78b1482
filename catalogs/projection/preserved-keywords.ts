/**
 * The projection that keeps constraint keywords: only the root is cleaned, references are inlined and names made legal.
 */

import {
  IN_PLACE_KEYWORDS,
  isJsonObject,
  isNever,
  type JsonSchema,
  mapChildren,
  schemaEntries,
  schemasOf,
  stringsOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { pathBelow, type TransformLog } from '../schemas/transform-log.ts';
import { type LiftNode, liftNode, mergeLifts } from './argument-lifting.ts';
import { cutWord } from './constraint-words.ts';
import type { Emitted } from './schema-emitter.ts';
import { intersectSchemas, uniteSchemas } from './schema-merging.ts';
import type { Rendering } from './union-fallbacks.ts';

/**
 * Returns the root as one object without combinators. The validator enforces what they said, and a hint describes it.
 */
export function preservedRoot(tree: JsonSchema, log: TransformLog): JsonSchema {
  const combined = IN_PLACE_KEYWORDS.filter((keyword) => tree[keyword] !== undefined);
  if (combined.length === 0) return tree;
  log.push({ transform: 'root-combinator', effect: 'widen', path: '' });
  const base = schemasOf(tree.allOf).reduce(intersectSchemas, withoutKeywords(tree, IN_PLACE_KEYWORDS));
  const variants = [...schemasOf(tree.anyOf), ...schemasOf(tree.oneOf)].map((branch) => intersectSchemas(branch, base));
  const root = withoutKeywords(variants.length > 0 ? uniteSchemas(variants) : base, IN_PLACE_KEYWORDS);
  return {
    ...root,
    type: 'object',
    words: [`${combined.join(', ')} at the root: some combinations are refused; the error says which`],
  };
}

/** Writes the tree with all its keywords. */
export function emitPreserved(root: JsonSchema, rendering: Rendering): Emitted & { readonly hints: readonly string[] } {
  const { schema, lift } = emit(withoutKeywords(root, ['words']), rendering, '');
  const kept = Object.entries({ type: 'object', properties: {}, ...schema }).filter(([key]) =>
    rendering.profile.rootKeywords.includes(key),
  );
  return { schema: Object.fromEntries(kept), lift, hints: stringsOf(root.words) };
}

function emit(node: JsonSchema, rendering: Rendering, path: string): Emitted {
  const shown = (name: string): string => rendering.renames.get(name) ?? name;
  const lifts = new Map<JsonSchema, LiftNode | undefined>();
  const written = mapChildren(node, (child) => {
    const inner = emit(child, rendering, path);
    lifts.set(child, inner.lift);
    return inner.schema;
  });
  const schema = pruned(written, rendering);
  const properties = schemaEntries(node.properties);
  const renamed = properties.filter(([name]) => shown(name) !== name);
  for (const [name] of renamed)
    rendering.log.push({ transform: 'rename', effect: 'rename', path: pathBelow(path, 'properties', name) });
  if (isJsonObject(schema.properties))
    schema.properties = Object.fromEntries(
      Object.entries(schema.properties).map(([name, child]) => [shown(name), child]),
    );
  if (Array.isArray(schema.required)) schema.required = stringsOf(schema.required).map(shown);
  const liftOf = (child: unknown): LiftNode | undefined => (isJsonObject(child) ? lifts.get(child) : undefined);
  const own = liftNode({
    names: new Map(renamed.map(([name]) => [shown(name), name])),
    below: properties.map(([name, child]) => [name, liftOf(child)]),
    items: liftOf(node.items),
    values: liftOf(node.additionalProperties),
  });
  const branches = ['anyOf', 'oneOf', 'allOf']
    .flatMap((keyword) => schemasOf(node[keyword]))
    .map((child) => lifts.get(child));
  return { schema, lift: branches.some((lift) => lift !== undefined) ? mergeLifts([own, ...branches]) : own };
}

function pruned(node: JsonSchema, rendering: Rendering): JsonSchema {
  const kept = Object.fromEntries(Object.entries(node).filter(([key]) => rendering.profile.keywords.includes(key)));
  if (typeof kept.description === 'string') kept.description = cutWord(kept.description, rendering.maxDescription);
  for (const keyword of ['additionalProperties', 'items'] as const) {
    const child = kept[keyword];
    // Write booleans again: some hosts accept `false` and `true` here, but not the schemas that mean the same.
    if (isJsonObject(child) && isNever(child)) kept[keyword] = false;
    else if (isJsonObject(child) && Object.keys(child).length === 0) kept[keyword] = true;
  }
  return kept;
}
