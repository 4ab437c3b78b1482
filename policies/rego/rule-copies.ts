/**
 * Makes the copies of rules that the build appends to the user's files. A copy contains the number of its rule, so that
 * a reason names it. Copies are grouped by their first test, because WebAssembly has no rule index. The user's lines,
 * and what they mean, do not change.
 */

import { groupBy } from '../../catalogs/text/collections.ts';
import { exposeRuleNumber } from './expose-members.ts';
import { leadingGuard, outcomesOf } from './leading-guards.ts';
import { chooseLeadingTests } from './leading-tests.ts';
import { deepestRead, ReadAnalysis, type ReadLevel } from './read-analysis.ts';
import { EXPOSE, type ParsedFile, type RegoExposeRule, SETS, type SetRule } from './rego-facts.ts';
import { type FoldedSet, type SourcesPart, sourcesText } from './sources-module.ts';
import {
  type Annotation,
  aliasesOf,
  type Expression,
  groundPath,
  isRef,
  packagePath,
  type Rule,
  sourceOf,
  termsIn,
} from './syntax-tree.ts';

/** The text that the build adds. */
interface RuleCopies {
  /** Text to append, by staged file name. */
  readonly appended: ReadonlyMap<string, AppendedCopies>;
  /** The file that replaces lib/sources.rego. */
  readonly sources: string;
}

/** The copies at the end of one file, and the rule that each line of them comes from. */
class AppendedCopies {
  /** Row where the next copy begins. */
  #row: number;
  readonly #copies: { readonly from: number; readonly to: number; readonly rule: number }[] = [];
  #text = '\n\n';

  /** `source` is the file as its author wrote it. */
  constructor(source: string) {
    this.#row = countLines(source) + 3;
  }

  get text(): string {
    return this.#text;
  }

  /** Adds a copy of the rule that begins at row `rule` of the file. */
  add(text: string, rule: number): void {
    const rows = countLines(text);
    this.#copies.push({ from: this.#row, to: this.#row + rows, rule });
    this.#text += `${text}\n`;
    this.#row += rows + 1;
  }

  /** Returns the row that the author wrote for a row of the built file: for a copy, the row of its rule. */
  rowOf(row: number): number {
    const copy = this.#copies.find(({ from, to }) => row >= from && row <= to);
    return copy === undefined ? row : copy.rule + row - copy.from;
  }
}

function countLines(text: string): number {
  return text.split('\n').length - 1;
}

/** Copies the rules of every package that nothing reads as a whole. The sets of other packages are used as they are. */
export function buildRuleCopies(
  files: readonly (ParsedFile & { readonly bytes: Buffer })[],
  rules: readonly SetRule[],
  exposes: readonly RegoExposeRule[] = [],
): RuleCopies {
  const readWhole = findReadWhole(
    files,
    new Set([...rules.map(({ facts }) => facts.package), ...exposes.map((one) => one.package)]),
  );
  const job = {
    analysis: new ReadAnalysis(files.map(({ module }) => module)),
    appended: new Map(files.map(({ staged, bytes }) => [staged, new AppendedCopies(bytes.toString('utf8'))])),
  };
  const folded: FoldedSet[] = [];
  for (const [name, own] of groupBy(
    rules.map((rule, number) => ({ ...rule, number })),
    ({ facts }) => facts.package,
  )) {
    for (const set of SETS) {
      const members = own.filter(({ facts }) => facts.set === set);
      if (members.length === 0) continue;
      folded.push({
        package: name,
        set,
        ...((readWhole.has(name) ? undefined : copyRules(members, job)) ?? originalSet(members, job.analysis)),
      });
    }
  }
  return {
    appended: job.appended,
    sources: sourcesText(folded, placeExposes(exposes, { readWhole, appended: job.appended })),
  };
}

/**
 * Returns, by package, the name of the rule with the members of `expose`. Copied members contain the place of their
 * rule.
 */
function placeExposes(
  exposes: readonly RegoExposeRule[],
  { readWhole, appended }: { readonly readWhole: ReadonlySet<string>; readonly appended: RuleCopies['appended'] },
): ReadonlyMap<string, string | undefined> {
  const names = new Map<string, string | undefined>();
  const numbered = exposes.map((one, at) => ({
    one,
    text: copyOf(one, exposeRuleNumber(at), EXPOSE),
  }));
  for (const [name, own] of groupBy(numbered, ({ one }) => one.package)) {
    const isCopied = !readWhole.has(name) && own.every(({ text }) => text !== undefined);
    names.set(name, isCopied ? 'tollgate_expose' : undefined);
    for (const { one, text } of isCopied ? own : [])
      appended.get(one.file.staged)?.add(text?.('tollgate_expose') ?? '', one.rule.location.row);
  }
  return names;
}

/** Uses a set without copies. It reads whatever one of its rules reads. */
function originalSet(rules: readonly Numbered[], analysis: ReadAnalysis): Pick<FoldedSet, 'parts' | 'open'> {
  const reads = deepestRead(rules.map(({ rule, file }) => analysis.ofRule(rule, file.module)));
  return { parts: [{ reads }], open: reads === 'call' ? rules.map(openOf) : [] };
}

function openOf(rule: Numbered): FoldedSet['open'][number] {
  return { number: rule.number, outcomes: outcomesOf(rule) };
}

/** Returns packages that a reference reads, or may read, as a whole. An added rule would change what it reads. */
function findReadWhole(files: readonly ParsedFile[], names: ReadonlySet<string>): ReadonlySet<string> {
  return new Set(
    files.flatMap(({ module }) => {
      const aliases = aliasesOf(module);
      const own = packagePath(module).slice(1).join('.');
      return [...termsIn(module.rules)].flatMap((term) => {
        // rego.metadata.chain() contains the name of the rule that calls it, and a copy has another name.
        if (isRef(term, 'rego', 'metadata', 'chain')) return [own];
        const path = groundPath(term, aliases)?.names;
        return path?.[0] === 'data'
          ? [...names].filter((name) => path.every((part, at) => part === ['data', 'policy', ...name.split('.')][at]))
          : [];
      });
    }),
  );
}

type Numbered = SetRule & { readonly number: number };

interface Job {
  readonly analysis: ReadAnalysis;
  readonly appended: RuleCopies['appended'];
}

/** A copy of a rule, or of the guard of one. */
interface Copy {
  readonly of: Numbered;
  readonly body: readonly Expression[];
  readonly reads: ReadLevel;
  readonly isGuard: boolean;
  readonly text: (name: string) => string;
}

/** Returns undefined if opa did not give the source text of one of the rules. Then none is copied. */
function copyRules(
  rules: readonly Numbered[],
  { analysis, appended }: Job,
): Pick<FoldedSet, 'parts' | 'open'> | undefined {
  const copies: Copy[] = [];
  const open: FoldedSet['open'][number][] = [];
  for (const one of rules) {
    const text = copyOf(one, one.number, one.facts.set);
    if (text === undefined) return undefined;
    const reads = analysis.ofRule(one.rule, one.file.module);
    copies.push({ of: one, body: one.rule.body, reads, isGuard: false, text });
    const guard = reads === 'call' ? leadingGuard(one, analysis) : [];
    if (guard.length > 0)
      copies.push({
        of: one,
        body: guard,
        reads: analysis.of(guard, one.file.module),
        isGuard: true,
        text: guardOf(one, guard),
      });
    else if (reads === 'call') open.push(openOf(one));
  }
  return { parts: appendAll(copies, appended), open };
}

function appendAll(copies: readonly Copy[], appended: RuleCopies['appended']): readonly SourcesPart[] {
  const tests = chooseLeadingTests(copies.map(({ body, of }) => ({ body, module: of.file.module })));
  const paths = [...new Set(tests.map((test) => test?.path))].filter((path) => path !== undefined);
  const parts = new Map<string, SourcesPart>();
  for (const [at, { of, reads, isGuard, text }] of copies.entries()) {
    const { file, facts, rule } = of;
    const test = tests[at];
    const group = test === undefined ? '' : `_by_${paths.indexOf(test.path)}`;
    const name = `tollgate_${isGuard ? 'open_' : ''}${facts.set}_${reads}${group}`;
    parts.set(name, { name, reads, isGuard, ...(test === undefined ? {} : { key: test.path }) });
    const appendix = appended.get(file.staged);
    for (const key of test?.values.map((value) => `[${JSON.stringify(value)}]`) ?? ['']) {
      for (const { location } of metadataAskedBy(rule)) appendix?.add(sourceOf(location) ?? '', location.row);
      appendix?.add(text(name + key), rule.location.row);
    }
  }
  return [...parts.values()];
}

/**
 * Returns a rule with the outcomes that the rule can cause if its guard is true. Each expression keeps its distance
 * from the head, so that coverage shows the right rows.
 */
function guardOf(rule: Numbered, guard: readonly Expression[]): (name: string) => string {
  let body = '';
  for (const { location } of guard) {
    const rows = (location?.row ?? 0) - rule.rule.location.row - countLines(body);
    body += `${rows > 0 ? '\n'.repeat(rows) : body === '' ? ' ' : '; '}${sourceOf(location) ?? ''}`;
  }
  return (name) => `${name} contains ["${rule.number}", ${JSON.stringify(outcomesOf(rule))}] if {${body}\n}`;
}

/** Returns the rule with another head: its member becomes a pair of the rule's number and the original member. */
function copyOf(
  { rule, file }: Pick<SetRule, 'rule' | 'file'>,
  number: number | string,
  set: string,
): ((name: string) => string) | undefined {
  const text = sourceOf(rule.location);
  // `deny contains "x" if { … } { … }`: opa reports the second body as a rule whose text begins with a brace.
  const isChained = text?.startsWith('{') === true;
  const owner = isChained
    ? (file.module.rules ?? [])
        .slice(0, file.module.rules?.indexOf(rule))
        .findLast(({ location }) => sourceOf(location)?.startsWith('{') === false)
    : rule;
  const head = sourceOf(owner?.head.location);
  const key = new RegExp(`^${set}\\s+contains\\b`).exec(head ?? '');
  if (text === undefined || head === undefined || key === null) return undefined;
  const rest = isChained ? ` if ${text}` : text.slice(head.length);
  return (name) => `${name} contains ["${number}", ${head.slice(key[0].length)}]${rest}`;
}

/** Returns the annotations that the rule reads with rego.metadata.rule() at build time. The copy needs them too. */
function metadataAskedBy(rule: Rule): readonly Annotation[] {
  const asks = [...termsIn(rule)].some((term) => isRef(term, 'rego', 'metadata', 'rule'));
  return asks ? (rule.annotations ?? []).filter(({ scope }) => scope === 'rule') : [];
}
