/** Orders the calls that wait for a budget. Principals take turns, and the calls of one principal keep their order. */
import { counterKey } from '../state/budget-counter.ts';
import type { ReservationRefusal } from '../state/state-port.ts';
import { busyError, type LeaseRequest } from './budget-claims.ts';
import { openQueuePlace, type QueuePlace } from './queue-place.ts';

/** The result of an attempt: a value, or the refusal that prevents it. */
export type QueueAttempt<T> = { readonly got: T } | { readonly busy: ReservationRefusal };

/** A queue of calls. */
export interface PrincipalQueue<T> {
  /** True if no call waits. */
  readonly isEmpty: boolean;
  /** True if a call waits for one of these counters already. */
  wants(keys: readonly string[]): boolean;
  /** Waits for `attempt` to succeed, in order. Rejects with RATE_LIMITED, CANCELLED, or what `attempt` throws. */
  join(request: LeaseRequest, keys: readonly string[]): Promise<T>;
  /** Tries all waiting calls again, in order. */
  callNext(): void;
}

interface Waiting<T> {
  readonly request: LeaseRequest;
  readonly keys: readonly string[];
  readonly turn: QueuePlace<T>;
}

/** Milliseconds between checks for amounts that other processes gave back. */
const POLL_MS = 20;

interface LineOptions<T> {
  readonly attempt: (request: LeaseRequest) => Promise<QueueAttempt<T>>;
  /** Gives back what was reserved for a call that no longer waits. */
  readonly giveBack: (got: T) => void;
  readonly now: () => number;
}

/** Returns a queue. */
export function createPrincipalQueue<T>(options: LineOptions<T>): PrincipalQueue<T> {
  const waiting = new Set<Waiting<T>>();
  const blockers = new WeakMap<LeaseRequest, ReservationRefusal>();
  let poll: NodeJS.Timeout | undefined;
  let calling = false;
  let again = false;
  const turns = createTurns();

  const serveAll = async (): Promise<void> => {
    const blocked = new Map<string, ReservationRefusal>();
    for (const one of turns.order([...waiting])) {
      if (one.turn.over) continue;
      const ahead = one.keys.find((key) => blocked.has(key));
      const blocker = ahead === undefined ? await serve(one, options) : blocked.get(ahead);
      if (blocker === undefined) {
        turns.note(one);
        continue;
      }
      blockers.set(one.request, blocker);
      blocked.set(counterKey(blocker.claim), blocker);
    }
  };
  const serveAgain = async (): Promise<void> => {
    calling = true;
    while (again) {
      again = false;
      await serveAll();
    }
    calling = false;
  };
  const callNext = (): void => {
    again = waiting.size > 0;
    if (again && !calling) void serveAgain();
  };
  return {
    get isEmpty() {
      return waiting.size === 0;
    },
    wants: (keys) => [...waiting].some((one) => one.keys.some((key) => keys.includes(key))),
    join: (request, keys) => {
      const turn = openQueuePlace<T>(request, options.now(), () => busyError(blockers.get(request)));
      const one = { request, keys, turn };
      waiting.add(one);
      poll ??= setInterval(callNext, POLL_MS);
      callNext();
      return turn.promise.finally(() => {
        waiting.delete(one);
        if (waiting.size > 0) return;
        clearInterval(poll);
        poll = undefined;
        turns.forget();
      });
    },
    callNext,
  };
}

/** Serves one call. Returns the refusal that still prevents it. */
async function serve<T>(
  { request, turn }: Waiting<T>,
  { attempt, giveBack }: LineOptions<T>,
): Promise<ReservationRefusal | undefined> {
  try {
    const answer = await attempt(request);
    if ('busy' in answer) return answer.busy;
    if (!turn.give(answer.got)) giveBack(answer.got);
  } catch (error) {
    turn.refuse(error);
  }
  return undefined;
}

interface Turns {
  /**
   * Returns the waiting calls, one of each principal in turn. The principal that was served least recently comes first.
   */
  order<T extends Asker>(waiting: readonly T[]): readonly T[];
  note(served: Asker): void;
  forget(): void;
}

type Asker = { readonly request: LeaseRequest };

/** Returns turns by principal: a long queue of one does not delay another, and the calls of one keep their order. */
function createTurns(): Turns {
  /** Principal → number of the serving that was its last. */
  const served = new Map<string, number>();
  let servings = 0;
  return {
    order: (waiting) => {
      const queues = new Map<string, (typeof waiting)[number][]>();
      for (const one of waiting) {
        const { principal } = one.request.keys;
        const queue = queues.get(principal);
        if (queue === undefined) queues.set(principal, [one]);
        else queue.push(one);
      }
      if (queues.size < 2) return waiting;
      const order = [...queues]
        .sort(([one], [other]) => (served.get(one) ?? 0) - (served.get(other) ?? 0))
        .map(([, queue]) => queue);
      const longest = Math.max(...order.map((queue) => queue.length));
      return Array.from({ length: longest }, (_, at) => order.flatMap((queue) => queue[at] ?? [])).flat();
    },
    note: ({ request }) => {
      servings += 1;
      served.set(request.keys.principal, servings);
    },
    forget: () => served.clear(),
  };
}
