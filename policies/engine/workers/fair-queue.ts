/**
 * The order of waiting queries: principals take turns, and so do the runs of each. A principal has one query at a time.
 */

/** The caller of a query. Lists have no run. */
export interface QueryOwner {
  readonly principal?: string;
  readonly run?: string;
}

/** Waiting items. A caller with many or endless queries delays only itself, and keeps only one worker busy. */
export class FairQueue<T> {
  /** By principal, then by run, both in the order of their turns. */
  readonly #waiting = new Map<string, Map<string, readonly T[]>>();
  readonly #busy = new Set<string>();

  add({ principal = '', run = '' }: QueryOwner, item: T): void {
    const runs = this.#waiting.get(principal) ?? new Map<string, readonly T[]>();
    this.#waiting.set(principal, runs.set(run, [...(runs.get(run) ?? []), item]));
  }

  /** Returns the next item, of a principal that has none in work. No other of this principal follows until `done`. */
  take(): { readonly principal: string; readonly item: T } | undefined {
    for (const [principal, runs] of this.#waiting) {
      const [run, [item, ...others]] = [...runs][0] ?? ['', []];
      if (this.#busy.has(principal) || item === undefined) continue;
      runs.delete(run);
      if (others.length > 0) runs.set(run, others);
      this.#waiting.delete(principal);
      if (runs.size > 0) this.#waiting.set(principal, runs);
      this.#busy.add(principal);
      return { principal, item };
    }
    return undefined;
  }

  /** Call this when the item that was taken for this principal has its answer. */
  done(principal: string): void {
    this.#busy.delete(principal);
  }

  /** Removes and returns all waiting items. */
  clear(): readonly T[] {
    const all = [...this.#waiting.values()].flatMap((runs) => [...runs.values()].flat());
    this.#waiting.clear();
    return all;
  }
}
