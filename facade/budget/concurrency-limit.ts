/** Limits the calls that one session runs at once. A call that still waits at its deadline gets RATE_LIMITED. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { openQueuePlace, type QueuePlace, type WaitLimit } from './queue-place.ts';

/** Frees the place. A second call does nothing. */
export type ReleaseSlot = () => void;

/** A first-come-first-served semaphore in this process. */
export interface ConcurrencyLimit {
  /** Returns at once if a place is free, otherwise returns a promise. Rejects with RATE_LIMITED or CANCELLED. */
  enter(patience: WaitLimit): ReleaseSlot | Promise<ReleaseSlot>;
}

/** Returns a limit of `limit` calls at once; the default of a session is 16 (HB-05). */
export function createConcurrencyLimit(limit: number, now: () => number = Date.now): ConcurrencyLimit {
  let inside = 0;
  const waiting = new Set<QueuePlace<ReleaseSlot>>();

  const admit = (): ReleaseSlot => {
    inside += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      inside -= 1;
      callNext();
    };
  };
  const callNext = (): void => {
    for (const turn of waiting) {
      if (inside >= limit) return;
      waiting.delete(turn);
      if (!turn.over) turn.give(admit());
    }
  };
  const late = (): TollgateError =>
    new TollgateError('RATE_LIMITED', {
      detail: `This session has ${limit} calls running, and none ended in time.`,
      data: { budget: 'concurrent', scope: 'session', limit, left: 0 },
    });
  return {
    enter: (patience) => {
      if (inside < limit) return admit();
      const turn = openQueuePlace<ReleaseSlot>(patience, now(), late);
      waiting.add(turn);
      return turn.promise.finally(() => waiting.delete(turn));
    },
  };
}
