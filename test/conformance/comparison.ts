/**
 * Compares a scenario through Tollgate with the same scenario on the fixture directly. A scenario can pass with an empty
 * list, or because any error satisfies it. Such a pass proves nothing, and counts as a failure here.
 */
import type { AuditRecord } from './gateway.ts';
import type { Check, Revision, Side } from './official-suite.ts';
import { type Exchange, STREAM } from './recording-injector.ts';

/** One scenario on one target. `records`: what the audit log got meanwhile; none for the fixture itself. */
export interface ScenarioRun {
  readonly checks: readonly Check[];
  readonly exchanges: readonly Exchange[];
  readonly records: readonly AuditRecord[];
  /** The tools that the owner was told are refused, so that nothing calls them. */
  readonly quarantined?: readonly string[];
}

/** What the driver of a client scenario did, and what the audit log got meanwhile. */
export type DriverReport = Omit<ScenarioRun, 'checks'>;

/** How a scenario ended on one target. */
export interface Cell {
  readonly passed: number;
  readonly total: number;
  /** Checks that failed, in words. */
  readonly failures: readonly string[];
  /** Why a pass proves nothing, in words. Empty on the fixture itself. */
  readonly hollow: readonly string[];
}

/** One scenario on every target. */
export interface Row {
  readonly side: Side;
  readonly revision: Revision;
  readonly scenario: string;
  readonly scored: boolean;
  readonly direct: Cell;
  /** By upstream: how Tollgate reaches the fixture. */
  readonly through: Readonly<Record<string, Cell>>;
}

/** True if every check passed, and none of them is hollow. */
export function passes({ passed, total, failures, hollow }: Cell): boolean {
  return total > 0 && passed === total && failures.length === 0 && hollow.length === 0;
}

/** Counts the checks of a scenario. A check passes if it passes each time. A scenario without a run has failed. */
export function countChecks(run: ScenarioRun | undefined): Cell {
  if (run === undefined) return { passed: 0, total: 0, failures: ['did not run'], hollow: [] };
  const judged = run.checks.filter(({ status }) => ['SUCCESS', 'FAILURE', 'WARNING'].includes(status));
  const failed = judged.filter(({ status }) => status !== 'SUCCESS');
  const total = namesOf(judged).size;
  return {
    passed: total - namesOf(failed).size,
    total,
    failures: failed.map(({ id, errorMessage, description }) => `${id}: ${errorMessage ?? description ?? ''}`),
    hollow: [],
  };
}

/** The suite repeats some checks with every request, and their number depends on time. So equal ones count once. */
function namesOf(checks: readonly Check[]): ReadonlySet<string> {
  return new Set(checks.map(({ id, name, description }) => `${id} ${name} ${description}`));
}

/** Counts the checks of a scenario through Tollgate, and says where its passes are hollow. */
export function compareWith(direct: ScenarioRun | undefined, through: ScenarioRun | undefined): Cell {
  const cell = countChecks(through);
  if (direct === undefined || through === undefined) return cell;
  // Where the server refuses everything, Tollgate may stop earlier than the client of the SDK.
  if (isRefused(direct)) return { ...cell, hollow: isRefused(through) ? [] : ['accepted, directly refused'] };
  const hollow = [...missingChecks(direct, through), ...otherAnswers(direct, through), ...missingRecords(through)];
  return { ...cell, hollow };
}

/** True if the driver of a client scenario got nothing. Only the driver notes errors without a status. */
function isRefused({ exchanges }: ScenarioRun): boolean {
  return exchanges.length > 0 && exchanges.every(({ answer }) => answer === CLIENT_ERROR);
}

/**
 * Checks that passed directly and did not even run through Tollgate. The suite reports a feature that a server may leave
 * out, such as an answer by event stream, as information.
 */
function missingChecks(direct: ScenarioRun, through: ScenarioRun): readonly string[] {
  const namesWith = ({ checks }: ScenarioRun, statuses: readonly string[]): ReadonlySet<string> =>
    new Set(
      checks
        .filter(({ status }) => statuses.includes(status))
        .map(({ id, name }) => (id === name ? id : `${id} (${name})`)),
    );
  const ran = namesWith(through, ['SUCCESS', 'INFO', 'FAILURE', 'WARNING']);
  return [...namesWith(direct, ['SUCCESS'])]
    .filter((name) => !ran.has(name))
    .map((name) => `check ${name} did not run`);
}

/** What the driver of client scenarios notes for a request that its own client refused. */
export const CLIENT_ERROR = 'error';

/** Requests that the two targets answered with another kind of answer or another content. */
function otherAnswers(direct: ScenarioRun, through: ScenarioRun): readonly string[] {
  const expected = new Map<string, string[]>();
  const write = ({ answer, asks }: Exchange): string => [answer, ...asks.map((ask) => `asks ${ask}`)].join(', ');
  // How many streams the suite opens, and when it ends them, depends on time.
  const compared = ({ answer }: Exchange): boolean => answer !== STREAM;
  for (const one of direct.exchanges.filter(compared))
    expected.set(one.request, [...(expected.get(one.request) ?? []), write(one)]);
  const found: string[] = [];
  for (const one of through.exchanges.filter(compared)) {
    const answers = expected.get(one.request) ?? [];
    // The client of the SDK refuses results that Tollgate accepts.
    if (answers[0] === CLIENT_ERROR && one.succeeded) answers[0] = write(one);
    const at = answers.indexOf(write(one));
    if (at === -1) found.push(`${one.request}: ${differ(write(one), answers[0] ?? 'not sent')}`);
    answers.splice(Math.max(at, 0), 1);
  }
  for (const name of through.quarantined ?? []) expected.delete(`tools/call ${name}`);
  for (const [request, left] of expected)
    if (left.length > 0 && !found.some((line) => line.startsWith(`${request}: `))) found.push(`${request}: not sent`);
  return found;
}

/** Digests are for the comparison. A reader sees which members differ. */
function differ(got: string, expected: string): string {
  const plain = (text: string): string => text.replace(/(?: \S+=| )[0-9a-f]{8}\b/g, '');
  if (plain(got) !== plain(expected)) return `${plain(got)}, directly ${plain(expected)}`;
  const membersOf = (text: string): ReadonlySet<string> => new Set(text.match(/\S+=[0-9a-f]{8}/g));
  const [here, there] = [membersOf(got), membersOf(expected)];
  const others = [...[...here].filter((one) => !there.has(one)), ...[...there].filter((one) => !here.has(one))];
  const names = [...new Set(others.map((one) => one.split('=')[0]))];
  return `${plain(got)} with another ${names.length === 0 ? 'list of names' : names.join(' and ')}`;
}

/** What each method does its work on, as a record names it. */
const KINDS: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'tool'],
  ['resources/read', 'resource'],
  ['resources/subscribe', 'resource'],
  ['prompts/get', 'prompt'],
  ['completion/complete', 'completion'],
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
  ['roots/list', 'roots'],
]);

/** Records of an attempt. An allowed one has an intent; a refused one has one of the others. */
const ATTEMPTS = new Set(['intent', 'decision', 'budget']);

/** Requests and questions that left no record. */
function missingRecords({ exchanges, records }: ScenarioRun): readonly string[] {
  const attempts = records.filter(({ type }) => ATTEMPTS.has(type)).map((record) => kindOf(record));
  const governed = exchanges.flatMap(({ method, answer, asks }) => [
    ...(answer.startsWith('200 ') ? [method] : []),
    ...asks,
  ]);
  const kinds = [...new Set(KINDS.values())];
  return kinds.flatMap((kind) => {
    const sent = governed.filter((method) => KINDS.get(method) === kind).length;
    const recorded = attempts.filter((one) => one === kind).length;
    return recorded < sent ? [`${sent} requests about a ${kind}, ${recorded} records`] : [];
  });
}

/** A record without a kind is about a tool, unless its tool is a method. */
function kindOf({ kind, tool = '' }: AuditRecord): string {
  return kind ?? KINDS.get(tool) ?? 'tool';
}
