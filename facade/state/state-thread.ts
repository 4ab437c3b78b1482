/**
 * The thread of the state. Only this thread waits for the disk and for the locks of other processes. One thread serves
 * all state folders of the process. Work that cannot get its lock is tried again between other questions, so a locked
 * database can still be read.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort } from 'node:worker_threads';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { isBusy } from './database.ts';
import { type DirectState, openState } from './sqlite-state.ts';
import { BUSY_MS, POLL_MS, type StateMessage, type StateRequest, type StateResponse } from './state-follower.ts';

/** Milliseconds between two tries to get a lock. */
const RETRY_MS = 10;
/** Polls between two new reads of the file, and between two complete checks. */
const PROBE_POLLS = 4;
const CHECK_POLLS = 40;

type News = Pick<Extract<StateResponse, { changes: unknown }>, 'stamp' | 'changes'>;

/** Operations that change no value: budgets, which each call reserves. */
const WITHOUT_VALUES: ReadonlySet<StateRequest['op']> = new Set(['reserve', 'settle', 'endScope']);
/** How long the database is assumed to be in its place, ms. */
const PLACE_MS = 100;

const port = parentPort!;
const followed = new Map<number, Followed>();

/** A state folder for one follower. */
class Followed {
  readonly #folder: string;
  readonly #follower: number;
  readonly #mark: string;
  readonly #proved: BigInt64Array;
  #state: DirectState | undefined;
  /** The last change that the main thread was told. */
  #told: number | undefined;
  #fault: string | undefined;
  readonly #waiting: { readonly question: StateRequest; readonly until: number }[] = [];
  #isWorking = false;
  #polls = 0;
  #damage: unknown;
  #seenAt = -Infinity;
  readonly #timer: NodeJS.Timeout;

  constructor({ folder, follower, mark, proved }: Extract<StateRequest, { op: 'open' }>) {
    this.#folder = folder;
    this.#follower = follower;
    this.#mark = mark;
    this.#proved = new BigInt64Array(proved);
    this.#timer = setInterval(() => this.#poll(), POLL_MS);
  }

  /** Questions are answered in order; `news` is answered at once. */
  async take(question: StateRequest): Promise<void> {
    if (question.op === 'news') return this.#answer(question.id, this.#attempt());
    this.#waiting.push({ question, until: performance.now() + BUSY_MS });
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { question: asked } = next;
      const answer = await this.#patiently(asked, next.until);
      this.#waiting.shift();
      if (asked.op === 'close') this.#close();
      this.#answer(asked.id, answer);
    }
    this.#isWorking = false;
  }

  #close(): void {
    clearInterval(this.#timer);
    this.#state?.close();
    followed.delete(this.#follower);
  }

  async #patiently(question: StateRequest, until: number): Promise<StateResponse> {
    for (;;) {
      const answer = this.#attempt((state) => perform(state, question), WITHOUT_VALUES.has(question.op));
      if (!('busy' in answer) || performance.now() >= until) return answer;
      await sleep(RETRY_MS);
    }
  }

  /** Does the work, and reads what has changed. An error of reading is not an error of the work, which is done. */
  #attempt(work?: (state: DirectState) => unknown, isWithoutValues = false): StateResponse {
    try {
      const state = this.#open();
      if (this.#damage !== undefined) throw this.#damage;
      if (isWithoutValues) return { result: work?.(state) };
      return work === undefined
        ? { result: undefined, ...this.#news(state) }
        : { result: work(state), ...this.#newsIfAny(state) };
    } catch (thrown) {
      const { code, message, next } = asTollgateError(thrown);
      return { failed: { code, message, next }, ...(isBusy(thrown) && { busy: true }) };
    }
  }

  #open(): DirectState {
    this.#state ??= openState(this.#folder, { busyMs: 0, mark: this.#mark });
    const now = performance.now();
    if (now - this.#seenAt < PLACE_MS) return this.#state;
    if (!this.#state.isInPlace) throw new TollgateError('STATE_LOST');
    this.#seenAt = now;
    return this.#state;
  }

  /** Returns what has changed. The stamp is read first, because later commits change it again. */
  #news(state: DirectState): News {
    const stamp = state.stops.valueStamp();
    const changes = state.changesAfter(this.#told);
    this.#told = changes.to;
    Atomics.store(this.#proved, 0, process.hrtime.bigint());
    return { stamp, changes };
  }

  #newsIfAny(state: DirectState): News {
    try {
      return this.#news(state);
    } catch {
      return { stamp: '', changes: { to: this.#told ?? 0, all: false, changes: [] } };
    }
  }

  /**
   * Reports what has changed. Once a second it also reads the file again, because a connection answers from memory what
   * it has read before.
   */
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

  /** A damaged database counts as damaged until a complete check finds no damage. */
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

function perform(state: DirectState, question: StateRequest): unknown {
  switch (question.op) {
    case 'reserve':
      return state.reserve(question.claims, question.now);
    case 'settle':
      return state.settle(question.reservation, question.used);
    case 'endScope':
      return state.endScope(question.scope, question.key);
    case 'put':
      return state.put(question.space, question.key, question.value);
    case 'remove':
      return state.remove(question.space, question.key);
    case 'take':
      return state.take(question.space, question.key, question.only);
    case 'swap':
      return state.swap(question.space, question.key, question.change);
    default:
      return undefined;
  }
}

port.on('message', (question: StateRequest) => {
  if (question.op === 'open') followed.set(question.follower, new Followed(question));
  const one = followed.get(question.follower);
  if (one !== undefined) return void one.take(question);
  port.postMessage({
    id: question.id,
    follower: question.follower,
    answer: {
      failed: { code: 'STATE_FAILED', message: 'The thread of the state has only just started.', next: 'Call again.' },
    },
  } satisfies StateMessage);
});
