/** Owns the order in which waiting calls get what others give back; refuses to let anyone pass who wants the same. */
import type { Refused } from '../state/state.ts';
import { busyError, keyOf, type LeaseRequest } from './claims.ts';
import { openTurn, type Turn } from './turn.ts';

/** What a try gives: the thing, or what stands in its way. */
export type Attempt<T> = { readonly got: T } | { readonly busy: Refused };

/** A queue of calls. */
export interface Line<T> {
  /** True when somebody waits for one of these counters already. */
  wants(keys: readonly string[]): boolean;
  /** Waits for `attempt` to succeed, in order. Rejects with RATE_LIMITED, CANCELLED, or what `attempt` throws. */
  join(request: LeaseRequest, keys: readonly string[]): Promise<T>;
  /** Tries everybody again, in order. Never rejects. */
  callNext(): Promise<void>;
}

interface Waiting<T> {
  readonly request: LeaseRequest;
  readonly keys: readonly string[];
  readonly turn: Turn<T>;
}

/** How often waiting calls look for what another process gave back, ms. */
const POLL_MS = 20;

/** Opens a line. `giveBack` takes what was got for a call that has left meanwhile. */
export function createLine<T>(options: {
  readonly attempt: (request: LeaseRequest) => Promise<Attempt<T>>;
  readonly giveBack: (got: T) => void;
  readonly now: () => number;
}): Line<T> {
  const waiting = new Set<Waiting<T>>();
  const blockers = new WeakMap<LeaseRequest, Refused>();
  let poll: NodeJS.Timeout | undefined;
  let calling = false;

  /** Serves one; answers what still stands in its way. */
  const serve = async ({ request, turn }: Waiting<T>): Promise<Refused | undefined> => {
    try {
      const answer = await options.attempt(request);
      if ('busy' in answer) return answer.busy;
      if (!turn.give(answer.got)) options.giveBack(answer.got);
    } catch (error) {
      turn.refuse(error);
    }
    return undefined;
  };
  const callNext = async (): Promise<void> => {
    if (calling) return;
    calling = true;
    const blocked = new Map<string, Refused>();
    for (const one of waiting) {
      if (one.turn.over) continue;
      const ahead = one.keys.find((key) => blocked.has(key));
      const blocker = ahead === undefined ? await serve(one) : blocked.get(ahead);
      if (blocker === undefined) continue;
      blockers.set(one.request, blocker);
      blocked.set(keyOf(blocker.claim), blocker);
    }
    calling = false;
  };
  return {
    wants: (keys) => [...waiting].some((one) => one.keys.some((key) => keys.includes(key))),
    join: (request, keys) => {
      const turn = openTurn<T>(request, options.now(), () => busyError(blockers.get(request)));
      const one = { request, keys, turn };
      waiting.add(one);
      poll ??= setInterval(() => void callNext(), POLL_MS);
      void callNext();
      return turn.promise.finally(() => {
        waiting.delete(one);
        if (waiting.size > 0) return;
        clearInterval(poll);
        poll = undefined;
      });
    },
    callNext,
  };
}
