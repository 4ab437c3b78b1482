/** Opens a SQLite file through libsql, private and in WAL mode, with workarounds for defects of libsql. */
import { chmodSync, closeSync, lstatSync, mkdirSync, openSync, type Stats, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import type Libsql from 'libsql';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

const require = createRequire(import.meta.url);

/**
 * A value of a statement. Not allowed: booleans (libsql 0.5.29 aborts the process), text with NUL, integers of 2^53 and
 * more.
 */
export type SqlValue = string | number | null;

/** How a database is made, and upgraded to this version. */
export interface DatabaseSchema {
  readonly version: number;
  /** Statements that make an empty database one of this version. */
  readonly sql: string;
  /** By version: statements that upgrade to the next version. Without them, an older database cannot be used. */
  readonly upgrades?: Readonly<Record<number, string>>;
}

/** A database. Its prepared functions are valid until `close`. Every method throws STATE_FAILED on an error. */
export interface Database {
  /** Returns all rows of a statement. */
  all<Row>(sql: string): (...values: SqlValue[]) => Row[];
  /** Returns the first row, or undefined. It has an extra key `_metadata`, so name the columns that you read. */
  first<Row>(sql: string): (...values: SqlValue[]) => Row | undefined;
  /** Runs a statement, and returns how many rows it changed. Do not use RETURNING: libsql would keep the write lock. */
  run(sql: string): (...values: SqlValue[]) => number;
  /**
   * Runs `work` as one write transaction: it takes the write lock at once, and an error rolls everything back.
   * `synced`: it is on the disk when this returns. Without it, a power failure can undo the last transactions; the end
   * of a process cannot.
   */
  transact<T>(work: () => T, how?: { readonly synced: true }): T;
  /** False if the file was removed or replaced. Then writes are lost. */
  readonly isInPlace: boolean;
  /** Reads the file through a new connection; `whole` checks all of it. Throws STATE_FAILED if it is damaged. */
  probe(whole: boolean): void;
  close(): void;
}

/** How long a statement waits for another process by default, ms. */
const BUSY_MS = 5000;
/** Milliseconds between two tries. */
const RETRY_MS = 5;

/**
 * Opens or creates the file (mode 0600, folder 0700) and upgrades it to `schema`; ':memory:' opens a database in
 * memory. `busyMs`: how long statements wait for other processes, blocking this thread. `exists`: throws STATE_LOST if
 * the database has no schema, because then it was emptied.
 */
export function openDatabase(
  path: string,
  schema: DatabaseSchema,
  { busyMs = BUSY_MS, exists = false }: { readonly busyMs?: number; readonly exists?: boolean } = {},
): Database {
  if (path !== ':memory:') guard(() => createPrivate(path));
  const connection = new Connection(path, busyMs);
  try {
    // Of two processes that start together, the second waits for the first and finds the work done.
    const version = versionOf(connection);
    if (version === 0 && exists) throw new TollgateError('STATE_LOST');
    if (version !== schema.version) connection.transact(() => migrate(connection, schema), { synced: true });
    return connection;
  } catch (error) {
    connection.close();
    throw error;
  }
}

/** Creates the file with the right mode before SQLite opens it, because its -wal and -shm files get the same mode. */
function createPrivate(path: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  checkOwner(path);
  createIfMissing(path);
  chmodSync(path, 0o600);
}

/**
 * Creates the file if it is missing, and never opens an existing one. Closing a file that another connection of this
 * process has open releases the locks of that connection (POSIX). Then the next process that ends would remove its log.
 */
function createIfMissing(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/**
 * The database holds approvals. Tollgate refuses a file that another user could have written.
 * It does not repair the file, because then the owner would not learn about the change.
 */
function checkOwner(path: string): void {
  const folder = statSync(dirname(path));
  const user = process.geteuid?.() ?? folder.uid;
  const fault = folderFault(folder, user) ?? fileFault(lstatSync(path, { throwIfNoEntry: false }), user);
  if (fault === undefined) return;
  throw new TollgateError('STATE_FAILED', {
    detail: `The state database is not used: ${fault}.`,
    next:
      'Find out who did that, because the database contains approvals. Then give the state folder and its ' +
      'files to the user who runs Tollgate, and to no one else (chown, chmod 700), ' +
      'or remove the folder and approve again.',
  });
}

function folderFault(folder: Stats, user: number): string | undefined {
  if ((folder.mode & 0o002) !== 0) return 'everyone may write its folder';
  return folder.uid === user ? undefined : 'its folder belongs to another user';
}

function fileFault(file: Stats | undefined, user: number): string | undefined {
  if (file === undefined) return undefined;
  if (!file.isFile()) return 'it is a link, or not a file';
  if (file.uid !== user) return 'it belongs to another user';
  return (file.mode & 0o022) === 0 ? undefined : 'other users may write it';
}

function versionOf(database: Database): number {
  return database.first<{ user_version: number }>('PRAGMA user_version')()?.user_version ?? 0;
}

function migrate(database: Database, { version, sql, upgrades = {} }: DatabaseSchema): void {
  const found = versionOf(database);
  if (found > version)
    throw new TollgateError('STATE_TOO_NEW', {
      detail: `The state has schema version ${found}; this Tollgate supports ${version}.`,
    });
  if (found === version) return;
  for (let from = found; from < version; from = from === 0 ? version : from + 1) {
    const step = from === 0 ? sql : upgrades[from];
    if (step === undefined)
      throw new TollgateError('STATE_FAILED', {
        detail: `The database has schema version ${from}, which this Tollgate cannot upgrade to ${version}.`,
      });
    for (const statement of statementsOf(step)) database.run(statement)();
  }
  database.run(`PRAGMA user_version = ${version}`)();
}

/** Splits SQL into statements at semicolons that end a line. Triggers contain semicolons within a line. */
function statementsOf(sql: string): readonly string[] {
  return sql
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '');
}

/**
 * A connection that is opened again after each error. After SQLITE_BUSY, libsql 0.5.29 can leave a statement open, and
 * later reads then show an old state. SQLite's own waiting is off (`timeout: 0`), because it leaves such statements
 * open.
 */
class Connection implements Database {
  readonly #path: string;
  readonly #busyMs: number;
  readonly #file: string | undefined;
  /** The identity of the log and its index, once they exist. */
  #logFiles: string | undefined;
  #connection: Libsql.Database | undefined;
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
    if (this.#connection !== undefined && !log.includes(undefined)) this.#logFiles ??= log.join();
    return this.#file === fileOf(this.#path) && (this.#logFiles === undefined || this.#logFiles === log.join());
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
    this.#withRetry(() => {
      this.#setSynchronous(synced);
      // Not prepared, so that a failed try leaves neither a statement nor an open file.
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
        probe.exec(whole ? CHECK_SQL : 'SELECT count(*) FROM sqlite_schema');
      } catch (error) {
        throw (error as Error).message === CHECK_FAILED
          ? new TollgateError('STATE_FAILED', { detail: DAMAGED_CAUSE[1], next: DAMAGED_CAUSE[2] })
          : error;
      } finally {
        probe.close();
      }
    });
  }

  close(): void {
    this.#isOpen = false;
    this.#statements.clear();
    this.#connection?.close();
    this.#connection = undefined;
  }

  #prepare<T>(sql: string, call: (statement: Libsql.Statement, values: SqlValue[]) => T): (...values: SqlValue[]) => T {
    this.#withRetry(() => this.#statement(sql));
    return (...values) => {
      const checked = values.map(checkValue);
      return this.#withRetry(() => call(this.#statement(sql), checked));
    };
  }

  /** Runs work, and tries again while another process has the lock. In a transaction, this process has the lock. */
  #withRetry<T>(work: () => T): T {
    if (!this.#isOpen) throw new TollgateError('STATE_FAILED', { detail: 'The state database is closed.' });
    if (this.#inTransaction) return guard(work);
    const deadline = performance.now() + this.#busyMs;
    for (;;) {
      try {
        return guard(work);
      } catch (error) {
        if (!isBusy(error)) this.#renew();
        if (!isBusy(error) || performance.now() >= deadline) throw error;
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

  #setSynchronous(synced: boolean): void {
    if (this.#connection !== undefined && synced === this.#isSynced) return;
    this.#connect().exec(`PRAGMA synchronous = ${synced ? 'FULL' : 'NORMAL'}`);
    this.#isSynced = synced;
  }

  /**
   * Opens the connection if needed. Throws STATE_LOST for a removed file, for which SQLite would create an empty one.
   */
  #connect(): Libsql.Database {
    if (this.#connection === undefined && !this.isInPlace) throw new TollgateError('STATE_LOST');
    return (this.#connection ??= connect(this.#path));
  }

  #renew(): void {
    const connection = this.#connection;
    if (connection === undefined) return;
    try {
      // After a full disk, the transaction may be rolled back already.
      if (connection.inTransaction) connection.exec('ROLLBACK');
    } catch {
      // The connection is closed.
    }
    if (this.#path === ':memory:') return;
    this.#statements.clear();
    this.#connection = undefined;
    this.#logFiles = undefined;
    this.#isSynced = false;
    connection.close();
  }
}

/** Returns the identity of the file at a path; undefined if there is none. */
function fileOf(path: string): string | undefined {
  const found = path === ':memory:' ? undefined : statSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : `${found.dev}.${found.ino}`;
}

const SLEEPER = new Int32Array(new SharedArrayBuffer(4));

/*
 * Checks the whole database with `exec`, because a prepared statement of libsql 0.5.29 keeps the files open after
 * `close`, until it is collected. `exec` returns no rows, so the statement reports damage by an error.
 */
const CHECK_SQL = "SELECT CASE WHEN (SELECT quick_check FROM pragma_quick_check(1)) <> 'ok' THEN json('damaged') END";
const CHECK_FAILED = 'malformed JSON';

/**
 * Opens a connection through SQLite only, because others of this process may have the file open (see createIfMissing).
 */
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

/** Refuses text with NUL, because libsql reads text only up to it, so two keys could be equal. */
function checkValue(value: SqlValue): SqlValue {
  if (typeof value === 'string' && value.includes('\0'))
    throw new TollgateError('STATE_FAILED', { detail: 'A text with a NUL character cannot be stored.' });
  return value;
}

/** Returns true for the error of a full disk or quota. */
export function isDiskFull(thrown: unknown): boolean {
  return causeOf(thrown) === 'SQLITE_FULL';
}

/** Returns true if another process held the lock, so that another try may succeed. */
export function isBusy(thrown: unknown): boolean {
  return causeOf(thrown)?.startsWith('SQLITE_BUSY') === true;
}

function causeOf(thrown: unknown): string | undefined {
  const code = thrown instanceof TollgateError ? (thrown.cause as { code?: unknown } | undefined)?.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

const DAMAGED_CAUSE = [
  /^SQLITE_(CORRUPT|NOTADB)/,
  'The state database is damaged.',
  'Check it with `tollgate state check`. Restore a backup with `tollgate state restore`, or keep what can be ' +
    'read with `tollgate state repair`.',
] as const;
const CAUSES: readonly (readonly [RegExp, string, string])[] = [
  DAMAGED_CAUSE,
  [
    /^SQLITE_BUSY/,
    'Another process holds the lock of the state database.',
    'Try again. If this continues, find the process that holds it (fuser -v state.db) and end it.',
  ],
  [
    /^(MODULE_NOT_FOUND|ERR_DLOPEN_FAILED)$/,
    'The native part of SQLite (libsql) for this system is missing.',
    'Install Tollgate again without --omit=optional, on this system (Linux or macOS, x64 or arm64).',
  ],
];

/** Turns errors of SQLite and of the system into STATE_FAILED. */
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
