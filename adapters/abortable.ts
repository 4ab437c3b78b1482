/** Owns the waiting of one caller for work that several share; refuses to stop the work when one of them gives up. */
import { type CancelSignal, reasonOf } from './rpc/cancel.ts';

/** Settles as the work does, or throws the signal's reason (see `reasonOf`) as soon as it aborts. */
export function abortable<T>(work: Promise<T>, signal: CancelSignal | undefined): Promise<T> {
  if (signal === undefined) return work;
  if (signal.aborted) {
    // Its failure is told by whoever does it: unheard, it would end the process.
    work.catch(() => undefined);
    return Promise.reject(reasonOf(signal));
  }
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(reasonOf(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
