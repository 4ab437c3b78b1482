/** Owns one SQLite file through libsql: opened private, in WAL, with its traps closed; refuses every fault with STATE_FAILED. */
import { chmodSync, closeSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors.ts';

const require = createRequire(import.meta.url);

/** What may be bound: no booleans (libsql 0.5.29 aborts the process on one), no text with NUL, only whole numbers below 2^53. */
export type Value = string | number | null;

/** A database. Its statements are prepared once and stay valid until `close`. */
export interface Database {
  /** All rows of a statement that returns rows. */
  all<Row>(sql: string): (...values: Value[]) => Row[];
  /** The first row, or undefined; it carries an extra key `_metadata`, so name the columns that you read. */
  first<Row>(sql: string): (...values: Value[]) => Row | undefined;
  /** Runs a statement that returns no rows; answers how many it changed. With RETURNING, libsql would keep the write lock. */
  run(sql: string): (...values: Value[]) => number;
  /** Runs `work` as one write transaction: the write lock is taken at once, and anything thrown rolls all of it back. */
  transact<T>(work: () => T): T;
  close(): void;
}

/** How long a statement waits for another process, ms. */
const BUSY_MS = 5000;

/** Opens or creates the file (0600, folder 0700) and brings it to `schema`; ':memory:' stands for a private one. */
export function openDatabase(path: string, schema: { readonly version: number; readonly sql: string }): Database {
  const database = guard(() => wrap(connect(path)));
  try {
    // Two processes that start together: the second waits for the first, then finds the work done.
    database.transact(() => migrate(database, schema));
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

function connect(path: string): Libsql.Database {
  if (path !== ':memory:') createPrivate(path);
  const Database = require('libsql') as typeof Libsql;
  const connection = new Database(path, { timeout: BUSY_MS } as Libsql.Options);
  try {
    switchToWal(connection);
    connection.exec('PRAGMA synchronous = NORMAL');
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** The -wal and -shm files take over the mode of the database file, so it must be right before SQLite sees it. */
function createPrivate(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  checkOwn(path);
  create(path);
  chmodSync(path, 0o600);
}

/**
 * Only where there is none: to close a file that another connection of this process has open would give back the locks of that
 * connection (POSIX), and the next process that ends would take its log away, with all that it writes from then on.
 */
function create(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * What people agreed to stands in there: a file that somebody else could have written is not read, and not mended either, for then
 * nobody would ever hear of it (security E 71).
 */
function checkOwn(path: string): void {
  const folder = statSync(dirname(path));
  const file = lstatSync(path, { throwIfNoEntry: false });
  const own = process.geteuid?.() ?? folder.uid;
  const fault = (folder.mode & 0o002) !== 0 ? 'its folder may be written by everybody'
    : folder.uid !== own ? 'its folder belongs to another user'
    : file === undefined ? undefined
    : !file.isFile() ? 'it is a link, or no file'
    : file.uid !== own ? 'it belongs to another user'
    : (file.mode & 0o022) !== 0 ? 'it may be written by others' : undefined;
  if (fault === undefined) return;
  throw new TollgateError('STATE_FAILED', { detail: `The state database is not used: ${fault}.`, next: 'Find out who did that, for approvals stand in it. Then give the state folder and its files to the user who runs Tollgate alone (chown, chmod 700), or remove it and approve anew.' });
}

/** SQLite does not wait for a lock when it changes the journal mode, so processes that start together must try again. */
function switchToWal(connection: Libsql.Database): void {
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  for (let attempt = 1; ; attempt += 1) {
    try {
      connection.prepare('PRAGMA journal_mode = WAL').get();
      return;
    } catch (error) {
      if ((error as { code?: string }).code !== 'SQLITE_BUSY' || attempt === 50) throw error;
      Atomics.wait(sleeper, 0, 0, 20);
    }
  }
}

function migrate(database: Database, schema: { readonly version: number; readonly sql: string }): void {
  const found = database.first<{ user_version: number }>('PRAGMA user_version')()?.user_version ?? 0;
  if (found > schema.version) {
    throw new TollgateError('STATE_TOO_NEW', { detail: `The state has schema version ${found}; this Tollgate knows ${schema.version}.` });
  }
  if (found === schema.version) return;
  for (const statement of schema.sql.split(';')) if (statement.trim() !== '') database.run(statement)();
  database.run(`PRAGMA user_version = ${schema.version}`)();
}

function wrap(connection: Libsql.Database): Database {
  // libsql still executes prepared statements after close, on a file that may be gone.
  let open = true;
  const use = <T>(work: () => T): T => {
    if (!open) throw new TollgateError('STATE_FAILED', { detail: 'The state database is closed.' });
    return guard(work);
  };
  const prepare = <T>(sql: string, call: (statement: Libsql.Statement, values: Value[]) => T): ((...values: Value[]) => T) => {
    const statement = use(() => connection.prepare(sql));
    return (...values) => use(() => call(statement, values.map(checked)));
  };
  const [begin, commit] = [connection.prepare('BEGIN IMMEDIATE'), connection.prepare('COMMIT')];
  return {
    all: <Row>(sql: string) => prepare(sql, (statement, values) => statement.all(values) as Row[]),
    first: <Row>(sql: string) => prepare(sql, (statement, values) => statement.get(values) as Row | undefined),
    run: (sql) => prepare(sql, (statement, values) => statement.run(values).changes),
    transact: (work) =>
      use(() => {
        begin.run();
        try {
          const result = work();
          commit.run();
          return result;
        } catch (error) {
          // A full disk may have rolled back already.
          if (connection.inTransaction) connection.exec('ROLLBACK');
          throw error;
        }
      }),
    close: () => {
      if (open) connection.close();
      open = false;
    },
  };
}

/** libsql reads text up to the first NUL: two keys could look like one. */
function checked(value: Value): Value {
  if (typeof value === 'string' && value.includes('\0')) throw new TollgateError('STATE_FAILED', { detail: 'A text with a NUL cannot be kept.' });
  return value;
}

/** True for a fault of the disk, or of its quota: there is no room. */
export function isFull(thrown: unknown): boolean {
  return thrown instanceof TollgateError && (thrown.cause as { code?: unknown } | undefined)?.code === 'SQLITE_FULL';
}

function guard<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof TollgateError) throw error;
    const code = (error as { code?: unknown }).code;
    throw new TollgateError('STATE_FAILED', {
      detail: `The state database failed${typeof code === 'string' && /^[A-Z_0-9]+$/.test(code) ? ` (${code})` : ''}.`,
      cause: error,
    });
  }
}
