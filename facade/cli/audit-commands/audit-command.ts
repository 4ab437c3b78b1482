/** Runs the `tollgate audit` commands that read the log: list, show, tail, stats and export. */
import { readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { SHIPPED } from '../../../catalogs/servers/shipped-servers.ts';
import { listParts, namesIn } from '../../audit/chain-lines.ts';
import { type AuditFilter, FILTER_NAMES, readAuditFilter } from '../../audit/index/audit-filter.ts';
import { AUDIT_INDEX, type IndexedRecord, shownRecord } from '../../audit/index/audit-index.ts';
import { type AuditReader, openAuditReader } from '../../audit/index/audit-reader.ts';
import { TREE_FILE } from '../../audit/proof/audit-tree.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { WORKSPACE } from '../../config/servers/server-names.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, MAX_COLUMNS, paint, plural, printable, printList, wrapWords } from '../print.ts';
import { COLUMNS, csvHead, csvLine, followHead, followRow, fullText, rowOf, statsText } from './audit-view.ts';
import { RECORDED_STATES, type RecordedArguments, recordedCall } from './recorded-call.ts';

/** Options of every command that reads the log. */
export interface LogOptions extends CommonOptions {
  /** Copies of logs, or folders of such copies, instead of the log of the configuration. */
  readonly folder?: readonly string[];
}

/** The least digits of the beginning of an id. */
const MIN_DIGITS = 8;

type Filtered = LogOptions & FilterOptions;

const NO_ARGUMENTS = 'Recorded arguments (audit.facts: full) are encrypted, so --text does not search them.';

/** Prints the newest records, or those before a cursor. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditList(
  options: Filtered & { readonly limit: number; readonly before?: string; readonly unknown?: true },
  io: Io,
): Promise<number> {
  return withReader(options, io, (reader, { config }) => {
    const { limit, before, unknown } = options;
    const { records, next } =
      unknown === true
        ? { records: reader.unknown().slice(-limit).reverse(), next: undefined }
        : reader.page(knownFilter({ reader, config }, options, io), { limit, ...(before !== undefined && { before }) });
    const found = [...records].reverse();
    const isOfSeveral = new Set(found.map(({ record }) => record.replica)).size > 1;
    const older = next === undefined ? '' : `\nOlder ones: --before ${next}`;
    printList(
      { io, options },
      {
        data: found.map(shownRecord),
        columns: [...COLUMNS, ...(isOfSeveral ? ['REPLICA'] : [])],
        rows: found.map((one) => [...rowOf(one), ...(isOfSeveral ? [one.record.replica ?? ''] : [])]),
        empty: 'There is no such record. With --all, records that are not calls are shown too.',
        summary: `${plural(found.length, 'record')}. Read one completely: tollgate audit show ID${older}`,
      },
    );
    if (options.json === true && older !== '') io.stderr(`${older.trim()}\n`);
    if (found.length === 0 && options.text !== undefined) io.stderr(`${NO_ARGUMENTS}\n`);
    warnOfChanges(io, found);
    return EXIT.ok;
  });
}

/**
 * Prints all records of a call; with `args` also its recorded arguments. Exit code 1 if there is none, 3 if its
 * recording was changed. Throws USAGE, CONFIG_INVALID, STATE_FAILED.
 */
export function runAuditShow(
  options: LogOptions & { readonly id: string; readonly args?: true },
  io: Io,
): Promise<number> {
  return withReader(options, io, (reader, { config }) => {
    const { id } = options;
    if (options.args === true && config === undefined) throw usage('A copy of the log has no recorded arguments.');
    const found = reader.find(id);
    const hint =
      /^[0-9a-f-]+$/.test(id) && id.length < MIN_DIGITS
        ? ` The beginning of an id needs ${MIN_DIGITS} digits or more.`
        : '';
    if (found.length === 0) io.stderr(`There is no record with the id ${printable(id)}.${hint}\n`);
    if (found.length === 0) return EXIT.unexpected;
    const recorded = options.args === true && config !== undefined ? recordedCall(config, found) : undefined;
    const args = recorded?.state === 'kept' ? { args: recorded.args } : {};
    if (options.json !== true) io.stdout(fullText(io, found) + (recorded === undefined ? '' : argsText(io, recorded)));
    else {
      const records = found.map((one) => one.record);
      io.stdout(json(recorded === undefined ? records : { records, recorded: recorded.state, ...args }));
    }
    return recorded?.state === 'changed' ? EXIT.refused : EXIT.ok;
  });
}

function argsText(io: Io, recorded: RecordedArguments): string {
  const text =
    recorded.state !== 'kept'
      ? RECORDED_STATES[recorded.state]
      : recorded.args === undefined
        ? `too large to be recorded (${recorded.recording.argChars} characters)`
        : JSON.stringify(recorded.args, null, 2);
  return `\n${paint(io, 'dim', 'arguments')}\n${text.split('\n').map(printable).join('\n')}\n`;
}

/**
 * Prints the newest records, then each new one, until the process is stopped. Throws USAGE, CONFIG_INVALID,
 * STATE_FAILED.
 */
export function runAuditTail(options: Filtered & { readonly limit: number }, io: Io): Promise<number> {
  return withReader(options, io, async (reader) => {
    const filter = filterOf(options);
    const stop = new AbortController();
    void io.stopped.then(() => stop.abort());
    const asJson = options.json === true;
    const before = [...reader.page(filter, { limit: options.limit }).records].reverse();
    if (asJson) io.stdout(json(before.map(shownRecord)));
    else io.stdout(followHead(io) + before.map((found) => followRow(io, found)).join(''));
    warnOfChanges(io, before);
    for await (const found of reader.follow(filter, stop.signal))
      io.stdout(asJson ? `${JSON.stringify(shownRecord(found))}\n` : followRow(io, found));
    return EXIT.ok;
  });
}

/** Prints counts and times. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditStats(options: Filtered, io: Io): Promise<number> {
  return withReader(options, io, (reader, { config }) => {
    const found = reader.stats(knownFilter({ reader, config }, options, io));
    io.stdout(options.json === true ? json(found) : statsText(io, found));
    return EXIT.ok;
  });
}

/** Prints all records, also those that are not calls, oldest first. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditExport(options: Filtered & { readonly format: 'jsonl' | 'csv' }, io: Io): Promise<number> {
  return withReader(options, io, (reader, { config }) => {
    const isCsv = options.format === 'csv';
    if (isCsv) io.stdout(csvHead());
    const { oncePerCall: _, ...filter } = knownFilter({ reader, config }, { ...options, all: true }, io);
    for (const found of reader.all(filter)) io.stdout(isCsv ? csvLine(found) : `${found.line}\n`);
    return EXIT.ok;
  });
}

/** The folders of the chain files, and the file of the index. */
export interface LogPlaces {
  /** The folder of the first log. */
  readonly folder: string;
  readonly folders: readonly string[];
  readonly index: string;
  /** Absent where `--folder` names the log. */
  readonly config?: Config;
}

/** Finds the log. A copy of it gets no index on the disk. Throws USAGE, CONFIG_INVALID. */
export function logPlacesOf({ folder, config: file }: LogOptions, io: Io): LogPlaces {
  if (folder !== undefined) {
    const folders = [...new Set(folder.flatMap((one) => logsIn(existingFolder(resolve(io.cwd, one)))))];
    return { folder: folders[0] ?? '', folders, index: ':memory:' };
  }
  const config = readForOwner({ config: file }, io);
  const { folder: own } = config.audit;
  return { folder: own, folders: [own], index: join(config.state, AUDIT_INDEX), config };
}

/** Folders of folders in which logs are looked for: `FOLDER/REPLICA/audit`. */
const MAX_DEPTH = 3;

/** Returns the logs of a folder: the folder itself, or else those in its folders. */
function logsIn(folder: string): readonly string[] {
  const found = logsBelow(folder, MAX_DEPTH);
  return found.length === 0 ? [folder] : found;
}

function logsBelow(folder: string, depth: number): readonly string[] {
  const names = namesIn(folder).sort();
  if (names.includes(TREE_FILE) || listParts(folder).length > 0) return [folder];
  if (depth === 0) return [];
  return names.flatMap((name) => {
    const path = join(folder, name);
    return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true ? logsBelow(path, depth - 1) : [];
  });
}

/** Returns the places of a command that works on one log. Throws USAGE for several. */
export function oneLog(places: LogPlaces): LogPlaces {
  if (places.folders.length === 1) return places;
  throw usage(`There are ${places.folders.length} logs in this folder; name the folder of one`);
}

/** Returns the folder. A mistyped one must not look like an empty log. Throws USAGE. */
export function existingFolder(folder: string): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return folder;
  throw new TollgateError('USAGE', {
    detail: `There is no folder ${folder}.`,
    next: 'Give the folder that holds the chain files: `audit` in the state folder.',
  });
}

/** Reads the log for an owner. Says on stderr what the answer lacks. */
export async function withReader(
  options: LogOptions,
  io: Io,
  work: (reader: AuditReader, places: LogPlaces) => number | Promise<number>,
): Promise<number> {
  const places = logPlacesOf(options, io);
  const reader = openAuditReader(places.folders, places.index, (what) =>
    io.stderr(`${wrapWords(what, MAX_COLUMNS, '')}\n`),
  );
  try {
    return await work(reader, places);
  } finally {
    reader.close();
  }
}

/** Says that records were changed. */
export function warnOfChanges({ stderr }: Io, found: readonly IndexedRecord[]): void {
  const changed = found.filter((one) => !one.intact).length;
  if (changed > 0)
    stderr(`${changed} of these records were changed after they were written. Run: tollgate audit verify\n`);
}

/** Options of the commands that select records: the texts of `readAuditFilter`. */
export type FilterOptions = Readonly<Partial<Record<Exclude<(typeof FILTER_NAMES)[number], 'all'>, string>>> & {
  readonly all?: true;
};

/** Returns the filter that the options describe. Throws USAGE for an unknown word or a time that cannot be read. */
export function filterOf(options: FilterOptions): AuditFilter {
  const texts = FILTER_NAMES.flatMap((name): (readonly [string, string])[] => {
    const value = options[name];
    return value === undefined ? [] : [[name, String(value)]];
  });
  return readAuditFilter(Object.fromEntries(texts));
}

/** Fields whose values are known to the index. A mistyped one must not look like a log without such records. */
const KNOWN = ['principal', 'server', 'tool', 'rule', 'label', 'budget', 'program', 'host', 'replica'] as const;

/**
 * Returns the filter, and says which of its values do not occur in the log. Throws USAGE for one that the configuration
 * does not have either.
 */
function knownFilter(
  { reader, config }: { readonly reader: AuditReader; readonly config: Config | undefined },
  options: FilterOptions,
  io: Io,
): AuditFilter {
  const filter = filterOf(options);
  for (const key of KNOWN) {
    const value = filter[key];
    if (value === undefined || value.includes('*') || reader.values(key, value).includes(value)) continue;
    const known = reader.values(key, '');
    if (known.length === 0) continue;
    const told = printable(`No record has the ${key} ${quote(value)}; ${didYouMean(value, known)}`);
    if (CONFIGURED[key]?.(value, config) === false) throw usage(told);
    io.stderr(`${wrapWords(told, MAX_COLUMNS, '  ')}\n`);
  }
  return filter;
}

/** Whether the configuration has a value. Without a configuration, only the log tells. Programs and hosts are any. */
const CONFIGURED: Readonly<
  Partial<Record<(typeof KNOWN)[number], (value: string, config: Config | undefined) => boolean>>
> = {
  principal: (value, config) => config?.principals.some(({ id }) => id === value) === true,
  server: isServer,
  // Only a server itself knows its tools.
  tool: (value, config) => {
    const [server = '', tool] = value.split('.', 2);
    return tool === undefined ? config !== undefined && config.servers.size > 0 : isServer(server, config);
  },
  rule: (value, config) => config !== undefined && hasRule(value, config),
  budget: (value, config) =>
    [config, ...(config?.profiles.values() ?? [])].some((one) => one?.budgets.some(({ id }) => id === value)),
};

function isServer(name: string, config: Config | undefined): boolean {
  return config !== undefined && (config.servers.has(name) || SHIPPED.has(name) || name === WORKSPACE);
}

/** Rules of Rego have no list of ids, so the texts of the policy are searched. */
function hasRule(id: string, { rules, policies }: Config): boolean {
  return (
    JSON.stringify(rules).includes(id) ||
    policies.some(({ kind, path }) => kind === 'bundle' || textOf(path)?.includes(id) !== false)
  );
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

/** Returns the error for a wrong use of the audit commands. */
export function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}
