/** A copy of all values of a state in memory, so that reads return at once. */
import type { ValueChange, ValueChanges } from './state-values.ts';

/** The most lists of one space that are cached. */
const MAX_LISTS = 1_000;

/** The values by space and key. */
export class ValueCopy {
  readonly #values = new Map<string, Map<string, string>>();
  /** Space → prefix → list. */
  readonly #lists = new Map<string, Map<string, ReadonlyMap<string, string>>>();
  #version = 0;

  /** Differs after each change. */
  get version(): number {
    return this.#version;
  }

  get(space: string, key: string): string | undefined {
    return this.#values.get(space)?.get(key);
  }

  /** Returns the values whose keys begin with `prefix`, by key. */
  list(space: string, prefix = ''): ReadonlyMap<string, string> {
    const known = this.#lists.get(space)?.get(prefix);
    if (known !== undefined) return known;
    const found = [...(this.#values.get(space) ?? [])]
      .filter(([key]) => key.startsWith(prefix))
      .sort(([one], [other]) => (one < other ? -1 : 1));
    const list = new Map(found);
    const lists = this.#lists.get(space) ?? new Map<string, ReadonlyMap<string, string>>();
    if (lists.size >= MAX_LISTS) lists.clear();
    this.#lists.set(space, lists.set(prefix, list));
    return list;
  }

  /** Returns the spaces whose names begin with `prefix`. */
  spaces(prefix: string): readonly string[] {
    return [...this.#values.keys()].filter((space) => space.startsWith(prefix));
  }

  /** Makes changes; `all` replaces everything. */
  apply({ all, changes }: Pick<ValueChanges, 'all' | 'changes'>): void {
    if (!all && changes.length === 0) return;
    if (all) this.#values.clear();
    for (const change of changes) this.#set(change);
    if (all) this.#lists.clear();
    else for (const { space } of changes) this.#lists.delete(space);
    this.#version += 1;
  }

  #set({ space, key, value }: ValueChange): void {
    const values = this.#values.get(space) ?? new Map<string, string>();
    this.#values.set(space, values);
    if (value === undefined) values.delete(key);
    else values.set(key, value);
  }
}
