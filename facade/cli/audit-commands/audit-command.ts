/** Owns `tollgate audit`: the questions an admin asks the log; refuses options it does not know, with exit code 2. */
import { statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { AUDIT_INDEX } from '../../audit/audit-index.ts';
import { type AuditFilter, type AuditReader, type IndexedRecord, openAuditReader } from '../../audit/audit-reader.ts';
import { verifyAudit } from '../../audit/chain-verification.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import type { Config } from '../../config/config.ts';
import { readForOwner } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { reportError } from '../failure-report.ts';
import { json, printable } from '../print.ts';
import { runArchive } from './audit-archive-command.ts';
import { COMMON, FILTERS, filterOf, numberOf, usage, type Values } from './audit-filters.ts';
import { AUDIT_USAGE } from './audit-usage.ts';
import { csvHead, csvLine, fullText, listTable, statsText, verdictText } from './audit-view.ts';

const TEXT = { type: 'string' } as const;
const FLAG = { type: 'boolean' } as const;
const LIST = { type: 'string', multiple: true } as const;

interface Command {
  readonly options: NonNullable<ParseArgsConfig['options']>;
  /** Names of what stands without `--`. */
  readonly operands: readonly string[];
  run(at: Running): number | Promise<number>;
}

/** The folder of the chain files, and the file of the index. */
interface Places {
  readonly folder: string;
  readonly index: string;
  /** Absent where `--folder` names the log. */
  readonly config?: Config;
}

interface Running {
  readonly values: Values;
  readonly operands: readonly string[];
  readonly io: Io;
  readonly places: Places;
  readonly filter: AuditFilter;
}

const COMMANDS: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['list', { options: { ...FILTERS, limit: TEXT, unknown: FLAG }, operands: [], run: list }],
  ['show', { options: COMMON, operands: ['ID'], run: show }],
  ['tail', { options: { ...FILTERS, limit: TEXT }, operands: [], run: tail }],
  ['stats', { options: FILTERS, operands: [], run: stats }],
  ['export', { options: { ...FILTERS, format: TEXT }, operands: [], run: exportAll }],
  [
    'verify',
    { options: { 'expect-head': LIST, archive: LIST, key: TEXT, all: FLAG, ...COMMON }, operands: [], run: verify },
  ],
  [
    'archive',
    {
      options: { before: TEXT, to: TEXT, config: COMMON.config, json: FLAG },
      operands: [],
      run: ({ values, io, places }) => runArchive(values, io, places.config),
    },
  ],
]);

/** Runs one command. Answers the exit code: 0, 1 nothing found, 2 usage, 3 the log is broken. Throws CONFIG_INVALID, STATE_FAILED. */
export async function runAudit(args: readonly string[], io: Io): Promise<number> {
  const [name = '', ...rest] = args;
  const command = COMMANDS.get(name);
  if (command === undefined) {
    const asked = name === '--help' || name === 'help';
    (asked ? io.stdout : io.stderr)(
      asked || name === ''
        ? AUDIT_USAGE
        : `USAGE: There is no audit command ${printable(name)}.\nRead \`tollgate audit --help\`.\n`,
    );
    return asked ? EXIT.ok : EXIT.usage;
  }
  try {
    const { values, positionals } = parseArgs({ args: rest, options: command.options, allowPositionals: true });
    if (positionals.length !== command.operands.length)
      throw usage(`Write: tollgate audit ${[name, ...command.operands].join(' ')}`);
    return await command.run({
      values,
      operands: positionals,
      io,
      places: placesOf(values, io),
      filter: filterOf(values, Date.now()),
    });
  } catch (error) {
    const isMisuse = String((error as NodeJS.ErrnoException).code).startsWith('ERR_PARSE_ARGS');
    const refusal = isMisuse ? usage((error as Error).message) : error;
    if (!(refusal instanceof TollgateError) || refusal.code !== 'USAGE') throw error;
    return reportError(refusal, { json: rest.includes('--json'), io });
  }
}

/** A copy that is looked at gets no index of its own on the disk. */
function placesOf(values: Values, io: Io): Places {
  if (typeof values.folder === 'string')
    return { folder: existingFolder(resolve(io.cwd, values.folder)), index: ':memory:' };
  const file = typeof values.config === 'string' ? values.config : 'tollgate.yaml';
  const config = readForOwner({ config: file }, io);
  return { folder: config.audit.folder, index: join(config.state, AUDIT_INDEX), config };
}

/** A mistyped folder must not look like a log without a record. */
function existingFolder(folder: string): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return folder;
  throw new TollgateError('USAGE', {
    detail: `There is no folder ${folder}.`,
    next: 'Give the folder that holds the chain files: `audit` in the state folder.',
  });
}

function list({ values, io, places, filter }: Running): number {
  const limit = numberOf(values, 'limit', 50);
  return withReader(places, (reader) => {
    const found = values.unknown === true ? reader.unknown().slice(-limit) : reader.list(filter, limit);
    print(io, values, found);
    return EXIT.ok;
  });
}

function show({ operands, values, io, places }: Running): number {
  return withReader(places, (reader) => {
    const [id = ''] = operands;
    const named = [...reader.all({ id })];
    const found = named.length === 0 ? byHash(reader, id) : named;
    if (found.length === 0) io.stderr(`There is no record with the id ${printable(id)}.\n`);
    else io.stdout(values.json === true ? json(found.map((one) => one.record)) : fullText(io, found));
    return found.length === 0 ? EXIT.unexpected : EXIT.ok;
  });
}

/** A record without an id is asked for by the beginning of its hash, as `list` shows it. */
function byHash(reader: AuditReader, start: string): IndexedRecord[] {
  return /^[0-9a-f]{8,64}$/.test(start)
    ? [...reader.all({ id: '', text: `"hash":"${start}` })].filter(({ record }) => record.hash.startsWith(start))
    : [];
}

async function tail({ values, io, places, filter }: Running): Promise<number> {
  const reader = openAuditReader(places.folder, places.index);
  const stop = new AbortController();
  void io.stopped.then(() => stop.abort());
  try {
    print(io, values, reader.list(filter, numberOf(values, 'limit', 10)));
    for await (const found of reader.follow(filter, stop.signal)) {
      io.stdout(values.json === true ? `${found.line}\n` : rowOnly(listTable(io, [found])));
    }
    return EXIT.ok;
  } finally {
    reader.close();
  }
}

function stats({ values, io, places, filter }: Running): number {
  return withReader(places, (reader) => {
    const found = reader.stats(filter);
    io.stdout(values.json === true ? json(found) : statsText(io, found));
    return EXIT.ok;
  });
}

function exportAll({ values, io, places, filter }: Running): number {
  const format = values.format ?? 'jsonl';
  if (format !== 'jsonl' && format !== 'csv') throw usage('--format is jsonl or csv');
  return withReader(places, (reader) => {
    if (format === 'csv') io.stdout(csvHead());
    const { callsOnly: _, ...all } = filter;
    for (const found of reader.all(all)) io.stdout(format === 'csv' ? csvLine(found) : `${found.line}\n`);
    return EXIT.ok;
  });
}

function verify({ values, io, places }: Running): number {
  const archives = ((values.archive ?? []) as readonly string[]).map((folder) =>
    existingFolder(resolve(io.cwd, folder)),
  );
  const digest = digestOf(values, io, places);
  const verdict = verifyAudit(places.folder, (values['expect-head'] ?? []) as readonly string[], {
    archives,
    ...(digest !== undefined && { digest }),
  });
  io.stdout(values.json === true ? json(verdict) : verdictText(io, { verdict, isWhole: values.all === true }));
  return verdict.ok ? EXIT.ok : EXIT.refused;
}

/** By the key that checkpoints are under. A log without one needs none. Throws USAGE for a file that is not there. */
function digestOf(values: Values, io: Io, { config }: Places): ((text: string) => string) | undefined {
  const given = typeof values.key === 'string' ? resolve(io.cwd, values.key) : undefined;
  const path = given ?? (config === undefined ? undefined : join(config.state, 'audit.key'));
  const key = path === undefined ? undefined : findKeyFile(dirname(path), basename(path));
  if (given !== undefined && key === undefined) throw usage(`There is no file ${given}`);
  return key === undefined ? undefined : createDigest(key);
}

function withReader(places: Places, work: (reader: AuditReader) => number): number {
  const reader = openAuditReader(places.folder, places.index);
  try {
    return work(reader);
  } finally {
    reader.close();
  }
}

function print(io: Io, values: Values, found: readonly IndexedRecord[]): void {
  io.stdout(values.json === true ? json(found.map((one) => one.record)) : listTable(io, found));
  const changed = found.filter((one) => !one.intact).length;
  if (changed > 0)
    io.stderr(`${changed} of these records were changed after they were written: run tollgate audit verify\n`);
}

function rowOnly(text: string): string {
  return text.slice(text.indexOf('\n') + 1);
}
