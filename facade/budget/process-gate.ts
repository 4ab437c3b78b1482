/**
 * Limits the calls that this process runs at once, and the memory of those that wait. Principals take turns, and none
 * can fill the queue. A call that finds no room is refused at once (decision 110).
 */
import { totalmem } from 'node:os';
import { getHeapStatistics } from 'node:v8';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ReleaseSlot } from './concurrency-limit.ts';
import { openQueuePlace, type QueuePlace, type WaitLimit } from './queue-place.ts';

/** The limits of a gate. */
export interface GateLimits {
  /** Calls that run at once. */
  readonly calls: number;
  /** Bytes of the calls that wait: their arguments, and `WAITING_CALL_BYTES` for each. */
  readonly waitingBytes: number;
}

/** What a gate has done, for /metrics. */
export interface GateReadings {
  readonly waiting: number;
  readonly waitingBytes: number;
  /** Calls that were refused because they found no room. */
  readonly shed: number;
}

/** What a waiting call holds besides its arguments: its request, session and decision. */
export const WAITING_CALL_BYTES = 16 * 1024;
/** The used part of the memory above which no call waits, and only one of so many places is given. */
const PRESSED = 0.9;
const PRESSED_SHARE = 8;
/** How long a measurement of the memory is used. */
const FRESH_MS = 250;
/** A shed call may come again after this time, and at most as much later, so that shed calls do not return together. */
const RETRY_MS = 1000;

/** The gate of one facade. */
export class ProcessGate {
  readonly #limits: GateLimits;
  readonly #isPressed: () => boolean;
  readonly #now: () => number;
  #inside = 0;
  /** Principal → its running calls. */
  readonly #held = new Map<string, number>();
  /** Principal → its waiting calls. The principal that was served last is last. */
  readonly #queues = new Map<string, Set<QueuePlace<ReleaseSlot>>>();
  /** Principal → bytes of its waiting calls, in any queue. */
  readonly #waiting = new Map<string, number>();
  #readings = { waiting: 0, waitingBytes: 0, shed: 0 };

  constructor(limits: GateLimits, isPressed = memoryPressure(), now: () => number = Date.now) {
    this.#limits = limits;
    this.#isPressed = isPressed;
    this.#now = now;
  }

  get readings(): GateReadings {
    return this.#readings;
  }

  /**
   * Returns at once if a place is free, otherwise returns a promise. A free place goes to the waiting principal that
   * has the fewest. Throws, or rejects with, RATE_LIMITED or CANCELLED.
   */
  enter(principal: string, patience: WaitLimit): ReleaseSlot | Promise<ReleaseSlot> {
    if (this.#queues.size === 0 && this.#inside < this.#places()) return this.#admit(principal);
    const place = openQueuePlace<ReleaseSlot>(patience, this.#now(), () => this.#late());
    const queue = this.#queues.get(principal) ?? new Set();
    this.#queues.set(principal, queue.add(place));
    this.#callNext();
    return place.promise.finally(() => this.#leave(principal, place));
  }

  /**
   * Takes room for a call that waits in any queue. Returns the function that gives it back. A principal may use as much
   * as it leaves free, so that one of many calls cannot keep out the others. Throws RATE_LIMITED.
   */
  takeRoom(principal: string, argBytes: number): () => void {
    const bytes = argBytes + WAITING_CALL_BYTES;
    const own = this.#waiting.get(principal) ?? 0;
    const free = this.#limits.waitingBytes - this.#readings.waitingBytes;
    if (own + bytes > free || this.#isPressed()) throw this.#shed();
    this.#count(principal, 1, bytes);
    return () => this.#count(principal, -1, -bytes);
  }

  #count(principal: string, calls: number, bytes: number): void {
    this.#readings.waiting += calls;
    this.#readings.waitingBytes += bytes;
    addTo(this.#waiting, principal, bytes);
  }

  /** With little memory left, calls still run, because only their ends free it. */
  #places(): number {
    const { calls } = this.#limits;
    return this.#isPressed() ? Math.ceil(calls / PRESSED_SHARE) : calls;
  }

  #admit(principal: string): ReleaseSlot {
    this.#inside += 1;
    addTo(this.#held, principal, 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      this.#inside -= 1;
      addTo(this.#held, principal, -1);
      if (this.#queues.size > 0) this.#callNext();
    };
  }

  #callNext(): void {
    while (this.#queues.size > 0 && this.#inside < this.#places()) {
      const principal = this.#nextPrincipal();
      const [place] = this.#queues.get(principal) ?? [];
      if (place === undefined) return;
      this.#leave(principal, place);
      if (place.over) continue;
      const rest = this.#queues.get(principal);
      if (rest !== undefined && this.#queues.delete(principal)) this.#queues.set(principal, rest);
      place.give(this.#admit(principal));
    }
  }

  #nextPrincipal(): string {
    let [next = ''] = this.#queues.keys();
    for (const principal of this.#queues.keys()) if (this.#heldBy(principal) < this.#heldBy(next)) next = principal;
    return next;
  }

  #heldBy(principal: string): number {
    return this.#held.get(principal) ?? 0;
  }

  #leave(principal: string, place: QueuePlace<ReleaseSlot>): void {
    const queue = this.#queues.get(principal);
    queue?.delete(place);
    if (queue?.size === 0) this.#queues.delete(principal);
  }

  #late(): TollgateError {
    return new TollgateError('RATE_LIMITED', {
      detail: `This process has ${this.#limits.calls} calls running, and none ended in time.`,
      data: { budget: 'concurrent', scope: 'process', limit: this.#limits.calls, left: 0 },
    });
  }

  #shed(): TollgateError {
    this.#readings.shed += 1;
    const limit = this.#limits.waitingBytes;
    return new TollgateError('RATE_LIMITED', {
      detail: 'This process has more calls than it can run or keep waiting.',
      next: 'Wait for the time in retryAfterMs, then call again.',
      data: {
        budget: 'waiting',
        scope: 'process',
        unit: 'bytes',
        limit,
        left: Math.max(0, limit - this.#readings.waitingBytes),
        retryAfterMs: RETRY_MS + Math.floor(Math.random() * RETRY_MS),
      },
    });
  }
}

function addTo(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}

/** Returns the used part of the memory: of the heap of V8, or of what the container allows, whichever is larger. */
function usedMemory(): number {
  const { used_heap_size: used, heap_size_limit: limit } = getHeapStatistics();
  const allowed = process.constrainedMemory();
  // Without a container, this is 0 or far more than the machine has.
  const ofContainer = allowed > 0 && allowed <= totalmem() ? process.memoryUsage.rss() / allowed : 0;
  return Math.max(used / limit, ofContainer);
}

/** Returns whether too much memory is used. Measures at most every `FRESH_MS`, and only when it is asked. */
export function memoryPressure(
  read: () => number = usedMemory,
  now: () => number = () => performance.now(),
): () => boolean {
  let latest = { at: Number.NEGATIVE_INFINITY, pressed: false };
  return () => {
    const at = now();
    if (at - latest.at >= FRESH_MS) latest = { at, pressed: read() > PRESSED };
    return latest.pressed;
  };
}
