/** Runs the `tollgate audit` commands that read the log: list, show, tail, stats and export. */
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { AUDIT_TYPES } from '../../audit/audit-chain.ts';
import { AUDIT_OUTCOMES } from '../../audit/audit-entry.ts';
import { AUDIT_INDEX, type IndexedRecord } from '../../audit/audit-index.ts';
import { type AuditFilter, type AuditReader, openAuditReader } from '../../audit/audit-reader.ts';
import type { Config } from '../../config/config.ts';
import { didYouMean, quote } from '../../config/config-problems.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { readPastTime } from '../durations.ts';
import { json, plural, printable, printList } from '../print.ts';
import { COLUMNS, csvHead, csvLine, followHead, followRow, fullText, rowOf, statsText } from './audit-view.ts';

/** Options of every command that reads the log. */
export interface LogOptions extends CommonOptions {
  /** A copy of the log, instead of the log of the configuration. */
  readonly folder?: string;
}

type Filtered = LogOptions & FilterOptions;

/** Prints the newest records. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditList(
  options: Filtered & { readonly limit: number; readonly unknown?: true },
  io: Io,
): Promise<number> {
  return withReader(options, io, (reader) => {
    const { limit, unknown } = options;
    const found = unknown === true ? reader.unknown().slice(-limit) : reader.list(filterOf(options), limit);
    printList(
      { io, options },
      {
        data: found.map((one) => one.record),
        columns: COLUMNS,
        rows: found.map(rowOf),
        empty: 'There is no such record. With --all, records that are not calls are shown too.',
        summary: `${plural(found.length, 'record')}. Read one completely: tollgate audit show ID`,
      },
    );
    warnOfChanges(io, found);
    return EXIT.ok;
  });
}

/** Prints all records of a call. Exit code 1 if there is none. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditShow(options: LogOptions & { readonly id: string }, io: Io): Promise<number> {
  return withReader(options, io, (reader) => {
    const { id } = options;
    const found = findRecords(reader, id);
    const hint =
      /^[0-9a-f-]+$/.test(id) && id.length < MIN_DIGITS
        ? ` The beginning of an id needs ${MIN_DIGITS} digits or more.`
        : '';
    if (found.length === 0) io.stderr(`There is no record with the id ${printable(id)}.${hint}\n`);
    else io.stdout(options.json === true ? json(found.map((one) => one.record)) : fullText(io, found));
    return found.length === 0 ? EXIT.unexpected : EXIT.ok;
  });
}

/** The least digits of an id, or of the hash of a record without an id. Fewer could begin much of a long log. */
const MIN_DIGITS = 8;

/** Finds records by their id, by the beginning of their id, or by the beginning of their hash. Throws USAGE. */
export function findRecords(reader: AuditReader, id: string): readonly IndexedRecord[] {
  const named = [...reader.all({ id })];
  if (named.length > 0 || !new RegExp(`^[0-9a-f][0-9a-f-]{${MIN_DIGITS - 1},63}$`).test(id)) return named;
  const begun = [...reader.all({ idPrefix: id })];
  const ids = new Set(begun.map(({ record }) => (record as { readonly id?: string }).id));
  if (ids.size > 1) throw usage(`${id} is the beginning of ${ids.size} ids`);
  if (begun.length > 0) return begun;
  return [...reader.all({ id: '', text: `"hash":"${id}` })].filter(({ record }) => record.hash.startsWith(id));
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
    const before = reader.list(filter, options.limit);
    if (asJson) io.stdout(json(before.map((one) => one.record)));
    else io.stdout(followHead(io) + before.map((found) => followRow(io, found)).join(''));
    warnOfChanges(io, before);
    for await (const found of reader.follow(filter, stop.signal))
      io.stdout(asJson ? `${found.line}\n` : followRow(io, found));
    return EXIT.ok;
  });
}

/** Prints counts and times. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditStats(options: Filtered, io: Io): Promise<number> {
  return withReader(options, io, (reader) => {
    const found = reader.stats(filterOf(options));
    io.stdout(options.json === true ? json(found) : statsText(io, found));
    return EXIT.ok;
  });
}

/** Prints all records, also those that are not calls, oldest first. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditExport(options: Filtered & { readonly format: 'jsonl' | 'csv' }, io: Io): Promise<number> {
  return withReader(options, io, (reader) => {
    const isCsv = options.format === 'csv';
    if (isCsv) io.stdout(csvHead());
    for (const found of reader.all(filterOf({ ...options, all: true })))
      io.stdout(isCsv ? csvLine(found) : `${found.line}\n`);
    return EXIT.ok;
  });
}

/** The folder of the chain files, and the file of the index. */
export interface LogPlaces {
  readonly folder: string;
  readonly index: string;
  /** Absent where `--folder` names the log. */
  readonly config?: Config;
}

/** Finds the log. A copy of it gets no index on the disk. Throws USAGE, CONFIG_INVALID. */
export function logPlacesOf({ folder, config: file }: LogOptions, io: Io): LogPlaces {
  if (folder !== undefined) return { folder: existingFolder(resolve(io.cwd, folder)), index: ':memory:' };
  const config = readForOwner({ config: file }, io);
  return { folder: config.audit.folder, index: join(config.state, AUDIT_INDEX), config };
}

/** Returns the folder. A mistyped one must not look like an empty log. Throws USAGE. */
export function existingFolder(folder: string): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return folder;
  throw new TollgateError('USAGE', {
    detail: `There is no folder ${folder}.`,
    next: 'Give the folder that holds the chain files: `audit` in the state folder.',
  });
}

async function withReader(
  options: LogOptions,
  io: Io,
  work: (reader: AuditReader) => number | Promise<number>,
): Promise<number> {
  const places = logPlacesOf(options, io);
  const reader = openAuditReader(places.folder, places.index);
  try {
    return await work(reader);
  } finally {
    reader.close();
  }
}

function warnOfChanges({ stderr }: Io, found: readonly IndexedRecord[]): void {
  const changed = found.filter((one) => !one.intact).length;
  if (changed > 0)
    stderr(`${changed} of these records were changed after they were written. Run: tollgate audit verify\n`);
}

/** Options of the commands that select records. */
export type FilterOptions = Omit<AuditFilter, 'callsOnly'> & { readonly all?: true };

/** Returns the filter that the options describe. Throws USAGE for an unknown word or a time that cannot be read. */
export function filterOf(options: FilterOptions): AuditFilter {
  const { since, until, type, outcome, principal, server, tool, code, run, session, id, text, all } = options;
  checkWord('outcome', outcome, AUDIT_OUTCOMES);
  checkWord('type', type, AUDIT_TYPES);
  const filter = {
    ...{ type, outcome, principal, server, tool, code, run, session, id, text },
    since: since === undefined ? undefined : auditTime(since),
    until: until === undefined ? undefined : auditTime(until),
    // A type selects all its records, including those that are not calls.
    callsOnly: all === true || type !== undefined ? undefined : true,
  };
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined));
}

/** A mistyped word must not look like a log without such records. */
function checkWord(name: string, given: string | undefined, words: readonly string[]): void {
  if (given !== undefined && !words.includes(given))
    throw usage(`No record has the ${name} ${quote(given)}; ${didYouMean(given, words)}`);
}

/** Returns the ISO text of a time that is given as ISO text or as an age such as `2h`. Throws USAGE. */
export function auditTime(text: string): string {
  return new Date(readPastTime(text, Date.now())).toISOString();
}

/** Returns the error for a wrong use of the audit commands. */
export function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}
