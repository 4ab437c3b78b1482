/** Describes a rule to the model before a call: its conditions in words, and its bounds on arguments. */

import type { ArgumentBound } from '../../catalogs/projection/argument-bounds.ts';
import { cutWord } from '../../catalogs/projection/constraint-words.ts';
import { definedFields } from '../../catalogs/text/collections.ts';
import { wordSet } from '../../catalogs/text/word-set.ts';
import { type ArgumentTests, oneOrMore, type RuleOutcome, type When } from './rule-conditions.ts';
import type { TimeWindow } from './time-windows.ts';

const MAX_NAMES = 3;
const MAX_CHARS = 120;
/** Characters of a regular expression that are shown. A longer one tells a model nothing. */
const MAX_PATTERN_CHARS = 40;

/** What a list shows of a rule. `say`: its conditions in words; or its message, after `: `. */
export interface RuleSummary {
  readonly say?: string;
  readonly bounds: readonly ArgumentBound[];
  /** Whether the bounds are all that the rule reads of a call. */
  readonly whole: boolean;
}

/**
 * Returns the summary as a field of the rule's data. Empty if the rule reads nothing of a call. If its conditions are
 * too long to be written out, the first sentence of its message says more.
 */
export function summarizeRule(
  { when, message = '' }: { readonly when: When; readonly message?: string | undefined },
  outcome: RuleOutcome,
): { readonly shows?: RuleSummary } {
  const words = sayWhen(when, outcome);
  const [sentence = ''] = message.split(/(?<=[.!?;:])\s/, 1);
  const isMessage = words !== undefined && isAbridged(words) && sentence !== '';
  const say = isMessage ? `: ${cutWord(sentence.replace(/[.;:]$/, ''), MAX_CHARS - 2)}` : words;
  return say === undefined ? {} : { shows: { say, bounds: boundsOf(when, outcome), whole: isArgumentsOnly(when) } };
}

/**
 * Returns the conditions on a call in words, such as `a path is **\/.env`; undefined if the rule reads only the caller
 * and the tool. A deny or ask matches if any fact matches, an allow only if every fact matches.
 */
function sayWhen(when: When, outcome: RuleOutcome): string | undefined {
  const fields = Object.keys(CONDITION_WORDS) as (keyof typeof CONDITION_WORDS)[];
  const words = [
    ...fields.flatMap((field) => {
      const value = when[field];
      const say = CONDITION_WORDS[field] as (value: unknown, one: string) => string;
      return value === undefined ? [] : [say(value, outcome === 'allow' ? 'every' : 'a')];
    }),
    ...Object.entries(when.args ?? {}).map(([path, tests]) => `${path} ${sayTests(tests)}`),
  ];
  const text = words.join(' and ');
  if (text === '') return undefined;
  return cutWord(text, MAX_CHARS);
}

function isAbridged(words: string): boolean {
  return words.endsWith('…') || words.includes(LONG_PATTERN) || / or \d+ more\b/.test(words);
}

const LONG_PATTERN = 'matches a pattern';

/** How each condition is said. `one` is `every` in a rule that allows, otherwise `a`. */
const CONDITION_WORDS = {
  paths: (globs, one) => `${one} path ${one === 'every' ? 'is under' : 'is'} ${some(globs)}`,
  insideWorkspace: (inside, one) => `${one} path is ${inside ? 'inside' : 'outside'} the workspace`,
  except: (globs, one) => `${one === 'every' ? 'none' : 'it'} is${one === 'every' ? '' : ' not'} ${some(globs)}`,
  hosts: (hosts, one) => `${one} host is ${some(hosts)}`,
  schemes: (schemes, one) => `${one} URL has the scheme ${some(schemes)}`,
  urls: (urls, one) => `${one} URL is ${some(urls)}`,
  uri: (uris, one) => `${one} URI is ${some(oneOrMore(uris))}`,
  asks: (asks, one) => sayAsks(asks, one),
  commands: (commands, one) => `${one} command begins with ${some(commands)}`,
  exceptCommands: (commands, one) => `${one} command begins with none of ${some(commands)}`,
  opaque: (opaque) =>
    opaque
      ? 'the command starts other programs or cannot be read'
      : 'the command is plain words and starts no other program',
  readable: (readable) => (readable ? 'the command is plain words' : 'the command is not plain words'),
  labels: (labels) => `the run holds data labelled ${some(labels)}`,
  time: (window) => `it is ${sayTime(window)}`,
} as const satisfies { readonly [Field in keyof When]?: (value: NonNullable<When[Field]>, one: string) => string };

/** Every test of an allow is a bound. A deny gives a bound only if it has one test and reads nothing else. */
function boundsOf(when: When, outcome: RuleOutcome): readonly ArgumentBound[] {
  if (outcome === 'ask') return [];
  const tests = Object.entries(when.args ?? {}).map(([dotted, one]) => ({ path: dotted.split('.'), tests: one }));
  if (outcome === 'allow') return tests.flatMap(({ path, tests: one }) => allowed(path, one));
  return tests.length === 1 && isArgumentsOnly(when) ? tests.flatMap(({ path, tests: one }) => denied(path, one)) : [];
}

function allowed(
  path: readonly string[],
  { equals, in: among, prefix, pattern, min, max, present, ...rest }: ArgumentTests,
): readonly ArgumentBound[] {
  if (Object.keys(rest).length > 0) return [];
  const oneOf = equals === undefined ? among : [equals];
  return [definedFields({ path, oneOf, prefix, pattern, minimum: min, maximum: max, present })];
}

/** The opposite of one test. With several tests, no single value of an argument is always refused. */
function denied(path: readonly string[], tests: ArgumentTests): readonly ArgumentBound[] {
  if (Object.keys(tests).length !== 1) return [];
  const { equals, in: among, min, max, present } = tests;
  if ('equals' in tests) return [{ path, noneOf: [equals] }];
  if (among !== undefined) return [{ path, noneOf: among }];
  if (min !== undefined) return [{ path, below: min }];
  if (max !== undefined) return [{ path, above: max }];
  return present === undefined ? [] : [{ path, present: !present }];
}

/** Conditions that read only the caller, the tool, or arguments. */
const ARGUMENTS_OR_CALLER = wordSet(
  'kind tools exceptTools servers trust args roles groups principals origins profiles owner',
);

/** Whether the rule reads nothing of the call but arguments. */
function isArgumentsOnly(when: When): boolean {
  return Object.keys(when).every((field) => ARGUMENTS_OR_CALLER.has(field));
}

function sayTests({ equals, in: among, prefix, pattern, min, max, present }: ArgumentTests): string {
  const words = [
    ...(equals === undefined ? [] : [`is ${JSON.stringify(equals)}`]),
    ...(among === undefined ? [] : [`is ${some(among.map((value) => JSON.stringify(value)))}`]),
    ...(prefix === undefined ? [] : [`begins with ${JSON.stringify(prefix)}`]),
    ...(pattern === undefined ? [] : [pattern.length > MAX_PATTERN_CHARS ? LONG_PATTERN : `matches ${pattern}`]),
    ...(min === undefined ? [] : [`is at least ${min}`]),
    ...(max === undefined ? [] : [`is at most ${max}`]),
    ...(present === undefined ? [] : [present ? 'is given' : 'is not given']),
  ];
  return words.join(' and ');
}

function sayAsks({ mode, fields, maxTokens }: NonNullable<When['asks']>, one: string): string {
  return [
    ...(mode === undefined ? [] : [`it asks in mode ${mode}`]),
    ...(fields === undefined ? [] : [`${one} field is ${some(fields)}`]),
    ...(maxTokens === undefined ? [] : [`maxTokens ${sayTests(maxTokens)}`]),
  ].join(' and ');
}

function sayTime({ days, from, to, zone }: TimeWindow): string {
  return [
    ...(days === undefined ? [] : [days.join(', ')]),
    ...(from === undefined ? [] : [`from ${from}`]),
    ...(to === undefined ? [] : [`to ${to}`]),
    `in ${zone}`,
  ].join(' ');
}

function some(names: readonly string[]): string {
  return names.length <= MAX_NAMES
    ? names.join(' or ')
    : `${names.slice(0, MAX_NAMES).join(' or ')} or ${names.length - MAX_NAMES} more`;
}
