/** Reads and writes the small values of the shared state. Reads are cached until a process writes. */
import type { Database } from './database.ts';
import type { State } from './state-port.ts';
import type { Stops } from './stop-file.ts';

/** Sorts after every character of keys. */
const LAST_CHARACTER = '\u{10ffff}';
const MAX_CACHED = 1000;
/** The most changes that are kept for followers. A follower that is further behind reads all values. */
const MAX_CHANGES = 10_000;

/** A changed value. Without `value` it was removed. */
export interface ValueChange {
  readonly space: string;
  readonly key: string;
  readonly value?: string;
}

/** The changes up to number `to`. `all`: the list has all values.  */
export interface ValueChanges {
  readonly to: number;
  readonly all: boolean;
  readonly changes: readonly ValueChange[];
}

/** The values, and their changes. */
export interface StateValues extends Pick<State, 'get' | 'put' | 'remove' | 'take' | 'swap' | 'list' | 'stamp'> {
  /** Returns the changes after `from`; all values if `from` is undefined or too old. */
  changesAfter(from: number | undefined): ValueChanges;
}

/** Returns the values in the database. `stops` tells the other processes about changes. */
export function createStateValues(database: Database, stops: Stops): StateValues {
  const stamp = (): string => stops.valueStamp();
  const values = new ReadCache<string | undefined>(stamp);
  const lists = new ReadCache<ReadonlyMap<string, string>>(stamp);
  const get = database.first<{ value: string }>('SELECT value FROM value WHERE space = ? AND key = ?');
  const put = database.run('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value');
  const remove = database.run('DELETE FROM value WHERE space = ? AND key = ?');
  const insert = database.run('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  const replace = database.run('UPDATE value SET value = ? WHERE space = ? AND key = ? AND value = ?');
  const list = database.all<{ key: string; value: string }>(
    'SELECT key, value FROM value WHERE space = ? AND key >= ? AND key < ? ORDER BY key',
  );
  const removeOldChanges = database.run('DELETE FROM change WHERE seq <= (SELECT max(seq) FROM change) - ?');
  let writes = 0;
  const write = <T>(work: () => T): T => {
    const result = database.transact(
      () => {
        writes += 1;
        if (writes % MAX_CHANGES === 1) removeOldChanges(MAX_CHANGES);
        return work();
      },
      { synced: true },
    );
    stops.touchValues();
    return result;
  };
  return {
    get: (space, key) => values.read(space, key, () => get(space, key)?.value),
    put: (space, key, value) => void write(() => put(space, key, value)),
    remove: (space, key) => {
      if (get(space, key) !== undefined) write(() => remove(space, key));
    },
    take: (space, key, only) =>
      write(() => {
        const found = get(space, key)?.value;
        if (found === undefined || (only !== undefined && found !== only)) return undefined;
        remove(space, key);
        return found;
      }),
    swap: (space, key, { from, to }) =>
      write(() => (from === undefined ? insert(space, key, to) : replace(to, space, key, from)) === 1),
    stamp,
    list: (space, prefix = '') =>
      lists.read(
        space,
        prefix,
        () =>
          new Map(
            list(space, prefix, `${prefix}${LAST_CHARACTER}`).map((row): [string, string] => [row.key, row.value]),
          ),
      ),
    changesAfter: createChangeReader(database),
  };
}

/** Reads changes, which triggers record (see the schema in sqlite-state.ts). */
function createChangeReader(database: Database): StateValues['changesAfter'] {
  const bounds = database.first<{ first: number | null; last: number | null }>(
    'SELECT min(seq) AS first, max(seq) AS last FROM change',
  );
  const after = database.all<{ space: string; key: string; value: string | null }>(
    'SELECT DISTINCT c.space AS space, c.key AS key, v.value AS value FROM change c LEFT JOIN value v ON ' +
      'v.space = c.space AND v.key = c.key WHERE c.seq > ? AND c.seq <= ?',
  );
  const all = database.all<ValueChange>('SELECT space, key, value FROM value');
  return (from) => {
    const { first, last } = bounds() ?? { first: null, last: null };
    const to = last ?? 0;
    if (from === to) return { to, all: false, changes: [] };
    // A restored database has other numbers. Changes between the two reads are reported again.
    if (from === undefined || from > to || (first ?? 1) > from + 1) return { to, all: true, changes: all() };
    const changes = after(from, to);
    // Another process may have removed some of the changes meanwhile.
    if ((bounds()?.first ?? 1) > from + 1) return { to, all: true, changes: all() };
    return {
      to,
      all: false,
      changes: changes.map(({ space, key, value }) => ({ space, key, ...(value !== null && { value }) })),
    };
  };
}

/** Caches reads until something is written, because one tool call makes about a dozen. */
class ReadCache<T> {
  readonly #stamp: () => string;
  /** By space, then by key. */
  readonly #results = new Map<string, Map<string, { readonly result: T }>>();
  #size = 0;
  #cachedStamp = '';

  constructor(stamp: () => string) {
    this.#stamp = stamp;
  }

  read(space: string, key: string, load: () => T): T {
    const present = this.#stamp();
    if (present !== this.#cachedStamp || this.#size >= MAX_CACHED) this.#forget();
    this.#cachedStamp = present;
    const known = this.#results.get(space)?.get(key);
    if (known !== undefined) return known.result;
    const result = load();
    const results = this.#results.get(space) ?? new Map<string, { readonly result: T }>();
    this.#results.set(space, results.set(key, { result }));
    this.#size += 1;
    return result;
  }

  #forget(): void {
    this.#results.clear();
    this.#size = 0;
  }
}
