/** Formats audit records as rows, in full, and as CSV. No CSV cell can become a formula in a spreadsheet. */
import { parseChainFileName } from '../../audit/audit-chain.ts';
import type { AuditStat, AuditStats, IndexedRecord } from '../../audit/audit-reader.ts';
import type { AuditVerdict } from '../../audit/chain-verification.ts';
import { type Cell, type CliIo, type Colour, paint, plural, printable, table } from '../print.ts';

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
  let value: unknown = found.record;
  for (const key of path.split('.'))
    value =
      typeof value === 'object' && value !== null && Object.hasOwn(value, key)
        ? (value as Record<string, unknown>)[key]
        : undefined;
  return value === undefined || value === null ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Ids of the rules that decided. */
function rules(found: IndexedRecord): string {
  const reasons = (found.record as { reasons?: unknown }).reasons;
  return Array.isArray(reasons) ? reasons.map((reason: { id?: unknown }) => String(reason.id ?? '')).join(' ') : '';
}

/**
 * What people decided, what happened to a server, and where a server wanted to connect without permission, and how
 * often.
 */
function happened(found: IndexedRecord): string {
  const [type, event, count] = [field(found, 'type'), field(found, 'event'), field(found, 'count')];
  if (event === 'egress-blocked') {
    const host = field(found, 'host');
    return `${field(found, 'reason')}${host === '' ? '' : ` ${host}:${field(found, 'port')}`}${count === '1' ? '' : ` (${count} times)`}`;
  }
  if (event === 'settings-withheld' || event === 'cover-lost') {
    const [first = '', ...more] = names(found, 'files').split(', ');
    return `${event} ${first}${more.length === 0 ? '' : ` and ${Number(count) - 1} more`}`;
  }
  const subject =
    type === 'approval' || type === 'grant'
      ? type
      : type === 'upgrade'
        ? field(found, 'id')
        : type === 'switch'
          ? 'switched'
          : '';
  const words = type === 'server' ? event : event.replaceAll('-', ' ');
  return [subject, words, names(found, 'servers', 'secrets'), inBrackets(names(found, 'clients')), doer(found)]
    .filter((part) => part !== '')
    .join(' ');
}

/** The items of the lists in a record. */
function names(found: IndexedRecord, ...keys: readonly string[]): string {
  return keys
    .flatMap((key) => (found.record as unknown as Readonly<Record<string, unknown>>)[key] ?? [])
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

/** Returns what replaces the id of a record that has none; `show` accepts it. */
const SHOWN_HASH = 12;

function toolOf(found: IndexedRecord): string {
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

/** Returns a table with one record per line. */
export function listTable(io: Tty, records: readonly IndexedRecord[]): string {
  const rows = records.map((found) => [
    field(found, 'ts').replace('T', ' ').slice(0, 19),
    outcomeOf(found),
    toolOf(found) || field(found, 'type'),
    field(found, 'principal.id'),
    field(found, 'ms') === '' ? '' : `${Math.round(Number(field(found, 'ms')))} ms`,
    field(found, 'sizes.sent') === '' ? '' : `${field(found, 'sizes.sent')} B`,
    [field(found, 'code'), rules(found), happened(found)].filter((part) => part !== '').join(' '),
    field(found, 'id') || field(found, 'hash').slice(0, SHOWN_HASH),
  ]);
  return table(io, ['time (UTC)', 'outcome', 'tool', 'principal', 'time', 'sent', 'why', 'id'], rows);
}

/** Returns every field of the records, one per line. */
export function fullText(io: Tty, records: readonly IndexedRecord[]): string {
  return records
    .map((found) => {
      const names = Object.keys(found.record).filter((name) => name !== 'prev' && name !== 'hash');
      const seal = found.intact
        ? paint(io, 'green', 'hash fits')
        : paint(io, 'red', 'the record was changed: its hash does not match');
      return `${names.map((name) => `${paint(io, 'dim', printable(name).padEnd(13))} ${printable(field(found, name))}\n`).join('')}${seal}\n`;
    })
    .join('\n');
}

/** Returns the statistics as three small tables. */
export function statsText(io: Tty, stats: AuditStats): string {
  const time = (ms: number | undefined): string => (ms === undefined ? '' : `${ms.toFixed(1)} ms`);
  const one = (title: string, group: readonly AuditStat[]): string =>
    table(
      io,
      [title, 'calls', 'p50', 'p95'],
      group.map(({ name, count, p50, p95 }) => [name, String(count), time(p50), time(p95)]),
    );
  const unknown = stats.unknown === 0 ? '' : `, ${stats.unknown} without a known outcome`;
  return [
    `${plural(stats.calls, 'call')}${unknown}\n`,
    one('tool', stats.byTool),
    one('outcome', stats.byOutcome),
    one('principal', stats.byPrincipal),
  ].join('\n');
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
    ['chain', 'files', ...begin('from'), 'records', 'state', 'head'],
    shown.map(({ chain, files, from = 1, records: count, state, head }) => [
      chain,
      String(files),
      ...begin(String(from)),
      String(count),
      state,
      head.slice(0, 16),
    ]),
  );
  const wrong = faults.map(
    ({ file, seq, what }) =>
      `${printable([file, seq === undefined ? '' : `record ${seq}`].filter(Boolean).join(', ') || 'log')}: ${printable(what)}\n`,
  );
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
    ? paint(io, 'green', `${numbers(chains)}: all unchanged`)
    : paint(io, 'red', `${numbers(chains)}: broken, ${plural(faults.length, 'fault')}`);
  return `${shown.length === 0 ? '' : `${rows}\n`}${states.join('')}${archivedText(archives)}${wrong.join('')}${last}\n`;
}

/** Returns where the log begins, and where the older records are. */
function archivedText(archives: NonNullable<AuditVerdict['archives']>): string {
  return archives
    .map(
      ({ folder, before, files, records, verified }) =>
        `archived: ${plural(files, 'file')}, ${plural(records, 'record')} from before ${before}, in ${printable(folder)}${verified ? ': verified too' : ' (not read; name it with --archive)'}\n`,
    )
    .join('');
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
] as const;

/** Returns the first line of the CSV. */
export function csvHead(): string {
  return `${[...CSV, 'rules'].join(',')}\r\n`;
}

/** Returns one record as CSV (RFC 4180). A cell that a spreadsheet would calculate begins with an apostrophe. */
export function csvLine(found: IndexedRecord): string {
  const quote = (text: string): string => {
    const safe = /^[=+\-@\t\r\n]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? `'${text}` : text;
    return /[",\r\n']/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${[...CSV.map((path) => field(found, path)), rules(found)].map(quote).join(',')}\r\n`;
}
