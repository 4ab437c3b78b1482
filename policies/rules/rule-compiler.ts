/** Owns the way from YAML rules to the data of the library: list and index; refuses faulty rules, all of them at once, each at its place. */

import type { ApprovalScope, ModeSettings } from '../port.ts';
import type { RuleCondition } from './argument-tests.ts';
import { type LocatedRule, serversOfTools } from './configured-names.ts';
import type { PolicyProblem } from './policy-problems.ts';
import { compileWhen, type When } from './rule-conditions.ts';
import { compileMode, type ModeData } from './rule-modes.ts';
import { nullMap } from './rule-patterns.ts';
import { findSchemaFaults, type SchemaFault, type YamlRule } from './rule-schema.ts';
import { type RuleSummary, summarizeRule } from './rule-summary.ts';

/** A document of YAML rules that has been read: `{rules: [...]}`, and where its values stand. */
export interface YamlRuleDocument extends ModeSettings {
  /** As messages name it; never a host path. */
  readonly file: string;
  readonly value: unknown;
  /** Why the file cannot be read as YAML; then `value` is not looked at. */
  readonly problems?: readonly PolicyProblem[];
  placeOf(
    path: readonly (string | number)[],
    part: 'key' | 'value',
  ): { readonly line: number; readonly column: number };
}

/** A rule as lib/rules.rego and lib/list.rego read it. */
export interface RuleData {
  readonly outcome: string;
  readonly mode: ModeData;
  readonly reason: {
    readonly id: string;
    readonly message: string;
    readonly file: string;
    readonly line: number;
    readonly approval?: ApprovalScope;
  };
  readonly principal: readonly RuleCondition[];
  readonly target: readonly RuleCondition[];
  readonly call: readonly RuleCondition[];
  readonly obligations: NonNullable<YamlRule['obligations']>;
  /** What a list tells the model of it. */
  readonly shows?: RuleSummary;
}

/** Numbers of rules, each rule in one of the four kinds, so that a call meets it once. */
export interface RuleIndex {
  readonly tool: Record<string, number[]>;
  readonly server: Record<string, number[]>;
  readonly verb: Record<string, number[]>;
  readonly any: number[];
}

/** All rules as data, what they mention, and every fault that was found in one of them alone. */
export interface CompiledRules {
  readonly list: readonly RuleData[];
  readonly index: RuleIndex;
  readonly problems: readonly PolicyProblem[];
  /** All that have the form of a rule, those that are off and those with problems included. */
  readonly rules: readonly LocatedRule[];
  /** Time zones whose clocks the rules read. */
  readonly zones: readonly string[];
}

/** Reasons of the library itself; a rule of the same id would make refusals ambiguous. */
export const RESERVED_RULE_IDS = new Set([
  'default-deny',
  'profile',
  'server-tools',
  'pin',
  'plan-mode',
  'second-gate',
  'spill',
  'policy-shape',
  'rego',
  'unknown-name',
  'obligations',
]);

/** Compiles all documents together: ids are unique across them. `workspace` is absolute, symlinks resolved. */
export function compileRules(documents: readonly YamlRuleDocument[], workspace: string): CompiledRules {
  const compiler = new Compiler(workspace);
  for (const document of documents) compiler.add(document);
  return compiler;
}

class Compiler implements CompiledRules {
  readonly list: RuleData[] = [];
  readonly index: RuleIndex = { tool: nullMap(), server: nullMap(), verb: nullMap(), any: [] };
  readonly problems: PolicyProblem[] = [];
  readonly rules: LocatedRule[] = [];
  readonly #zones = new Set<string>();
  readonly #workspace: string;
  readonly #places = new Map<string, PolicyProblem>();

  constructor(workspace: string) {
    this.#workspace = workspace;
  }

  get zones(): readonly string[] {
    return [...this.#zones].sort();
  }

  /** Of a rule with a fault of its form the rest is judged, and so are the others. */
  add(document: YamlRuleDocument): void {
    const { problems = [] } = document;
    this.problems.push(...problems);
    if (problems.length > 0) return;
    const faults = findSchemaFaults(document.value);
    for (const { path, part, message } of faults)
      this.problems.push({ file: document.file, ...document.placeOf(path, part), message });
    const { rules } = (document.value ?? {}) as { readonly rules?: readonly YamlRule[] };
    if (!Array.isArray(rules)) return;
    for (const [number, rule] of (rules as readonly YamlRule[]).entries()) {
      const own = faults
        .filter(({ path }) => path[0] === 'rules' && path[1] === number)
        .map(({ path }) => path.slice(2));
      const left = own.length === 0 ? rule : pruneRule(rule, own);
      if (left !== undefined) this.#addRule(left, number, { document, isPruned: own.length > 0 });
    }
  }

  #addRule(
    rule: YamlRule,
    number: number,
    { document, isPruned }: { readonly document: YamlRuleDocument; readonly isPruned: boolean },
  ): void {
    const at: LocatedRule['at'] = (path, part = 'value') => ({
      file: document.file,
      ...document.placeOf(['rules', number, ...path], part),
    });
    const known = this.problems.length;
    const refuse = (path: readonly (string | number)[], message: string): void =>
      void this.problems.push({ ...at(path), message });
    const before = this.#places.get(rule.id);
    if (before !== undefined)
      refuse(['id'], `the id "${rule.id}" stands at ${before.file}:${before.line} already; ids are unique`);
    if (RESERVED_RULE_IDS.has(rule.id))
      refuse(['id'], `"${rule.id}" is the id of a reason of Tollgate itself; choose another`);
    if (rule.outcome === 'deny' && rule.obligations !== undefined)
      refuse(['obligations'], 'a rule that denies leaves nothing to obey; remove the obligations');
    if (rule.outcome !== 'ask' && rule.approval !== undefined)
      refuse(['approval'], `a rule that says ${rule.outcome} asks nobody; remove \`approval\`, or write outcome: ask`);
    if (rule.id !== '') this.#places.set(rule.id, { ...at(['id']), message: '' });
    const mode = compileMode(document, rule.mode);
    const { file, line } = at([]);
    const data: RuleData = {
      outcome: rule.outcome,
      mode,
      reason: {
        id: rule.id,
        message: rule.message ?? `Rule ${rule.id} says ${rule.outcome}.`,
        file,
        line,
        ...(rule.approval === undefined || rule.approval === 'call' ? {} : { approval: rule.approval }),
      },
      ...compileWhen(rule.when, {
        outcome: rule.outcome,
        workspace: this.#workspace,
        refuse: (path, message) => refuse(['when', ...path], message),
      }),
      obligations: rule.obligations ?? {},
      ...summarizeRule(rule.when, rule.outcome),
    };
    this.rules.push({ rule, mode, at, ...(isPruned ? { isPruned } : {}) });
    if (this.problems.length > known || mode === 'off') return;
    this.#enter(data, rule.when);
    if (rule.when.time !== undefined) this.#zones.add(rule.when.time.zone);
  }

  /** Under the narrowest thing that every call of the rule has in common. */
  #enter(data: RuleData, when: When): void {
    const number = this.list.push(data) - 1;
    const servers = serversOfTools(when.tools) ?? when.servers;
    const exact = when.tools?.every((tool) => !tool.includes('*')) === true ? when.tools : undefined;
    const [kind, keys] =
      exact !== undefined
        ? (['tool', exact] as const)
        : servers !== undefined
          ? (['server', servers] as const)
          : (['verb', when.verbs] as const);
    if (keys === undefined) this.index.any.push(number);
    for (const key of new Set(keys)) (this.index[kind][key] ??= []).push(number);
  }
}

/** A window that says nothing wrong but for its zone. */
const ANY_WINDOW = { days: ['mon'] } as const;

/** The rule without what is faulty; `paths` of the faults begin within it. It is only judged: it must never decide. */
export function pruneRule(rule: YamlRule, paths: readonly SchemaFault['path'][]): YamlRule | undefined {
  if (paths.some((path) => path.length === 0 || (path.length === 1 && path[0] === 'when'))) return undefined;
  const left = structuredClone(rule) as unknown as Record<string, unknown>;
  for (const path of paths) removeAt(left, path);
  // The outcome that asks least of patterns, and an id that no other rule has.
  const { id = '', outcome = 'deny' } = left as Partial<YamlRule>;
  return { ...(left as unknown as YamlRule), id, outcome };
}

function removeAt(rule: Record<string, unknown>, path: SchemaFault['path']): void {
  const [top, field] = path;
  const when = rule.when as Record<string, unknown>;
  if (top === 'when' && field === 'time' && path.length > 2) return keepZone(when);
  // Without one of its entries a list would say where the others stand wrongly.
  const end = path.findIndex((key) => typeof key === 'number');
  const way = end < 0 ? path : path.slice(0, end);
  const parent = way
    .slice(0, -1)
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[String(key)], rule);
  if (typeof parent === 'object' && parent !== null) Reflect.deleteProperty(parent, way.at(-1) ?? '');
}

/** `from`, `to` and `days` are read together: where one is faulty, what the others say of it would be told too. */
function keepZone(when: Record<string, unknown>): void {
  const zone = (when.time as { readonly zone?: unknown } | undefined)?.zone;
  if (typeof zone === 'string') when.time = { ...ANY_WINDOW, zone };
  else delete when.time;
}
