/** Formats audit records as a table, in full, and as CSV. No CSV cell can become a formula in a spreadsheet. */
import { parseChainFileName } from '../../audit/audit-chain.ts';
import type { AuditReason } from '../../audit/audit-entry.ts';
import type { AuditVerdict } from '../../audit/chain-verification.ts';
import { type IndexedRecord, shownRecord } from '../../audit/index/audit-index.ts';
import type { AuditStat, AuditStats } from '../../audit/index/audit-reader.ts';
import type { SessionTimeline, TimelineEvent } from '../../audit/index/session-timeline.ts';
import { changeWords, type StartChange } from '../../consent/servers/start-changes.ts';
import {
  type Cell,
  type CliIo,
  type Colour,
  MAX_COLUMNS,
  paint,
  plural,
  printable,
  table,
  tableRow,
  wrapRow,
  wrapWords,
} from '../print.ts';

type Tty = Pick<CliIo, 'isTTY'>;

const COLOURS: Readonly<Record<string, Colour>> = {
  allow: 'green',
  ask: 'yellow',
  deny: 'red',
  error: 'red',
  unknown: 'magenta',
};

/** The fields of any record, by path, such as `principal.id`. Absent ones are ''. */
function field(found: IndexedRecord, path: string): string {
  const value = valueAt(found, path);
  return value === undefined || value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
}

function valueAt(found: IndexedRecord, path: string): unknown {
  let value: unknown = found.record;
  for (const key of path.split('.'))
    value =
      typeof value === 'object' && value !== null && Object.hasOwn(value, key)
        ? (value as Record<string, unknown>)[key]
        : undefined;
  return value;
}

/** Ids of the rules that decided. */
function rules(found: IndexedRecord): string {
  return reasonsOf(found)
    .map(({ id }) => String(id ?? ''))
    .join(' ');
}

function reasonsOf(found: IndexedRecord): readonly AuditReason[] {
  const reasons = (found.record as { reasons?: unknown }).reasons;
  return Array.isArray(reasons) ? (reasons as readonly AuditReason[]) : [];
}

/**
 * Describes a record that is not a call: what a person decided, what happened to a server, or where a server tried to
 * connect without permission.
 */
function eventText(found: IndexedRecord): string {
  const [type, event, count] = [field(found, 'type'), field(found, 'event'), field(found, 'count')];
  if (event === 'egress-blocked') {
    const host = field(found, 'host');
    const target = host === '' ? '' : ` ${host}:${field(found, 'port')}`;
    return `${field(found, 'reason')}${target}${count === '1' ? '' : ` (${count} times)`}`;
  }
  if (event === 'settings-withheld' || event === 'cover-lost') {
    const [first = '', ...more] = names(found, 'files').split(', ');
    return `${event} ${first}${more.length === 0 ? '' : ` and ${Number(count) - 1} more`}`;
  }
  if (type === 'server' && event === 'changed') return changesText(valueAt(found, 'changes'));
  const subjects: Readonly<Record<string, string>> = {
    approval: type,
    grant: type,
    upgrade: field(found, 'id'),
    switch: event === 'on' || event === 'off' ? 'switched' : '',
  };
  const subject = subjects[type] ?? '';
  const words = type === 'server' ? event : event.replaceAll('-', ' ');
  return [subject, words, names(found, 'servers', 'secrets'), inBrackets(names(found, 'clients')), doer(found)]
    .filter((part) => part !== '')
    .join(' ');
}

/** What changed in the start of a server. Anyone who can write the log may have written the record. */
function changesText(changes: unknown): string {
  const words = (Array.isArray(changes) ? changes : []).map((change: Partial<StartChange> | null) => {
    const { what, was, is } = change ?? {};
    return changeWords({
      what: String(what ?? ''),
      ...(typeof was === 'string' && { was }),
      ...(typeof is === 'string' && { is }),
    });
  });
  return words.length === 0 ? 'changed' : words.join('; ');
}

/** The items of the lists in a record. */
function names(found: IndexedRecord, ...keys: readonly string[]): string {
  return keys
    .flatMap((path) => valueAt(found, path) ?? [])
    .filter((name) => typeof name === 'string')
    .join(', ');
}

/** The principal, and the user of the machine if the names differ. */
function doer(found: IndexedRecord): string {
  const [by, user] = [field(found, 'by'), field(found, 'user')];
  return by === '' ? '' : ['by', by, user === by ? '' : inBrackets(user)].filter((part) => part !== '').join(' ');
}

function inBrackets(text: string): string {
  return text === '' ? '' : `(${text})`;
}

/** Letters of an id in a list: the first 12 random digits of a UUID. `audit show` accepts them. */
const SHORT_ID = 13;
/** Digits of the hash that stand for the id of a record without one. */
const SHORT_HASH = 12;

/** Returns the tool of a record, by the name that was called and its own. */
export function calledTool(found: IndexedRecord): string {
  const [server, tool, exposed] = [field(found, 'server'), field(found, 'tool'), field(found, 'exposed')];
  const real = tool === '' ? server : `${server}.${tool}`;
  return exposed === '' || exposed === real ? real : real === '' ? exposed : `${exposed} (${real})`;
}

/** Returns what happened, in one word. The outcome of a single intent is unknown. */
function outcomeOf(found: IndexedRecord): Cell {
  const type = field(found, 'type');
  const outcome = type === 'intent' ? 'unknown' : field(found, 'outcome') || field(found, 'event') || type;
  const colour = COLOURS[outcome];
  return colour === undefined ? outcome : { text: outcome, colour };
}

/** The columns of `rowOf`. */
export const COLUMNS = ['TIME (UTC)', 'OUTCOME', 'TOOL', 'PRINCIPAL', 'MS', 'ID', 'WHY'] as const;
/** The widths of the columns while records arrive one by one; 100 columns in total. */
const FOLLOW_WIDTHS = [19, 7, 22, 10, 5, SHORT_ID, 12] as const;

/** Returns the row of a record that has just been appended, in columns of a fixed width. */
export function followRow(io: Tty, found: IndexedRecord): string {
  return tableRow(io, rowOf(found), FOLLOW_WIDTHS);
}

/** Returns the titles over the rows of `followRow`. */
export function followHead(io: Tty): string {
  return tableRow(
    io,
    COLUMNS.map((text) => ({ text, colour: 'dim' })),
    FOLLOW_WIDTHS,
  );
}

/** Returns the row of a record in a list. */
export function rowOf(found: IndexedRecord): readonly Cell[] {
  const [ms, type] = [field(found, 'ms'), field(found, 'type')];
  const outcome = outcomeOf(found);
  return [
    field(found, 'ts').slice(0, 19),
    outcome,
    callOf(found) || (type === outcome ? 'audit log' : type),
    field(found, 'principal.id'),
    ms === '' ? '' : String(Math.round(Number(ms))),
    field(found, 'id').slice(0, SHORT_ID) || field(found, 'hash').slice(0, SHORT_HASH),
    [field(found, 'code'), inBrackets(field(found, 'refusal')), rules(found), eventText(found)]
      .filter((part) => part !== '')
      .join(' '),
  ];
}

/** Returns the paths, programs and hosts of a call, as its first record has them. */
export function factsOf({ intent, ...found }: IndexedRecord): string {
  return names(intent ?? found, 'facts.programs', 'facts.paths', 'facts.hosts');
}

/** Returns the tool, with what the call read or ran. A name that says enough stands alone, because rows are short. */
function callOf(found: IndexedRecord): string {
  const where = whereOf(found);
  const [tool, exposed] = [field(found, 'tool'), field(found, 'exposed')];
  if (where === '') return calledTool(found);
  return `${tool !== '' && exposed.endsWith(tool) ? exposed : calledTool(found)} ${where}`;
}

/** Characters of what a call read or ran in a list. The end of a path says most. */
const MAX_WHERE = 32;

/** Returns the first program of a call, and its first path or host; then how many more there are. */
function whereOf(found: IndexedRecord): string {
  const { programs = [], paths = [], hosts = [] } = factsIn(found);
  const targets = [...paths, ...hosts];
  const text = [programs[0], targets[0]].filter((part) => part !== undefined).join(' ');
  const more = Math.max(0, programs.length - 1) + Math.max(0, targets.length - 1);
  return `${text.length > MAX_WHERE ? `…${text.slice(1 - MAX_WHERE)}` : text}${more === 0 ? '' : ` +${more}`}`;
}

function factsIn(found: IndexedRecord): Readonly<Partial<Record<'programs' | 'paths' | 'hosts', readonly string[]>>> {
  const read = (key: string): readonly string[] => {
    const list = valueAt({ ...found, record: shownRecord(found) }, `facts.${key}`);
    return Array.isArray(list) ? list.filter((name) => typeof name === 'string') : [];
  };
  return { programs: read('programs'), paths: read('paths'), hosts: read('hosts') };
}

/** The columns of `eventRow`. */
const EVENT_COLUMNS = ['TIME (UTC)', 'OUTCOME', 'WHAT', 'MS', 'ID', 'WHY'] as const;

/** Returns a session as a table, one event per line. */
export function timelineText(io: Tty, { session, events }: SessionTimeline): string {
  const found = events.flatMap(({ intent, found: last }) => [last, ...(intent === undefined ? [] : [intent])]);
  const whose = found.find((one) => field(one, 'principal.id') !== '');
  const head = [
    `session ${session}`,
    ...(whose === undefined ? [] : [`${field(whose, 'principal.id')} (${field(whose, 'principal.role')})`]),
    `${field(events[0]?.found ?? NO_RECORD, 'ts').slice(0, 10)}`,
    plural(events.length, 'event'),
  ];
  return `${printable(head.join(' · '))}\n\n${table(io, EVENT_COLUMNS, events.map(eventRow))}`;
}

const NO_RECORD = { record: {}, line: '', intact: true, file: '' } as unknown as IndexedRecord;

function eventRow({ found, intent }: TimelineEvent): readonly Cell[] {
  const [, outcome = '', , , ms = '', id = '', why = ''] = rowOf(found);
  const began = intent ?? found;
  const [type, tool] = [field(found, 'type'), calledTool(found)];
  const what = [tool || (type === outcome ? 'audit log' : type), factsOf(began)]
    .filter((part) => part !== '')
    .join(' ');
  return [field(began, 'ts').slice(11, 23), outcome, what, ms, id, why];
}

/** Columns of the names of fields in `audit show`. */
const NAME_COLUMNS = 13;

/** Returns every field of the records, one per line. */
export function fullText(io: Tty, records: readonly IndexedRecord[]): string {
  return records
    .map((found) => {
      const names = Object.keys(found.record).filter((name) => name !== 'prev' && name !== 'hash');
      const seal = found.intact
        ? paint(io, 'green', 'hash fits')
        : paint(io, 'red', 'the record was changed: its hash does not match');
      return `${names.map((name) => fieldRows(io, printable(name), printable(field(found, name)))).join('')}${seal}\n`;
    })
    .join('\n');
}

function fieldRows(io: Tty, name: string, text: string): string {
  const [first = '', ...more] = wrapRow(text, MAX_COLUMNS - NAME_COLUMNS - 1, '');
  const further = more.map((row) => `${' '.repeat(NAME_COLUMNS + 1)}${row.trimEnd()}\n`);
  return `${paint(io, 'dim', name.padEnd(NAME_COLUMNS))} ${first.trimEnd()}\n${further.join('')}`;
}

/** Returns the statistics as three small tables. */
export function statsText(io: Tty, stats: AuditStats): string {
  const time = (ms: number | undefined): string => (ms === undefined ? '' : `${ms.toFixed(1)} ms`);
  const groupTable = (title: string, group: readonly AuditStat[]): string =>
    table(
      io,
      [title, 'CALLS', 'MEDIAN', '95 %'],
      group.map(({ name, count, p50, p95 }) => [name, String(count), time(p50), time(p95)]),
    );
  const unknown = stats.unknown === 0 ? '' : `, ${stats.unknown} without a known outcome`;
  const tables = [
    groupTable('TOOL', stats.byTool),
    groupTable('OUTCOME', stats.byOutcome),
    groupTable('PRINCIPAL', stats.byPrincipal),
  ];
  return [`${plural(stats.calls, 'call')}${unknown}\n`, ...(stats.calls === 0 ? [] : tables)].join('\n');
}

/** Returns counts by state, the broken chains, and what is wrong with them. `isWhole`: show every chain. */
export function verdictText(
  io: Tty,
  { verdict, isWhole }: { readonly verdict: AuditVerdict; readonly isWhole: boolean },
): string {
  const { chains, faults, records, ok, archives = [] } = verdict;
  if (ok && records === 0 && archives.length === 0) return 'no record to verify\n';
  const broken = new Set(faults.map(({ file }) => parseChainFileName(file)?.chain));
  const shown = chains.filter(({ chain }) => isWhole || broken.has(chain));
  const isArchived = shown.some(({ from }) => from !== undefined);
  const begin = (text: string): readonly string[] => (isArchived ? [text] : []);
  const rows = table(
    io,
    ['CHAIN', 'FILES', ...begin('FROM'), 'RECORDS', 'STATE', 'HEAD'],
    shown.map(({ chain, files, from = 1, records: count, state, head }) => [
      chain,
      String(files),
      ...begin(String(from)),
      String(count),
      state,
      head.slice(0, 16),
    ]),
  );
  const faultLines = faults.map(({ file, seq, what }) => {
    const place = [file, seq === undefined ? '' : `record ${seq}`].filter(Boolean).join(', ') || 'log';
    return lineOf(`${place}: ${what}`);
  });
  const numbers = (of: typeof chains): string =>
    `${plural(of.length, 'chain')}, ${plural(
      of.reduce((sum, one) => sum + one.records, 0),
      'record',
    )}`;
  const states = (['open', 'closed', 'ended'] as const).flatMap((state) => {
    const of = chains.filter((chain) => chain.state === state);
    return of.length === 0 ? [] : [`${state}: ${numbers(of)}\n`];
  });
  const last = ok
    ? `${numbers(chains)}: each record follows the one before it`
    : paint(io, 'red', `${numbers(chains)}: broken, ${plural(faults.length, 'fault')}`);
  return [
    shown.length === 0 ? '' : `${rows}\n`,
    ...states,
    ...archives.map(archiveLine),
    ...faultLines,
    `${last}\n`,
  ].join('');
}

/** Returns what to do about faults, as one paragraph. `folder`: the folder of the log. */
export function faultAdvice({ faults }: AuditVerdict, folder: string): string {
  const unproven = faults.reduce((sum, fault) => sum + (fault.unproven ?? 0), 0);
  const scope =
    unproven === 0 ? '' : `Not proven: ${plural(unproven, 'record')}, each from the fault to the end of its chain. `;
  return lineOf(
    `${scope}Copy ${folder} before you change anything, and find out who can write there. Compare the copy with an ` +
      'archive, or with a head that you noted. See "If verify finds a fault" in docs/audit.md.',
  );
}

/** Returns where the older records of a log are. */
function archiveLine({ folder, before, files, records, verified }: Archived): string {
  const how = verified ? ': verified too' : ' (not read; name it with --archive)';
  return lineOf(
    `archived: ${plural(files, 'file')}, ${plural(records, 'record')} from before ${before}, in ${folder}${how}`,
  );
}

type Archived = NonNullable<AuditVerdict['archives']>[number];

/** Returns a printable line, broken at words. */
function lineOf(text: string): string {
  return `${wrapWords(printable(text), MAX_COLUMNS, '  ')}\n`;
}

const CSV = [
  'ts',
  'seq',
  'type',
  'id',
  'principal.id',
  'principal.role',
  'principal.origin',
  'session',
  'run',
  'exposed',
  'server',
  'tool',
  'verb',
  'outcome',
  'code',
  'executed',
  'sizes.args',
  'sizes.raw',
  'sizes.sent',
  'sizes.spilled',
  'cut',
  'redactions',
  'escaped',
  'ms',
  'upstreamMs',
  'event',
  'revision',
  'hash',
  'rules',
  'by',
  'user',
  'reasons',
  'consent',
  'covers',
  'replica',
] as const;

/** Returns the first line of the CSV. */
export function csvHead(): string {
  return `${CSV.join(',')}\r\n`;
}

/** Returns one record as CSV (RFC 4180). A cell that a spreadsheet would calculate begins with an apostrophe. */
export function csvLine(found: IndexedRecord): string {
  const quote = (text: string): string => {
    const safe = /^[=+\-@\t\r\n]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
    return /[",\r\n']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const cell = (path: (typeof CSV)[number]): string =>
    path === 'rules' ? rules(found) : path === 'reasons' ? reasonsOf(found).map(placed).join('; ') : field(found, path);
  return `${CSV.map((path) => quote(cell(path))).join(',')}\r\n`;
}

/** Returns a rule with its place: `deny-push rules.yaml:12`. */
function placed({ id, file, line }: AuditReason): string {
  const place = [file, line].filter((part) => part !== undefined).join(':');
  return place === '' ? id : `${id} ${place}`;
}
