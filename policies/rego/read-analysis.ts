/** Determines what a part of Rego reads of a call, through all rules and functions that it uses. */
import {
  type Aliases,
  aliasesOf,
  groundPath,
  type Module,
  packagePath,
  type Rule,
  type Term,
  termsIn,
} from './syntax-tree.ts';

/**
 * What a value can depend on. `group`: the caller, and the server, verb and kind of an effect. `tool`: also the name of
 * the tool. `call`: also what only the call contains. Data of a policy is the same for all.
 */
export type ReadLevel = 'group' | 'tool' | 'call';

/** `caller`: only the caller. */
type Depth = 'caller' | ReadLevel;

const ORDER: readonly Depth[] = ['caller', 'group', 'tool', 'call'];

/** Built-ins whose result does not depend on their arguments alone. Of those that are supplied, only the clock. */
const UNSTEADY: ReadonlySet<string> = new Set(['time.now_ns']);

/** Returns the deepest read level of several parts. */
export function deepestRead(parts: Iterable<ReadLevel>): ReadLevel {
  return inLists(deepest(parts));
}

function deepest(parts: Iterable<Depth>): Depth {
  let most = 0;
  for (const part of parts) most = Math.max(most, ORDER.indexOf(part));
  return ORDER[most] ?? 'call';
}

/** A list knows both the caller and the group of tools, so it needs no level for the caller alone. */
function inLists(depth: Depth): ReadLevel {
  return depth === 'caller' ? 'group' : depth;
}

interface Defined {
  readonly rule: Rule;
  readonly module: Module;
}

/**
 * Finds the read level of parts of some modules. A name counts as everything that it could mean. A local variable with
 * the name of a rule counts as that rule. A reference with a computed part counts as all that it could refer to. So a
 * level may be too deep, never too shallow. `opa check` refuses recursive rules, but such names can look recursive.
 */
export class ReadAnalysis {
  /** Rules by their full name, and by every prefix of it (`#below`). */
  readonly #exact = new Map<string, Defined[]>();
  readonly #below = new Map<string, Defined[]>();
  readonly #aliases = new Map<Module, Aliases>();
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

  /** Returns what the result of a rule of `module` depends on. */
  ofRule(rule: Rule, module: Module): ReadLevel {
    return inLists(this.#rule({ rule, module }));
  }

  /** Whether a rule gives the same result for every call and every list of a caller. */
  readsCallerOnly(rule: Rule, module: Module): boolean {
    return this.#rule({ rule, module }) === 'caller';
  }

  /** Returns what a part of the syntax tree of `module` reads. */
  of(part: unknown, module: Module): ReadLevel {
    return inLists(deepest(this.#each(part, module)));
  }

  /** Whether a rule or an import of the module has this name; also true for `input` and `data`. */
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

  /** Returns what the rules read that a reference to this place of `data` could refer to. */
  #found(names: readonly string[]): Depth {
    // All of `data` includes the data of Tollgate.
    if (names.length === 0) return 'call';
    const above = names.slice(0, -1).flatMap((_, at) => this.#exact.get(keyOf(names.slice(0, at + 1))) ?? []);
    return deepest([...(this.#below.get(keyOf(names)) ?? []), ...above].map((found) => this.#rule(found)));
  }

  #rule({ rule, module }: Defined): Depth {
    const known = this.#marked.get(rule);
    if (known !== undefined) return known;
    // Rules that only look recursive, because of local names, read this preliminary value, and it remains in their
    // result.
    this.#marked.set(rule, 'call');
    const reads = deepest(this.#each(partsOf(rule), module));
    this.#marked.set(rule, reads);
    return reads;
  }
}

/** Returns all parts of a rule without its name, because all rules of a set have the same name. */
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

/** Returns what a reference below `input` reads. A list is decided for a caller, a tool and each verb of the tool. */
function readOf([top, field]: readonly string[]): Depth {
  if (top === 'principal') return 'caller';
  if (top === 'version' || top === 'phase') return 'group';
  if (top !== 'effect' || field === undefined) return 'call';
  if (field === 'server' || field === 'verb' || field === 'kind') return 'group';
  return field === 'tool' ? 'tool' : 'call';
}

/** Returns the literal names at the start of a reference. */
function groundNames(terms: readonly Term[]): readonly string[] {
  const end = terms.findIndex(({ type }, at) => at > 0 && type !== 'string');
  return (end < 0 ? terms : terms.slice(0, end)).map(({ value }) => String(value));
}

function add(map: Map<string, Defined[]>, names: readonly string[], defined: Defined): void {
  const key = keyOf(names);
  const known = map.get(key) ?? [];
  known.push(defined);
  map.set(key, known);
}

function keyOf(names: readonly string[]): string {
  return names.join('\0');
}
