/** The calls of one session that have not ended, so that a decision of an owner can end them. */
import { Cancellation, type CancelSignal } from '../../adapters/rpc/cancellation.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';

/** One running call. `end` must be called when it has ended. */
export interface RunningCall {
  /** Aborted as the signal of the request, or by `RunningCalls.endAll`. */
  readonly signal: CancelSignal;
  readonly end: () => void;
}

/** The running calls. */
export class RunningCalls {
  readonly #calls = new Set<Cancellation>();

  get size(): number {
    return this.#calls.size;
  }

  /** Adds a call. `asked`: the signal of its request. */
  begin(asked: CancelSignal): RunningCall {
    const call = new Cancellation();
    const onAbort = (): void => call.abort(asked.reason as Error);
    if (asked.aborted) onAbort();
    else asked.addEventListener('abort', onAbort, { once: true });
    this.#calls.add(call);
    return {
      signal: call,
      end: () => {
        this.#calls.delete(call);
        asked.removeEventListener('abort', onAbort);
      },
    };
  }

  /** Ends all calls. Each is answered with the reason. */
  endAll(reason: TollgateError): void {
    for (const call of this.#calls) call.abort(reason);
  }
}
