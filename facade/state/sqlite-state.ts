/** The embedded state: one SQLite database for all processes of a user, and the stop file. Calls block the thread. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Instant } from './budget-clock.ts';
import { type BudgetCounter, currentCounter, drawFromCounter, EMPTY_COUNTER, needsSettle } from './budget-counter.ts';
import { type Database, type DatabaseSchema, isBusy, isDiskFull, openDatabase } from './database.ts';
import { isAlive, noMark, ownMark } from './process-mark.ts';
import type { Amounts, BudgetClaim, Reservation, ReservationRefusal, ReservedClaim, State } from './state-port.ts';
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
const STOPS_NOTED = 'stops';
/** Age after which unused counters of runs and sessions, and labels of named runs, are removed, ms. */
const STALE_MS = 30 * 86_400_000;
const OLD_COUNTERS = `scope IN ('run', 'session') AND touched < ?`;
const OLD_VALUES = `space = ? OR (space LIKE 'labels/%' AND CAST(value AS INTEGER) < ?)`;

/** Name of the database in a state folder. */
export const DATABASE_FILE = 'state.db';

/** The state as one thread uses it. */
export interface DirectState extends State, Pick<StateValues, 'changesAfter'> {
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
      ...createLedger(database, { folder, mark }),
      ...createStateValues(database, stops),
      stops,
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

interface Counters {
  read(claim: BudgetClaim): BudgetCounter | undefined;
  /** Writes `before` plus the reserved amounts. */
  add(reserved: ReservedClaim, before: BudgetCounter, now: number): void;
  /** Replaces the amounts that were reserved for output and time by the amounts used. */
  correct(reserved: ReservedClaim, used: Parameters<State['settle']>[1]): void;
}

function createCounters(database: Database): Counters {
  const read = database.first<Amounts & { since: number; monotonic: number; boot: string }>(
    'SELECT since, monotonic, boot, calls, argBytes, outputBytes, wallMs FROM counter WHERE budget = ? AND ' +
      'scope = ? AND key = ?',
  );
  const write = database.run(
    'INSERT OR REPLACE INTO counter (budget, scope, key, since, monotonic, boot, touched, calls, argBytes, ' +
      'outputBytes, wallMs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const correct = database.run(
    'UPDATE counter SET outputBytes = outputBytes + ?, wallMs = wallMs + ? WHERE budget = ? AND scope = ? AND ' +
      'key = ? AND since = ? AND monotonic = ?',
  );
  return {
    read: ({ budget, scope, key }) => {
      const row = read(budget, scope, key);
      return row === undefined
        ? undefined
        : { ...row, since: { wall: row.since, monotonic: row.monotonic, boot: row.boot } };
    },
    add: ({ claim, since, amounts }, before, now) => {
      const sums = (['calls', 'argBytes', 'outputBytes', 'wallMs'] as const).map(
        (unit) => before[unit] + amounts[unit],
      );
      write(claim.budget, claim.scope, claim.key, since.wall, since.monotonic, since.boot, now, ...sums);
    },
    correct: ({ claim, since, amounts }, used) => {
      const output = amounts.outputBytes === 0 ? 0 : used.outputBytes - amounts.outputBytes;
      const wall = amounts.wallMs === 0 ? 0 : used.wallMs - amounts.wallMs;
      if (output !== 0 || wall !== 0)
        correct(output, wall, claim.budget, claim.scope, claim.key, since.wall, since.monotonic);
    },
  };
}

/** What one claim reserves, and its counter before that. */
interface Draw {
  readonly taken: ReservedClaim;
  readonly before: BudgetCounter;
}

function draw(counters: Counters, claim: BudgetClaim, now: Instant): Draw | { readonly refused: ReservationRefusal } {
  const last = counters.read(claim);
  const before = currentCounter(claim, last, now);
  const answer = drawFromCounter(claim, before, now);
  if (!('refused' in answer)) return { taken: answer.taken, before };
  // Stores the new window, so that it does not begin again at each refusal.
  if (last !== undefined && before.since !== last.since)
    counters.add({ claim, since: before.since, amounts: EMPTY_COUNTER }, before, now.wall);
  return answer;
}

function createLedger(database: Database, owner: SlotOwner): Pick<State, 'reserve' | 'settle' | 'endScope'> {
  const counters = createCounters(database);
  const endCounters = database.run('DELETE FROM counter WHERE scope = ? AND key = ?');
  const slots = createSlots(database, owner);
  const prefix = randomBytes(8).toString('hex');
  let leases = 0;
  return {
    reserve: (claims, now) =>
      database.transact(() => {
        const draws: Draw[] = [];
        for (const claim of claims) {
          const answer = draw(counters, claim, now);
          if ('refused' in answer) return answer;
          draws.push(answer);
        }
        const refused = claims.map(slots.check).find((answer) => answer !== undefined);
        if (refused !== undefined) return { refused };
        leases += 1;
        const id = `${prefix}.${leases}`;
        for (const { taken, before } of draws) {
          if (taken.claim.demands.length > 0) counters.add(taken, before, now.wall);
          if (taken.claim.concurrent !== undefined) slots.take(taken.claim, id);
        }
        return { reservation: { id, taken: draws.map((one) => one.taken) } };
      }),
    settle: (reservation, used) => {
      if (!needsSettle(reservation)) return;
      database.transact(() => {
        for (const reserved of reservation.taken) {
          counters.correct(reserved, used);
          if (reserved.claim.concurrent !== undefined) slots.giveBack(reserved.claim, reservation.id);
        }
      });
    },
    endScope: (scope, key) => void database.transact(() => endCounters(scope, key)),
  };
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

interface Slots {
  check(claim: BudgetClaim): ReservationRefusal | undefined;
  take(claim: BudgetClaim, lease: Reservation['id']): void;
  giveBack(claim: BudgetClaim, lease: Reservation['id']): void;
}

function createSlots(database: Database, { folder, mark }: SlotOwner): Slots {
  const where = 'budget = ? AND scope = ? AND key = ?';
  const count = database.first<{ n: number }>(`SELECT count(*) AS n FROM slot WHERE ${where}`);
  const holders = database.all<{ process: string }>(`SELECT DISTINCT process FROM slot WHERE ${where}`);
  const removeOf = database.run('DELETE FROM slot WHERE process = ?');
  const insert = database.run('INSERT INTO slot VALUES (?, ?, ?, ?, ?)');
  const remove = database.run(`DELETE FROM slot WHERE ${where} AND lease = ?`);
  return {
    check: (claim) => {
      const { concurrent: limit, budget, scope, key } = claim;
      if (limit === undefined || (count(budget, scope, key)?.n ?? 0) < limit) return undefined;
      // Checks whether the holders are alive only if the budget is full.
      for (const { process } of holders(budget, scope, key)) if (!isAlive(folder, process)) removeOf(process);
      const used = count(budget, scope, key)?.n ?? 0;
      return used < limit ? undefined : { claim, unit: 'concurrent', limit, left: 0 };
    },
    take: (claim, lease) => void insert(claim.budget, claim.scope, claim.key, lease, mark()),
    giveBack: (claim, lease) => void remove(claim.budget, claim.scope, claim.key, lease),
  };
}
