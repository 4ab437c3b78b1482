/**
 * Owns the copies of rules that the build appends to files of the user: numbered, so that a reason knows its rule, and grouped
 * by what they ask of the input first, since wasm has no index of rules; changes no line that the user wrote, and no meaning.
 */
import { aliasesOf, groundPath, packagePath, sourceOf, termsIn, type Annotation, type Expression, type Rule, type Term } from './ast.ts';
import { SETS, type ParsedFile, type SetName, type SetRule } from './rego.ts';

/** What the build adds. */
export interface Placed {
  /** Text for the end of files, by their staged name. */
  readonly appended: ReadonlyMap<string, Appendix>;
  /** The file that takes the place of lib/sources.rego. */
  readonly sources: string;
}

/** The copies at the end of one file, and which rule each line of them comes from. */
export class Appendix {
  /** Row of the file on which the next copy begins. */
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

  /** Adds a copy of the rule that begins on row `rule` of the file. */
  add(text: string, rule: number): void {
    const rows = countLines(text);
    this.#copies.push({ from: this.#row, to: this.#row + rows, rule });
    this.#text += `${text}\n`;
    this.#row += rows + 1;
  }

  /** The row that the author wrote for a row of the file as it was built: the same one, or that of the rule it is a copy of. */
  rowOf(row: number): number {
    const copy = this.#copies.find(({ from, to }) => row >= from && row <= to);
    return copy === undefined ? row : copy.rule + row - copy.from;
  }
}

function countLines(text: string): number {
  return text.split('\n').length - 1;
}

/** A rule that holds only where the text at `path` of the input is one of `values`. */
interface Test {
  readonly path: string;
  readonly values: readonly string[];
}

/** A set of a package with the names of the rules that hold its members now. */
interface Folded {
  readonly package: string;
  readonly set: SetName;
  /** Names, with the path of the input that their key stands at; none for rules that are in no group. */
  readonly parts: ReadonlyMap<string, string | undefined>;
}

/** Makes copies of all rules whose packages nobody reads as a whole; the sets of the others are folded as they are. */
export function placeRules(files: readonly (ParsedFile & { readonly bytes: Buffer })[], rules: readonly SetRule[]): Placed {
  const seen = findSeen(files, new Set(rules.map(({ facts }) => facts.package)));
  const appended = new Map(files.map(({ staged, bytes }) => [staged, new Appendix(bytes.toString('utf8'))]));
  const folded: Folded[] = [];
  for (const [name, own] of groupBy(rules.map((rule, number) => ({ ...rule, number })), ({ facts }) => facts.package)) {
    for (const set of SETS) {
      const members = own.filter(({ facts }) => facts.set === set);
      if (members.length === 0) continue;
      const parts = seen.has(name) ? undefined : copyRules(members, appended);
      folded.push({ package: name, set, parts: parts ?? new Map() });
    }
  }
  return { appended, sources: sourcesOf(folded) };
}

/** Packages that some reference takes as a whole, or may: there, an added rule would be seen. */
function findSeen(files: readonly ParsedFile[], names: ReadonlySet<string>): ReadonlySet<string> {
  return new Set(files.flatMap(({ module }) => {
    const aliases = aliasesOf(module);
    const own = packagePath(module).slice(1).join('.');
    return [...termsIn(module.rules)].flatMap((term) => {
      // The chain of METADATA names the rule that it was asked in, and a copy has another name.
      if (isRef(term, ['rego', 'metadata', 'chain'])) return [own];
      const path = groundPath(term, aliases)?.names;
      return path?.[0] === 'data' ? [...names].filter((name) => path.every((part, at) => part === ['data', 'policy', ...name.split('.')][at])) : [];
    });
  }));
}

type Numbered = SetRule & { readonly number: number };

/** Undefined when opa did not give the source of one of the rules: then none is copied. */
function copyRules(rules: readonly Numbered[], appended: Placed['appended']): Folded['parts'] | undefined {
  const texts = rules.map(copyOf);
  const complete = texts.filter((text) => text !== undefined);
  if (complete.length < rules.length) return undefined;
  const tests = chooseTests(rules);
  const paths = [...new Set(tests.map((test) => test?.path))].filter((path) => path !== undefined);
  const parts = new Map<string, string | undefined>();
  for (const [at, { file, facts, rule }] of rules.entries()) {
    const test = tests[at];
    const name = test === undefined ? `tollgate_${facts.set}` : `tollgate_${facts.set}_by_${paths.indexOf(test.path)}`;
    parts.set(name, test?.path);
    const appendix = appended.get(file.staged);
    for (const key of test?.values.map((value) => `[${JSON.stringify(value)}]`) ?? ['']) {
      for (const { location } of metadataAskedBy(rule)) appendix?.add(sourceOf(location) ?? '', location.row);
      appendix?.add(complete[at]?.(name + key) ?? '', rule.location.row);
    }
  }
  return parts;
}

/** The rule with another head: what it gave becomes the second part of a pair, the number of the rule the first. */
function copyOf({ rule, number, facts, file }: Numbered): ((name: string) => string) | undefined {
  const text = sourceOf(rule.location);
  // `deny contains "x" if { … } { … }`: the second body is a rule of its own that begins with its brace.
  const isChained = text?.startsWith('{') === true;
  const owner = isChained ? (file.module.rules ?? []).slice(0, file.module.rules?.indexOf(rule)).findLast(({ location }) => sourceOf(location)?.startsWith('{') === false) : rule;
  const head = sourceOf(owner?.head.location);
  const key = new RegExp(`^${facts.set}\\s+contains\\b`).exec(head ?? '');
  if (text === undefined || head === undefined || key === null) return undefined;
  const rest = isChained ? ` if ${text}` : text.slice(head.length);
  return (name) => `${name} contains ["${number}", ${head.slice(key[0].length)}]${rest}`;
}

/** What a rule asks for at build with rego.metadata.rule(): it must stand above the copy too. */
function metadataAskedBy(rule: Rule): readonly Annotation[] {
  const asks = [...termsIn(rule)].some((term) => isRef(term, ['rego', 'metadata', 'rule']));
  return asks ? (rule.annotations ?? []).filter(({ scope }) => scope === 'rule') : [];
}

/** For each rule the test that parts it from most others, of those that its body begins with. */
function chooseTests(rules: readonly SetRule[]): readonly (Test | undefined)[] {
  const all = rules.map(({ rule, file }) => testsOf(rule.body, aliasesOf(file.module)));
  const values = new Map<string, Set<string>>();
  for (const { path, values: some } of all.flat()) values.set(path, new Set([...(values.get(path) ?? []), ...some]));
  const weight = ({ path }: Test): number => values.get(path)?.size ?? 0;
  return all.map((tests) => tests.reduce<Test | undefined>((best, test) => (best === undefined || weight(test) > weight(best) ? test : best), undefined));
}

/** The tests of texts of the input against literals that a body begins with. Behind anything else it could fail first, and must. */
function testsOf(body: readonly Expression[], aliases: ReadonlyMap<string, readonly string[]>): readonly Test[] {
  const tests: Test[] = [];
  for (const expression of body) {
    const test = testOf(expression, aliases);
    if (test === undefined) break;
    tests.push(test);
  }
  return tests;
}

function testOf({ terms, negated, with: mocks }: Expression, aliases: ReadonlyMap<string, readonly string[]>): Test | undefined {
  if (!Array.isArray(terms) || terms.length !== 3 || negated === true || mocks !== undefined) return undefined;
  const [operator, left, right] = terms as [Term, Term, Term];
  const sides = isRef(operator, ['equal']) || isRef(operator, ['eq']) ? [[left, right], [right, left]] as const : isRef(operator, ['internal', 'member_2']) ? [[left, right]] as const : [];
  for (const [asked, answer] of sides) {
    const path = groundPath(asked, aliases);
    const literals = answer.type === 'set' || answer.type === 'array' ? (sides.length === 1 ? (answer.value as readonly Term[]) : []) : sides.length === 2 ? [answer] : [];
    if (path?.names[0] !== 'input' || !path.whole || literals.length === 0 || !literals.every(({ type }) => type === 'string')) continue;
    return { path: path.names.slice(1).map((name) => `[${JSON.stringify(name)}]`).join(''), values: [...new Set(literals.map(({ value }) => String(value)))] };
  }
  return undefined;
}

function isRef(term: Term, names: readonly string[]): boolean {
  const parts = term.type === 'ref' ? (term.value as readonly Term[]) : [];
  return parts.length === names.length && parts.every(({ value }, at) => value === names[at]);
}

/** Rego that gives `found`, as lib/sources.rego does, from the packages that there are. */
function sourcesOf(folded: readonly Folded[]): string {
  const rules = folded.flatMap(({ package: name, set, parts }, at) => {
    const where = `data.policy${name.split('.').map((part) => `[${JSON.stringify(part)}]`).join('')}`;
    if (parts.size === 0) return [`members_${at} contains ["", member] if some member in ${where}.${set}`];
    return [...parts].map(([part, path]) => (path === undefined
      ? `members_${at} contains pair if some pair in ${where}.${part}`
      : `members_${at} contains pair if {\n\tkey := input${path}\n\tis_string(key)\n\tsome pair in ${where}.${part}[key]\n}`));
  });
  const found = folded.map(({ package: name, set }, at) => `\t{"name": ${JSON.stringify(name)}, "outcome": "${set}", "members": members_${at}},`);
  return ['package tollgate.sources', ...rules, `found := [\n${found.join('\n')}\n]`, ''].join('\n\n');
}

function groupBy<T>(items: readonly T[], keyOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
