/** Simplifies a tree from its leaves up: without allOf and oneOf, and with no keywords next to a union. */

import {
  isJsonObject,
  isNever,
  type JsonSchema,
  mapChildren,
  ownValue,
  schemasOf,
  stringsOf,
  typesOf,
  withoutKeywords,
} from '../schemas/json-schema.ts';
import { pathBelow, type TransformLog } from '../schemas/transform-log.ts';
import { dropConditions } from './conditional-keywords.ts';
import { requiredWords, settleType } from './node-types.ts';
import { intersectSchemas, uniteSchemas } from './schema-merging.ts';
import { joinBranches } from './union-branches.ts';

/** Keywords that describe the union itself and stay on its node. */
const OUTSIDE = ['description', 'default', 'words', 'nullable'];

/** Rewrites a tree without references: allOf merged, conditions in words, oneOf as anyOf, one type per node. */
export function simplifySchema(node: JsonSchema, path: string, log: TransformLog): JsonSchema {
  // Conditions stay as they were written, because a simplified `not` would no longer say what it refuses.
  const inner = mapChildren(node, (child, ...steps) =>
    steps[0] === 'if' || steps[0] === 'not' ? child : simplifySchema(child, pathBelow(path, ...steps), log),
  );
  const merged = mergeAllOf(inner, path, log);
  const plain = dropConditions(merged, path, log);
  const union = simplifyUnion(plain, path, log);
  const settled = settleType(union);
  if (settled.anyOf !== undefined && union.anyOf === undefined)
    log.push({ transform: 'type-list', effect: 'lossless', path });
  const whole = settled.anyOf === undefined || union.anyOf !== undefined ? settled : simplifyUnion(settled, path, log);
  return finishTuple(whole, path, log);
}

function finishTuple(node: JsonSchema, path: string, log: TransformLog): JsonSchema {
  if (node.tuple !== true || !isJsonObject(node.items)) return node;
  log.push({ transform: 'tuple', effect: 'widen', path });
  return { ...withoutKeywords(node, ['tuple']), items: simplifyUnion(node.items, pathBelow(path, 'items'), log) };
}

function mergeAllOf(node: JsonSchema, path: string, log: TransformLog): JsonSchema {
  if (!Array.isArray(node.allOf)) return node;
  log.push({ transform: 'all-of', effect: 'lossless', path });
  const merged = schemasOf(node.allOf).reduce(intersectSchemas, withoutKeywords(node, ['allOf']));
  return merged.allOf === undefined ? merged : mergeAllOf(merged, path, log);
}

function simplifyUnion(node: JsonSchema, path: string, log: TransformLog): JsonSchema {
  const keyword = node.anyOf === undefined ? 'oneOf' : 'anyOf';
  if (node[keyword] === undefined) return node;
  if (node.oneOf !== undefined) log.push({ transform: 'one-of', effect: 'widen', path });
  const base = withoutKeywords(node, ['anyOf', 'oneOf', ...OUTSIDE]);
  const outside: JsonSchema = Object.fromEntries(Object.entries(node).filter(([key]) => OUTSIDE.includes(key)));
  const flat = schemasOf(node[keyword])
    .flatMap(flatten)
    .filter((branch) => !isNever(branch));
  const nullable =
    flat.some((branch) => branch.nullable === true) && typesOf(base).length === 0 ? { nullable: true } : {};
  const branches = flat
    .filter((branch) => branch.nothingElse !== true)
    .map((branch) => withoutKeywords(branch, ['nullable']));
  const around = { ...outside, ...nullable };
  if (branches.length === 0)
    return flat.length > 0 && Object.keys(base).length === 0
      ? { ...around, nothingElse: true }
      : { ...around, ...settleType(base) };
  if (branches.every(onlyRequires)) {
    log.push({ transform: 'required-union', effect: 'widen', path });
    return {
      ...around,
      ...settleType({ ...base, type: base.type ?? 'object' }),
      words: [
        ...stringsOf(outside.words),
        requiredWords(branches),
        ...branches.flatMap((branch) => stringsOf(branch.words)),
      ],
    };
  }
  return joinBranches(distribute(branches, base), around);
}

/** A union inside a union is one union; its description goes to its first branch. */
function flatten(branch: JsonSchema): readonly JsonSchema[] {
  if (!Array.isArray(branch.anyOf)) return [branch];
  const outer = withoutKeywords(branch, ['anyOf', 'default']);
  return schemasOf(branch.anyOf).map((inner, index) => {
    if (index > 0) return branch.nullable === true ? { ...inner, nullable: true } : inner;
    const description = [outer.description, inner.description].filter((text) => typeof text === 'string').join('. ');
    const words = [...stringsOf(outer.words), ...stringsOf(inner.words)];
    return {
      ...outer,
      ...inner,
      ...(description === '' ? {} : { description }),
      ...(words.length > 0 ? { words } : {}),
    };
  });
}

function onlyRequires(branch: JsonSchema): boolean {
  return (
    Object.keys(branch).every((key) => ['required', 'type', 'words', 'needs', 'description'].includes(key)) &&
    stringsOf(branch.required).length > 0
  );
}

/** What is next to a union applies to every branch. A contradicting branch can never be chosen. */
function distribute(branches: readonly JsonSchema[], base: JsonSchema): readonly JsonSchema[] {
  if (Object.keys(base).length === 0) return branches;
  const allowed = typesOf(base);
  const possible = branches.filter((branch) => {
    const types = typesOf(branch);
    return (
      types.length === 0 ||
      allowed.length === 0 ||
      types.some(
        (type) =>
          allowed.includes(type) ||
          (type === 'integer' && allowed.includes('number')) ||
          (type === 'number' && allowed.includes('integer')),
      )
    );
  });
  return (possible.length > 0 ? possible : [{}])
    .map((branch) => settleType(intersectSchemas(branch, base)))
    .flatMap(flatten);
}

/** Returns the root as one object, because no provider accepts a union there. */
export function rootObject(tree: JsonSchema): JsonSchema {
  const variants = schemasOf(tree.anyOf).filter(
    (branch) => typesOf(branch).includes('object') || typesOf(branch).length === 0,
  );
  const merged =
    variants.length > 0 ? uniteSchemas(variants) : withoutKeywords(tree, ['anyOf', 'nullable', 'nothingElse']);
  const words = [...new Set([...stringsOf(tree.words), ...stringsOf(merged.words)])];
  return {
    ...merged,
    type: 'object',
    ...(ownValue(merged, 'properties') === undefined ? { properties: {} } : {}),
    ...(words.length > 0 ? { words } : {}),
  };
}
