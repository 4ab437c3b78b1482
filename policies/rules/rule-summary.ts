/** Owns what a rule tells the model before a call: its conditions in words, and its bounds on arguments; refuses to show what another rule could undo. */
import type { ArgumentBound } from '../../catalogs/projection/argument-bounds.ts';
import type { ArgumentTests, RuleOutcome, When } from './rule-conditions.ts';
import type { TimeWindow } from './time-windows.ts';

const MAX_NAMES = 3;
const MAX_CHARS = 120;

/** For a list: the conditions in words, and the bounds. */
export interface RuleSummary {
  readonly say?: string;
  readonly bounds: readonly ArgumentBound[];
  /** The rule reads nothing of a call but what its bounds say. */
  readonly whole: boolean;
}

/** As a field of the rule's data; absent where the rule reads nothing of a call. */
export function summarizeRule(when: When, outcome: RuleOutcome): { readonly shows?: RuleSummary } {
  const say = sayWhen(when, outcome);
  return say === undefined ? {} : { shows: { say, bounds: boundsOf(when, outcome), whole: isArgumentsOnly(when) } };
}

/**
 * The conditions on a call, such as `a path is **\/.env`; undefined where the rule reads only who calls which tool. Deny and
 * ask fire on any fact, allow asks it of every one.
 */
function sayWhen(when: When, outcome: RuleOutcome): string | undefined {
  const [one, all] = outcome === 'allow' ? ['every', 'is under'] : ['a', 'is'];
  const {
    paths,
    insideWorkspace,
    commands,
    exceptCommands,
    opaque,
    readable,
    hosts,
    schemes,
    urls,
    labels,
    time,
    args,
  } = when;
  const words = [
    ...(paths === undefined ? [] : [`${one} path ${all} ${some(paths)}`]),
    ...(insideWorkspace === undefined
      ? []
      : [`${one} path is ${insideWorkspace ? 'inside' : 'outside'} the workspace`]),
    ...(hosts === undefined ? [] : [`${one} host is ${some(hosts)}`]),
    ...(schemes === undefined ? [] : [`${one} URL has the scheme ${some(schemes)}`]),
    ...(urls === undefined ? [] : [`${one} URL is ${some(urls)}`]),
    ...(commands === undefined ? [] : [`${one} command begins with ${some(commands)}`]),
    ...(exceptCommands === undefined ? [] : [`${one} command begins with none of ${some(exceptCommands)}`]),
    ...(opaque === undefined
      ? []
      : [
          opaque
            ? 'the command starts other programs or cannot be read'
            : 'the command is plain words and starts no other program',
        ]),
    ...(readable === undefined ? [] : [readable ? 'the command is plain words' : 'the command is not plain words']),
    ...(labels === undefined ? [] : [`the run holds data labelled ${some(labels)}`]),
    ...(time === undefined ? [] : [`it is ${sayTime(time)}`]),
    ...Object.entries(args ?? {}).map(([path, tests]) => `${path} ${sayTests(tests)}`),
  ];
  const text = words.join(' and ');
  return text === '' ? undefined : text.length <= MAX_CHARS ? text : `${text.slice(0, MAX_CHARS - 1)}…`;
}

/** Every test of an allow is a bound; a rule that denies bounds only where its one test alone decides. */
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
  return [
    {
      path,
      ...(equals === undefined ? {} : { oneOf: [equals] }),
      ...(among === undefined || equals !== undefined ? {} : { oneOf: among }),
      ...(prefix === undefined ? {} : { prefix }),
      ...(pattern === undefined ? {} : { pattern }),
      ...(min === undefined ? {} : { minimum: min }),
      ...(max === undefined ? {} : { maximum: max }),
      ...(present === undefined ? {} : { present }),
    },
  ];
}

/** The contrary of one test; of several together no single argument value is always refused. */
function denied(path: readonly string[], tests: ArgumentTests): readonly ArgumentBound[] {
  if (Object.keys(tests).length !== 1) return [];
  const { equals, in: among, min, max, present } = tests;
  if ('equals' in tests) return [{ path, noneOf: [equals] }];
  if (among !== undefined) return [{ path, noneOf: among }];
  if (min !== undefined) return [{ path, below: min }];
  if (max !== undefined) return [{ path, above: max }];
  return present === undefined ? [] : [{ path, present: !present }];
}

/** True when the rule reads nothing of the call but arguments. */
function isArgumentsOnly({
  tools: _tools,
  servers: _servers,
  verbs,
  args: _args,
  roles: _roles,
  groups: _groups,
  principals: _principals,
  origins: _origins,
  profiles: _profiles,
  owner: _owner,
  trust: _trust,
  ...rest
}: When): boolean {
  return verbs === undefined && Object.keys(rest).length === 0;
}

function sayTests({ equals, in: among, prefix, pattern, min, max, present }: ArgumentTests): string {
  const words = [
    ...(equals === undefined ? [] : [`is ${JSON.stringify(equals)}`]),
    ...(among === undefined ? [] : [`is ${some(among.map((value) => JSON.stringify(value)))}`]),
    ...(prefix === undefined ? [] : [`begins with ${JSON.stringify(prefix)}`]),
    ...(pattern === undefined ? [] : [`matches ${pattern}`]),
    ...(min === undefined ? [] : [`is at least ${min}`]),
    ...(max === undefined ? [] : [`is at most ${max}`]),
    ...(present === undefined ? [] : [present ? 'is given' : 'is not given']),
  ];
  return words.join(' and ');
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
