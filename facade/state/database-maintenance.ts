/** Checks, backs up, restores and repairs the state database, also while Tollgate processes run. */
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Database, guard, isBusy, openDatabase } from './database.ts';
import { isAlive, isOwn } from './process-mark.ts';
import { DATABASE_FILE, STATE_SCHEMA } from './sqlite-state.ts';
import { Stops } from './stop-file.ts';

const require = createRequire(import.meta.url);

/** How long these commands wait for the locks of other processes, ms. */
const BUSY_MS = 5_000;
/** The most problems that are named. */
const MAX_PROBLEMS = 20;
/** Suffixes of the files of a database: itself, its log and the index of its log. */
const PARTS = ['', '-wal', '-shm'];
const TABLES = ['value', 'counter'] as const;

/** The result of a check. `lost`: there was a database, and it is gone. `none`: there never was one. */
export interface DatabaseCondition {
  readonly database: 'sound' | 'damaged' | 'lost' | 'none';
  /** What SQLite reports as wrong. */
  readonly problems: readonly string[];
  /** Version of its schema, and bytes including its log. */
  readonly version?: number;
  readonly bytes?: number;
  /** Values by space, and counters of budgets. */
  readonly values?: Readonly<Record<string, number>>;
  readonly counters?: number;
  /** Names that are stopped. */
  readonly stopped: readonly string[];
  /** Tollgate processes that have the state open. */
  readonly processes: number;
}

/**
 * Checks the state of a folder, and changes nothing in the database. Throws STATE_FAILED if it is locked or the stops
 * cannot be read.
 */
export function checkState(folder: string): DatabaseCondition {
  const file = path.join(folder, DATABASE_FILE);
  const stops = new Stops(folder);
  try {
    const common = { problems: [], stopped: [...stops.list().keys()], processes: countProcesses(folder) };
    if (!existsSync(file)) return { ...common, database: stops.hasDatabase ? 'lost' : 'none' };
    const found = examine(file);
    if (found.version === 0 && found.problems.length === 0)
      return { ...common, database: stops.hasDatabase ? 'lost' : 'none' };
    return { ...common, ...found, database: found.problems.length === 0 ? 'sound' : 'damaged' };
  } finally {
    stops.close();
  }
}

/**
 * Copies the database, as it is at one moment, to a new file (mode 0600). Throws USAGE if the file exists,
 * STATE_FAILED, STATE_LOST.
 */
export function backUp(folder: string, target: string): { readonly bytes: number } {
  const file = path.join(folder, DATABASE_FILE);
  if (!existsSync(file)) throw new TollgateError('STATE_LOST');
  reserveFile(target);
  try {
    withConnection(file, (connection) => connection.exec(`VACUUM INTO '${target.replaceAll("'", "''")}'`));
    const { problems } = examine(target);
    if (problems.length > 0) throw damagedError(problems);
    syncFile(target);
    return { bytes: statSync(target).size };
  } catch (thrown) {
    rmSync(target, { force: true });
    throw thrown;
  }
}

/**
 * Replaces the content of the database by the content of a backup. An undamaged database is changed in one transaction,
 * which running processes see. A lost or damaged one is replaced; the folder that keeps the old one is returned. Throws
 * USAGE for a file that is no backup, STATE_TOO_NEW, STATE_FAILED.
 */
export function restore(folder: string, source: string): { readonly kept: string | undefined } {
  const { problems, version = 0 } = existsSync(source) ? examine(source) : { problems: ['There is no such file.'] };
  if (problems.length > 0 || version === 0)
    throw new TollgateError('USAGE', {
      detail: `The file is not an undamaged backup of a state: ${problems[0] ?? 'it is empty'}`,
      next: 'Name a file that `tollgate state backup` wrote.',
    });
  if (version > STATE_SCHEMA.version) throw new TollgateError('STATE_TOO_NEW');
  const rows = new Map(TABLES.map((table): [string, Salvaged] => [table, salvage(source, table)]));
  const file = path.join(folder, DATABASE_FILE);
  if (checkState(folder).database === 'sound') {
    const database = openDatabase(file, STATE_SCHEMA);
    fillWith(database, rows);
    database.close();
    markDatabase(folder);
    return { kept: undefined };
  }
  return { kept: replace(folder, rows) };
}

/** What a repair kept and lost, by table. */
export interface Repaired {
  readonly kept: Readonly<Record<string, number>>;
  /** Whether rows may be missing. */
  readonly complete: boolean;
  /** Where the old database is kept. */
  readonly old: string | undefined;
}

/**
 * Makes an undamaged database from what can be read of a damaged one; `startEmpty`: an empty one. Throws STATE_FAILED
 * if nothing can be read, STATE_LOST if there is nothing.
 */
export function repair(folder: string, { startEmpty }: { readonly startEmpty: boolean }): Repaired {
  const file = path.join(folder, DATABASE_FILE);
  if (!existsSync(file) && !startEmpty) throw new TollgateError('STATE_LOST');
  const rows = new Map(startEmpty ? [] : TABLES.map((table): [string, Salvaged] => [table, salvage(file, table)]));
  if (!startEmpty && [...rows.values()].every((one) => one.rows.length === 0 && !one.complete)) {
    throw new TollgateError('STATE_FAILED', {
      detail: 'Nothing of the damaged database can be read.',
      next: 'Restore a backup: tollgate state restore FILE. Without one: tollgate state repair --start-empty',
    });
  }
  const old = replace(folder, rows);
  return {
    kept: Object.fromEntries([...rows].map(([table, { rows: found }]) => [table, found.length])),
    complete: !startEmpty && [...rows.values()].every(({ complete }) => complete),
    old,
  };
}

type Row = Readonly<Record<string, string | number | null>>;

interface Salvaged {
  readonly rows: readonly Row[];
  readonly complete: boolean;
}

const KEYS: Readonly<Record<(typeof TABLES)[number], readonly string[]>> = {
  value: ['space', 'key'],
  counter: ['budget', 'scope', 'key'],
};

/** Reads the rows from both ends, because a damaged page ends the reading from each side. */
function salvage(file: string, table: (typeof TABLES)[number]): Salvaged {
  const rows = new Map<string, Row>();
  let complete = true;
  for (const order of ['ASC', 'DESC']) {
    const isComplete = readAll(
      file,
      `SELECT * FROM ${table} ORDER BY ${KEYS[table].map((key) => `${key} ${order}`).join(', ')}`,
      (row) => rows.set(JSON.stringify(KEYS[table].map((key) => row[key])), row),
    );
    if (isComplete) return { rows: [...rows.values()], complete: true };
    complete = false;
  }
  return { rows: [...rows.values()], complete };
}

/** Reads rows until an error. Returns true if all were read. */
function readAll(file: string, sql: string, onRow: (row: Row) => void): boolean {
  try {
    withConnection(file, (connection) => {
      for (const row of connection.prepare(sql).iterate() as Iterable<Row>) onRow(row);
    });
    return true;
  } catch {
    return false;
  }
}

function insert(database: Database, table: string, row: Row): void {
  const columns = Object.keys(row).filter((column) => column !== '_metadata');
  database.run(`INSERT INTO ${table} (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`)(
    ...columns.map((column) => row[column] ?? null),
  );
}

function examine(file: string): Pick<DatabaseCondition, 'problems' | 'version' | 'bytes' | 'values' | 'counters'> {
  const bytes = PARTS.reduce(
    (sum, part) => sum + (statSync(`${file}${part}`, { throwIfNoEntry: false })?.size ?? 0),
    0,
  );
  try {
    return withConnection(file, (connection) => {
      const problems = (
        connection.prepare(`PRAGMA integrity_check(${MAX_PROBLEMS})`).all() as { integrity_check: string }[]
      )
        .map((row) => row.integrity_check)
        .filter((line) => line !== 'ok');
      const { user_version: version } = connection.prepare('PRAGMA user_version').get() as { user_version: number };
      if (problems.length > 0 || version === 0 || version > STATE_SCHEMA.version) return { problems, version, bytes };
      const values = Object.fromEntries(
        (
          connection.prepare('SELECT space, count(*) AS n FROM value GROUP BY space ORDER BY space').all() as {
            space: string;
            n: number;
          }[]
        ).map(({ space, n }) => [space, n]),
      );
      const { n: counters } = connection.prepare('SELECT count(*) AS n FROM counter').get() as { n: number };
      return { problems, version, bytes, values, counters };
    });
  } catch (thrown) {
    if (isBusy(thrown)) throw thrown;
    return { problems: [((thrown as Error).cause as Error | undefined)?.message ?? (thrown as Error).message], bytes };
  }
}

function damagedError(problems: readonly string[]): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail: `The state database is damaged: ${problems[0] ?? 'unknown'}`,
    next: 'Keep what can be read: tollgate state repair',
  });
}

function withConnection<T>(file: string, work: (connection: Libsql.Database) => T): T {
  const Database = require('libsql') as typeof Libsql;
  const connection = guard(() => new Database(file, { timeout: BUSY_MS } as Libsql.Options));
  try {
    return guard(() => work(connection));
  } finally {
    connection.close();
  }
}

/**
 * Replaces the database by one with these rows, and returns the folder that keeps the old one. Throws STATE_FAILED
 * while a process has the old one open, because SQLite would remove the log of the new one when that process closes it.
 */
function replace(folder: string, rows: ReadonlyMap<string, Salvaged>): string | undefined {
  const running = countProcesses(folder);
  if (running > 0)
    throw new TollgateError('STATE_FAILED', {
      detail:
        `${running === 1 ? 'A Tollgate process has' : `${running} Tollgate processes have`} the database open, ` +
        'so it cannot be replaced.',
      next: 'End the running processes, which refuse every call now, and try again.',
    });
  const draft = path.join(folder, `.state-${randomBytes(8).toString('hex')}.db`);
  const compact = `${draft}.made`;
  const file = path.join(folder, DATABASE_FILE);
  try {
    const database = openDatabase(draft, STATE_SCHEMA);
    fillWith(database, rows);
    // A copy without a log, because the log of the draft would keep the name of the draft.
    database.run(`VACUUM INTO '${compact.replaceAll("'", "''")}'`)();
    database.close();
    syncFile(compact);
    if (examine(compact).version !== STATE_SCHEMA.version) throw damagedError(['the new database is incomplete']);
    const kept = putAside(file);
    chmodSync(compact, 0o600);
    renameSync(compact, file);
    syncFile(folder);
    markDatabase(folder);
    return kept;
  } finally {
    for (const part of [...PARTS, '.made']) rmSync(`${draft}${part}`, { force: true });
  }
}

/** Moves the database to a new folder, and returns this folder. Removes the log of a missing database. */
function putAside(file: string): string | undefined {
  if (!existsSync(file)) {
    for (const part of PARTS) rmSync(`${file}${part}`, { force: true });
    return undefined;
  }
  const kept = path.join(path.dirname(file), `state-before-${new Date().toISOString().replaceAll(':', '')}`);
  mkdirSync(kept, { mode: 0o700 });
  for (const part of PARTS.filter((one) => existsSync(`${file}${one}`)))
    renameSync(`${file}${part}`, path.join(kept, `${DATABASE_FILE}${part}`));
  return kept;
}

function fillWith(database: Database, rows: ReadonlyMap<string, Salvaged>): void {
  database.transact(
    () => {
      for (const [table, { rows: found }] of rows) {
        database.run(`DELETE FROM ${table}`)();
        for (const row of found) insert(database, table, row);
      }
    },
    { synced: true },
  );
}

function markDatabase(folder: string): void {
  const stops = new Stops(folder);
  stops.hasDatabase = true;
  stops.touchValues();
  stops.close();
}

function reserveFile(file: string): void {
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    throw new TollgateError('USAGE', {
      detail:
        code === 'EEXIST'
          ? 'The file for the backup exists.'
          : `The file for the backup cannot be made (${code ?? 'unknown'}).`,
      next: 'Name a new file in a folder that you may write.',
    });
  }
}

function syncFile(file: string): void {
  const fd = openSync(file, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function countProcesses(folder: string): number {
  const locks = path.join(folder, 'processes');
  return existsSync(locks)
    ? readdirSync(locks).filter((mark) => !isOwn(folder, mark) && isAlive(folder, mark)).length
    : 0;
}
