/** Owns the small values of the shared state: read at once, remembered while nothing was written, and stops kept on a full disk too; refuses to answer from before somebody's write. */
import type { Database } from './database.ts';
import type { InPlace } from './in-place.ts';
import { STOPS, type State } from './state.ts';

/** Sorts behind all that stands in keys. */
const LAST = '\u{10ffff}';

/** For how long what other processes have committed may be unknown, ms: less than it takes a person, or a client that was told, to make the next call. */
const STAMP_MS = 1;
const MEMO_MAX = 1000;

/** Writes of this process to each folder, whichever of its connections makes them. */
const WRITES = new Map<string, { writes: number }>();

/** The count of a folder. */
export function writesOf(folder: string): { writes: number } {
  const known = WRITES.get(folder) ?? { writes: 0 };
  WRITES.set(folder, known);
  return known;
}

/** Values in the database, and stops in a file of their own where the database takes nothing more. */
export function createValues(database: Database, { stops, own }: { readonly stops: InPlace; readonly own: { writes: number } }): Pick<State, 'get' | 'put' | 'remove' | 'take' | 'swap' | 'list' | 'stamp'> {
  // SQLite tells what other processes have committed (PRAGMA data_version); what this one does is counted.
  const version = database.first<{ data_version: number }>('PRAGMA data_version');
  let seen = { at: -Infinity, version: '' };
  const stamp = (): string => {
    const at = performance.now();
    if (at - seen.at >= STAMP_MS) seen = { at, version: `${version()?.data_version ?? 0}.${stops.version()}` };
    return `${seen.version}.${own.writes}`;
  };
  const values = new Memo<string | undefined>(stamp);
  const lists = new Memo<ReadonlyMap<string, string>>(stamp);
  const writing = (sql: string): ReturnType<Database['run']> => {
    const run = database.run(sql);
    return (...values) => {
      own.writes += 1;
      return run(...values);
    };
  };
  const get = database.first<{ value: string }>('SELECT value FROM value WHERE space = ? AND key = ?');
  const put = writing('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value');
  const remove = writing('DELETE FROM value WHERE space = ? AND key = ?');
  const insert = writing('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  const replace = writing('UPDATE value SET value = ? WHERE space = ? AND key = ? AND value = ?');
  const list = database.all<{ key: string; value: string }>('SELECT key, value FROM value WHERE space = ? AND key >= ? AND key < ? ORDER BY key');
  const listed = (space: string, prefix: string): ReadonlyMap<string, string> => {
    const found = list(space, prefix, `${prefix}${LAST}`).map((row): [string, string] => [row.key, row.value]);
    return new Map(space === STOPS ? [...stops.rows(), ...found].sort(([one], [other]) => (one < other ? -1 : 1)) : found);
  };
  // The write lock of the database takes no room.
  const changeStops = (work: (rows: Map<string, string>) => unknown): void => database.transact(() => {
    const rows = new Map(stops.rows());
    if (work(rows) !== false) stops.write(rows);
  });
  return {
    get: (space, key) => values.read(space, key, () => get(space, key)?.value ?? (space === STOPS ? stops.rows().get(key) : undefined)),
    put: (space, key, value) => {
      try {
        put(space, key, value);
      } catch (thrown) {
        if (space !== STOPS) throw thrown;
        changeStops((rows) => rows.set(key, value));
      }
    },
    remove: (space, key) => {
      if (space === STOPS) changeStops((rows) => rows.delete(key));
      remove(space, key);
    },
    take: (space, key, only) =>
      database.transact(() => {
        const found = get(space, key)?.value;
        if (found === undefined || (only !== undefined && found !== only)) return undefined;
        remove(space, key);
        return found;
      }),
    swap: (space, key, { from, to }) => (from === undefined ? insert(space, key, to) : replace(to, space, key, from)) === 1,
    stamp,
    list: (space, prefix = '') => lists.read(space, prefix, () => listed(space, prefix)),
  };
}

/** Answers that hold while nothing was written: one call asks a dozen times for what people decided last week. */
class Memo<T> {
  readonly #stamp: () => string;
  /** By space, then by key. */
  readonly #answers = new Map<string, Map<string, { readonly answer: T }>>();
  #size = 0;
  #at = '';

  constructor(stamp: () => string) {
    this.#stamp = stamp;
  }

  read(space: string, key: string, ask: () => T): T {
    const at = this.#stamp();
    if (at !== this.#at || this.#size >= MEMO_MAX) this.#forget();
    this.#at = at;
    const known = this.#answers.get(space)?.get(key);
    if (known !== undefined) return known.answer;
    const answer = ask();
    const answers = this.#answers.get(space) ?? new Map<string, { readonly answer: T }>();
    this.#answers.set(space, answers.set(key, { answer }));
    this.#size += 1;
    return answer;
  }

  #forget(): void {
    this.#answers.clear();
    this.#size = 0;
  }
}
