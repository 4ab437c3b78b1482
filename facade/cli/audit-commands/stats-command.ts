/** Runs `tollgate stats`: shows an owner what sessions have put into the context of models, and what Tollgate saved. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { quote } from '../../config/config-problems.ts';
import type { ContextKind } from '../../runtime/metrics/context-counts.ts';
import {
  type Compared,
  type ContextReport,
  type ReportedAmount,
  type ReportedCounts,
  type ReportedSession,
  readContextReport,
} from '../../runtime/metrics/context-report.ts';
import { type OwnerOptions, readDecider } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { type Cell, MAX_COLUMNS, plural, printable, printList, wrapWords } from '../print.ts';

/** The letters of an id in a list. `--session` accepts them. */
const SHORT_ID = 8;
const UNITS = [
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
] as const;

/**
 * Prints the sessions of all processes, or one of them. Throws CONFIG_INVALID, IDENTITY for a principal that is no
 * owner, USAGE for a session that is not kept, STATE_FAILED.
 */
export async function runStats(options: OwnerOptions & { readonly session?: string }, io: Io): Promise<number> {
  const { config } = readDecider(options, 'sees what sessions cost', io);
  const report = await withState(config, readContextReport);
  if (options.session === undefined) printAll(report, options, io);
  else printOne(report, { ...options, session: options.session }, io);
  return EXIT.ok;
}

function printAll(report: ContextReport, options: OwnerOptions, io: Io): void {
  const { sessions, days, total } = report;
  const costs = [...sessions, ...days].some(isNegative);
  const rows = [
    ...sessions.map((one) => [one.id.slice(0, SHORT_ID), one.principal, one.started.slice(0, 16), ...cells(one)]),
    ...days.map((one) => [`${one.sessions} older`, '', one.day, ...cells(one)]),
  ];
  printList(
    { io, options },
    {
      data: report,
      columns: ['SESSION', 'PRINCIPAL', 'STARTED (UTC)', 'LISTS', 'CALLS', 'RESULTS', 'TOKENS', 'SAVED'],
      rows: rows.length === 0 ? [] : [...rows, ['total', '', '', ...cells(total)]],
      empty:
        'No session has been counted yet. Let a client start `tollgate run`, or connect one to `tollgate serve`.\n' +
        'Counts appear ten seconds after its agent has listed tools or made a call.',
      summary: wrapWords(
        'Shown to the client / without Tollgate. LISTS, CALLS and RESULTS are in bytes, and SAVED is of all ' +
          `bytes${costs ? '; where it is negative, Tollgate cost more than it saved' : ''}. ${tokenNote(report)}`,
        MAX_COLUMNS,
        '',
      ),
    },
  );
}

function printOne(report: ContextReport, options: OwnerOptions & { readonly session: string }, io: Io): void {
  const one = sessionOf(report, options.session);
  const row = (name: string, count: string, compared: Compared): readonly Cell[] => [
    name,
    count,
    String(compared.shown.bytes),
    String(compared.without.bytes),
    tokensOf(compared),
    saved(compared),
  ];
  const kinds: readonly ContextKind[] = ['lists', 'calls', 'results'];
  const end = one.ended === undefined ? 'its process was killed' : `ended ${one.ended.slice(0, 19)}`;
  const head = `${one.id}  ${printable(one.principal)}  ${one.started.slice(0, 19)}  ${one.running ? 'running' : end}`;
  if (options.json !== true) io.stdout(`${head}\n`);
  printList(
    { io, options },
    {
      data: { tokens: report.tokens, session: one },
      columns: ['KIND', 'COUNT', 'SHOWN', 'WITHOUT', 'TOKENS', 'SAVED'],
      rows: [...kinds.map((kind) => row(kind, String(one[kind].count), one[kind])), row('total', '', one.total)],
      empty: '',
      summary: wrapWords(
        `Bytes. The largest of ${plural(one.lists.count, 'list')} has ${one.lists.largest}; each list that was sent ` +
          `counts. Results have ${one.results.metaBytes} bytes more of Tollgate's _meta, which clients do not give ` +
          `to the model. ${tokenNote(report)}`,
        MAX_COLUMNS,
        '',
      ),
    },
  );
}

/** Returns the session whose id begins so. Throws USAGE. */
function sessionOf({ sessions }: ContextReport, id: string): ReportedSession {
  const found = id === '' ? [] : sessions.filter((one) => one.id.startsWith(id));
  const [only] = found;
  if (only !== undefined && found.length === 1) return only;
  throw new TollgateError('USAGE', {
    detail:
      only === undefined ? `There is no session ${quote(id)}.` : `${found.length} sessions begin with ${quote(id)}.`,
    next: '`tollgate stats` shows the last sessions; give the beginning of one id.',
  });
}

function cells(counts: ReportedCounts): readonly Cell[] {
  const { lists, calls, results, total } = counts;
  return [...[lists, calls, results].map((one) => pair(one, ({ bytes }) => bytes)), tokensOf(total), saved(total)];
}

function pair({ shown, without }: Compared, of: (amount: ReportedAmount) => number): string {
  return `${short(of(shown))}/${short(of(without))}`;
}

/** Estimated tokens; empty if there is no sample. */
function tokensOf(compared: Compared): string {
  const { shown, without } = compared;
  return shown.tokens === undefined || without.tokens === undefined ? '' : pair(compared, ({ tokens = 0 }) => tokens);
}

function saved({ savedPercent }: Compared): Cell {
  if (savedPercent === null) return '-';
  return { text: `${Math.round(savedPercent)} %`, colour: savedPercent < 0 ? 'red' : 'green' };
}

function isNegative({ total }: ReportedCounts): boolean {
  return total.savedPercent !== null && total.savedPercent < 0;
}

/** Returns three digits and a unit: 950, 1.2k, 34.5k, 5.12M. */
function short(count: number): string {
  // 999,500 is 1M in three digits.
  const [size, unit] = UNITS.find(([least]) => count >= least * 0.9995) ?? [1, ''];
  return `${Number((count / size).toPrecision(3))}${unit}`;
}

function tokenNote({ tokens, total }: ContextReport): string {
  if (total.total.shown.tokens !== undefined)
    return 'TOKENS are an estimate with o200k_base; other models count differently.';
  return tokens.installed
    ? 'Tokens appear when a running session has counted a sample.'
    : `To see estimated tokens, install ${tokens.package} next to Tollgate: npm install ${tokens.package}`;
}
