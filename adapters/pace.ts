/** Gives other calls their turn while one call works through what agents have made. */
import { setImmediate as turn } from 'node:timers/promises';

/** Milliseconds of work between two turns of the event loop. */
const SLICE_MS = 10;

/** The pace of one call. */
export class Pace {
  readonly #signal: AbortSignal | undefined;
  #began = performance.now();

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** True when others should have their turn now: then await `rest`. */
  get isDue(): boolean {
    return performance.now() - this.#began > SLICE_MS;
  }

  /** Lets others have their turn. Throws the signal's reason when it is aborted. */
  async rest(): Promise<void> {
    await turn();
    this.#signal?.throwIfAborted();
    this.#began = performance.now();
  }
}
