/** Limits the bytes that a server may send and receive through its proxy. */

/** Bytes of one server over the life of its proxy. Defaults: 256 MiB up, 2 GiB down. */
export interface ByteBudget {
  readonly up: number;
  readonly down: number;
}

/** Counts bytes against a budget, over all connections of a server. */
export class ByteMeter {
  readonly #budget: ByteBudget;
  #up = 0;
  #down = 0;

  constructor(budget: ByteBudget) {
    this.#budget = budget;
  }

  /** Returns false if these bytes exceed the budget. */
  spend(direction: keyof ByteBudget, bytes: number): boolean {
    if (direction === 'up') this.#up += bytes;
    else this.#down += bytes;
    return !this.isSpent;
  }

  get isSpent(): boolean {
    return this.#up > this.#budget.up || this.#down > this.#budget.down;
  }
}
