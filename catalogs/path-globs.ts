/** Owns the matching of path globs step by step, as a walk goes down through folders; refuses to look where no glob can match any more. */
import type { PathGlobs } from './confinement.ts';

/** What a glob says of the paths that it matches; `hidden` outdoes `fixed`. */
export type Closure = 'hidden' | 'fixed';

/** A place in the globs: what is left to match. Many globs share their beginnings. */
class Step {
  readonly names = new Map<string, Step>();
  readonly patterns = new Map<string, Step>();
  /** After `**`: any further name leads here again. */
  deep: Step | undefined;
  isDeep = false;
  closure: Closure | undefined;

  /** The step after a name of the glob. */
  after(name: string): Step {
    if (name === '**') {
      this.deep ??= new Step();
      this.deep.isDeep = true;
      return this.deep;
    }
    const known = name.includes('*') ? this.patterns : this.names;
    const next = known.get(name) ?? new Step();
    known.set(name, next);
    return next;
  }
}

/** Where a walk stands in all globs at once; empty when nothing below can match. */
export type Standing = ReadonlySet<Step>;

/** Globs of one side, compiled together. */
export class PathTree {
  /** Before the first name. */
  readonly start: Standing;

  constructor(globs: Readonly<Record<Closure, PathGlobs>>, side: keyof PathGlobs) {
    const root = new Step();
    for (const closure of ['fixed', 'hidden'] as const) {
      for (const glob of globs[closure][side]) {
        const last = glob.split('/').filter((name) => name !== '').reduce((step, name) => step.after(name), root);
        last.closure = closure;
      }
    }
    this.start = settle([root]);
  }
}

/** One name further down. */
export function descend(standing: Standing, name: string): Standing {
  const next: Step[] = [];
  for (const step of standing) {
    if (step.isDeep) next.push(step);
    const exact = step.names.get(name);
    if (exact !== undefined) next.push(exact);
    for (const [pattern, after] of step.patterns) if (matchesName(pattern, name)) next.push(after);
  }
  return settle(next);
}

/** What the globs say of this very path. */
export function closureOf(standing: Standing): Closure | undefined {
  let found: Closure | undefined;
  for (const { closure } of standing) {
    if (closure === 'hidden') return closure;
    found ??= closure;
  }
  return found;
}

/** `**` may also stand for no name at all. */
function settle(steps: readonly Step[]): Standing {
  const all = new Set<Step>();
  for (let step of steps) {
    all.add(step);
    while (step.deep !== undefined) all.add((step = step.deep));
  }
  return all;
}

/** `*` stands for any characters. Each part is looked for once, from left to right, so no name can make it slow. */
export function matchesName(pattern: string, name: string): boolean {
  const parts = pattern.split('*');
  if (parts.length === 1) return pattern === name;
  const [first = '', last = ''] = [parts[0], parts.at(-1)];
  if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  const end = name.length - last.length;
  let at = first.length;
  for (const part of parts.slice(1, -1)) {
    const found = name.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}
