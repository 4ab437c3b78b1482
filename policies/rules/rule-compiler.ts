/** Compiles YAML rules to the data of the library, a list and an index. Reports every faulty rule with its place. */

import { readQuantities } from '../../catalogs/readers/quantities.ts';
import { wordSet } from '../../catalogs/text/word-set.ts';
import type { ApprovalScope, ModeSettings } from '../port.ts';
import type { RuleCondition } from './argument-tests.ts';
import { type LocatedRule, serversOfTools } from './configured-names.ts';
import type { PolicyProblem } from './policy-problems.ts';
import { compileWhen, kindPartsOf } from './rule-conditions.ts';
import { compileMode, type ModeData } from './rule-modes.ts';
import { nullMap } from './rule-patterns.ts';
import { findSchemaFaults, rulesSchema, type SchemaFault, type YamlRule } from './rule-schema.ts';
import { type RuleSummary, summarizeRule } from './rule-summary.ts';

/** Parsed YAML that knows the places of its values. */
export interface YamlDocument {
  readonly value: unknown;
  readonly problems: readonly PolicyProblem[];
  placeOf(
    path: readonly (string | number)[],
    part: 'key' | 'value',
  ): { readonly line: number; readonly column: number };
}

/** A parsed document of YAML rules: `{rules: [...]}`. If it has `problems`, its `value` is ignored. */
export interface YamlRuleDocument
  extends ModeSettings,
    Pick<YamlDocument, 'value' | 'placeOf'>,
    Partial<Pick<YamlDocument, 'problems'>> {
  /** Name of the file in messages. Never an absolute path of this machine. */
  readonly file: string;
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
    readonly onCommands?: true;
    readonly onOpaque?: true;
  };
  readonly principal: readonly RuleCondition[];
  readonly target: readonly RuleCondition[];
  readonly call: readonly RuleCondition[];
  readonly obligations: NonNullable<YamlRule['obligations']>;
  /** True for a rule that is about tools because it names no kind. It is in that part of the index only. */
  readonly toolsOnly?: true;
  /** What a list tells the model about this rule. */
  readonly shows?: RuleSummary;
}

/** An index of rules. Each rule is in one of the four maps, so that a call evaluates it once. */
interface RuleIndex {
  readonly tool: Record<string, number[]>;
  readonly server: Record<string, number[]>;
  readonly verb: Record<string, number[]>;
  readonly any: number[];
}

/** The rules that can match calls of tools, and those that can match other requests. A rule may be in both. */
export type RuleIndexes = Readonly<Record<'tools' | 'others', RuleIndex>>;

/** All rules as data, with every fault that was found in a single rule. */
export interface CompiledRules {
  readonly list: readonly RuleData[];
  readonly index: RuleIndexes;
  readonly problems: readonly PolicyProblem[];
  /** Every rule that fits the schema. It includes rules that are off and rules with problems. */
  readonly rules: readonly LocatedRule[];
  /** Time zones that the rules need. */
  readonly zones: readonly string[];
}

/** Ids of the library's own reasons. With a rule of the same id, no one could tell the refusals apart. */
export const RESERVED_RULE_IDS = wordSet(`
  default-deny profile server-tools pin plan-mode second-gate spill policy-shape rego unknown-name obligations
`);

/** Compiles all documents together, because ids are unique across them. `workspace` is absolute, symlinks resolved. */
export function compileRules(documents: readonly YamlRuleDocument[], workspace: string): CompiledRules {
  const compiler = new Compiler(workspace);
  for (const document of documents) compiler.add(document);
  return compiler;
}

class Compiler implements CompiledRules {
  readonly list: RuleData[] = [];
  readonly index: RuleIndexes = { tools: emptyIndex(), others: emptyIndex() };
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

  /** If a rule does not fit the schema, its other parts are still checked, and so are the other rules. */
  add(document: YamlRuleDocument): void {
    const { problems = [] } = document;
    this.problems.push(...problems);
    if (problems.length > 0) return;
    const value = readQuantities(document.value, rulesSchema, (path, message) =>
      this.problems.push({ file: document.file, ...document.placeOf(path, 'value'), message }),
    );
    const faults = findSchemaFaults(value);
    for (const { path, part, message } of faults)
      this.problems.push({ file: document.file, ...document.placeOf(path, part), message });
    const { rules } = (value ?? {}) as { readonly rules?: readonly YamlRule[] };
    if (!Array.isArray(rules)) return;
    for (const [number, rule] of (rules as readonly YamlRule[]).entries()) {
      const own = faults
        .filter(({ path }) => path[0] === 'rules' && path[1] === number)
        .map(({ path }) => path.slice(2));
      const pruned = own.length === 0 ? rule : pruneRule(rule, own);
      if (pruned !== undefined) this.#addRule(pruned, number, { document, isPruned: own.length > 0 });
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
      refuse(['id'], `the id "${rule.id}" is already used at ${before.file}:${before.line}; choose another id`);
    if (RESERVED_RULE_IDS.has(rule.id))
      refuse(['id'], `"${rule.id}" is an id that Tollgate uses itself; choose another id`);
    if (rule.outcome === 'deny' && rule.obligations !== undefined)
      refuse(['obligations'], 'a rule that denies cannot have obligations; remove them');
    if (rule.outcome !== 'ask' && rule.approval !== undefined)
      refuse(
        ['approval'],
        `a rule with outcome ${rule.outcome} does not ask; remove \`approval\`, or write outcome: ask`,
      );
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
        ...(rule.outcome !== 'allow' && (rule.when.commands ?? rule.when.exceptCommands) !== undefined
          ? { onCommands: true }
          : {}),
        ...(rule.outcome !== 'allow' && (rule.when.opaque === true || rule.when.readable === false)
          ? { onOpaque: true }
          : {}),
      },
      ...compileWhen(rule.when, {
        outcome: rule.outcome,
        workspace: this.#workspace,
        refuse: (path, message) => refuse(['when', ...path], message),
      }),
      obligations: rule.obligations ?? {},
      ...(rule.when.kind === undefined && rule.outcome === 'allow' ? { toolsOnly: true } : {}),
      ...summarizeRule(rule, rule.outcome),
    };
    this.rules.push({ rule, mode, at, ...(isPruned ? { isPruned } : {}) });
    if (this.problems.length > known || mode === 'off') return;
    this.#addToIndex(data, rule);
    if (rule.when.time !== undefined) this.#zones.add(rule.when.time.zone);
  }

  /** Adds the rule to the most specific map that covers all of its calls. */
  #addToIndex(data: RuleData, { when, outcome }: YamlRule): void {
    const number = this.list.push(data) - 1;
    const parts = kindPartsOf(when, outcome);
    const servers = serversOfTools(when.tools) ?? when.servers;
    const exact = when.tools?.every((tool) => !tool.includes('*')) === true ? when.tools : undefined;
    const [kind, keys] = indexKeys(exact, servers, when.verbs);
    for (const index of [...(parts.tools ? [this.index.tools] : []), ...(parts.others ? [this.index.others] : [])]) {
      if (keys === undefined) index.any.push(number);
      for (const key of new Set(keys)) (index[kind][key] ??= []).push(number);
    }
  }
}

function emptyIndex(): RuleIndex {
  return { tool: nullMap(), server: nullMap(), verb: nullMap(), any: [] };
}

function indexKeys(
  exact: readonly string[] | undefined,
  servers: readonly string[] | undefined,
  verbs: readonly string[] | undefined,
): readonly [kind: 'tool' | 'server' | 'verb', keys: readonly string[] | undefined] {
  if (exact !== undefined) return ['tool', exact];
  return servers === undefined ? ['verb', verbs] : ['server', servers];
}

/** A valid window. It replaces a faulty one so that its zone is still checked. */
const ANY_WINDOW = { days: ['mon'] } as const;

/** Returns the rule without its faulty parts, only to check it further. `paths` of the faults begin within the rule. */
function pruneRule(rule: YamlRule, paths: readonly SchemaFault['path'][]): YamlRule | undefined {
  if (paths.some((path) => path.length === 0 || (path.length === 1 && path[0] === 'when'))) return undefined;
  const pruned = structuredClone(rule) as unknown as Record<string, unknown>;
  for (const path of paths) removeAt(pruned, path);
  // These defaults cause no further messages: deny has the fewest checks on patterns, and an empty id is never
  // repeated.
  const { id = '', outcome = 'deny' } = pruned as Partial<YamlRule>;
  return { ...(pruned as unknown as YamlRule), id, outcome };
}

function removeAt(rule: Record<string, unknown>, path: SchemaFault['path']): void {
  const [top, field] = path;
  const when = rule.when as Record<string, unknown>;
  if (top === 'when' && field === 'time' && path.length > 2) return keepZone(when);
  // A faulty entry removes its whole list. Without one entry, the places of the others would be wrong.
  const end = path.findIndex((key) => typeof key === 'number');
  const keys = end < 0 ? path : path.slice(0, end);
  const parent = keys
    .slice(0, -1)
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[String(key)], rule);
  if (typeof parent === 'object' && parent !== null) Reflect.deleteProperty(parent, keys.at(-1) ?? '');
}

/** `from`, `to` and `days` are read together. If one is faulty, the checks of the others would report it again. */
function keepZone(when: Record<string, unknown>): void {
  const zone = (when.time as { readonly zone?: unknown } | undefined)?.zone;
  if (typeof zone === 'string') when.time = { ...ANY_WINDOW, zone };
  else delete when.time;
}
