/** Owns the giving up of one call: an AbortSignal's few words in plain code, for making a real one costs as much as deciding a call; refuses to be given up twice. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** What a call is told by that its caller gives it up; every AbortSignal is one. */
export interface CancelSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A call that can be given up: the signal, and what gives it. Listeners are called once. */
export class Cancellation implements CancelSignal {
  aborted = false;
  reason: unknown;
  private listeners: (() => void)[] = [];

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.aborted) this.listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.listeners.indexOf(listener);
    if (at >= 0) this.listeners.splice(at, 1);
  }

  abort(reason: Error): void {
    if (this.aborted) return;
    this.aborted = true;
    this.reason = reason;
    // One at a time: a listener may take the next one off.
    for (let listener = this.listeners.shift(); listener !== undefined; listener = this.listeners.shift()) listener();
  }
}

/** Why a call was given up: what its caller says (its time is over, its session has ended), else that the caller cancelled it. */
export function cancelReason({ reason }: CancelSignal): TollgateError {
  return reason instanceof TollgateError ? reason : new TollgateError('CANCELLED');
}

/** The same as a real one, for what takes no other: programs, streams, `AbortSignal.any`. */
export function abortSignalOf(signal: CancelSignal): AbortSignal {
  if (signal instanceof AbortSignal) return signal;
  const real = new AbortController();
  const pass = (): void => real.abort(signal.reason);
  if (signal.aborted) pass();
  else signal.addEventListener('abort', pass, { once: true });
  return real.signal;
}

/** Settles as the work does, or throws the signal's reason (see `reasonOf`) as soon as it aborts. */
export function abortable<T>(work: Promise<T>, signal: CancelSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  if (signal.aborted) {
    // Its failure is told by whoever does it: unheard, it would end the process.
    work.catch(() => undefined);
    return Promise.reject(cancelReason(signal));
  }
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(cancelReason(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
