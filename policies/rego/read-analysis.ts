/** Owns what a part of Rego reads of a call, through every rule and function that it asks; refuses to guess: what cannot be followed reads the whole call. */
import { aliasesOf, groundPath, type Module, packagePath, type Rule, type Term, termsIn } from './syntax-tree.ts';

/**
 * Everything that a value can depend on: the caller, the server and the verb; the name of the tool too; what only the call
 * itself carries. Data of a policy is the same for all.
 */
export type ReadLevel = 'kind' | 'tool' | 'call';

/** `caller`: the caller alone. */
type Depth = 'caller' | ReadLevel;

const ORDER: readonly Depth[] = ['caller', 'kind', 'tool', 'call'];

/** Built-in functions that answer by more than what they are given; of those that wasm has here it is the clock alone. */
const UNSTEADY: ReadonlySet<string> = new Set(['time.now_ns']);

/** The most that is read of several parts. */
export function deepestRead(parts: Iterable<ReadLevel>): ReadLevel {
  return inLists(deepest(parts));
}

function deepest(parts: Iterable<Depth>): Depth {
  let most = 0;
  for (const part of parts) most = Math.max(most, ORDER.indexOf(part));
  return ORDER[most] ?? 'call';
}

/** To a list, the caller and the kind of tool are known alike. */
function inLists(depth: Depth): ReadLevel {
  return depth === 'caller' ? 'kind' : depth;
}

interface Defined {
  readonly rule: Rule;
  readonly module: Module;
}

/**
 * Marks parts of some modules. Names are followed by what they could mean: a local variable that is called as a rule is
 * counts as that rule, and a reference with a part that is not written out as all that it could lead to. So a mark may say too
 * much and never too little. `opa check` has found no rule that asks for itself; by such names one may seem to.
 */
export class ReadAnalysis {
  /** By the whole name of rules, and by every name above it. */
  readonly #exact = new Map<string, Defined[]>();
  readonly #below = new Map<string, Defined[]>();
  readonly #aliases = new Map<Module, ReadonlyMap<string, readonly string[]>>();
  readonly #marked = new Map<Rule, Depth>();

  constructor(modules: readonly Module[]) {
    for (const module of modules) {
      this.#aliases.set(module, aliasesOf(module));
      for (const rule of module.rules ?? []) {
        const names = [...packagePath(module), ...groundNames(rule.head.ref)];
        add(this.#exact, names, { rule, module });
        for (let length = 1; length <= names.length; length += 1)
          add(this.#below, names.slice(0, length), { rule, module });
      }
    }
  }

  /** What a rule of `module` reads to give what it gives. */
  ofRule(rule: Rule, module: Module): ReadLevel {
    return inLists(this.#rule({ rule, module }));
  }

  /** True for a rule that gives the same for every call and every list of a caller. */
  readsCallerOnly(rule: Rule, module: Module): boolean {
    return this.#rule({ rule, module }) === 'caller';
  }

  /** What a part of the tree of `module` reads. */
  of(part: unknown, module: Module): ReadLevel {
    return inLists(deepest(this.#each(part, module)));
  }

  /** True for a name that a rule or an import of the module has, and for `input` and `data`. */
  isGlobal(name: string, module: Module): boolean {
    return (
      name === 'input' ||
      name === 'data' ||
      this.#aliases.get(module)?.has(name) === true ||
      this.#below.has(keyOf([...packagePath(module), name]))
    );
  }

  *#each(part: unknown, module: Module): Generator<Depth> {
    for (const term of termsIn(part)) {
      if (term.type !== 'var' && term.type !== 'ref') continue;
      const names = groundNames(term.type === 'ref' ? (term.value as readonly Term[]) : [term]);
      if (UNSTEADY.has(names.join('.'))) yield 'call';
      const path = groundPath(term, this.#aliases.get(module) ?? new Map())?.names;
      if (path?.[0] === 'input') yield readOf(path.slice(1));
      if (path?.[0] === 'data') yield this.#found(path.slice(1));
      yield this.#found([...packagePath(module), ...names]);
    }
  }

  /** What rules read that a reference to this place of `data` could lead to. */
  #found(names: readonly string[]): Depth {
    // All of `data` would show what Tollgate keeps there.
    if (names.length === 0) return 'call';
    const above = names.slice(0, -1).flatMap((_, at) => this.#exact.get(keyOf(names.slice(0, at + 1))) ?? []);
    return deepest([...(this.#below.get(keyOf(names)) ?? []), ...above].map((found) => this.#rule(found)));
  }

  #rule({ rule, module }: Defined): Depth {
    const known = this.#marked.get(rule);
    if (known !== undefined) return known;
    // Until it is known: rules that only seem to ask for each other, by local names, meet it here, and keep what they found.
    this.#marked.set(rule, 'call');
    const reads = deepest(this.#each(partsOf(rule), module));
    this.#marked.set(rule, reads);
    return reads;
  }
}

/** All of a rule but its name, which all rules of a set share. */
function partsOf({ head, body, else: otherwise }: Rule): readonly unknown[] {
  return [
    head.args,
    head.key,
    head.value,
    head.ref.slice(1),
    body,
    ...(otherwise === undefined ? [] : partsOf(otherwise)),
  ];
}

/** What a reference below `input` reads: a list is decided for a caller and a tool, with every verb that a call of it may have. */
function readOf([top, field]: readonly string[]): Depth {
  if (top === 'principal') return 'caller';
  if (top === 'version' || top === 'phase') return 'kind';
  if (top !== 'effect' || field === undefined) return 'call';
  if (field === 'server' || field === 'verb') return 'kind';
  return field === 'tool' ? 'tool' : 'call';
}

/** The names that a reference begins with, as far as they are written out. */
function groundNames(terms: readonly Term[]): readonly string[] {
  const end = terms.findIndex(({ type }, at) => at > 0 && type !== 'string');
  return (end < 0 ? terms : terms.slice(0, end)).map(({ value }) => String(value));
}

function add(map: Map<string, Defined[]>, names: readonly string[], defined: Defined): void {
  const key = keyOf(names);
  const there = map.get(key);
  if (there === undefined) map.set(key, [defined]);
  else there.push(defined);
}

function keyOf(names: readonly string[]): string {
  return names.join('\0');
}
