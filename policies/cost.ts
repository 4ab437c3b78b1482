/** Owns the estimate of what a decision over YAML rules costs before it is made, so that dear ones go elsewhere; never decides what is allowed. */
import type { CallInput, ListTool } from './port.ts';
import type { RuleData, RuleIndex } from './rules.ts';

/** How many rules there are, and how many of what is dear in them. */
interface Weight {
  readonly rules: number;
  readonly regexes: number;
  /** Tests of arguments: each walks through all that the argument holds. */
  readonly args: number;
}

/** Weights of the parts of the index of rules. */
export interface Weights {
  readonly tool: Readonly<Record<string, Weight>>;
  readonly server: Readonly<Record<string, Weight>>;
  readonly verb: Readonly<Record<string, Weight>>;
  readonly any: Weight;
  /** Regular expressions anywhere in the data. */
  readonly regexes: number;
}

/** Milliseconds, generous, measured on a machine of 2024: docs/performance.md. The engine's walk through a value grows with the square of its parts. */
const MS = { rule: 0.005, item: 0.0015, compile: 0.045, match: 0.005, matchByte: 0.00001, part: 0.004, partSquared: 0.000001, listedRule: 0.01 } as const;
/** Milliseconds from which on a decision is dear. */
export const DEAR_MS = 10;
/** Rules of one tool below which nothing is kept of them: most tools have a few, and ten thousand tools would be much to keep. */
const FEW = 20;
/** Characters below which no arguments are dear to walk through. */
const SHORT = 1024;

const NONE: Weight = { rules: 0, regexes: 0, args: 0 };

/** The weights of all rules; `around` is what else stands in the data. */
export function weigh({ list, index }: { readonly list: readonly RuleData[]; readonly index: RuleIndex }, around: unknown): Weights {
  const each = list.map((rule): Weight => ({ rules: 1, regexes: countRegexes([rule.target, rule.call]), args: rule.call.filter(isWalk).length }));
  const of = (numbers: readonly number[]): Weight => numbers.map((number) => each[number] ?? NONE).reduce(sum, NONE);
  const ofAll = (part: Readonly<Record<string, readonly number[]>>, least = 0): Record<string, Weight> =>
    Object.fromEntries(Object.entries(part).map(([key, numbers]) => [key, of(numbers)] as const).filter(([, { rules, regexes, args }]) => rules + regexes + args > least));
  return { tool: ofAll(index.tool, FEW), server: ofAll(index.server), verb: ofAll(index.verb), any: of(index.any), regexes: each.reduce(sum, NONE).regexes + countRegexes(around) };
}

/** Milliseconds that deciding this call may take; `cached`: whether a pattern is compiled once only. */
export function costOfCall(weights: Weights, { effect, argsText }: Pick<CallInput, 'effect' | 'argsText'>, { cached }: { readonly cached: boolean }): number {
  const { server, tool, verb, paths, urls, command } = effect;
  const all = [weights.any, weights.tool[`${server}.${tool}`], weights.server[server], weights.verb[verb]].reduce<Weight>((total, one) => sum(total, one ?? NONE), NONE);
  const items = 1 + paths.length + urls.length + (command?.words.length ?? 0);
  const parts = all.args === 0 || argsText.length < SHORT ? 0 : countParts(argsText);
  const regex = (cached ? MS.compile + items * MS.match : items * MS.compile) + argsText.length * MS.matchByte;
  return all.rules * (MS.rule + items * MS.item) + all.regexes * (regex + parts * MS.match) + all.args * parts * (MS.part + parts * MS.partSquared);
}

/** Milliseconds that these verdicts may take: each kind of tool is weighed once. */
export function costOfList(weights: Weights, tools: readonly ListTool[]): number {
  const kinds = new Map(tools.map(({ server, verb, verbs = [verb] }) => [`${server}\0${verbs.join()}`, { server, verbs }] as const));
  const rules = [...kinds.values()].map(({ server, verbs }) => weights.any.rules + (weights.server[server]?.rules ?? 0) + verbs.reduce((total, verb) => total + (weights.verb[verb]?.rules ?? 0), 0));
  return rules.reduce((total, one) => total + one, 0) * MS.listedRule;
}

/** Only rules that deny or ask look for an argument in lists too. */
function isWalk(condition: Readonly<Record<string, unknown>>): boolean {
  return condition['over'] === 'argument' ? condition['need'] === 'any' : condition['present'] === 'somewhere' || condition['present'] === 'nowhere';
}

function sum(a: Weight, b: Weight): Weight {
  return { rules: a.rules + b.rules, regexes: a.regexes + b.regexes, args: a.args + b.args };
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

/** Values of all depths. What does not parse is refused by whoever reads it for its decision. */
function countParts(text: string): number {
  const left: unknown[] = [];
  try {
    left.push(JSON.parse(text));
  } catch {
    return 0;
  }
  let parts = 0;
  for (; left.length > 0; parts += 1) {
    const value = left.pop();
    if (typeof value === 'object' && value !== null) for (const inner of Object.values(value)) left.push(inner);
  }
  return parts;
}
