/** Owns the embedded state: one SQLite database for all processes of a user; refuses a folder that a newer Tollgate wrote. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { isFull, openDatabase, type Database } from './database.ts';
import { InPlace } from './in-place.ts';
import { isAlive, OWN_MARK, type ProcessMark } from './process.ts';
import { currentCounter, draw, type Counter } from './spend.ts';
import type { Claim, Held, Refused, State, Taken } from './state.ts';
import { createValues, writesOf } from './values.ts';

const SCHEMA = {
  version: 1,
  sql: `
    CREATE TABLE counter (
      budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, since INTEGER NOT NULL, touched INTEGER NOT NULL,
      calls INTEGER NOT NULL, argBytes INTEGER NOT NULL, outputBytes INTEGER NOT NULL, wallMs INTEGER NOT NULL,
      PRIMARY KEY (budget, scope, key)) STRICT, WITHOUT ROWID;
    CREATE TABLE slot (
      budget TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, lease TEXT NOT NULL, pid INTEGER NOT NULL, born TEXT NOT NULL,
      PRIMARY KEY (budget, scope, key, lease)) STRICT, WITHOUT ROWID;
    CREATE TABLE value (
      space TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (space, key)) STRICT, WITHOUT ROWID`,
};

/** Counters of runs and sessions that nobody ended, and labels of named runs, go when untouched for this long, ms. */
const STALE_MS = 30 * 86_400_000;

/** Name of the database in a state folder. */
export const DATABASE = 'state.db';

/** Opens `<folder>/state.db`. Throws STATE_TOO_NEW, STATE_FAILED. */
export function openState(folder: string, now = Date.now()): State {
  const database = openDatabase(join(folder, DATABASE), SCHEMA);
  let stops: InPlace | undefined;
  const close = (): void => {
    stops?.close();
    database.close();
  };
  try {
    stops = new InPlace(join(folder, 'stops'));
    dropStale(database, now - STALE_MS);
    return { ...createLedger(database), ...createValues(database, { stops, own: writesOf(folder) }), close };
  } catch (thrown) {
    close();
    throw thrown;
  }
}

function dropStale(database: Database, before: number): void {
  try {
    database.run(`DELETE FROM counter WHERE scope IN ('run', 'session') AND touched < ?`)(before);
    database.run(`DELETE FROM value WHERE space LIKE 'labels/%' AND CAST(value AS INTEGER) < ?`)(before);
  } catch (thrown) {
    // On a full disk they stay: whoever opens the state to stop something must get that far.
    if (!isFull(thrown)) throw thrown;
  }
}

function createLedger(database: Database): Pick<State, 'reserve' | 'settle' | 'endScope'> {
  const read = database.first<Counter>('SELECT since, calls, argBytes, outputBytes, wallMs FROM counter WHERE budget = ? AND scope = ? AND key = ?');
  const write = database.run('INSERT OR REPLACE INTO counter VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)');
  const correct = database.run(
    'UPDATE counter SET outputBytes = outputBytes + ?, wallMs = wallMs + ? WHERE budget = ? AND scope = ? AND key = ? AND since = ?',
  );
  const endCounters = database.run('DELETE FROM counter WHERE scope = ? AND key = ?');
  const slots = createSlots(database);
  const prefix = randomBytes(8).toString('hex');
  let leases = 0;

  const store = ({ claim, since, amounts }: Taken, before: Counter, now: number): void => {
    const sum = (unit: keyof Taken['amounts']): number => before[unit] + amounts[unit];
    write(claim.budget, claim.scope, claim.key, since, now, sum('calls'), sum('argBytes'), sum('outputBytes'), sum('wallMs'));
  };
  return {
    reserve: (claims, now) =>
      database.transact(() => {
        const drawn: { readonly taken: Taken; readonly before: Counter }[] = [];
        for (const claim of claims) {
          const before = currentCounter(claim, read(claim.budget, claim.scope, claim.key), now);
          const answer = draw(claim, before);
          if ('refused' in answer) return answer;
          drawn.push({ taken: answer.taken, before });
        }
        const refused = claims.map(slots.check).find((answer) => answer !== undefined);
        if (refused !== undefined) return { refused };
        leases += 1;
        const id = `${prefix}.${leases}`;
        for (const { taken, before } of drawn) {
          if (taken.claim.demands.length > 0) store(taken, before, now);
          if (taken.claim.concurrent !== undefined) slots.take(taken.claim, id);
        }
        return { held: { id, taken: drawn.map((one) => one.taken) } };
      }),
    settle: (held, used) => {
      if (!held.taken.some((taken) => needsSettle(taken))) return;
      database.transact(() => {
        for (const { claim, since, amounts } of held.taken) {
          const [output, wall] = [
            amounts.outputBytes === 0 ? 0 : used.outputBytes - amounts.outputBytes,
            amounts.wallMs === 0 ? 0 : used.wallMs - amounts.wallMs,
          ];
          if (output !== 0 || wall !== 0) correct(output, wall, claim.budget, claim.scope, claim.key, since);
          if (claim.concurrent !== undefined) slots.giveBack(claim, held.id);
        }
      });
    },
    endScope: (scope, key) => void endCounters(scope, key),
  };
}

/** Calls and argument bytes are exact when reserved: a budget of these alone costs one transaction a call, not two. */
function needsSettle({ claim, amounts }: Taken): boolean {
  return claim.concurrent !== undefined || amounts.outputBytes > 0 || amounts.wallMs > 0;
}

interface Slots {
  check(claim: Claim): Refused | undefined;
  take(claim: Claim, lease: Held['id']): void;
  giveBack(claim: Claim, lease: Held['id']): void;
}

function createSlots(database: Database): Slots {
  const where = 'budget = ? AND scope = ? AND key = ?';
  const count = database.first<{ n: number }>(`SELECT count(*) AS n FROM slot WHERE ${where}`);
  const holders = database.all<ProcessMark>(`SELECT DISTINCT pid, born FROM slot WHERE ${where}`);
  const bury = database.run('DELETE FROM slot WHERE pid = ? AND born = ?');
  const insert = database.run('INSERT INTO slot VALUES (?, ?, ?, ?, ?, ?)');
  const remove = database.run(`DELETE FROM slot WHERE ${where} AND lease = ?`);
  return {
    check: (claim) => {
      const { concurrent: limit, budget, scope, key } = claim;
      if (limit === undefined || (count(budget, scope, key)?.n ?? 0) < limit) return undefined;
      // Only a full budget pays for the question whether the holders still live.
      for (const mark of holders(budget, scope, key)) if (!isAlive(mark)) bury(mark.pid, mark.born);
      const used = count(budget, scope, key)?.n ?? 0;
      return used < limit ? undefined : { claim, unit: 'concurrent', limit, left: 0 };
    },
    take: (claim, lease) => void insert(claim.budget, claim.scope, claim.key, lease, OWN_MARK.pid, OWN_MARK.born),
    giveBack: (claim, lease) => void remove(claim.budget, claim.scope, claim.key, lease),
  };
}
