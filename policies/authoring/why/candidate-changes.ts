/**
 * Returns single changes of a call that a person could mean, after which a condition may hold or fail. A change never
 * makes another call of it: verb, server, tool and arguments stay, apart from a smaller number. The search reports only
 * changes that it proved.
 */

import path from 'node:path';
import type { CallInput, Principal } from '../../port.ts';
import type { ArgumentTests } from '../../rules/argument-tests.ts';
import { oneOrMore, type RuleOutcome, type When } from '../../rules/rule-conditions.ts';
import { compileTime, readClocks, type TimeWindow } from '../../rules/time-windows.ts';
import {
  type CallEdit,
  withArgument,
  withCommand,
  withEffect,
  withPath,
  withPrincipal,
  withUrl,
} from './call-edits.ts';
import { factsOfField } from './condition-groups.ts';
import type { FactChange } from './explanation-format.ts';

/** A change of a fact, with the edit that makes it. */
export interface CandidateChange extends FactChange {
  readonly apply: CallEdit;
  /**
   * Outcome of the rule that this change makes match. The search accepts no other outcome, which would be a
   * coincidence.
   */
  readonly toward?: RuleOutcome;
  /** Id of the rule that this change is about. The search reports one way per rule. */
  readonly of?: string;
}

/** The call, and whether the condition should hold. */
interface Goal {
  readonly input: CallInput;
  readonly hold: boolean;
}

const MOST_NAMED = 4;
const STEP_MS = 1_800_000;
const WEEK_STEPS = 336;

/** Returns changes after which these conditions may hold, or fail. Fields without such a change give none. */
export function candidateChanges(when: When, goal: Goal): readonly CandidateChange[] {
  return [
    ...(goal.input.principal.owner === true ? principalChanges(when, goal) : []),
    ...pathChanges(when, goal),
    ...urlChanges(when, goal),
    ...uriChanges(when, goal),
    ...(goal.hold ? [] : commandChanges(when, goal.input)),
    ...(goal.hold ? [] : labelChanges(when, goal.input)),
    ...(when.time === undefined ? [] : timeChanges(when.time, goal)),
    ...Object.entries(when.args ?? {}).flatMap(([name, tests]) => argumentChanges(name, tests, goal)),
  ];
}

/** An owner can call as another principal. No one else can become one. */
function principalChanges(when: When, { input: { principal }, hold }: Goal): readonly CandidateChange[] {
  if (!hold) return [];
  const one = (key: 'role' | 'id' | 'origin', wanted: readonly string[] = []): readonly CandidateChange[] =>
    wanted.map((to) => ({
      fact: `principal.${key}`,
      from: principal[key],
      to,
      text: `principal.${key} were ${to}`,
      apply: withPrincipal({ [key]: to }),
    }));
  const many = (key: 'groups' | 'profiles', wanted: readonly string[] = []): readonly CandidateChange[] =>
    wanted.map((name) => {
      const to = [...principal[key], name];
      const apply = withPrincipal({ [key]: to } satisfies Partial<Principal>);
      return { fact: `principal.${key}`, from: principal[key], to, text: `principal.${key} had ${name}`, apply };
    });
  return [
    ...one('role', when.roles),
    ...one('id', when.principals),
    ...one('origin', when.origins),
    ...many('groups', when.groups),
    ...many('profiles', when.profiles),
  ];
}

/** Proposes the same file name in the workspace, or in a folder that the rule names. */
function pathChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { paths, except = [], insideWorkspace } = when;
  const [first] = input.effect.paths;
  if (first === undefined) return [];
  const name = path.posix.basename(first.path);
  const at = (to: string, text: string): CandidateChange => ({
    fact: 'path',
    from: input.effect.paths.map((fact) => fact.path).join(', '),
    to,
    text,
    apply: withPath(to, true),
  });
  const inFolders = (globs: readonly string[]): readonly CandidateChange[] =>
    globs.flatMap((glob) => {
      const folder = /^([^*/][^*]*)\/\*\*?$/.exec(glob)?.[1];
      return folder === undefined ? [] : [at(`${folder}/${name}`, `the path matched ${glob}`)];
    });
  const isOutside = input.effect.paths.some(({ inside }) => !inside);
  return [
    ...inFolders(hold ? (paths ?? []) : except),
    ...(isOutside && insideWorkspace === hold ? [at(name, 'the path lay in the workspace')] : []),
  ];
}

/** Proposes a host of the list, with the path of the URL. */
function urlChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { urls } = input.effect;
  const [first] = urls;
  if (!hold || first === undefined) return [];
  const at = (url: string, text: string): CandidateChange => ({
    fact: 'url',
    from: urls.map(({ url: one }) => one).join(', '),
    to: url,
    text,
    apply: withUrl(url),
  });
  const rest = URL.canParse(first.url) ? new URL(first.url).pathname : '/';
  const scheme = when.schemes?.[0] ?? 'https';
  return [
    ...(when.hosts ?? [])
      .filter((host) => host !== '*')
      .map((host) => at(`${scheme}://${host.replace('*', 'www')}${rest}`, `the host matched ${host}`)),
    ...(when.urls ?? []).flatMap((pattern) => {
      const url = pattern.replace(/\/\*\*$/, rest);
      return url.includes('*') || !URL.canParse(url) ? [] : [at(url, `the URL matched ${pattern}`)];
    }),
  ];
}

/** The arguments stay as they are: the server gets the URI, and rules that read arguments are about other values. */
function uriChanges({ uri }: When, { input, hold }: Goal): readonly CandidateChange[] {
  const from = input.effect.uri;
  if (uri === undefined || from === undefined || !hold) return [];
  return oneOrMore(uri).flatMap((pattern) => {
    if (!/^[^*]+\/\*\*?$/.test(pattern)) return [];
    const to = pattern.replace(/\*+$/, path.posix.basename(from));
    return [{ fact: 'uri', from, to, text: `the URI matched ${pattern}`, apply: withEffect({ uri: to }) }];
  });
}

/** Proposes the same line without the commands that the rule is about, or without a last option that it names. */
function commandChanges({ commands = [] }: When, { effect: { command } }: CallInput): readonly CandidateChange[] {
  if (command === undefined || commands.length === 0 || command.words.length === 0) return [];
  const lines = commands.map((line) => line.trim().split(/\s+/));
  const isAbout = (words: readonly string[], line: readonly string[]): boolean =>
    line.every((word, at) => word === words[at] || (at === 0 && word === path.posix.basename(words[0] ?? '')));
  const others = command.words.filter((words) => !lines.some((line) => isAbout(words, line)));
  const plain = command.words.flatMap((words) => {
    const line = lines.find((one) => isAbout(words, one) && one.length > 1 && one.at(-1)?.startsWith('-') === true);
    return line === undefined ? [] : [{ words: words.filter((_, at) => at !== line.length - 1), option: line.at(-1) }];
  });
  const at = (words: readonly (readonly string[])[], text: string): CandidateChange => ({
    fact: 'command',
    from: command.text,
    to: words.map((one) => one.join(' ')).join('; '),
    text,
    apply: withCommand(words),
  });
  const [option] = plain;
  return [
    ...(others.length > 0 && others.length < command.words.length
      ? [at(others, `the command were none of ${some(commands)}`)]
      : []),
    ...(option !== undefined && command.words.length === 1
      ? [at([option.words], `the command had no ${option.option}`)]
      : []),
  ];
}

/** Proposes fewer labels, because another run may have read less. Labels are never added. */
function labelChanges({ labels }: When, input: CallInput): readonly CandidateChange[] {
  const to = input.labels.filter((label) => labels?.includes(label) !== true);
  if (labels === undefined || to.length === input.labels.length) return [];
  const text = `labels had no ${labels.join(' and no ')}, as in another run`;
  return [{ fact: 'labels', from: input.labels, to, text, apply: (call) => ({ ...call, labels: to }) }];
}

/** Returns the first few entries of a list. */
function some(patterns: readonly string[]): string {
  return patterns.length <= MOST_NAMED
    ? patterns.join(', ')
    : `${patterns.slice(0, MOST_NAMED).join(', ')} and ${patterns.length - MOST_NAMED} more`;
}

/** Returns the next time when the window is open, or closed. */
function timeChanges(window: TimeWindow, { input, hold }: Goal): readonly CandidateChange[] {
  const { spans } = compileTime(window, () => undefined) as unknown as {
    readonly spans: readonly (readonly [number, number])[];
  };
  const { days, from, to, zone } = window;
  const words = [...(days ?? []), ...(from === undefined ? [] : [`${from}-${to ?? ''}`]), zone].join(' ');
  for (let step = 1; step <= WEEK_STEPS; step += 1) {
    const time = new Date(Date.parse(input.time) + step * STEP_MS).toISOString();
    const minute = readClocks([zone], time)[zone];
    const open = minute !== undefined && spans.some(([start, end]) => start <= minute && minute < end);
    if (open === hold)
      return [
        {
          fact: 'time',
          from: input.time,
          to: time,
          text: `the call came ${hold ? 'within' : 'outside of'} ${words}`,
          apply: (call) => ({ ...call, time }),
        },
      ];
  }
  return [];
}

/** Proposes a number within a limit, a smaller one for a rule that denies, and to leave out what must be absent. */
function argumentChanges(name: string, tests: ArgumentTests, { input, hold }: Goal): readonly CandidateChange[] {
  const { min, max, present } = tests;
  const fact = `arguments.${name}`;
  const from = factsOfField(`args.${name}`, input)[0]?.value;
  const at = (to: unknown, text: string): CandidateChange => ({
    fact,
    from,
    to: to ?? '(absent)',
    text: `${fact} ${text}`,
    apply: withArgument(name.split('.'), to),
  });
  const absent = present === !hold ? [at(undefined, 'were absent')] : [];
  if (typeof from !== 'number') return absent;
  if (!hold) return [...absent, ...(min === undefined ? [] : [at(min - 1, `were less than ${min}`)])];
  const limits = [...(min === undefined ? [] : [`at least ${min}`]), ...(max === undefined ? [] : [`at most ${max}`])];
  const within = max !== undefined && from > max ? max : (min ?? max);
  return [...absent, ...(within === undefined ? [] : [at(within, `were ${limits.join(' and ')}`)])];
}
