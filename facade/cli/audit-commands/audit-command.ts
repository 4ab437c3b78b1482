/** Runs the `tollgate audit` commands that read the log: list, show, tail, stats, export and verify. */
import { statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { AUDIT_INDEX } from '../../audit/audit-index.ts';
import { type AuditReader, type IndexedRecord, openAuditReader } from '../../audit/audit-reader.ts';
import { verifyAudit } from '../../audit/chain-verification.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import type { Config } from '../../config/config.ts';
import { type CommonOptions, readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json, printable } from '../print.ts';
import { type FilterOptions, filterOf, usage } from './audit-filters.ts';
import { csvHead, csvLine, fullText, listTable, statsText, verdictText } from './audit-view.ts';

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
    print(io, options, unknown === true ? reader.unknown().slice(-limit) : reader.list(filterOf(options), limit));
    return EXIT.ok;
  });
}

/** Prints all records of a call. Exit code 1 if there is none. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditShow(options: LogOptions & { readonly id: string }, io: Io): Promise<number> {
  return withReader(options, io, (reader) => {
    const { id } = options;
    const named = [...reader.all({ id })];
    const found = named.length === 0 ? byHash(reader, id) : named;
    if (found.length === 0) io.stderr(`There is no record with the id ${printable(id)}.\n`);
    else io.stdout(options.json === true ? json(found.map((one) => one.record)) : fullText(io, found));
    return found.length === 0 ? EXIT.unexpected : EXIT.ok;
  });
}

/** Finds a record without an id by the first digits of its hash, which `list` shows. */
function byHash(reader: AuditReader, start: string): IndexedRecord[] {
  return /^[0-9a-f]{8,64}$/.test(start)
    ? [...reader.all({ id: '', text: `"hash":"${start}` })].filter(({ record }) => record.hash.startsWith(start))
    : [];
}

/** Prints the newest records, then each new one, until the process is stopped. Throws USAGE, CONFIG_INVALID, STATE_FAILED. */
export function runAuditTail(options: Filtered & { readonly limit: number }, io: Io): Promise<number> {
  return withReader(options, io, async (reader) => {
    const filter = filterOf(options);
    const stop = new AbortController();
    void io.stopped.then(() => stop.abort());
    print(io, options, reader.list(filter, options.limit));
    for await (const found of reader.follow(filter, stop.signal))
      io.stdout(options.json === true ? `${found.line}\n` : rowOnly(listTable(io, [found])));
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

/** Verifies the chains. Exit code 3 if the log was changed. Throws USAGE, CONFIG_INVALID. */
export function runAuditVerify(
  options: LogOptions & {
    readonly all?: true;
    readonly expectHead?: readonly string[];
    readonly archive?: readonly string[];
    readonly key?: string;
  },
  io: Io,
): number {
  const archives = (options.archive ?? []).map((folder) => existingFolder(resolve(io.cwd, folder)));
  const places = placesOf(options, io);
  const digest = digestOf(options.key, io, places);
  const verdict = verifyAudit(places.folder, options.expectHead ?? [], {
    archives,
    ...(digest !== undefined && { digest }),
  });
  io.stdout(options.json === true ? json(verdict) : verdictText(io, { verdict, isWhole: options.all === true }));
  return verdict.ok ? EXIT.ok : EXIT.refused;
}

/** Returns the digest that checkpoints are made with, if the log has a key. Throws USAGE for a file that does not exist. */
function digestOf(file: string | undefined, io: Io, { config }: Places): ((text: string) => string) | undefined {
  const given = file === undefined ? undefined : resolve(io.cwd, file);
  const path = given ?? (config === undefined ? undefined : join(config.state, 'audit.key'));
  const key = path === undefined ? undefined : findKeyFile(dirname(path), basename(path));
  if (given !== undefined && key === undefined) throw usage(`There is no file ${given}`);
  return key === undefined ? undefined : createDigest(key);
}

/** The folder of the chain files, and the file of the index. */
interface Places {
  readonly folder: string;
  readonly index: string;
  /** Absent where `--folder` names the log. */
  readonly config?: Config;
}

/** A copy of the log gets no index on the disk. */
function placesOf({ folder, config: file }: LogOptions, io: Io): Places {
  if (folder !== undefined) return { folder: existingFolder(resolve(io.cwd, folder)), index: ':memory:' };
  const config = readForOwner({ config: file }, io);
  return { folder: config.audit.folder, index: join(config.state, AUDIT_INDEX), config };
}

/** A mistyped folder must not look like an empty log. */
function existingFolder(folder: string): string {
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
  const places = placesOf(options, io);
  const reader = openAuditReader(places.folder, places.index);
  try {
    return await work(reader);
  } finally {
    reader.close();
  }
}

function print(io: Io, options: Pick<LogOptions, 'json'>, found: readonly IndexedRecord[]): void {
  io.stdout(options.json === true ? json(found.map((one) => one.record)) : listTable(io, found));
  const changed = found.filter((one) => !one.intact).length;
  if (changed > 0)
    io.stderr(`${changed} of these records were changed after they were written. Run: tollgate audit verify\n`);
}

function rowOnly(text: string): string {
  return text.slice(text.indexOf('\n') + 1);
}
