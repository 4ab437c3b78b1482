/**
 * Returns single changes of facts after which a condition may hold or fail. The search reports only changes that it
 * proved.
 */

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

const VERBS = ['read', 'write', 'destructive', 'execute'] as const;
/** A name that no rule contains. */
const OTHER = 'example';
const MOST_NAMED = 4;
const STEP_MS = 1_800_000;
const WEEK_STEPS = 336;

/** Returns changes after which these conditions may hold, or fail. Unknown fields give no changes. */
export function candidateChanges(when: When, goal: Goal): readonly CandidateChange[] {
  return [
    ...principalChanges(when, goal),
    ...targetChanges(when, goal),
    ...pathChanges(when, goal),
    ...urlChanges(when, goal),
    ...uriChanges(when, goal),
    ...commandChanges(when, goal),
    ...labelChanges(when, goal),
    ...(when.time === undefined ? [] : timeChanges(when.time, goal)),
    ...Object.entries(when.args ?? {}).flatMap(([name, tests]) => argumentChanges(name, tests, goal)),
  ];
}

function principalChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { principal } = input;
  const one = (key: 'role' | 'id' | 'origin', wanted: readonly string[] = []): readonly CandidateChange[] =>
    single({
      fact: `principal.${key}`,
      from: principal[key],
      wanted,
      hold,
      edit: (value) => withPrincipal({ [key]: value }),
    });
  const many = (key: 'groups' | 'profiles', wanted: readonly string[] = []): readonly CandidateChange[] =>
    among({
      fact: `principal.${key}`,
      from: principal[key],
      wanted,
      hold,
      edit: (values) => withPrincipal({ [key]: values } satisfies Partial<Principal>),
    });
  const owner =
    when.owner === undefined
      ? []
      : [
          {
            fact: 'principal.owner',
            from: principal.owner ?? false,
            to: when.owner === hold,
            text: `the caller were ${when.owner === hold ? 'an' : 'no'} owner`,
            apply: withPrincipal({ owner: when.owner === hold }),
          },
        ];
  return [
    ...one('role', when.roles),
    ...one('id', when.principals),
    ...one('origin', when.origins),
    ...many('groups', when.groups),
    ...many('profiles', when.profiles),
    ...owner,
  ];
}

function targetChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { verb, server, tool } = input.effect;
  const change = (
    fact: 'verb' | 'server' | 'tool',
    to: string,
    effect: Parameters<typeof withEffect>[0],
  ): CandidateChange => ({
    fact,
    from: { verb, server, tool: `${server}.${tool}` }[fact],
    to,
    text: `the ${fact} were ${to}`,
    apply: withEffect(effect),
  });
  const verbs =
    when.verbs === undefined ? [] : VERBS.filter((one) => one !== verb && when.verbs?.includes(one) === hold);
  const tools = (when.tools ?? [])
    .filter((name) => !name.includes('*'))
    .map((name) => ({ name, dot: name.indexOf('.') }));
  return [
    ...verbs.map((to) => change('verb', to, { verb: to })),
    ...(hold ? (when.servers ?? []) : []).map((to) => change('server', to, { server: to })),
    ...(hold ? tools : []).map(({ name, dot }) =>
      change('tool', name, { server: name.slice(0, dot), tool: name.slice(dot + 1) }),
    ),
  ];
}

/** A call without paths cannot get one, so it has no changes here. */
function pathChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { paths, except = [], insideWorkspace } = when;
  const from = input.effect.paths.map(({ path }) => path).join(', ');
  if ((paths === undefined && insideWorkspace === undefined) || input.effect.paths.length === 0) return [];
  const at = (to: string, text: string): CandidateChange => ({
    fact: 'path',
    from,
    to,
    text,
    apply: withPath(to, !to.startsWith('/')),
  });
  const elsewhere =
    insideWorkspace === undefined
      ? []
      : [
          insideWorkspace === hold
            ? at(`${OTHER}.txt`, 'the path lay in the workspace')
            : at(`/${OTHER}/${OTHER}.txt`, 'the path lay outside the workspace'),
        ];
  const spared = hold ? [] : except.map((glob) => at(sample(glob), `the path matched ${glob}`));
  if (paths === undefined) return [...spared, ...elsewhere];
  if (hold)
    return paths.map((glob) =>
      at(`${insideWorkspace === false && !glob.startsWith('/') ? '/' : ''}${sample(glob)}`, `the path matched ${glob}`),
    );
  const folders = new Set([
    ...input.effect.paths.filter(({ inside }) => inside).map(({ path }) => path.slice(0, path.lastIndexOf('/') + 1)),
    '',
  ]);
  const names = new Set([`${OTHER}.txt`, `${OTHER}${/\.[^./]+$/.exec(from)?.[0] ?? ''}`]);
  return [
    ...spared,
    ...elsewhere,
    ...[...folders].flatMap((folder) =>
      [...names].map((name) => at(`${folder}${name}`, `the path did not match ${some(paths)}`)),
    ),
  ];
}

function sample(glob: string): string {
  const whole = glob.replaceAll('**/', '').replace(/\*\*$/, `${OTHER}.txt`);
  return whole.replaceAll('*', OTHER);
}

function urlChanges(when: When, { input, hold }: Goal): readonly CandidateChange[] {
  const { urls } = input.effect;
  if (urls.length === 0) return [];
  const at = (url: string, text: string): CandidateChange => ({
    fact: 'url',
    from: urls.map(({ url: one }) => one).join(', '),
    to: url,
    text,
    apply: withUrl(url),
  });
  const other = (field: readonly string[] | undefined, what: string): readonly CandidateChange[] =>
    field === undefined ? [] : [at(`https://${OTHER}.invalid/`, `the ${what} did not match ${some(field)}`)];
  if (!hold) return [...other(when.hosts, 'host'), ...other(when.schemes, 'scheme'), ...other(when.urls, 'URL')];
  const scheme = when.schemes?.[0] ?? 'https';
  const hosts = (when.hosts ?? (when.schemes === undefined ? [] : ['*'])).map((pattern) => ({
    pattern,
    host: pattern === '*' ? `${OTHER}.invalid` : pattern.replace('*', OTHER),
  }));
  return [
    ...hosts.map(({ pattern, host }) => at(`${scheme}://${host}/`, `the host matched ${pattern}`)),
    ...(when.urls ?? []).flatMap((pattern) => {
      const url = pattern.replaceAll(/\*+/g, OTHER);
      return URL.canParse(url) ? [at(url, `the URL matched ${pattern}`)] : [];
    }),
  ];
}

/** The arguments stay as they are: the server gets the URI, and rules that read arguments are about other values. */
function uriChanges({ uri }: When, { input, hold }: Goal): readonly CandidateChange[] {
  const from = input.effect.uri;
  if (uri === undefined || from === undefined) return [];
  const at = (to: string, text: string): CandidateChange => ({
    fact: 'uri',
    from,
    to,
    text,
    apply: withEffect({ uri: to }),
  });
  const patterns = oneOrMore(uri);
  return hold
    ? patterns.map((pattern) => at(sample(pattern), `the URI matched ${pattern}`))
    : [at(`${OTHER}:${OTHER}`, `the URI did not match ${some(patterns)}`)];
}

function commandChanges(
  { commands = [], exceptCommands = [], opaque, readable }: When,
  { input, hold }: Goal,
): readonly CandidateChange[] {
  const { command } = input.effect;
  if (command === undefined) return [];
  const at = (words: readonly string[] | 'opaque', text: string): CandidateChange => ({
    fact: 'command',
    from: command.text,
    to: words === 'opaque' ? words : words.join(' '),
    text,
    apply: withCommand(words),
  });
  const begin = (lines: readonly string[]): readonly CandidateChange[] =>
    lines.map((line) => at(line.trim().split(/\s+/), `the command began with ${line}`));
  const avoid = (lines: readonly string[], others: readonly (readonly string[])[]): readonly CandidateChange[] =>
    lines.length === 0 ? [] : others.map((words) => at(words, `the command were none of ${some(lines)}`));
  const read = (isReadable: boolean | undefined): readonly CandidateChange[] => {
    if (isReadable === undefined) return [];
    return [isReadable ? at(['true'], 'the command could be read') : at('opaque', 'the command could not be read')];
  };
  // Another rule may allow the same program with other words.
  const others = [[command.words[0]?.[0] ?? 'true', OTHER], ['true']];
  return [
    ...(hold ? begin(commands) : avoid(commands, others)),
    ...(hold ? avoid(exceptCommands, [['true']]) : begin(exceptCommands)),
    ...read(opaque === undefined ? undefined : opaque !== hold),
    ...read(readable === undefined ? undefined : readable === hold),
  ];
}

function labelChanges({ labels }: When, { input, hold }: Goal): readonly CandidateChange[] {
  if (labels === undefined) return [];
  return among({
    fact: 'labels',
    from: input.labels,
    wanted: labels,
    hold,
    edit: (values) => (call) => ({ ...call, labels: values }),
  });
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

/** A fact with its value, and the values that a rule names. */
interface Choice<T> {
  readonly fact: string;
  readonly from: T;
  readonly wanted: readonly string[];
  readonly hold: boolean;
  readonly edit: (value: T) => CallEdit;
}

function single({ fact, from, wanted, hold, edit }: Choice<string>): readonly CandidateChange[] {
  if (wanted.length === 0) return [];
  if (!hold) return [{ fact, from, to: OTHER, text: `${fact} were not ${wanted.join(' or ')}`, apply: edit(OTHER) }];
  return wanted.map((to) => ({ fact, from, to, text: `${fact} were ${to}`, apply: edit(to) }));
}

function among({ fact, from, wanted, hold, edit }: Choice<readonly string[]>): readonly CandidateChange[] {
  if (wanted.length === 0) return [];
  const without = from.filter((one) => !wanted.includes(one));
  if (!hold)
    return [{ fact, from, to: without, text: `${fact} had no ${wanted.join(' and no ')}`, apply: edit(without) }];
  return wanted.map((one) => ({
    fact,
    from,
    to: [...from, one],
    text: `${fact} had ${one}`,
    apply: edit([...from, one]),
  }));
}

/** Returns changes of one argument, by its dotted name. No value is made up to pass a `pattern`. */
function argumentChanges(
  name: string,
  tests: ArgumentTests,
  { input, hold }: { readonly input: CallInput; readonly hold: boolean },
): readonly CandidateChange[] {
  const fact = `arguments.${name}`;
  const from = factsOfField(`args.${name}`, input)[0]?.value;
  const at = (to: unknown, text: string): CandidateChange => ({
    fact,
    from,
    to: to ?? '(absent)',
    text: `${fact} ${text}`,
    apply: withArgument(name.split('.'), to),
  });
  return hold ? passing(tests, at) : failing(tests, at);
}

type At = (to: unknown, text: string) => CandidateChange;

function passing(
  { equals, in: any, prefix, min, max, present, ...rest }: ArgumentTests,
  at: At,
): readonly CandidateChange[] {
  const limits = [...(min === undefined ? [] : [`at least ${min}`]), ...(max === undefined ? [] : [`at most ${max}`])];
  const one = at(min ?? max, `were ${limits.join(' and ')}`);
  return [
    ...(equals === undefined && !('equals' in rest) ? [] : [at(equals, `were ${JSON.stringify(equals)}`)]),
    ...(any ?? []).map((value) => at(value, `were ${JSON.stringify(value)}`)),
    ...(prefix === undefined ? [] : [at(`${prefix}${OTHER}`, `began with ${JSON.stringify(prefix)}`)]),
    ...(min === undefined && max === undefined ? [] : [one]),
    ...presence(present, at),
  ];
}

function failing(
  { equals, in: any, prefix, pattern, min, max, present }: ArgumentTests,
  at: At,
): readonly CandidateChange[] {
  const named = [...(equals === undefined ? [] : [equals]), ...(any ?? [])];
  const numeric = named.every((value) => typeof value === 'number');
  return [
    ...(named.length === 0
      ? []
      : [
          at(
            numeric ? Math.max(...(named as number[])) + 1 : OTHER,
            `were not ${named.map((value) => JSON.stringify(value)).join(' or ')}`,
          ),
        ]),
    ...(prefix === undefined ? [] : [at(OTHER, `did not begin with ${JSON.stringify(prefix)}`)]),
    ...(pattern === undefined ? [] : [at(OTHER, `did not match ${pattern}`), at('', `did not match ${pattern}`)]),
    ...(min === undefined ? [] : [at(min - 1, `were less than ${min}`)]),
    ...(max === undefined ? [] : [at(max + 1, `were more than ${max}`)]),
    ...(present === undefined ? [at(undefined, 'were absent')] : presence(!present, at)),
  ];
}

function presence(present: boolean | undefined, at: At): readonly CandidateChange[] {
  if (present === undefined) return [];
  return [present ? at(OTHER, 'were given') : at(undefined, 'were absent')];
}
