/** Owns single changes of facts after which a part of a rule may hold or fail: guesses, of which only those that a new decision proves are ever told. */

import type { CallInput, Principal } from '../../port.ts';
import type { ArgumentTests } from '../../rules/argument-tests.ts';
import type { RuleOutcome, When } from '../../rules/rule-conditions.ts';
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

/** A change with the way to make it. */
export interface CandidateChange extends FactChange {
  readonly apply: CallEdit;
  /** What the rule says that it lets fire: another outcome would come about by chance, and not for the reason that is told. */
  readonly toward?: RuleOutcome;
  /** The rule that it is about: of several ways in which one rule would fire, one is told. */
  readonly of?: string;
}

/** What a guess is made for: whether the part of the rule should hold. */
interface Wish {
  readonly input: CallInput;
  readonly hold: boolean;
}

const VERBS = ['read', 'write', 'destructive', 'execute'] as const;
/** Stands for anybody and anything that no rule names. */
const OTHER = 'example';
const MOST_NAMED = 4;
const STEP_MS = 1_800_000;
const WEEK_STEPS = 336;

/** Changes after which this part may hold, or fail. None for a field that is not known here: then nothing is promised. */
export function candidateChanges(when: When, wish: Wish): readonly CandidateChange[] {
  return [
    ...principalAtoms(when, wish),
    ...targetAtoms(when, wish),
    ...pathAtoms(when, wish),
    ...urlAtoms(when, wish),
    ...commandAtoms(when, wish),
    ...labelAtoms(when, wish),
    ...(when.time === undefined ? [] : timeAtoms(when.time, wish)),
    ...Object.entries(when.args ?? {}).flatMap(([name, tests]) => argumentChanges(name, tests, wish)),
  ];
}

function principalAtoms(when: When, { input, hold }: Wish): readonly CandidateChange[] {
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

function targetAtoms(when: When, { input, hold }: Wish): readonly CandidateChange[] {
  const { verb, server, tool } = input.effect;
  const verbs =
    when.verbs === undefined ? [] : VERBS.filter((one) => one !== verb && when.verbs?.includes(one) === hold);
  const servers = hold ? (when.servers ?? []) : [];
  const tools = hold ? (when.tools ?? []).filter((name) => !name.includes('*')) : [];
  return [
    ...verbs.map(
      (to): CandidateChange => ({
        fact: 'verb',
        from: verb,
        to,
        text: `the verb were ${to}`,
        apply: withEffect({ verb: to }),
      }),
    ),
    ...servers.map(
      (to): CandidateChange => ({
        fact: 'server',
        from: server,
        to,
        text: `the server were ${to}`,
        apply: withEffect({ server: to }),
      }),
    ),
    ...tools.map(
      (to): CandidateChange => ({
        fact: 'tool',
        from: `${server}.${tool}`,
        to,
        text: `the tool were ${to}`,
        apply: withEffect({ server: to.slice(0, to.indexOf('.')), tool: to.slice(to.indexOf('.') + 1) }),
      }),
    ),
  ];
}

/** Only for a call that has paths: one that has none cannot be given any. */
function pathAtoms(when: When, { input, hold }: Wish): readonly CandidateChange[] {
  const { paths, insideWorkspace } = when;
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
  if (paths === undefined) return elsewhere;
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

function urlAtoms(when: When, { input, hold }: Wish): readonly CandidateChange[] {
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

function commandAtoms(when: When, { input, hold }: Wish): readonly CandidateChange[] {
  const { command } = input.effect;
  if (command === undefined) return [];
  const at = (words: readonly string[] | 'opaque', text: string): CandidateChange => ({
    fact: 'command',
    from: command.text,
    to: words === 'opaque' ? words : words.join(' '),
    text,
    apply: withCommand(words),
  });
  const begins = (when.commands ?? []).map((line) => at(line.trim().split(/\s+/), `the command began with ${line}`));
  // The same program with other words may still be what another rule allows.
  const others = [[command.words[0]?.[0] ?? 'true', OTHER], ['true']];
  const named =
    when.commands === undefined
      ? []
      : hold
        ? begins
        : others.map((words) => at(words, `the command were none of ${some(when.commands ?? [])}`));
  const read =
    when.opaque === undefined
      ? []
      : [
          when.opaque === hold
            ? at('opaque', 'the command could not be read')
            : at(['true'], 'the command could be read'),
        ];
  const excepted = (when.exceptCommands ?? []).map((line) =>
    at(line.trim().split(/\s+/), `the command began with ${line}`),
  );
  const besides =
    when.exceptCommands === undefined
      ? []
      : hold
        ? [at(['true'], `the command were none of ${some(when.exceptCommands)}`)]
        : excepted;
  const words =
    when.readable === undefined
      ? []
      : [
          when.readable === hold
            ? at(['true'], 'the command could be read')
            : at('opaque', 'the command could not be read'),
        ];
  return [...named, ...besides, ...read, ...words];
}

function labelAtoms({ labels }: When, { input, hold }: Wish): readonly CandidateChange[] {
  if (labels === undefined) return [];
  return among({
    fact: 'labels',
    from: input.labels,
    wanted: labels,
    hold,
    edit: (values) => (call) => ({ ...call, labels: values }),
  });
}

/** The first few of a list. */
function some(patterns: readonly string[]): string {
  return patterns.length <= MOST_NAMED
    ? patterns.join(', ')
    : `${patterns.slice(0, MOST_NAMED).join(', ')} and ${patterns.length - MOST_NAMED} more`;
}

/** The next time at which the window is open, or closed. */
function timeAtoms(window: TimeWindow, { input, hold }: Wish): readonly CandidateChange[] {
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

/** A fact with its value, and those that a rule wants. */
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

/** Changes of one argument, by its dotted name. A pattern is passed by none: nobody writes texts from expressions here. */
export function argumentChanges(
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
  const one = at(
    min ?? max,
    `were ${[...(min === undefined ? [] : [`at least ${min}`]), ...(max === undefined ? [] : [`at most ${max}`])].join(' and ')}`,
  );
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
