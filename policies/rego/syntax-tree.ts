/** The part of opa's syntax trees that Tollgate reads: modules, rules, terms and their source texts. */
import { type Opa, runOpa } from './opa-program.ts';

/** A place in a file. Rows and columns count from 1. `text` is the source text in base64, if opa gives it. */
export interface SourceLocation {
  readonly row: number;
  readonly col: number;
  readonly text?: string;
}

/** A value in the source. `type` is `var`, `string`, `ref`, `call`, `object`, and so on. */
export interface Term {
  readonly type: string;
  readonly value: unknown;
  readonly location?: SourceLocation;
}

/** One expression of a body. A comparison or a call is a list of terms that begins with its operator. */
export interface Expression {
  readonly terms: Term | readonly Term[] | Readonly<Record<string, unknown>>;
  readonly negated?: boolean;
  readonly with?: readonly unknown[];
  readonly location?: SourceLocation;
}

/** The part of a rule before its body. */
export interface Head {
  readonly key?: Term;
  readonly value?: Term;
  readonly args?: readonly Term[];
  readonly ref: readonly Term[];
  readonly location: SourceLocation;
}

/** The content of a METADATA block. */
export interface Annotation {
  readonly scope: string;
  readonly title?: string;
  readonly description?: string;
  readonly custom?: Readonly<Record<string, unknown>>;
  readonly location: SourceLocation;
}

/** One rule. Several rules may have the same name. */
export interface Rule {
  readonly head: Head;
  readonly body: readonly Expression[];
  readonly default?: boolean;
  readonly else?: Rule;
  readonly annotations?: readonly Annotation[];
  readonly location: SourceLocation;
}

/** One import, with its alias. */
export interface Import {
  readonly path: Term;
  readonly alias?: string;
}

/** One file. */
export interface Module {
  readonly package: { readonly path: readonly Term[]; readonly location?: SourceLocation };
  readonly imports?: readonly Import[];
  readonly rules?: readonly Rule[];
  readonly annotations?: readonly Annotation[];
}

/** How many opa processes parse at the same time. */
const PARALLEL = 4;

/** Parses files of `folder`, in order. A file that does not parse is left out; `opa check` reports it. */
export async function parseModules<F extends { readonly staged: string }>(
  opa: Opa,
  folder: string,
  files: readonly F[],
): Promise<readonly (F & { readonly module: Module })[]> {
  const parsed: (F & { readonly module: Module })[] = [];
  for (let from = 0; from < files.length; from += PARALLEL) {
    const answers = files.slice(from, from + PARALLEL).map(async (file) => {
      const { code, stdout } = await runOpa(
        opa,
        ['parse', ...opa.flags, '-f', 'json', '--json-include', 'locations,-comments', file.staged],
        folder,
      );
      return code === 0 ? [{ ...file, module: JSON.parse(stdout) as Module }] : [];
    });
    parsed.push(...(await Promise.all(answers)).flat());
  }
  return parsed;
}

/** Returns true for a reference that consists of exactly these names. */
export function isRef(term: Term | undefined, ...names: readonly string[]): boolean {
  return nameOfRef(term) === names.join('.') && names.length === (term?.value as readonly Term[]).length;
}

/** Returns the names of a reference, joined by dots; an empty text for another term. */
export function nameOfRef(term: Term | undefined): string {
  return term?.type === 'ref' ? (term.value as readonly Term[]).map(({ value }) => String(value)).join('.') : '';
}

/** Yields the values of all terms of these types below a part of a tree. */
export function* valuesIn(part: unknown, types: readonly string[]): Generator<string> {
  if (typeof part !== 'object' || part === null) return;
  const { type, value } = part as Partial<Term>;
  if (types.includes(String(type))) yield String(value);
  for (const child of Object.values(part)) yield* valuesIn(child, types);
}

/** Returns a rule and the rules of its `else` branches. */
export function elseChain(rule: Rule): readonly Rule[] {
  return rule.else === undefined ? [rule] : [rule, ...elseChain(rule.else)];
}

/** Returns the names of a package without `data`. */
export function packagePath(module: Module): readonly string[] {
  return module.package.path.slice(1).map(({ value }) => String(value));
}

/** Returns the source text at a place; undefined if opa did not give it. */
export function sourceOf(location: SourceLocation | undefined): string | undefined {
  return location?.text === undefined ? undefined : Buffer.from(location.text, 'base64').toString('utf8');
}

/**
 * Yields every term below a part of a tree, outer terms first. The variable at the start of a reference is not
 * included.
 */
export function* termsIn(part: unknown): Generator<Term> {
  if (Array.isArray(part)) for (const item of part) yield* termsIn(item);
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return;
  const { type, value } = part as Partial<Term>;
  if (typeof type === 'string' && value !== undefined) yield part as Term;
  if (type === 'ref' && Array.isArray(value))
    return void (yield* termsIn((value as readonly Term[]).filter((term, at) => at > 0 || term.type !== 'var')));
  for (const [key, child] of Object.entries(part))
    if (key !== 'location' && key !== 'annotations') yield* termsIn(child);
}

/** The full name of each import, by its short name. */
export type Aliases = ReadonlyMap<string, readonly string[]>;

/** Returns the full names of a module's imports: after `import data.policy.team`, `team` is `data.policy.team`. */
export function aliasesOf(module: Module): Aliases {
  const aliases = (module.imports ?? []).map(({ path, alias }): [string, readonly string[]] => {
    const names = (path.value as readonly Term[]).map(({ value }) => String(value));
    return [alias ?? names.at(-1) ?? '', names];
  });
  return new Map(aliases);
}

/**
 * Returns the literal names at the start of a reference, with aliases resolved, and whether they are all of it:
 * `data.policy[x].deny` gives `data`, `policy` and false. Undefined if it is not a reference to `data` or `input`.
 */
export function groundPath(
  term: Term,
  aliases: Aliases,
): { readonly names: readonly string[]; readonly whole: boolean } | undefined {
  const [first, ...rest] = term.type === 'ref' ? (term.value as readonly Term[]) : [term];
  if (first?.type !== 'var') return undefined;
  const start = aliases.get(String(first.value)) ?? [String(first.value)];
  if (start[0] !== 'data' && start[0] !== 'input') return undefined;
  const end = rest.findIndex(({ type }) => type !== 'string');
  const ground = end < 0 ? rest : rest.slice(0, end);
  return { names: [...start, ...ground.map(({ value }) => String(value))], whole: end < 0 };
}
