/** Owns the estimate of what a decision over YAML rules costs before it is made, so that dear ones go elsewhere; never decides what is allowed. */
import type { CallInput, ListTool } from '../port.ts';
import type { RuleData, RuleIndex } from '../rules/rule-compiler.ts';

/** How many rules there are, and how many of what is dear in them. */
interface Weight {
  readonly rules: number;
  readonly regexes: number;
  /** Tests of arguments that look into lists: each may meet every value. One over a list of values counts for more. */
  readonly args: number;
  /** Conditions on commands: each takes every command apart. */
  readonly commands: number;
}

/** Weights of the parts of the index of rules. */
export interface RuleWeights {
  readonly tool: Readonly<Record<string, Weight>>;
  readonly server: Readonly<Record<string, Weight>>;
  readonly verb: Readonly<Record<string, Weight>>;
  readonly any: Weight;
  /** Regular expressions anywhere in the data. */
  readonly regexes: number;
}

/**
 * Milliseconds, generous, measured on a machine of 2024: docs/performance.md. The engine walks through all arguments once a decision,
 * which grows with the depth of each part and with the square of the parts, and keeps the text of each; then each test meets each value.
 */
const MS = {
  rule: 0.005,
  item: 0.0015,
  itemChar: 0.000004,
  compile: 0.045,
  match: 0.005,
  matchChar: 0.00002,
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
/** Milliseconds from which on a decision is dear. */
export const EXPENSIVE_MS = 10;
/** Rules of one tool below which nothing is kept of them: most tools have a few, and ten thousand tools would be much to keep. */
const FEW = 20;
/** How many values of a list that a test looks through cost as much as the test. */
const AMONG = 50;

const NONE: Weight = { rules: 0, regexes: 0, args: 0, commands: 0 };

/** The weights of all rules; `around` is what else stands in the data. */
export function weighRules(
  { list, index }: { readonly list: readonly RuleData[]; readonly index: RuleIndex },
  around: unknown,
): RuleWeights {
  const each = list.map(
    (rule): Weight => ({
      rules: 1,
      regexes: countRegexes([rule.target, rule.call]),
      args: rule.call.filter(isWalk).reduce((total, condition) => total + 1 + countAmong(condition) / AMONG, 0),
      commands: rule.call.filter(({ over }) => over === 'commands').length,
    }),
  );
  const of = (numbers: readonly number[]): Weight => numbers.map((number) => each[number] ?? NONE).reduce(sum, NONE);
  const ofAll = (part: Readonly<Record<string, readonly number[]>>, least = 0): Record<string, Weight> =>
    Object.fromEntries(
      Object.entries(part)
        .map(([key, numbers]) => [key, of(numbers)] as const)
        .filter(([, { rules, regexes, args, commands }]) => rules + regexes + args + commands > least),
    );
  return {
    tool: ofAll(index.tool, FEW),
    server: ofAll(index.server),
    verb: ofAll(index.verb),
    any: of(index.any),
    regexes: each.reduce(sum, NONE).regexes + countRegexes(around),
  };
}

/** Milliseconds that deciding this call may take; `cached`: whether a pattern is compiled once only. */
export function costOfCall(
  weights: RuleWeights,
  { effect, argsText }: Pick<CallInput, 'effect' | 'argsText'>,
  { cached }: { readonly cached: boolean },
): number {
  const { server, tool, verb, paths, urls, command } = effect;
  const all = [
    weights.any,
    weights.tool[`${server}.${tool}`],
    weights.server[server],
    weights.verb[verb],
  ].reduce<Weight>((total, one) => sum(total, one ?? NONE), NONE);
  const items = 1 + paths.length + urls.length + (command?.words.length ?? 0);
  const chars =
    paths.reduce((total, one) => total + one.path.length, 0) + urls.reduce((total, one) => total + one.url.length, 0);
  const { parts, walk } = all.args === 0 ? UNWALKED : walkOf(argsText);
  const regex =
    (cached ? MS.compile + items * MS.match : items * MS.compile) + Math.max(chars, argsText.length) * MS.matchChar;
  const facts =
    all.rules * (MS.rule + items * MS.item + chars * MS.itemChar) +
    (all.commands === 0 ? 0 : all.commands * costOfCommands(command?.words ?? []));
  return facts + all.regexes * (regex + parts * MS.match) + walk + all.args * parts * MS.value;
}

/** Milliseconds that one condition on commands may take: a first word is split at its slashes. */
function costOfCommands(commands: readonly (readonly string[])[]): number {
  return commands.reduce(
    (total, words) => total + MS.command + words.length * MS.word + (words[0]?.split('/').length ?? 0) * MS.step,
    0,
  );
}

/** Milliseconds that these verdicts may take: each kind of tool is weighed once. */
export function costOfList(weights: RuleWeights, tools: readonly ListTool[]): number {
  const kinds = new Map(
    tools.map(({ server, verb, verbs = [verb] }) => [`${server}\0${verbs.join()}`, { server, verbs }] as const),
  );
  const rules = [...kinds.values()].map(
    ({ server, verbs }) =>
      weights.any.rules +
      (weights.server[server]?.rules ?? 0) +
      verbs.reduce((total, verb) => total + (weights.verb[verb]?.rules ?? 0), 0),
  );
  return rules.reduce((total, one) => total + one, 0) * MS.listedRule;
}

/** Only rules that deny or ask look for an argument in lists too. */
function isWalk(condition: Readonly<Record<string, unknown>>): boolean {
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
  };
}

/** Where conditions and settings hold them: lists under `regex`, and a text under `pattern`. */
function countRegexes(value: unknown): number {
  let found = 0;
  for (const [key, inner] of Object.entries(value ?? {}) as readonly (readonly [string, unknown])[]) {
    if (key === 'regex' && Array.isArray(inner)) found += inner.length;
    else if (key === 'pattern' && typeof inner === 'string') found += 1;
    else if (typeof inner === 'object') found += countRegexes(inner);
  }
  return found;
}

/** Values in the lists that a condition looks through. */
function countAmong(condition: Readonly<Record<string, unknown>>): number {
  const tests = (condition.tests ?? []) as readonly { readonly among?: readonly unknown[] }[];
  return tests.reduce((total, { among }) => total + (among?.length ?? 0), 0);
}

const UNWALKED = { parts: 0, walk: 0 };

/** How many values of all depths there are, and the milliseconds of one walk. What does not parse is refused by whoever reads it for its decision. */
function walkOf(text: string): { readonly parts: number; readonly walk: number } {
  const left: (readonly [value: unknown, depth: number])[] = [];
  try {
    left.push([JSON.parse(text), 0]);
  } catch {
    return UNWALKED;
  }
  let [parts, levels, chars] = [0, 0, 0];
  for (let next = left.pop(); next !== undefined; next = left.pop(), parts += 1) {
    const [value, depth] = next;
    levels += depth;
    if (typeof value === 'string') chars += depth * value.length;
    if (typeof value !== 'object' || value === null) continue;
    for (const [key, inner] of Object.entries(value)) {
      chars += depth * key.length;
      left.push([inner, depth + 1]);
    }
  }
  return { parts, walk: parts * (MS.part + parts * MS.partSquared) + levels * MS.level + chars * MS.levelChar };
}
