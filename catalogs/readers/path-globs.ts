/**
 * Parses path globs, and matches them step by step while a walk goes down through folders, so that folders without a
 * possible match are skipped.
 */
import type { Confinement, PathClosing, PathGlobs } from './confinement.ts';

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

/** The start of a walk for some globs, of one side of the workspace. */
function startOf(globs: Partial<Readonly<Record<PathClosure, readonly string[]>>>): GlobPosition {
  const root = new Step();
  for (const closure of ['fixed', 'hidden'] as const) {
    for (const glob of globs[closure] ?? []) {
      const last = glob
        .split('/')
        .filter((name) => name !== '')
        .reduce((step, name) => step.after(name), root);
      last.closure = closure;
    }
  }
  return new GlobPosition([root]);
}

/** The position of a walk in one rule with exceptions. */
class ExceptingPosition {
  readonly closure: PathClosure;
  readonly isClosed: boolean;
  readonly #close: GlobPosition;
  readonly #open: readonly Readonly<Record<'paths' | 'except', GlobPosition>>[];

  constructor(closure: PathClosure, inherited: boolean, { close, open }: ExceptingGlobs) {
    this.closure = closure;
    this.#close = close;
    this.#open = open;
    const isOpen = open.some(({ paths, except }) => paths.closure !== undefined && except.closure === undefined);
    this.isClosed = !isOpen && (inherited || close.closure !== undefined);
  }

  /** Whether a path below may have another state. */
  get mayChange(): boolean {
    return this.isClosed ? this.#open.some(({ paths }) => !paths.isOver) : !this.#close.isOver;
  }

  /** See GlobPosition. Leaves out names that are open. */
  literals(isTop: boolean): readonly string[] {
    if (this.isClosed) return [];
    return this.#close.literals(isTop).filter((names) => {
      const at = names.split('/').reduce<ExceptingPosition>((position, name) => position.descend(name), this);
      return at.isClosed;
    });
  }

  descend(name: string): ExceptingPosition {
    return new ExceptingPosition(this.closure, this.isClosed, {
      close: this.#close.descend(name),
      open: this.#open.map(({ paths, except }) => ({ paths: paths.descend(name), except: except.descend(name) })),
    });
  }
}

interface ExceptingGlobs {
  readonly close: GlobPosition;
  readonly open: readonly Readonly<Record<'paths' | 'except', GlobPosition>>[];
}

/** The position of a walk in everything that closes paths. */
export class ClosurePosition {
  /** What applies to this path, by itself or by a folder above. */
  readonly closure: PathClosure | undefined;
  readonly #globs: GlobPosition;
  readonly #inherited: PathClosure | undefined;
  readonly #excepting: readonly ExceptingPosition[];

  constructor(globs: GlobPosition, inherited: PathClosure | undefined, excepting: readonly ExceptingPosition[]) {
    this.#globs = globs;
    this.#inherited = stricter(globs.closure, inherited);
    this.#excepting = excepting;
    this.closure = excepting.reduce(
      (found, { isClosed, closure }) => (isClosed ? stricter(found, closure) : found),
      this.#inherited,
    );
  }

  /** True if everything below has the closure of this path. */
  get isOver(): boolean {
    return this.#globs.isOver && this.#excepting.every(({ mayChange }) => !mayChange);
  }

  /** Whether exceptions of every rule that hides this path may open paths below it. */
  get mayOpen(): boolean {
    return (
      this.#inherited !== 'hidden' &&
      this.#excepting.every((rule) => !rule.isClosed || rule.closure !== 'hidden' || rule.mayChange)
    );
  }

  /** Relative paths that are closed with everything below them, see GlobPosition. */
  literals(isTop: boolean): readonly string[] {
    return [...this.#globs.literals(isTop), ...this.#excepting.flatMap((rule) => rule.literals(isTop))];
  }

  /** Returns the position after one more name. */
  descend(name: string): ClosurePosition {
    const globs = this.#globs.descend(name);
    if (globs === this.#globs && this.#excepting.length === 0) return this;
    return new ClosurePosition(
      globs,
      this.#inherited,
      this.#excepting.map((rule) => rule.descend(name)),
    );
  }
}

function stricter(one: PathClosure | undefined, other: PathClosure | undefined): PathClosure | undefined {
  return one === 'hidden' || other === 'hidden' ? 'hidden' : (one ?? other);
}

/** What a policy closes on one side of the workspace. */
export class PathTree {
  readonly #globs: GlobPosition;
  readonly #excepting: readonly ExceptingPosition[];

  constructor({ hidden, fixed, excepting = [] }: Omit<Confinement, 'closedHosts'>, side: keyof PathGlobs) {
    const start = (globs: PathGlobs): GlobPosition => startOf({ hidden: globs[side] });
    this.#globs = startOf({ hidden: hidden[side], fixed: fixed[side] });
    this.#excepting = excepting.map(
      ({ closure, close, open }: PathClosing) =>
        new ExceptingPosition(closure, false, {
          close: start(close),
          open: open.map(({ paths, except }) => ({ paths: start(paths), except: start(except) })),
        }),
    );
  }

  /** Returns the position before the first name. `inherited`: what applies to the folder above. */
  start(inherited?: PathClosure): ClosurePosition {
    return new ClosurePosition(this.#globs, inherited, this.#excepting);
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
  return (
    path
      .split('/')
      .filter((name) => name !== '' && name !== '.')
      .reduce((at, name) => at.descend(name), startOf({ hidden: globs })).closure !== undefined
  );
}
