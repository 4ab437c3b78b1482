/** Owns what we read of opa's syntax trees: modules, rules, terms and their source texts; judges nothing. */
import { type Opa, runOpa } from './opa-program.ts';

/** Where something stands, and its source text in base64 where opa gives it. Rows and columns count from 1. */
export interface SourceLocation {
  readonly row: number;
  readonly col: number;
  readonly text?: string;
}

/** A value of the source: `type` is `var`, `string`, `ref`, `call`, `object`, and so on. */
export interface Term {
  readonly type: string;
  readonly value: unknown;
  readonly location?: SourceLocation;
}

/** One expression of a body. A comparison or a call has a list of terms, its operator first. */
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

/** What a METADATA block says. */
export interface Annotation {
  readonly scope: string;
  readonly title?: string;
  readonly description?: string;
  readonly custom?: Readonly<Record<string, unknown>>;
  readonly location: SourceLocation;
}

/** One rule; a name may have several. */
export interface Rule {
  readonly head: Head;
  readonly body: readonly Expression[];
  readonly default?: boolean;
  readonly else?: Rule;
  readonly annotations?: readonly Annotation[];
  readonly location: SourceLocation;
}

/** What a file calls by another name. */
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

/** Processes of opa that parse at a time. */
const PARALLEL = 4;

/** Parses files of `folder`; a file that does not parse is left out: `opa check` says why. The order is that of `files`. */
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

/** Names of a package without `data`. */
export function packagePath(module: Module): readonly string[] {
  return module.package.path.slice(1).map(({ value }) => String(value));
}

/** The source of what stands there, or undefined when opa did not give it. */
export function sourceOf(location: SourceLocation | undefined): string | undefined {
  return location?.text === undefined ? undefined : Buffer.from(location.text, 'base64').toString('utf8');
}

/** Every term below a part of a tree, outer ones first. The name that a reference begins with is no term of its own. */
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

/** How the names of a module's imports are spelled in full: `team` is `data.policy.team` after `import data.policy.team`. */
export function aliasesOf(module: Module): ReadonlyMap<string, readonly string[]> {
  const aliases = (module.imports ?? []).map(({ path, alias }): [string, readonly string[]] => {
    const names = (path.value as readonly Term[]).map(({ value }) => String(value));
    return [alias ?? names.at(-1) ?? '', names];
  });
  return new Map(aliases);
}

/**
 * The names that a reference certainly begins with, aliases spelled out, and whether that is all of it: `data.policy[x].deny`
 * gives `data`, `policy` and false. Undefined for what is no reference to `data` or `input`.
 */
export function groundPath(
  term: Term,
  aliases: ReadonlyMap<string, readonly string[]>,
): { readonly names: readonly string[]; readonly whole: boolean } | undefined {
  const [first, ...rest] = term.type === 'ref' ? (term.value as readonly Term[]) : [term];
  if (first?.type !== 'var') return undefined;
  const start = aliases.get(String(first.value)) ?? [String(first.value)];
  if (start[0] !== 'data' && start[0] !== 'input') return undefined;
  const end = rest.findIndex(({ type }) => type !== 'string');
  const ground = end < 0 ? rest : rest.slice(0, end);
  return { names: [...start, ...ground.map(({ value }) => String(value))], whole: end < 0 };
}
