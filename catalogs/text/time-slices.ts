/** Lets other calls run while one call processes a large input, and limits how much of such input is in memory. */
import { setImmediate as turn } from 'node:timers/promises';

/** Limit in bytes of one message, of one file that is read or edited, and of the result of one edit. */
export const MAX_INPUT_BYTES = 16 * 1_048_576;

/** A larger input is processed in separate turns of the event loop, a limited amount at a time. */
export const LARGE_INPUT_BYTES = 262_144;

/** Milliseconds of work between two turns of the event loop. */
const SLICE_MS = 10;
/** Limit in bytes of the large inputs of all calls together. Processing them takes several times their memory. */
const MAX_BYTES_AT_ONCE = 4 * MAX_INPUT_BYTES;

let lastTurn: Promise<void> = Promise.resolve();

/**
 * Resolves in a turn of the event loop that the caller shares with no other caller. All callbacks of `setImmediate` run
 * in one turn, so the time slices of sixteen calls would add up.
 */
export function ownEventLoopTurn(): Promise<void> {
  return (lastTurn = lastTurn.then(() => turn()));
}

/** The time slices of one call. */
export class TimeSlices {
  readonly #signal: AbortSignal | undefined;
  #began = performance.now();

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** True if other calls should run now: then await `rest`. */
  get isDue(): boolean {
    return performance.now() - this.#began > SLICE_MS;
  }

  /** Lets other calls run. Throws the signal's reason if it is aborted. */
  async rest(): Promise<void> {
    await ownEventLoopTurn();
    this.#signal?.throwIfAborted();
    this.#began = performance.now();
  }
}

let bytesAtOnce = 0;
const waiting: { readonly bytes: number; readonly start: () => void }[] = [];

/**
 * Runs work on an input of this many bytes: a small one at once, a large one in a separate turn, as soon as all large
 * inputs together are small enough, in the order of the calls. `work` must not wait for other large work. Throws the
 * signal's reason if it is aborted before the work begins.
 */
export async function runWithinBounds<T>(bytes: number, work: () => T | Promise<T>, signal?: AbortSignal): Promise<T> {
  if (bytes <= LARGE_INPUT_BYTES) return work();
  const counted = Math.min(bytes, MAX_BYTES_AT_ONCE);
  await reserveBytes(counted, signal);
  try {
    await ownEventLoopTurn();
    signal?.throwIfAborted();
    return await work();
  } finally {
    bytesAtOnce -= counted;
    startWaiting();
  }
}

/** Waits until there is room for this many bytes, and takes it. */
function reserveBytes(bytes: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => {
      waiting.splice(waiting.indexOf(one), 1);
      reject(signal?.reason as Error);
      startWaiting();
    };
    const start = (): void => {
      signal?.removeEventListener('abort', giveUp);
      resolve();
    };
    const one = { bytes, start };
    if (signal?.aborted === true) return reject(signal.reason as Error);
    signal?.addEventListener('abort', giveUp, { once: true });
    waiting.push(one);
    startWaiting();
  });
}

function startWaiting(): void {
  for (
    let [first] = waiting;
    first !== undefined && bytesAtOnce + first.bytes <= MAX_BYTES_AT_ONCE;
    [first] = waiting
  ) {
    bytesAtOnce += first.bytes;
    waiting.shift();
    first.start();
  }
}

/** Milliseconds of work after which `inTimeSlices` lets other calls run. */
const ITEM_SLICE_MS = 4;

/** Yields the items, and lets other calls run between them. Work on one item should take only a few milliseconds. */
export async function* inTimeSlices<T>(items: Iterable<T>): AsyncGenerator<T, void, undefined> {
  let began = performance.now();
  for (const item of items) {
    yield item;
    if (performance.now() - began < ITEM_SLICE_MS) continue;
    await turn();
    began = performance.now();
  }
}
