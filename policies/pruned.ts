/** Owns what is left of a rule whose form has faults, so that the rest of it is judged in the same round; gives nothing where too little is left. */
import type { SchemaFault, YamlRule } from './rule-schema.ts';

/** A window that says nothing wrong but for its zone. */
const ANY_WINDOW = { days: ['mon'] } as const;

/** The rule without what is faulty; `paths` of the faults begin within it. It is only judged: it must never decide. */
export function pruneRule(rule: YamlRule, paths: readonly SchemaFault['path'][]): YamlRule | undefined {
  if (paths.some((path) => path.length === 0 || (path.length === 1 && path[0] === 'when'))) return undefined;
  const left = structuredClone(rule) as unknown as Record<string, unknown>;
  for (const path of paths) removeAt(left, path);
  // The outcome that asks least of patterns, and an id that no other rule has.
  const { id = '', outcome = 'deny' } = left as Partial<YamlRule>;
  return { ...(left as unknown as YamlRule), id, outcome };
}

function removeAt(rule: Record<string, unknown>, path: SchemaFault['path']): void {
  const [top, field] = path;
  const when = rule.when as Record<string, unknown>;
  if (top === 'when' && field === 'time' && path.length > 2) return keepZone(when);
  // Without one of its entries a list would say where the others stand wrongly.
  const end = path.findIndex((key) => typeof key === 'number');
  const way = end < 0 ? path : path.slice(0, end);
  const parent = way
    .slice(0, -1)
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[String(key)], rule);
  if (typeof parent === 'object' && parent !== null) Reflect.deleteProperty(parent, way.at(-1) ?? '');
}

/** `from`, `to` and `days` are read together: where one is faulty, what the others say of it would be told too. */
function keepZone(when: Record<string, unknown>): void {
  const zone = (when.time as { readonly zone?: unknown } | undefined)?.zone;
  if (typeof zone === 'string') when.time = { ...ANY_WINDOW, zone };
  else delete when.time;
}
