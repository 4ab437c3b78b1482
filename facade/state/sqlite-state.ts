/** The embedded state: one SQLite database for all processes of a user, and the stop file. Calls block the thread. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { BUDGET_UNITS } from './budget-counter.ts';
import { createLedger, type Ledger, type LedgerStore } from './budget-ledger.ts';
import { type Database, type DatabaseSchema, isBusy, isDiskFull, openDatabase } from './database.ts';
import { isAlive, noMark, ownMark } from './process-mark.ts';
import type { Amounts, State, StoredCounter } from './state-port.ts';
import { createStateValues, type StateValues } from './state-values.ts';
import { STOPS_FILE, Stops, stopsLost } from './stop-file.ts';

const CHANGES = `
    CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL) STRICT;
    CREATE TRIGGER value_put AFTER INSERT ON value BEGIN
      INSERT INTO change (space, key) VALUES (new.space, new.key); END;
    CREATE TRIGGER value_changed AFTER UPDATE ON value BEGIN
      INSERT INTO change (space, key) VALUES (new.space, new.key); END;
    CREATE TRIGGER value_removed AFTER DELETE ON value BEGIN
      INSERT INTO change (space, key) VALUES (old.space, old.key); END`;
const SLOT = `
    CREATE TABLE slot (
      budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, lease TEXT NOT NULL, process TEXT NOT NULL,
      PRIMARY KEY (budget, scope, key, lease)) STRICT, WITHOUT ROWID`;

/** The schema of the state database. */
export const STATE_SCHEMA: DatabaseSchema = {
  version: 2,
  sql: `
    CREATE TABLE counter (
      budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL, touched INTEGER NOT NULL,
      calls INTEGER NOT NULL, argBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL, wallMs INTEGER NOT NULL,
      monotonic REAL NOT NULL DEFAULT 0, boot TEXT NOT NULL DEFAULT 'none',
      PRIMARY KEY (budget, scope, key)) STRICT, WITHOUT ROWID;
    CREATE TABLE value (
      space TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (space, key)) STRICT, WITHOUT ROWID;
    ${SLOT};
    ${CHANGES}`,
  upgrades: {
    1: `
    ALTER TABLE counter ADD COLUMN monotonic REAL NOT NULL DEFAULT 0;
    ALTER TABLE counter ADD COLUMN boot TEXT NOT NULL DEFAULT 'none';
    DROP TABLE slot;
    ${SLOT};
    ${CHANGES}`,
  },
};

/** The space of stops in earlier versions, which had no stop file. */
const LEGACY_STOPS = 'kill';
/** The space that has one row if there is a stop file. */
export const STOPS_NOTED = 'stops';
/** Age after which unused counters of runs and sessions, and labels of named runs, are removed, ms. */
const STALE_MS = 30 * 86_400_000;
const OLD_COUNTERS = `scope IN ('run', 'session') AND touched < ?`;
const OLD_VALUES = `space = ? OR (space LIKE 'labels/%' AND CAST(value AS INTEGER) < ?)`;

/** Name of the database in a state folder. */
export const DATABASE_FILE = 'state.db';

/** The state as one thread uses it. */
export interface DirectState extends Omit<State, keyof Ledger>, Ledger, Pick<StateValues, 'changesAfter'> {
  /** False if the database was removed or replaced. */
  readonly isInPlace: boolean;
  /** Reads the file through a new connection; `whole` checks all of it. Throws STATE_FAILED if it is damaged. */
  probe(whole: boolean): void;
  close(): void;
}

/**
 * How a state is opened. `now`: ms since 1970. `busyMs`: how long this thread waits for the locks of other processes;
 * default 5,000.
 */
export interface OpenStateOptions {
  readonly now?: number;
  readonly busyMs?: number;
  /** The mark of this process, if another thread holds its lock; '' if it has none. Default: this thread takes one. */
  readonly mark?: string;
}

/**
 * Opens `<folder>/state.db`, for commands and for the thread of the state. Throws STATE_TOO_NEW, STATE_FAILED,
 * STATE_LOST.
 */
export function openState(
  folder: string,
  { now = Date.now(), mark: givenMark, ...options }: OpenStateOptions = {},
): DirectState {
  const mark = givenMark === undefined ? () => ownMark(folder) : () => requireMark(givenMark);
  // The mark prevents that another process replaces the open database. On a full disk there is none, and calls that
  // need it are refused later.
  if (givenMark === undefined && existsSync(folder)) tryMark(folder);
  const file = join(folder, DATABASE_FILE);
  // The database checks the owner of the folder, because another user could change the stops in it.
  const exists = hasHadDatabase(folder);
  if (exists && !existsSync(file)) throw new TollgateError('STATE_LOST');
  const database = openDatabase(file, STATE_SCHEMA, { ...options, exists });
  let stops: Stops | undefined;
  const close = (): void => {
    stops?.close();
    database.close();
  };
  try {
    stops = new Stops(folder);
    noteDatabase(database, stops);
    dropStale(database, { before: now - STALE_MS, stops });
    return {
      ...createLedger(createStore(database, { folder, mark }), `${randomBytes(8).toString('hex')}.`),
      ...createStateValues(database, stops),
      ...createCounterReader(database),
      stops,
      isShared: false,
      machine: '',
      shareStops: () => undefined,
      refresh: () => undefined,
      mark,
      isAlive: (mark) => isAlive(folder, mark),
      probe: (whole) => database.probe(whole),
      close,
      get isInPlace() {
        return database.isInPlace;
      },
    };
  } catch (thrown) {
    close();
    throw thrown;
  }
}

/** Notes in the database that there is a stop file, and in the stop file that there is a database. */
function noteDatabase(database: Database, stops: Stops): void {
  const isNoted = database.first('SELECT 1 AS found FROM value WHERE space = ?')(STOPS_NOTED) !== undefined;
  if (isNoted && !stops.hasDatabase) throw stopsLost();
  if (!stops.hasDatabase) stops.hasDatabase = true;
  if (!isNoted)
    database.transact(
      () => database.run('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO NOTHING')(STOPS_NOTED, '', ''),
      { synced: true },
    );
}

function tryMark(folder: string): void {
  try {
    ownMark(folder);
  } catch {
    // The error is reported where the mark is needed.
  }
}

function hasHadDatabase(folder: string): boolean {
  if (!existsSync(join(folder, STOPS_FILE))) return false;
  const stops = new Stops(folder);
  try {
    return stops.hasDatabase;
  } finally {
    stops.close();
  }
}

function dropStale(database: Database, { before, stops }: { readonly before: number; readonly stops: Stops }): void {
  try {
    // Reads first, because a database that another process has locked can still be read.
    const stale =
      database.first<{ n: number }>(
        `SELECT (SELECT count(*) FROM counter WHERE ${OLD_COUNTERS}) + (SELECT count(*) FROM value WHERE ` +
          `${OLD_VALUES}) AS n`,
      )(before, LEGACY_STOPS, before)?.n ?? 0;
    if (stale === 0) return;
    for (const { key, value } of database.all<{ key: string; value: string }>(
      'SELECT key, value FROM value WHERE space = ?',
    )(LEGACY_STOPS))
      stops.put(key, JSON.parse(value) as { since: string; by: string });
    database.transact(() => {
      database.run(`DELETE FROM counter WHERE ${OLD_COUNTERS}`)(before);
      database.run(`DELETE FROM value WHERE ${OLD_VALUES}`)(LEGACY_STOPS, before);
    });
    stops.touchValues();
  } catch (thrown) {
    // On a full disk, or under the lock of another process, they stay, so that people can still withdraw decisions.
    if (!isDiskFull(thrown) && !isBusy(thrown)) throw thrown;
  }
}

/** Keeps counters in a table, and slots with the mark of the process that holds them. */
function createStore(database: Database, owner: SlotOwner): LedgerStore {
  const read = database.first<Amounts & { since: number; monotonic: number; boot: string }>(
    'SELECT since, monotonic, boot, calls, argBytes, outputBytes, wallMs FROM counter WHERE budget = ? AND ' +
      'scope = ? AND key = ?',
  );
  const write = database.run(
    'INSERT OR REPLACE INTO counter (budget, scope, key, since, monotonic, boot, touched, calls, argBytes, ' +
      'outputBytes, wallMs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const add = database.run(
    'UPDATE counter SET calls = calls + ?, argBytes = argBytes + ?, outputBytes = outputBytes + ?, wallMs = ' +
      'wallMs + ? WHERE budget = ? AND scope = ? AND key = ? AND since = ? AND monotonic = ?',
  );
  const endCounters = database.run('DELETE FROM counter WHERE scope = ? AND key = ?');
  return {
    ...createSlots(database, owner),
    transact: (work) => database.transact(work),
    read: ({ budget, scope, key }) => {
      const row = read(budget, scope, key);
      return row === undefined
        ? undefined
        : { since: { wall: row.since, monotonic: row.monotonic, boot: row.boot }, amounts: row };
    },
    write: ({ budget, scope, key }, { since, amounts }, now) =>
      void write(budget, scope, key, since.wall, since.monotonic, since.boot, now, ...inOrder(amounts)),
    add: ({ budget, scope, key }, since, change) =>
      void add(...inOrder(change), budget, scope, key, since.wall, since.monotonic),
    endScope: (scope, key) => void endCounters(scope, key),
  };
}

/** Reads and deletes whole counters, for owners. */
function createCounterReader(database: Database): Pick<DirectState, 'counters' | 'resetCounters'> {
  const latest = database.all<CounterRow>('SELECT * FROM counter ORDER BY touched DESC LIMIT ?');
  const all = database.run('DELETE FROM counter WHERE budget = ?');
  const one = database.run('DELETE FROM counter WHERE budget = ? AND key = ?');
  return {
    counters: (most) =>
      latest(most).map(({ budget, scope, key, since, monotonic, boot, calls, argBytes, outputBytes, wallMs }) => ({
        budget,
        scope,
        key,
        since: { wall: since, monotonic, boot },
        amounts: { calls, argBytes, outputBytes, wallMs },
      })),
    resetCounters: (budget, key) =>
      database.transact(() => (key === undefined ? all(budget) : one(budget, key)), { synced: true }),
  };
}

interface CounterRow extends Amounts, Pick<StoredCounter, 'budget' | 'scope' | 'key'> {
  readonly since: number;
  readonly monotonic: number;
  readonly boot: string;
}

function inOrder(amounts: Amounts): number[] {
  return BUDGET_UNITS.map((unit) => amounts[unit]);
}

/** The mark of this process's slots. */
interface SlotOwner {
  readonly folder: string;
  readonly mark: () => string;
}

/** Returns the mark. Throws STATE_FAILED without one, because slots of a dead process could not be freed. */
function requireMark(mark: string): string {
  if (mark === '') throw noMark();
  return mark;
}

function createSlots(
  database: Database,
  { folder, mark }: SlotOwner,
): Pick<LedgerStore, 'checkSlots' | 'takeSlot' | 'freeSlot'> {
  const where = 'budget = ? AND scope = ? AND key = ?';
  const count = database.first<{ n: number }>(`SELECT count(*) AS n FROM slot WHERE ${where}`);
  const holders = database.all<{ process: string }>(`SELECT DISTINCT process FROM slot WHERE ${where}`);
  const removeOf = database.run('DELETE FROM slot WHERE process = ?');
  const insert = database.run('INSERT INTO slot VALUES (?, ?, ?, ?, ?)');
  const remove = database.run(`DELETE FROM slot WHERE ${where} AND lease = ?`);
  return {
    checkSlots: (claim) => {
      const { concurrent: limit, budget, scope, key } = claim;
      if (limit === undefined || (count(budget, scope, key)?.n ?? 0) < limit) return undefined;
      // Checks whether the holders are alive only if the budget is full.
      for (const { process } of holders(budget, scope, key)) if (!isAlive(folder, process)) removeOf(process);
      const used = count(budget, scope, key)?.n ?? 0;
      return used < limit ? undefined : { claim, unit: 'concurrent', limit, left: 0 };
    },
    takeSlot: ({ budget, scope, key }, reservation) => void insert(budget, scope, key, reservation, mark()),
    freeSlot: ({ budget, scope, key }, reservation) => void remove(budget, scope, key, reservation),
  };
}
