/** Estimates what a decision by YAML rules costs, so that an expensive one runs in a worker. */
import type { CallInput, Effect, EffectKind, ListTool } from '../port.ts';
import type { RuleCondition } from '../rules/argument-tests.ts';
import type { RuleData, RuleIndexes } from '../rules/rule-compiler.ts';
import type { PatternForms } from '../rules/rule-patterns.ts';

/** The number of rules, and of their expensive parts. */
export interface Weight {
  readonly rules: number;
  readonly regexes: number;
  /**
   * Argument tests that also look into lists, so that each may test every value. A list of expected values counts more.
   */
  readonly args: number;
  /** Conditions on commands. Each splits every command. */
  readonly commands: number;
  /** Characters of the texts that are searched in arguments. Each text counts some more. */
  readonly texts: number;
}

/** Weights of the parts of a rule index. */
interface IndexWeights {
  readonly tool: Readonly<Record<string, Weight>>;
  readonly server: Readonly<Record<string, Weight>>;
  readonly verb: Readonly<Record<string, Weight>>;
  readonly any: Weight;
}

/** Weights of all rules, and of the parts of their indexes. */
export interface RuleWeights {
  /** By the number of the rule. Equal weights are one object. */
  readonly rules: readonly Weight[];
  readonly index: Readonly<Record<keyof RuleIndexes, IndexWeights>>;
  /** Number of regular expressions in all data. */
  readonly regexes: number;
}

/**
 * Milliseconds, generous, measured on a machine of 2024 (docs/performance.md). The engine visits all arguments once per
 * decision. That grows with the depth of each part and the square of their number. Then each test reads each value.
 */
const MS = {
  rule: 0.005,
  item: 0.0015,
  itemChar: 0.000004,
  compile: 0.045,
  match: 0.005,
  matchChar: 0.00002,
  searchChar: 0.0000007,
  listedRule: 0.01,
  command: 0.015,
  word: 0.0001,
  step: 0.0005,
  value: 0.002,
  part: 0.002,
  level: 0.0006,
  levelChar: 0.000015,
  partSquared: 0.0000002,
} as const;
/** A decision that costs at least this many milliseconds is expensive. */
export const EXPENSIVE_MS = 10;
/** Weights of tools with fewer rules are not kept. Most tools have few rules, and there may be ten thousand tools. */
const FEW = 20;
/** This many expected values in a list cost as much as one more test. */
const AMONG = 50;

/** A search tests the first character at each place, and in the worst case all others. */
const SEARCH = 8;

const NONE: Weight = { rules: 0, regexes: 0, args: 0, commands: 0, texts: 0 };

/** Returns the weights of all rules. `settingsData` is the other data of the policy. */
export function weighRules(
  { list, index }: { readonly list: readonly RuleData[]; readonly index: RuleIndexes },
  settingsData: unknown,
): RuleWeights {
  const known = new Map<string, Weight>();
  const rules = list.map((rule): Weight => {
    const weight = {
      rules: 1,
      regexes: countRegexes([rule.target, rule.call]),
      args: rule.call.filter(isWalk).reduce((total, condition) => total + 1 + countAmong(condition) / AMONG, 0),
      commands: rule.call.filter(({ over }) => over === 'commands').length,
      texts: rule.call.flatMap(searchedTexts).reduce((total, text) => total + SEARCH + text.length, 0),
    };
    const key = Object.values(weight).join();
    const one = known.get(key) ?? weight;
    known.set(key, one);
    return one;
  });
  const of = (numbers: readonly number[]): Weight => weightOfRules({ rules }, numbers);
  const ofAll = (part: Readonly<Record<string, readonly number[]>>, least = 0): Record<string, Weight> =>
    Object.fromEntries(
      Object.entries(part)
        .map(([key, numbers]) => [key, of(numbers)] as const)
        .filter(([, weight]) => Object.values(weight).reduce((total, part: number) => total + part, 0) > least),
    );
  const weigh = ({ tool, server, verb, any }: RuleIndexes['tools']): IndexWeights => ({
    tool: ofAll(tool, FEW),
    server: ofAll(server),
    verb: ofAll(verb),
    any: of(any),
  });
  return {
    rules,
    index: { tools: weigh(index.tools), others: weigh(index.others) },
    regexes: rules.reduce(sum, NONE).regexes + countRegexes(settingsData),
  };
}

/** Returns the weight of all rules that may be about an effect. */
export function weightOfEffect({ index }: RuleWeights, { kind, server, tool, verb }: Effect): Weight {
  const weights = index[partOf(kind)];
  return [weights.any, weights.tool[`${server}.${tool}`], weights.server[server], weights.verb[verb]].reduce<Weight>(
    (total, one) => sum(total, one ?? NONE),
    NONE,
  );
}

/** Returns the part of the index with the rules about this kind, as `part` of lib/rules.rego does. */
function partOf(kind: EffectKind = 'tool'): keyof RuleIndexes {
  return kind === 'tool' ? 'tools' : 'others';
}

/** Returns the weight of the rules with these numbers. */
export function weightOfRules({ rules }: Pick<RuleWeights, 'rules'>, numbers: readonly number[]): Weight {
  return numbers.reduce((total, number) => sum(total, rules[number] ?? NONE), NONE);
}

/**
 * Returns the milliseconds that rules of this weight may take for a call. `cached`: whether a pattern is compiled only
 * once. `args`: the parsed arguments, if known.
 */
export function costOfCall(
  all: Weight,
  { effect: { paths, urls, command }, argsText }: Pick<CallInput, 'effect' | 'argsText'>,
  { cached, args }: { readonly cached: boolean; readonly args?: unknown },
): number {
  const items = 1 + paths.length + urls.length + (command?.words.length ?? 0);
  const chars =
    paths.reduce((total, one) => total + one.path.length, 0) + urls.reduce((total, one) => total + one.url.length, 0);
  const { parts, walk } = all.args === 0 ? UNWALKED : walkOf(args ?? parsed(argsText));
  const regex =
    (cached ? MS.compile + items * MS.match : items * MS.compile) + Math.max(chars, argsText.length) * MS.matchChar;
  const facts =
    all.rules * (MS.rule + items * MS.item + chars * MS.itemChar) +
    (all.commands === 0 ? 0 : all.commands * costOfCommands(command?.words ?? []));
  const search = all.texts * argsText.length * MS.searchChar;
  return facts + all.regexes * (regex + parts * MS.match) + walk + all.args * parts * MS.value + search;
}

/** Returns the milliseconds of one condition on commands. The first word of each command is split at its slashes. */
function costOfCommands(commands: readonly (readonly string[])[]): number {
  return commands.reduce(
    (total, words) => total + MS.command + words.length * MS.word + (words[0]?.split('/').length ?? 0) * MS.step,
    0,
  );
}

/** Returns the milliseconds that this list may take. Each group of tools is decided once. */
export function costOfList(weights: RuleWeights, tools: readonly ListTool[]): number {
  const groups = new Map(
    tools.map(
      ({ kind, server, verb, verbs = [verb] }) =>
        [`${kind}\0${server}\0${verbs.join()}`, { index: weights.index[partOf(kind)], server, verbs }] as const,
    ),
  );
  const rules = [...groups.values()].map(
    ({ index, server, verbs }) =>
      index.any.rules +
      (index.server[server]?.rules ?? 0) +
      verbs.reduce((total, verb) => total + (index.verb[verb]?.rules ?? 0), 0),
  );
  return rules.reduce((total, one) => total + one, 0) * MS.listedRule;
}

/** Only rules that deny or ask also look for an argument in lists. */
function isWalk(condition: RuleCondition): boolean {
  return condition.over === 'argument'
    ? condition.need === 'any'
    : condition.present === 'somewhere' || condition.present === 'nowhere';
}

function sum(a: Weight, b: Weight): Weight {
  return {
    rules: a.rules + b.rules,
    regexes: a.regexes + b.regexes,
    args: a.args + b.args,
    commands: a.commands + b.commands,
    texts: a.texts + b.texts,
  };
}

/** Counts the regular expressions of conditions and settings: lists under `regex`, and strings under `pattern`. */
function countRegexes(value: unknown): number {
  let found = 0;
  for (const [key, inner] of Object.entries(value ?? {}) as readonly (readonly [string, unknown])[]) {
    if (key === 'regex' && Array.isArray(inner)) found += inner.length;
    else if (key === 'pattern' && typeof inner === 'string') found += 1;
    else if (typeof inner === 'object') found += countRegexes(inner);
  }
  return found;
}

/** Counts the expected values that a condition compares with. */
function countAmong(condition: RuleCondition): number {
  return testsOf(condition).reduce((total, { among }) => total + (among?.length ?? 0), 0);
}

/** Returns the texts that a condition searches in an argument. */
function searchedTexts(condition: RuleCondition): readonly string[] {
  return testsOf(condition).flatMap(({ text }) => text?.contain ?? []);
}

function testsOf({ tests = [] }: RuleCondition): readonly { among?: readonly unknown[]; text?: PatternForms }[] {
  return tests as ReturnType<typeof testsOf>;
}

const UNWALKED = { parts: 0, walk: 0 };

/** Returns undefined for invalid JSON. It costs nothing: it is refused. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Returns the number of values at all depths, and the milliseconds to visit them. */
function walkOf(root: unknown): { readonly parts: number; readonly walk: number } {
  if (root === undefined) return UNWALKED;
  const pending: (readonly [value: unknown, depth: number])[] = [[root, 0]];
  let [parts, levels, chars] = [0, 0, 0];
  for (let next = pending.pop(); next !== undefined; next = pending.pop(), parts += 1) {
    const [value, depth] = next;
    levels += depth;
    if (typeof value === 'string') chars += depth * value.length;
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, inner] of Object.entries(value)) {
      chars += depth * key.length;
      pending.push([inner, depth + 1]);
    }
  }
  return { parts, walk: parts * (MS.part + parts * MS.partSquared) + levels * MS.level + chars * MS.levelChar };
}
