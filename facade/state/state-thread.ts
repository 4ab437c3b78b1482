/**
 * The thread of the state. Only it waits for the disk and for locks of other processes. It serves all state folders of
 * the process. It retries operations that wait for a lock between other requests, so a locked database can still be
 * read.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort } from 'node:worker_threads';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { isBusy } from './database.ts';
import { type DirectState, openState } from './sqlite-state.ts';
import {
  BUSY_MS,
  POLL_MS,
  type StateCall,
  type StateMessage,
  type StateRequest,
  type StateResponse,
} from './state-follower.ts';

/** Milliseconds between two tries to get a lock. */
const RETRY_MS = 10;
/** Polls between two new reads of the file, and between two complete checks. */
const PROBE_POLLS = 4;
const CHECK_POLLS = 40;

type Update = Pick<Extract<StateResponse, { changes: unknown }>, 'stamp' | 'changes'>;

/** Operations that change no value: those of budgets. */
const WITHOUT_VALUES: ReadonlySet<StateRequest['op']> = new Set([
  'reserve',
  'settle',
  'endScope',
  'counters',
  'resetCounters',
]);
/** How long a check that the database file is in place is valid, ms. */
const PLACE_MS = 100;

const port = parentPort!;
const folders = new Map<number, FollowedFolder>();

/** A state folder for one follower. */
class FollowedFolder {
  readonly #folder: string;
  readonly #follower: number;
  readonly #mark: string;
  readonly #proved: BigInt64Array;
  #state: DirectState | undefined;
  /** The last change that was reported to the main thread. */
  #reportedTo: number | undefined;
  #fault: string | undefined;
  readonly #waiting: { readonly request: StateRequest; readonly until: number }[] = [];
  #isWorking = false;
  #polls = 0;
  #damage: unknown;
  #placedAt = -Infinity;
  readonly #timer: NodeJS.Timeout;

  constructor({ folder, follower, mark, proved }: Extract<StateRequest, { op: 'open' }>) {
    this.#folder = folder;
    this.#follower = follower;
    this.#mark = mark;
    this.#proved = new BigInt64Array(proved);
    this.#timer = setInterval(() => this.#poll(), POLL_MS);
  }

  /** Answers requests in order; `news` at once. */
  async take(request: StateRequest): Promise<void> {
    if (request.op === 'news') return this.#answer(request.id, this.#attempt());
    this.#waiting.push({ request, until: performance.now() + BUSY_MS });
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { request: current } = next;
      const answer = await this.#attemptUntil(current, next.until);
      this.#waiting.shift();
      if (current.op === 'close') this.#close();
      this.#answer(current.id, answer);
    }
    this.#isWorking = false;
  }

  #close(): void {
    clearInterval(this.#timer);
    this.#state?.close();
    folders.delete(this.#follower);
  }

  async #attemptUntil(request: StateRequest, until: number): Promise<StateResponse> {
    for (;;) {
      const answer = this.#attempt((state) => run(state, request), WITHOUT_VALUES.has(request.op));
      if (!('busy' in answer) || performance.now() >= until) return answer;
      await sleep(RETRY_MS);
    }
  }

  /** Does the work, and reads the changes. If only that reading fails, the work is done and counts as done. */
  #attempt(work?: (state: DirectState) => unknown, isWithoutValues = false): StateResponse {
    try {
      const state = this.#open();
      if (this.#damage !== undefined) throw this.#damage;
      if (isWithoutValues) return { result: work?.(state) };
      return work === undefined
        ? { result: undefined, ...this.#readUpdate(state) }
        : { result: work(state), ...this.#readUpdateOrNone(state) };
    } catch (thrown) {
      const { code, message, next } = asTollgateError(thrown);
      return { failed: { code, message, next }, ...(isBusy(thrown) && { busy: true }) };
    }
  }

  #open(): DirectState {
    this.#state ??= openState(this.#folder, { busyMs: 0, mark: this.#mark });
    const now = performance.now();
    if (now - this.#placedAt < PLACE_MS) return this.#state;
    if (!this.#state.isInPlace) throw new TollgateError('STATE_LOST');
    this.#placedAt = now;
    return this.#state;
  }

  /** Returns the changes. Reads the stamp first, because later commits change it again. */
  #readUpdate(state: DirectState): Update {
    const stamp = state.stops.valueStamp();
    const changes = state.changesAfter(this.#reportedTo);
    this.#reportedTo = changes.to;
    Atomics.store(this.#proved, 0, process.hrtime.bigint());
    return { stamp, changes };
  }

  #readUpdateOrNone(state: DirectState): Update {
    try {
      return this.#readUpdate(state);
    } catch {
      return { stamp: '', changes: { to: this.#reportedTo ?? 0, all: false, changes: [] } };
    }
  }

  /** Reports changes. Once a second it reads through a new connection, because an old one may answer from memory. */
  #poll(): void {
    this.#polls += 1;
    if (this.#polls % PROBE_POLLS === 0 || this.#damage !== undefined)
      this.#probe(this.#polls % CHECK_POLLS === 0 || this.#damage !== undefined);
    const answer = this.#attempt();
    const fault = 'failed' in answer && answer.busy !== true ? answer.failed.message : undefined;
    if (fault === this.#fault && 'changes' in answer && answer.changes.changes.length === 0 && !answer.changes.all)
      return;
    this.#fault = fault;
    this.#answer(0, answer);
  }

  /** Checks the database. Damage that was found stays until a complete check finds none. */
  #probe(whole: boolean): void {
    try {
      this.#open().probe(whole);
      this.#damage = undefined;
    } catch (thrown) {
      if (!isBusy(thrown)) this.#damage = thrown;
    }
  }

  #answer(id: number, answer: StateResponse): void {
    port.postMessage({ id, follower: this.#follower, answer } satisfies StateMessage);
  }
}

function run(state: DirectState, request: StateRequest): unknown {
  if (!('args' in request)) return undefined;
  const method = state[request.op] as (...args: StateCall['args']) => unknown;
  return method(...request.args);
}

port.on('message', (request: StateRequest) => {
  if (request.op === 'open') folders.set(request.follower, new FollowedFolder(request));
  const entry = folders.get(request.follower);
  if (entry !== undefined) return void entry.take(request);
  port.postMessage({
    id: request.id,
    follower: request.follower,
    answer: {
      failed: { code: 'STATE_FAILED', message: 'The thread of the state has just been started.', next: 'Call again.' },
    },
  } satisfies StateMessage);
});
