/** Owns the order in which waiting questions are asked: principals take turns, and so do the runs of each; nobody is asked twice at once. */

/** Whose question it is; lists have no run. */
export interface QueryOwner {
  readonly principal?: string;
  readonly run?: string;
}

/** What waits. Whoever asks a hundred questions, or questions without end, holds up his own and one worker. */
export class FairQueue<T> {
  /** By principal, then by run; both in the order of their turns. */
  readonly #waiting = new Map<string, Map<string, readonly T[]>>();
  readonly #asked = new Set<string>();

  add({ principal = '', run = '' }: QueryOwner, item: T): void {
    const runs = this.#waiting.get(principal) ?? new Map<string, readonly T[]>();
    this.#waiting.set(principal, runs.set(run, [...(runs.get(run) ?? []), item]));
  }

  /** The next one, of a principal of whom nothing is asked until `done`. Undefined: there is none. */
  take(): { readonly principal: string; readonly item: T } | undefined {
    for (const [principal, runs] of this.#waiting) {
      const [run, [item, ...others]] = [...runs][0] ?? ['', []];
      if (this.#asked.has(principal) || item === undefined) continue;
      runs.delete(run);
      if (others.length > 0) runs.set(run, others);
      this.#waiting.delete(principal);
      if (runs.size > 0) this.#waiting.set(principal, runs);
      this.#asked.add(principal);
      return { principal, item };
    }
    return undefined;
  }

  /** What was taken for this principal is answered. */
  done(principal: string): void {
    this.#asked.delete(principal);
  }

  /** All that waits, and no longer does. */
  clear(): readonly T[] {
    const all = [...this.#waiting.values()].flatMap((runs) => [...runs.values()].flat());
    this.#waiting.clear();
    return all;
  }
}
