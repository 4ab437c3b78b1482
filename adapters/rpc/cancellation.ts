/**
 * Cancels one call. It has the interface of an AbortSignal in plain code, because a real one costs as much as a
 * decision.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** Tells a call that its caller cancelled it. Every AbortSignal is one. */
export interface CancelSignal {
  readonly aborted: boolean;
  readonly reason: unknown;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/** A signal, and the function that aborts it. Listeners are called once. */
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
    // One at a time, because a listener may remove the next one.
    for (let listener = this.listeners.shift(); listener !== undefined; listener = this.listeners.shift()) listener();
  }
}

/** Returns the caller's reason (timeout, end of the session), else an error that the caller cancelled the call. */
export function cancelReason({ reason }: CancelSignal): TollgateError {
  return reason instanceof TollgateError ? reason : new TollgateError('CANCELLED');
}

/** Returns a real AbortSignal, for programs, streams and `AbortSignal.any`. */
export function abortSignalOf(signal: CancelSignal): AbortSignal {
  if (signal instanceof AbortSignal) return signal;
  const real = new AbortController();
  const pass = (): void => real.abort(signal.reason);
  if (signal.aborted) pass();
  else signal.addEventListener('abort', pass, { once: true });
  return real.signal;
}

/**
 * Settles as the work does, or throws or rejects with the signal's reason (see `cancelReason`) when it aborts. A value
 * that is present is returned at once.
 */
export function abortable<Work>(work: Work, signal: CancelSignal | undefined): Work {
  if (signal === undefined) return work;
  if (!(work instanceof Promise)) {
    if (signal.aborted) throw cancelReason(signal);
    return work;
  }
  return rejectWhenAborted(work, signal) as Work;
}

function rejectWhenAborted<T>(work: Promise<T>, signal: CancelSignal): Promise<T> {
  if (signal.aborted) {
    // The work reports its own failure. Without a handler, a rejection would end the process.
    work.catch(() => undefined);
    return Promise.reject(cancelReason(signal));
  }
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(cancelReason(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
