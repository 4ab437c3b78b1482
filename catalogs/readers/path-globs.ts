/**
 * Parses path globs, and matches them step by step while a walk goes down through folders, so that folders without a
 * possible match are skipped.
 */
import type { PathGlobs } from './confinement.ts';

/**
 * Returns why a pattern of any kind would be misread, because it contains wildcards of other dialects; undefined if it
 * does not.
 */
export function patternProblem(pattern: string): string | undefined {
  const found = /[?[\]{}\\]|^!/.exec(pattern)?.[0];
  if (found !== undefined)
    return `"${pattern}" contains ${found}: only * and ** are wildcards; write one pattern for each case`;
  return pattern === '' ? 'an empty pattern matches nothing; remove it' : undefined;
}

/**
 * Returns why a path glob can match nothing, or would be misread; undefined for a correct one. `*` and `**` are the
 * only wildcards.
 */
export function globProblem(glob: string): string | undefined {
  const misread = patternProblem(glob);
  if (misread !== undefined) return misread;
  if (glob.startsWith('~')) return `"${glob}": ~ is not expanded; write the absolute path`;
  const segments = glob.replace(/^\//, '').split('/');
  if (segments.some((segment) => segment === '' || segment === '.' || segment === '..'))
    return `"${glob}" can match no path: write it without empty, "." and ".." parts, and a folder as folder/**`;
  return segments.some((segment) => segment !== '**' && segment.includes('**'))
    ? `"${glob}": ** must stand alone between slashes`
    : undefined;
}

/** What a glob says of the paths that it matches; `hidden` takes precedence over `fixed`. */
export type PathClosure = 'hidden' | 'fixed';

/** A node of the tree of globs. Globs that begin alike share nodes. */
class Step {
  readonly names = new Map<string, Step>();
  readonly patterns = new Map<string, { readonly parts: readonly string[]; readonly after: Step }>();
  /** After `**`: any further name leads here again. */
  deep: Step | undefined;
  isDeep = false;
  closure: PathClosure | undefined;

  /** The step after a name of the glob. */
  after(name: string): Step {
    if (name === '**') {
      this.deep ??= new Step();
      this.deep.isDeep = true;
      return this.deep;
    }
    const next = this.names.get(name) ?? this.patterns.get(name)?.after ?? new Step();
    if (name.includes('*')) this.patterns.set(name, { parts: name.split('*'), after: next });
    else this.names.set(name, next);
    return next;
  }
}

/** The position of a walk in all globs at once. */
export class GlobPosition {
  readonly #steps: readonly Step[];
  /** What the globs say of this path. */
  readonly closure: PathClosure | undefined;
  /** After a name that matches no glob: most names. */
  #otherwise: GlobPosition | undefined;

  constructor(steps: readonly Step[]) {
    this.#steps = settle(steps);
    const closures = new Set(this.#steps.map(({ closure }) => closure));
    this.closure = closures.has('hidden') ? 'hidden' : closures.has('fixed') ? 'fixed' : undefined;
  }

  /** True if nothing below can match. */
  get isOver(): boolean {
    return this.#steps.length === 0;
  }

  /**
   * Relative paths, written without a star, that are closed with everything below them. Names that `**` may put into
   * any folder count only if `isTop`.
   */
  literals(isTop: boolean): readonly string[] {
    return this.#steps.filter(({ isDeep }) => isTop || !isDeep).flatMap(literalsOf);
  }

  /** Returns the position after one more name. */
  descend(name: string): GlobPosition {
    let next: Step[] | undefined;
    for (const { names, patterns } of this.#steps) {
      const exact = names.get(name);
      if (exact !== undefined) (next ??= []).push(exact);
      for (const { parts, after } of patterns.values()) if (matchesName(parts, name)) (next ??= []).push(after);
    }
    if (next !== undefined) return new GlobPosition([...next, ...this.#steps.filter(({ isDeep }) => isDeep)]);
    return (this.#otherwise ??=
      this.#steps.length > 0 && this.#steps.every(({ isDeep }) => isDeep)
        ? this
        : new GlobPosition(this.#steps.filter(({ isDeep }) => isDeep)));
  }
}

/** Globs of one side, compiled together. */
export class PathTree {
  /** Before the first name. */
  readonly start: GlobPosition;

  constructor(globs: Readonly<Record<PathClosure, PathGlobs>>, side: keyof PathGlobs) {
    const root = new Step();
    for (const closure of ['fixed', 'hidden'] as const) {
      for (const glob of globs[closure][side]) {
        const last = glob
          .split('/')
          .filter((name) => name !== '')
          .reduce((step, name) => step.after(name), root);
        last.closure = closure;
      }
    }
    this.start = new GlobPosition([root]);
  }
}

function literalsOf(step: Step): readonly string[] {
  return [...step.names].flatMap(([name, next]) => {
    if (next.closure !== undefined || next.deep?.closure !== undefined) return [name];
    return literalsOf(next).map((rest) => `${name}/${rest}`);
  });
}

/** Adds the nodes after each `**`, because it may match no name at all. */
function settle(steps: readonly Step[]): readonly Step[] {
  const all = new Set<Step>();
  for (let step of steps) {
    all.add(step);
    while (step.deep !== undefined) all.add((step = step.deep));
  }
  return [...all];
}

/**
 * Returns true if a name matches a pattern. `parts` are the texts between its stars. Each is searched once, from left
 * to right, so the time is linear.
 */
export function matchesName(parts: readonly string[], name: string): boolean {
  const [first = '', last = ''] = [parts[0], parts.at(-1)];
  if (parts.length === 1) return name === first;
  if (name.length < first.length + last.length || !name.startsWith(first) || !name.endsWith(last)) return false;
  const end = name.length - last.length;
  let at = first.length;
  for (let index = 1; index < parts.length - 1; index += 1) {
    const part = parts[index] ?? '';
    const found = name.indexOf(part, at);
    if (found < 0 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/**
 * Returns whether a path, relative to where the globs begin and `.` for that folder itself, matches one of them.
 * `folder/**` matches the folder too.
 */
export function matchesGlobs(globs: readonly string[], path: string): boolean {
  const { start } = new PathTree(
    { hidden: { inside: globs, outside: [] }, fixed: { inside: [], outside: [] } },
    'inside',
  );
  return (
    path
      .split('/')
      .filter((name) => name !== '' && name !== '.')
      .reduce((at, name) => at.descend(name), start).closure !== undefined
  );
}
