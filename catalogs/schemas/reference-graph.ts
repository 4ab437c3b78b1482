/** Checks that following references ends. Loops that consume nothing, and references that multiply, are refused. */
import {
  childrenOf,
  IN_PLACE_KEYWORDS,
  type JsonSchema,
  SCHEMA_LIMITS,
  schemaEntries,
  typesOf,
} from './json-schema.ts';

/** Returns the target of a canonical reference, `#` or `#/$defs/…`. */
export function referenceTarget(root: JsonSchema, ref: unknown): JsonSchema | undefined {
  if (ref === '#') return root;
  if (typeof ref !== 'string') return undefined;
  const name = ref.slice('#/$defs/'.length);
  return schemaEntries(root.$defs).find(([key]) => key === name)?.[1];
}

/** Returns why a canonical schema is refused; undefined if it is not. */
export function checkGraph(root: JsonSchema): string | undefined {
  const targets = new Map<string, JsonSchema>([
    ['#', { ...root, $defs: undefined }],
    ...schemaEntries(root.$defs).map(([name, node]) => [`#/$defs/${name}`, node] as const),
  ]);
  if (targets.size > 1 || hasRef(root)) {
    for (const ref of targets.keys())
      if (loops(ref, targets)) return 'SCHEMA_REF: a $ref leads back to itself without consuming anything';
    const groups = groupCycles(new Map([...targets].map(([ref, node]) => [ref, refsIn(node)])));
    if (sizeOfRef('#', { targets, groups, sizes: new Map() }) > SCHEMA_LIMITS.nodes)
      return `SCHEMA_LIMIT: its references unfold to more than ${SCHEMA_LIMITS.nodes} schemas`;
  }
  return acceptsNoObject(root) ? 'SCHEMA_LIMIT: the schema accepts no object, so no call could pass' : undefined;
}

function hasRef(node: JsonSchema): boolean {
  return node.$ref !== undefined || childrenOf(node).some(hasRef);
}

/** Returns true if `ref` can be reached from itself through keywords that apply to the same value. */
function loops(ref: string, targets: ReadonlyMap<string, JsonSchema>): boolean {
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

function inPlaceRefs(node: JsonSchema | undefined): string[] {
  if (node === undefined) return [];
  const own = typeof node.$ref === 'string' ? [node.$ref] : [];
  return [...own, ...childrenOf(node, IN_PLACE_KEYWORDS).flatMap(inPlaceRefs)];
}

function refsIn(node: JsonSchema): readonly string[] {
  const own = typeof node.$ref === 'string' ? [node.$ref] : [];
  return [...own, ...childrenOf(node).flatMap(refsIn)];
}

interface Sizing {
  readonly targets: ReadonlyMap<string, JsonSchema>;
  readonly groups: ReadonlyMap<string, number>;
  readonly sizes: Map<string, number>;
}

/**
 * Counts schemas after every reference is replaced by its target. Recursion counts once, so only references that
 * multiply give a large number.
 */
function sizeOfRef(ref: string, sizing: Sizing): number {
  const known = sizing.sizes.get(ref);
  if (known !== undefined) return known;
  const node = sizing.targets.get(ref);
  const size = node === undefined ? 1 : Math.min(sizeOf(node, ref, sizing), Number.MAX_SAFE_INTEGER);
  sizing.sizes.set(ref, size);
  return size;
}

function sizeOf(node: JsonSchema, owner: string, sizing: Sizing): number {
  const inner = childrenOf(node).reduce((sum, child) => sum + sizeOf(child, owner, sizing), 1);
  const ref = node.$ref;
  if (typeof ref !== 'string' || sizing.groups.get(ref) === sizing.groups.get(owner)) return inner;
  return inner + sizeOfRef(ref, sizing);
}

/**
 * Numbers the definitions so that those which can reach each other have the same number (Kosaraju, without recursion).
 */
function groupCycles(edges: ReadonlyMap<string, readonly string[]>): ReadonlyMap<string, number> {
  const back = new Map<string, string[]>([...edges.keys()].map((ref) => [ref, []]));
  for (const [from, list] of edges) for (const to of list) back.get(to)?.push(from);
  const order: string[] = [];
  const seen = new Set<string>();
  for (const start of edges.keys()) walkFrom(start, edges, { seen, leave: (ref) => order.push(ref) });
  const groups = new Map<string, number>();
  const grouped = new Set<string>();
  order
    .reverse()
    .forEach((start, number) => walkFrom(start, back, { seen: grouped, leave: (ref) => groups.set(ref, number) }));
  return groups;
}

function walkFrom(
  start: string,
  edges: ReadonlyMap<string, readonly string[]>,
  { seen, leave }: { readonly seen: Set<string>; readonly leave: (ref: string) => void },
): void {
  const stack: { readonly ref: string; next: number }[] = seen.has(start) ? [] : [{ ref: start, next: 0 }];
  seen.add(start);
  for (let top = stack.at(-1); top !== undefined; top = stack.at(-1)) {
    const to = edges.get(top.ref)?.[top.next];
    top.next += 1;
    if (to === undefined) leave((stack.pop() ?? top).ref);
    else if (!seen.has(to)) {
      seen.add(to);
      stack.push({ ref: to, next: 0 });
    }
  }
}

function acceptsNoObject(root: JsonSchema): boolean {
  return (['anyOf', 'oneOf'] as const).some((keyword) => {
    const branches = childrenOf(root, [keyword]);
    return (
      typesOf(root).includes('object') &&
      branches.length > 0 &&
      branches.every((branch) => typesOf(branch).length > 0 && !typesOf(branch).includes('object'))
    );
  });
}
