/** Owns the check that following references ends: refuses loops that consume nothing and references that multiply (security 22). */
import { childrenOf, entriesOf, IN_PLACE_KEYWORDS, LIMITS, typesOf, type Schema } from './schema.ts';

/** Looks up the target of a canonical reference, `#` or `#/$defs/…`. */
export function targetOf(root: Schema, ref: unknown): Schema | undefined {
  if (ref === '#') return root;
  if (typeof ref !== 'string') return undefined;
  const name = ref.slice('#/$defs/'.length);
  return entriesOf(root['$defs']).find(([key]) => key === name)?.[1];
}

/** Why a canonical schema is refused, or nothing. */
export function checkGraph(root: Schema): string | undefined {
  const targets = new Map<string, Schema>([['#', root], ...entriesOf(root['$defs']).map(([name, node]) => [`#/$defs/${name}`, node] as const)]);
  if (targets.size > 1 || hasRef(root)) {
    for (const ref of targets.keys()) if (loops(ref, targets)) return 'SCHEMA_REF: a $ref leads back to itself without consuming anything';
    const sizes = new Map<string, number>();
    if (sizeOfRef('#', { targets, sizes, open: new Set() }) > LIMITS.nodes) return `SCHEMA_LIMIT: its references unfold to more than ${LIMITS.nodes} schemas`;
  }
  return acceptsNoObject(root) ? 'SCHEMA_LIMIT: the schema accepts no object, so no call could pass' : undefined;
}

function hasRef(node: Schema): boolean {
  return node['$ref'] !== undefined || childrenOf(node).some(hasRef);
}

/** True when `ref` can be reached from itself through keywords that judge the same value. */
function loops(ref: string, targets: ReadonlyMap<string, Schema>): boolean {
  const seen = new Set<string>();
  const stack = inPlaceRefs(targets.get(ref));
  for (let next = stack.pop(); next !== undefined; next = stack.pop()) {
    if (next === ref) return true;
    if (seen.has(next)) continue;
    seen.add(next);
    stack.push(...inPlaceRefs(targets.get(next)));
  }
  return false;
}

function inPlaceRefs(node: Schema | undefined): string[] {
  if (node === undefined) return [];
  const own = typeof node['$ref'] === 'string' ? [node['$ref']] : [];
  return [...own, ...childrenOf(node, IN_PLACE_KEYWORDS).flatMap(inPlaceRefs)];
}

interface Sizing {
  readonly targets: ReadonlyMap<string, Schema>;
  readonly sizes: Map<string, number>;
  readonly open: Set<string>;
}

/** Schemas after every reference is replaced by its target; a reference into an open target counts as one. */
function sizeOfRef(ref: string, sizing: Sizing): number {
  const known = sizing.sizes.get(ref);
  if (known !== undefined) return known;
  const node = sizing.targets.get(ref);
  if (node === undefined || sizing.open.has(ref)) return 1;
  sizing.open.add(ref);
  const size = Math.min(sizeOf(node, sizing), Number.MAX_SAFE_INTEGER);
  sizing.open.delete(ref);
  sizing.sizes.set(ref, size);
  return size;
}

function sizeOf(node: Schema, sizing: Sizing): number {
  const inner = childrenOf({ ...node, $defs: undefined }).reduce((sum, child) => sum + sizeOf(child, sizing), 1);
  return typeof node['$ref'] === 'string' ? inner + sizeOfRef(node['$ref'], sizing) : inner;
}

function acceptsNoObject(root: Schema): boolean {
  return (['anyOf', 'oneOf'] as const).some((keyword) => {
    const branches = childrenOf(root, [keyword]);
    return typesOf(root).includes('object') && branches.length > 0 && branches.every((branch) => typesOf(branch).length > 0 && !typesOf(branch).includes('object'));
  });
}
