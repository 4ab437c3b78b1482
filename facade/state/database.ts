/** One SQLite file through libsql: opened private, in WAL, with its traps closed. Every fault is STATE_FAILED. */
import { chmodSync, closeSync, lstatSync, mkdirSync, openSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const require = createRequire(import.meta.url);

/** What may be bound: no booleans (libsql 0.5.29 aborts the process on one), no text with NUL, only whole numbers below 2^53. */
export type SqlValue = string | number | null;

/** How a database is made, and brought from an older version to this one. */
export interface DatabaseSchema {
  readonly version: number;
  /** Statements that make an empty database one of this version. */
  readonly sql: string;
  /** By version: statements that bring a database of it to the next one. Absent: an older one cannot be used. */
  readonly upgrades?: Readonly<Record<number, string>>;
}

/** A database. Its functions are made once and stay valid until `close`. */
export interface Database {
  /** All rows of a statement that returns rows. */
  all<Row>(sql: string): (...values: SqlValue[]) => Row[];
  /** The first row, or undefined; it carries an extra key `_metadata`, so name the columns that you read. */
  first<Row>(sql: string): (...values: SqlValue[]) => Row | undefined;
  /** Runs a statement that returns no rows; answers how many it changed. With RETURNING, libsql would keep the write lock. */
  run(sql: string): (...values: SqlValue[]) => number;
  /**
   * Runs `work` as one write transaction: the write lock is taken at once, and anything thrown rolls all of it back. `synced`: it is on
   * the disk when this returns. Without it, a loss of power can take the last transactions back; the end of a process cannot.
   */
  transact<T>(work: () => T, how?: { readonly synced: true }): T;
  /** False once the file was removed, or another one was put in its place. What is written then is lost. */
  readonly isInPlace: boolean;
  /** Reads the file through a new connection; `whole` checks all of it. Throws STATE_FAILED when it is damaged. */
  probe(whole: boolean): void;
  close(): void;
}

/** How long a statement waits for another process, ms, where nothing else is said. */
const BUSY_MS = 5000;
/** Milliseconds between two tries. */
const RETRY_MS = 5;

/** Opens or creates the file (0600, folder 0700) and brings it to `schema`; ':memory:' stands for a private one. `busyMs`: how long statements wait for other processes; this thread does nothing else meanwhile. `exists`: one without a schema was emptied, and is refused with STATE_LOST. */
export function openDatabase(
  path: string,
  schema: DatabaseSchema,
  { busyMs = BUSY_MS, exists = false }: { readonly busyMs?: number; readonly exists?: boolean } = {},
): Database {
  if (path !== ':memory:') guard(() => createPrivate(path));
  const connection = new Connection(path, busyMs);
  try {
    // Two processes that start together: the second waits for the first, then finds the work done.
    const version = versionOf(connection);
    if (version === 0 && exists) throw new TollgateError('STATE_LOST');
    if (version !== schema.version) connection.transact(() => migrate(connection, schema), { synced: true });
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
  const fault =
    (folder.mode & 0o002) !== 0
      ? 'its folder may be written by everybody'
      : folder.uid !== own
        ? 'its folder belongs to another user'
        : file === undefined
          ? undefined
          : !file.isFile()
            ? 'it is a link, or no file'
            : file.uid !== own
              ? 'it belongs to another user'
              : (file.mode & 0o022) !== 0
                ? 'it may be written by others'
                : undefined;
  if (fault === undefined) return;
  throw new TollgateError('STATE_FAILED', {
    detail: `The state database is not used: ${fault}.`,
    next: 'Find out who did that, for approvals stand in it. Then give the state folder and its files to the user who runs Tollgate alone (chown, chmod 700), or remove it and approve again.',
  });
}

function versionOf(database: Database): number {
  return database.first<{ user_version: number }>('PRAGMA user_version')()?.user_version ?? 0;
}

function migrate(database: Database, { version, sql, upgrades = {} }: DatabaseSchema): void {
  const found = versionOf(database);
  if (found > version)
    throw new TollgateError('STATE_TOO_NEW', {
      detail: `The state has schema version ${found}; this Tollgate knows ${version}.`,
    });
  if (found === version) return;
  for (let from = found; from < version; from = from === 0 ? version : from + 1) {
    const step = from === 0 ? sql : upgrades[from];
    if (step === undefined)
      throw new TollgateError('STATE_FAILED', {
        detail: `The database has schema version ${from}, which this Tollgate cannot bring to ${version}.`,
      });
    for (const statement of statementsOf(step)) database.run(statement)();
  }
  database.run(`PRAGMA user_version = ${version}`)();
}

/** A semicolon at the end of a line ends a statement; those in a trigger are followed by more text on their line. */
function statementsOf(sql: string): readonly string[] {
  return sql
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}

/**
 * A connection that is made again after any fault: after SQLITE_BUSY, libsql 0.5.29 can leave a statement open, and all others then read
 * what the database was at that moment, for ever. SQLite's own waiting is off (`timeout: 0`), because it is what leaves them open.
 */
class Connection implements Database {
  readonly #path: string;
  readonly #busyMs: number;
  readonly #file: string | undefined;
  /** The log and its index, once they are there. */
  #log: string | undefined;
  #live: Libsql.Database | undefined;
  readonly #statements = new Map<string, Libsql.Statement>();
  #isOpen = true;
  #isSynced = false;
  #inTransaction = false;

  constructor(path: string, busyMs: number) {
    this.#path = path;
    this.#busyMs = busyMs;
    this.#file = fileOf(path);
  }

  get isInPlace(): boolean {
    const log = [`${this.#path}-wal`, `${this.#path}-shm`].map(fileOf);
    if (this.#live !== undefined && !log.includes(undefined)) this.#log ??= log.join();
    return this.#file === fileOf(this.#path) && (this.#log === undefined || this.#log === log.join());
  }

  all<Row>(sql: string): (...values: SqlValue[]) => Row[] {
    return this.#prepare(sql, (statement, values) => statement.all(values) as Row[]);
  }

  first<Row>(sql: string): (...values: SqlValue[]) => Row | undefined {
    return this.#prepare(sql, (statement, values) => statement.get(values) as Row | undefined);
  }

  run(sql: string): (...values: SqlValue[]) => number {
    return this.#prepare(sql, (statement, values) => statement.run(values).changes);
  }

  transact<T>(work: () => T, { synced = false }: { readonly synced?: boolean } = {}): T {
    this.#use(() => {
      this.#sync(synced);
      // Not prepared: a try that does not get the lock leaves no statement, and with it no open file, behind.
      this.#connect().exec('BEGIN IMMEDIATE');
    });
    this.#inTransaction = true;
    try {
      const result = work();
      guard(() => this.#connect().exec('COMMIT'));
      return result;
    } catch (error) {
      this.#renew();
      throw error;
    } finally {
      this.#inTransaction = false;
    }
  }

  probe(whole: boolean): void {
    guard(() => {
      const probe = connect(this.#path);
      try {
        probe.exec(whole ? CHECK : 'SELECT count(*) FROM sqlite_schema');
      } catch (error) {
        throw (error as Error).message === CHECK_FAILED
          ? new TollgateError('STATE_FAILED', { detail: DAMAGED[1], next: DAMAGED[2] })
          : error;
      } finally {
        probe.close();
      }
    });
  }

  close(): void {
    this.#isOpen = false;
    this.#statements.clear();
    this.#live?.close();
    this.#live = undefined;
  }

  #prepare<T>(sql: string, call: (statement: Libsql.Statement, values: SqlValue[]) => T): (...values: SqlValue[]) => T {
    this.#use(() => this.#statement(sql));
    return (...values) => {
      const checked = values.map(check);
      return this.#use(() => call(this.#statement(sql), checked));
    };
  }

  /** Inside a transaction nothing is tried again: the lock is ours, and the transaction is given up whole. */
  #use<T>(work: () => T): T {
    if (!this.#isOpen) throw new TollgateError('STATE_FAILED', { detail: 'The state database is closed.' });
    if (this.#inTransaction) return guard(work);
    const until = performance.now() + this.#busyMs;
    for (;;) {
      try {
        return guard(work);
      } catch (error) {
        if (!isBusy(error)) this.#renew();
        if (!isBusy(error) || performance.now() >= until) throw error;
        Atomics.wait(SLEEPER, 0, 0, RETRY_MS);
      }
    }
  }

  #statement(sql: string): Libsql.Statement {
    const known = this.#statements.get(sql);
    if (known !== undefined) return known;
    const statement = this.#connect().prepare(sql);
    this.#statements.set(sql, statement);
    return statement;
  }

  #sync(synced: boolean): void {
    if (this.#live !== undefined && synced === this.#isSynced) return;
    this.#connect().exec(`PRAGMA synchronous = ${synced ? 'FULL' : 'NORMAL'}`);
    this.#isSynced = synced;
  }

  /** SQLite would make an empty file in the place of one that was removed. */
  #connect(): Libsql.Database {
    if (this.#live === undefined && !this.isInPlace) throw new TollgateError('STATE_LOST');
    return (this.#live ??= connect(this.#path));
  }

  #renew(): void {
    const live = this.#live;
    if (live === undefined) return;
    try {
      // A full disk may have rolled back already.
      if (live.inTransaction) live.exec('ROLLBACK');
    } catch {
      // The connection goes.
    }
    if (this.#path === ':memory:') return;
    this.#statements.clear();
    this.#live = undefined;
    this.#log = undefined;
    this.#isSynced = false;
    live.close();
  }
}

/** Tells a file from another one at its path; undefined when there is none. */
function fileOf(path: string): string | undefined {
  const found = path === ':memory:' ? undefined : statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : `${found.dev}.${found.ino}`;
}

const SLEEPER = new Int32Array(new SharedArrayBuffer(4));

/*
 * Checks the whole database. A connection of libsql 0.5.29 that has prepared a statement keeps its files open after `close`, until the
 * statement is collected; `exec` prepares none that stays. It returns no row, so what is wrong is told by an error.
 */
const CHECK = "SELECT CASE WHEN (SELECT quick_check FROM pragma_quick_check(1)) <> 'ok' THEN json('damaged') END";
const CHECK_FAILED = 'malformed JSON';

/** Other connections of this process may have the file open: it is opened and closed by SQLite alone (see `create`). */
function connect(path: string): Libsql.Database {
  const Database = require('libsql') as typeof Libsql;
  const connection = new Database(path, { timeout: 0 } as Libsql.Options);
  try {
    connection.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** libsql reads text up to the first NUL: two keys could look like one. */
function check(value: SqlValue): SqlValue {
  if (typeof value === 'string' && value.includes('\0'))
    throw new TollgateError('STATE_FAILED', { detail: 'A text with a NUL cannot be kept.' });
  return value;
}

/** True for a fault of the disk, or of its quota: there is no room. */
export function isDiskFull(thrown: unknown): boolean {
  return causeOf(thrown) === 'SQLITE_FULL';
}

/** True when another process holds the lock: the same may succeed later. */
export function isBusy(thrown: unknown): boolean {
  return causeOf(thrown)?.startsWith('SQLITE_BUSY') === true;
}

function causeOf(thrown: unknown): string | undefined {
  const code = thrown instanceof TollgateError ? (thrown.cause as { code?: unknown } | undefined)?.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

const DAMAGED = [
  /^SQLITE_(CORRUPT|NOTADB)/,
  'The state database is damaged.',
  'Look at it with `tollgate state check`. Restore a backup with `tollgate state restore`, or keep what can be read with `tollgate state repair`.',
] as const;
const CAUSES: readonly (readonly [RegExp, string, string])[] = [
  DAMAGED,
  [
    /^SQLITE_BUSY/,
    'Another process holds the lock of the state database.',
    'Try again. If it stays so, find the process that holds it (fuser -v state.db) and end it.',
  ],
];

/** Turns what SQLite and the system throw into STATE_FAILED. */
export function guard<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof TollgateError) throw error;
    const { code } = error as { code?: unknown };
    const name = typeof code === 'string' && /^[A-Z_0-9]+$/.test(code) ? code : undefined;
    const [, detail = 'The state database failed.', next] =
      CAUSES.find(([pattern]) => name !== undefined && pattern.test(name)) ?? [];
    throw new TollgateError('STATE_FAILED', {
      detail: `${detail.slice(0, -1)}${name === undefined ? '' : ` (${name})`}.`,
      ...(next !== undefined && { next }),
      cause: error,
    });
  }
}
