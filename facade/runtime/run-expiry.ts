/** Removes old records of runs: soon after the start, then every hour. */

/** The first removal after the start, ms. A process that ends earlier leaves it to others. */
const FIRST_MS = 10_000;
const EVERY_MS = 3_600_000;

/** Repeats the removal until `close`. */
export class RunExpiry {
  readonly #closed = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #sweeping: Promise<void> = Promise.resolve();

  /** `sweeps` stop when the signal aborts. `onFault` is called with the error of one; later ones still run. */
  constructor(
    sweeps: readonly ((signal: AbortSignal) => Promise<unknown>)[],
    onFault: (thrown: unknown) => void,
    firstMs = FIRST_MS,
  ) {
    const sweep = async (): Promise<void> => {
      for (const one of sweeps) {
        await one(this.#closed.signal).catch((thrown: unknown) => {
          if (!this.#closed.signal.aborted) onFault(thrown);
        });
      }
      if (!this.#closed.signal.aborted) schedule(EVERY_MS);
    };
    const schedule = (ms: number): void => {
      this.#timer = setTimeout(() => (this.#sweeping = sweep()), ms).unref();
    };
    schedule(firstMs);
  }

  /** Resolves when nothing is removed any more. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    this.#closed.abort();
    await this.#sweeping;
  }
}
