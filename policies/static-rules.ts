/** Owns the rules of Rego that read nothing of a call but who calls which tool, as conditions of the library: a list judges them before any call; leaves every other rule open. */
import type { Verb } from '../catalogs/tool.ts';
import { aliasesOf, type Expression, type Term } from './ast.ts';
import type { Condition } from './conditions.ts';
import { pathOf, readInputTest, type InputTest } from './input-tests.ts';
import type { ModeData } from './modes.ts';
import { nullMap } from './patterns.ts';
import type { SetName, SetRule } from './rego.ts';
import type { RuleIndex } from './rules.ts';

/** A rule that fires exactly when all of its conditions hold. */
export interface StaticRule {
  /** Without `policy.`. */
  readonly package: string;
  readonly outcome: SetName;
  readonly reason: { readonly id: string; readonly message: string; readonly file: string; readonly line: number };
  readonly principal: readonly Condition[];
  readonly target: readonly Condition[];
}

/** What lib/list.rego reads of Rego: rules that it can judge, and whether there are others. */
export interface ListedRego extends Readonly<Record<SetName, boolean>> {
  readonly rules: readonly (StaticRule & { readonly mode: ModeData; readonly call: readonly [] })[];
  readonly index: RuleIndex;
}

const VERBS: readonly Verb[] = ['read', 'write', 'destructive', 'execute'];
const APPROVALS = ['call', 'group', 'server'];
const SUBJECTS: ReadonlyMap<string, readonly ['is' | 'has', string]> = new Map([
  ['principal.role', ['is', 'role']], ['principal.id', ['is', 'principal']], ['principal.origin', ['is', 'origin']], ['principal.groups', ['has', 'group']], ['principal.profiles', ['has', 'profile']],
]);

/** The rule as conditions; undefined where one part of it is anything but a plain comparison, or its reason is not written out. */
export function staticRule({ file, rule, facts }: SetRule): StaticRule | undefined {
  const reason = reasonOf(rule.head.key, facts.id ?? `policy.${facts.package}`);
  if (reason === undefined || rule.else !== undefined) return undefined;
  const aliases = aliasesOf(file.module);
  const conditions = rule.body.map((expression) => conditionOf(expression, aliases));
  if (!conditions.every((one) => one !== undefined)) return undefined;
  const principal = conditions.flatMap((one): readonly Condition[] => (one.principal === undefined ? [] : [one.principal]));
  const target = conditions.flatMap((one): readonly Condition[] => (one.target === undefined ? [] : [one.target]));
  return { package: facts.package, outcome: facts.set, reason: { ...reason, file: facts.file, line: facts.line }, principal, target };
}

/** True when the reason of a rule is written out whole, so that it can be no fault of the policy. */
export function hasPlainReason({ rule: { head } }: SetRule): boolean {
  return reasonOf(head.key, '') !== undefined;
}

/** Under the narrowest thing that every call of a rule has in common, as rules in YAML stand in theirs. */
export function indexRules(rules: readonly StaticRule[]): RuleIndex {
  const index: RuleIndex = { tool: nullMap(), server: nullMap(), verb: nullMap(), any: [] };
  for (const [number, { target }] of rules.entries()) {
    const [servers, tools, verbs] = [keysOf(target, 'servers'), toolsOf(target), keysOf(target, 'verbs')];
    const exact = servers === undefined || tools === undefined ? undefined : servers.flatMap((server) => tools.map((tool) => `${server}.${tool}`));
    const [kind, keys] = exact !== undefined ? (['tool', exact] as const) : servers !== undefined ? (['server', servers] as const) : (['verb', verbs] as const);
    if (keys === undefined) index.any.push(number);
    for (const key of keys ?? []) (index[kind][key] ??= []).push(number);
  }
  return index;
}

function keysOf(target: readonly Condition[], field: 'servers' | 'verbs'): readonly string[] | undefined {
  const found = target.find((condition) => condition[field] !== undefined)?.[field];
  return typeof found === 'object' && found !== null ? Object.keys(found) : undefined;
}

function toolsOf(target: readonly Condition[]): readonly string[] | undefined {
  const found = target.find((condition) => condition['patterns'] !== undefined) as { readonly patterns: readonly [{ readonly tool: { readonly equal: object } }] } | undefined;
  return found === undefined ? undefined : Object.keys(found.patterns[0].tool.equal);
}

function reasonOf(key: Term | undefined, id: string): { readonly id: string; readonly message: string } | undefined {
  if (key?.type === 'string') return { id, message: String(key.value) };
  if (key?.type !== 'object') return undefined;
  const pairs = key.value as readonly (readonly [Term, Term])[];
  if (!pairs.every(([name, value]) => name.type === 'string' && value.type === 'string')) return undefined;
  const fields = new Map(pairs.map(([name, value]) => [String(name.value), String(value.value)]));
  const [own, message, approval] = [fields.get('id'), fields.get('message'), fields.get('approval')];
  return own === undefined || message === undefined || (approval !== undefined && !APPROVALS.includes(approval)) ? undefined : { id: own, message };
}

type Part = { readonly principal?: Condition; readonly target?: Condition };

function conditionOf(expression: Expression, aliases: ReadonlyMap<string, readonly string[]>): Part | undefined {
  const test = readInputTest(expression, aliases);
  return test === undefined ? truthOf(expression, aliases) : partOf(test);
}

/** `true`, `input.principal.owner`, and `not input.principal.owner`. */
function truthOf({ terms, negated = false, with: mocks }: Expression, aliases: ReadonlyMap<string, readonly string[]>): Part | undefined {
  if (mocks !== undefined || Array.isArray(terms) || typeof (terms as Partial<Term>).type !== 'string') return undefined;
  const term = terms as Term;
  if (term.type === 'boolean') return term.value !== negated ? {} : undefined;
  return pathOf(term, aliases) === 'principal.owner' ? { principal: { owner: !negated } } : undefined;
}

function partOf({ path, operator, negated, values }: InputTest): Part | undefined {
  if (path === 'principal.owner' && operator === 'is' && values.length === 1 && values[0]?.type === 'boolean') return { principal: { owner: values[0].value !== negated } };
  if (!values.every(({ type }) => type === 'string')) return undefined;
  const names = values.map(({ value }) => String(value));
  if (path === 'effect.verb' && operator === 'is') return { target: { verbs: setOf(VERBS.filter((verb) => names.includes(verb) !== negated)) } };
  if (negated) return undefined;
  if (path === 'effect.server' && operator === 'is') return { target: { servers: setOf(names) } };
  // No `exact`: by that the second gate tells rules in YAML, which alone open it.
  if (path === 'effect.tool' && operator === 'is') return { target: { exact: {}, patterns: [{ server: { all: true }, tool: { equal: setOf(names) } }] } };
  const subject = SUBJECTS.get(path);
  return subject?.[0] === operator ? { principal: { of: subject[1], any: setOf(names) } } : undefined;
}

function setOf(names: readonly string[]): Record<string, true> {
  return Object.assign(nullMap<true>(), Object.fromEntries(names.map((name) => [name, true] as const)));
}
