/** The embedded state: one SQLite database for all processes of a user, and the file of stops next to it. It blocks its thread. */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type BudgetCounter, currentCounter, drawFromCounter, EMPTY_COUNTER, needsSettle } from './budget-counter.ts';
import { type Database, type DatabaseSchema, isBusy, isDiskFull, openDatabase } from './database.ts';
import { isAlive, noMark, ownMark } from './process-mark.ts';
import type { Amounts, BudgetClaim, Reservation, ReservationRefusal, ReservedClaim, State } from './state-port.ts';
import { createStateValues, type StateValues } from './state-values.ts';
import { STOPS_FILE, Stops, stopsLost } from './stop-file.ts';

const CHANGES = `
    CREATE TABLE change (seq INTEGER PRIMARY KEY AUTOINCREMENT, space TEXT NOT NULL, key TEXT NOT NULL) STRICT;
    CREATE TRIGGER value_put AFTER INSERT ON value BEGIN INSERT INTO change (space, key) VALUES (new.space, new.key); END;
    CREATE TRIGGER value_changed AFTER UPDATE ON value BEGIN INSERT INTO change (space, key) VALUES (new.space, new.key); END;
    CREATE TRIGGER value_removed AFTER DELETE ON value BEGIN INSERT INTO change (space, key) VALUES (old.space, old.key); END`;
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

/** Where switches lay before they had a file of their own. */
const OLD_STOPS = 'kill';
/** Holds one row once there is a file of stops. */
const STOPS_NOTED = 'stops';
/** Counters of runs and sessions that nobody ended, and labels of named runs, go when untouched for this long, ms. */
const STALE_MS = 30 * 86_400_000;
const OLD_COUNTERS = `scope IN ('run', 'session') AND touched < ?`;
const OLD_VALUES = `space = ? OR (space LIKE 'labels/%' AND CAST(value AS INTEGER) < ?)`;

/** Name of the database in a state folder. */
export const DATABASE_FILE = 'state.db';

/** The state, for this thread alone. */
export interface DirectState extends State, Pick<StateValues, 'changesAfter'> {
  /** False once the database was removed or replaced. */
  readonly isInPlace: boolean;
  /** Reads the file through a new connection; `whole` checks all of it. Throws STATE_FAILED when it is damaged. */
  probe(whole: boolean): void;
  close(): void;
}

/** How a state is opened. `now`: ms since 1970. `busyMs`: how long this thread waits for the locks of other processes; default 5,000. */
export interface OpenStateOptions {
  readonly now?: number;
  readonly busyMs?: number;
  /** The mark of this process, where another thread of it holds the lock; '' when none could be taken. Default: this thread takes one when it is needed. */
  readonly mark?: string;
}

/** Opens `<folder>/state.db`, for commands and for the thread of the state. Throws STATE_TOO_NEW, STATE_FAILED, STATE_LOST. */
export function openState(
  folder: string,
  { now = Date.now(), mark: given, ...how }: OpenStateOptions = {},
): DirectState {
  const mark = given === undefined ? () => ownMark(folder) : () => known(given);
  // The database is not replaced while a process has it open. On a full disk there is no mark: what needs it is refused then.
  if (given === undefined && existsSync(folder)) tryMark(folder);
  const file = join(folder, DATABASE_FILE);
  // The folder is made, and looked at, with the database: stops in a folder of somebody else would be no stops.
  const exists = hadDatabase(folder);
  if (exists && !existsSync(file)) throw new TollgateError('STATE_LOST');
  const database = openDatabase(file, STATE_SCHEMA, { ...how, exists });
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
      fresh: () => undefined,
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

/** The database remembers that there was a file of stops, and the file that there was a database. */
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
    // Said where it is needed.
  }
}

function hadDatabase(folder: string): boolean {
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
    // A database that another process has locked can still be opened, to be read.
    const stale =
      database.first<{ n: number }>(
        `SELECT (SELECT count(*) FROM counter WHERE ${OLD_COUNTERS}) + (SELECT count(*) FROM value WHERE ${OLD_VALUES}) AS n`,
      )(before, OLD_STOPS, before)?.n ?? 0;
    if (stale === 0) return;
    for (const { key, value } of database.all<{ key: string; value: string }>(
      'SELECT key, value FROM value WHERE space = ?',
    )(OLD_STOPS))
      stops.put(key, JSON.parse(value) as { since: string; by: string });
    database.transact(() => {
      database.run(`DELETE FROM counter WHERE ${OLD_COUNTERS}`)(before);
      database.run(`DELETE FROM value WHERE ${OLD_VALUES}`)(OLD_STOPS, before);
    });
    stops.touchValues();
  } catch (thrown) {
    // On a full disk, or under the lock of another process, they stay: who opens the state to take something back must get that far.
    if (!isDiskFull(thrown) && !isBusy(thrown)) throw thrown;
  }
}

function createLedger(database: Database, own: Own): Pick<State, 'reserve' | 'settle' | 'endScope'> {
  const read = database.first<Amounts & { since: number; monotonic: number; boot: string }>(
    'SELECT since, monotonic, boot, calls, argBytes, outputBytes, wallMs FROM counter WHERE budget = ? AND scope = ? AND key = ?',
  );
  const write = database.run(
    'INSERT OR REPLACE INTO counter (budget, scope, key, since, monotonic, boot, touched, calls, argBytes, outputBytes, wallMs) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const correct = database.run(
    'UPDATE counter SET outputBytes = outputBytes + ?, wallMs = wallMs + ? WHERE budget = ? AND scope = ? AND key = ? AND since = ? AND monotonic = ?',
  );
  const endCounters = database.run('DELETE FROM counter WHERE scope = ? AND key = ?');
  const slots = createSlots(database, own);
  const prefix = randomBytes(8).toString('hex');
  let leases = 0;

  const stored = (claim: BudgetClaim): BudgetCounter | undefined => {
    const row = read(claim.budget, claim.scope, claim.key);
    return row === undefined
      ? undefined
      : { ...row, since: { wall: row.since, monotonic: row.monotonic, boot: row.boot } };
  };
  const store = ({ claim, since, amounts }: ReservedClaim, before: BudgetCounter, now: number): void => {
    const sum = (unit: keyof ReservedClaim['amounts']): number => before[unit] + amounts[unit];
    write(
      claim.budget,
      claim.scope,
      claim.key,
      since.wall,
      since.monotonic,
      since.boot,
      now,
      sum('calls'),
      sum('argBytes'),
      sum('outputBytes'),
      sum('wallMs'),
    );
  };
  return {
    reserve: (claims, now) =>
      database.transact(() => {
        const drawn: { readonly taken: ReservedClaim; readonly before: BudgetCounter }[] = [];
        for (const claim of claims) {
          const last = stored(claim);
          const before = currentCounter(claim, last, now);
          const answer = drawFromCounter(claim, before, now);
          if ('refused' in answer) {
            // A window that began again at a refusal must not do so at each.
            if (last !== undefined && before.since !== last.since)
              store({ claim, since: before.since, amounts: EMPTY_COUNTER }, before, now.wall);
            return answer;
          }
          drawn.push({ taken: answer.taken, before });
        }
        const refused = claims.map(slots.check).find((answer) => answer !== undefined);
        if (refused !== undefined) return { refused };
        leases += 1;
        const id = `${prefix}.${leases}`;
        for (const { taken, before } of drawn) {
          if (taken.claim.demands.length > 0) store(taken, before, now.wall);
          if (taken.claim.concurrent !== undefined) slots.take(taken.claim, id);
        }
        return { held: { id, taken: drawn.map((one) => one.taken) } };
      }),
    settle: (held, used) => {
      if (!needsSettle(held)) return;
      database.transact(() => {
        for (const { claim, since, amounts } of held.taken) {
          const [output, wall] = [
            amounts.outputBytes === 0 ? 0 : used.outputBytes - amounts.outputBytes,
            amounts.wallMs === 0 ? 0 : used.wallMs - amounts.wallMs,
          ];
          if (output !== 0 || wall !== 0)
            correct(output, wall, claim.budget, claim.scope, claim.key, since.wall, since.monotonic);
          if (claim.concurrent !== undefined) slots.giveBack(claim, held.id);
        }
      });
    },
    endScope: (scope, key) => void database.transact(() => endCounters(scope, key)),
  };
}

/** What marks the slots of this process. */
interface Own {
  readonly folder: string;
  readonly mark: () => string;
}

/** Without a mark, other processes could not tell that this process has ended, and its slots would stay taken. */
function known(mark: string): string {
  if (mark === '') throw noMark();
  return mark;
}

interface Slots {
  check(claim: BudgetClaim): ReservationRefusal | undefined;
  take(claim: BudgetClaim, lease: Reservation['id']): void;
  giveBack(claim: BudgetClaim, lease: Reservation['id']): void;
}

function createSlots(database: Database, { folder, mark }: Own): Slots {
  const where = 'budget = ? AND scope = ? AND key = ?';
  const count = database.first<{ n: number }>(`SELECT count(*) AS n FROM slot WHERE ${where}`);
  const holders = database.all<{ process: string }>(`SELECT DISTINCT process FROM slot WHERE ${where}`);
  const bury = database.run('DELETE FROM slot WHERE process = ?');
  const insert = database.run('INSERT INTO slot VALUES (?, ?, ?, ?, ?)');
  const remove = database.run(`DELETE FROM slot WHERE ${where} AND lease = ?`);
  return {
    check: (claim) => {
      const { concurrent: limit, budget, scope, key } = claim;
      if (limit === undefined || (count(budget, scope, key)?.n ?? 0) < limit) return undefined;
      // Only a full budget pays for the question whether the holders still live.
      for (const { process } of holders(budget, scope, key)) if (!isAlive(folder, process)) bury(process);
      const used = count(budget, scope, key)?.n ?? 0;
      return used < limit ? undefined : { claim, unit: 'concurrent', limit, left: 0 };
    },
    take: (claim, lease) => void insert(claim.budget, claim.scope, claim.key, lease, mark()),
    giveBack: (claim, lease) => void remove(claim.budget, claim.scope, claim.key, lease),
  };
}
