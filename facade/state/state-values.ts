/** The small values of the shared state, in the database. Reads are cached until a process writes. */
import type { Database } from './database.ts';
import type { State } from './state-port.ts';
import type { Stops } from './stop-file.ts';

/** Sorts after every character of keys. */
const LAST = '\u{10ffff}';
const MEMO_MAX = 1000;
/** How many changes are kept for followers. A follower that is further behind reads everything. */
const KEPT_CHANGES = 10_000;

/** The present value. Without `value` there is none. */
export interface ValueChange {
  readonly space: string;
  readonly key: string;
  readonly value?: string;
}

/** What has changed up to `to`. `all`: these are all values. */
export interface ValueChanges {
  readonly to: number;
  readonly all: boolean;
  readonly changes: readonly ValueChange[];
}

/** The values, and their changes. */
export interface StateValues extends Pick<State, 'get' | 'put' | 'remove' | 'take' | 'swap' | 'list' | 'stamp'> {
  /** Returns what has changed after `from`; all values if that is no longer known, or if `from` is undefined. */
  changesAfter(from: number | undefined): ValueChanges;
}

/** Returns the values in the database. `stops` tells the other processes about changes. */
export function createStateValues(database: Database, stops: Stops): StateValues {
  const stamp = (): string => stops.valueStamp();
  const values = new Memo<string | undefined>(stamp);
  const lists = new Memo<ReadonlyMap<string, string>>(stamp);
  const get = database.first<{ value: string }>('SELECT value FROM value WHERE space = ? AND key = ?');
  const put = database.run('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value');
  const remove = database.run('DELETE FROM value WHERE space = ? AND key = ?');
  const insert = database.run('INSERT INTO value VALUES (?, ?, ?) ON CONFLICT DO NOTHING');
  const replace = database.run('UPDATE value SET value = ? WHERE space = ? AND key = ? AND value = ?');
  const list = database.all<{ key: string; value: string }>(
    'SELECT key, value FROM value WHERE space = ? AND key >= ? AND key < ? ORDER BY key',
  );
  const forget = database.run('DELETE FROM change WHERE seq <= (SELECT max(seq) FROM change) - ?');
  let writes = 0;
  const write = <T>(work: () => T): T => {
    const result = database.transact(
      () => {
        writes += 1;
        if (writes % KEPT_CHANGES === 1) forget(KEPT_CHANGES);
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
        () => new Map(list(space, prefix, `${prefix}${LAST}`).map((row): [string, string] => [row.key, row.value])),
      ),
    changesAfter: createFollowing(database),
  };
}

/** Triggers record each change of a value (see the schema in sqlite-state.ts). */
function createFollowing(database: Database): StateValues['changesAfter'] {
  const bounds = database.first<{ first: number | null; last: number | null }>(
    'SELECT min(seq) AS first, max(seq) AS last FROM change',
  );
  const after = database.all<{ space: string; key: string; value: string | null }>(
    'SELECT DISTINCT c.space AS space, c.key AS key, v.value AS value FROM change c LEFT JOIN value v ON v.space = c.space AND v.key = c.key WHERE c.seq > ? AND c.seq <= ?',
  );
  const all = database.all<ValueChange>('SELECT space, key, value FROM value');
  return (from) => {
    const { first, last } = bounds() ?? { first: null, last: null };
    const to = last ?? 0;
    if (from === to) return { to, all: false, changes: [] };
    // A restored database counts from another number. What changes between the two reads is reported again.
    if (from === undefined || from > to || (first ?? 1) > from + 1) return { to, all: true, changes: all() };
    const changes = after(from, to);
    // Another process may have deleted some meanwhile.
    if ((bounds()?.first ?? 1) > from + 1) return { to, all: true, changes: all() };
    return {
      to,
      all: false,
      changes: changes.map(({ space, key, value }) => ({ space, key, ...(value !== null && { value }) })),
    };
  };
}

/** Caches reads until something is written. One call makes about a dozen. */
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
