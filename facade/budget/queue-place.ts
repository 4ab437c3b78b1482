/** One place in a queue. It ends once: the call is served, is refused at its deadline, or is cancelled. */
import { type CancelSignal, cancelReason } from '../../adapters/rpc/cancellation.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';

/** The limits of a wait. `deadline` in ms since 1970. */
export interface WaitLimit {
  readonly signal: CancelSignal;
  readonly deadline: number;
  /** Takes memory for the wait. Returns the function that gives it back. Throws RATE_LIMITED if there is none left. */
  readonly takeRoom?: () => () => void;
}

/** A place in a queue. */
export interface QueuePlace<T> {
  readonly promise: Promise<T>;
  readonly over: boolean;
  /** Returns false if the place has ended. Then the caller keeps `value` and must give it back. */
  give(value: T): boolean;
  refuse(error: unknown): void;
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Returns a place that ends by itself: with `late()` at the deadline, or with the signal's reason when the signal
 * aborts. Throws what `takeRoom` throws.
 */
export function openQueuePlace<T>(patience: WaitLimit, now: number, late: () => TollgateError): QueuePlace<T> {
  const giveRoomBack = patience.takeRoom?.();
  const { promise, resolve, reject } = splitPromise<T>();
  let over = false;
  const end = (): boolean => {
    if (over) return false;
    over = true;
    clearTimeout(timer);
    giveRoomBack?.();
    patience.signal.removeEventListener('abort', leave);
    return true;
  };
  const leave = (): void => refuse(cancelReason(patience.signal));
  const refuse = (error: unknown): void => {
    if (end()) reject(error);
  };
  const wait = Math.min(Math.max(0, patience.deadline - now), LONGEST_TIMER_MS);
  const timer = setTimeout(() => refuse(late()), wait);
  patience.signal.addEventListener('abort', leave, { once: true });
  if (patience.signal.aborted) leave();
  return {
    promise,
    get over() {
      return over;
    },
    give: (value) => {
      if (!end()) return false;
      resolve(value);
      return true;
    },
    refuse,
  };
}

/** Promise.withResolvers, which Node 20 lacks. */
function splitPromise<T>(): { promise: Promise<T>; resolve: (value: T) => void; reject: (error: unknown) => void } {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((accept, refuse) => {
    resolve = accept;
    reject = refuse;
  });
  return { promise, resolve, reject };
}
