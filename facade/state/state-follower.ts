/**
 * The state as the event loop uses it: a copy of all values, which the thread with the database keeps up to date. Reads
 * use the copy and return at once. Writes wait for the thread (decision 55).
 */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { type ErrorCode, TollgateError } from '../../catalogs/errors/error-table.ts';
import { threadFile } from '../../catalogs/programs/own-code.ts';
import { needsSettle } from './budget-counter.ts';
import { isAlive, ownMark } from './process-mark.ts';
import { OUTCOME_UNKNOWN, type State } from './state-port.ts';
import type { ValueChanges } from './state-values.ts';
import { HEADER_MS, Stops } from './stop-file.ts';
import { ValueCopy } from './value-copy.ts';

/** How long a write waits for the lock of another process, ms. */
export const BUSY_MS = 5_000;
/** Poll interval of the thread, ms. Each read finds writes of other processes, and proves that the thread can read. */
export const POLL_MS = 250;
/** The copy is out of date this long after the last proof, ms. */
const PROOF_MS = 1_000;
/** How long a refresh waits for a new proof, ms. */
const REFRESH_MS = 2_000;
/** Memory for young objects of the thread. Its messages are small; by default it would take 48 MB under load. */
const YOUNG_MB = 4;
/** How long to wait before a new thread is started after one has ended, ms. */
const RESTART_MS = 500;

/** The methods of the state that the thread runs. */
type StateMethod =
  | 'reserve'
  | 'settle'
  | 'endScope'
  | 'counters'
  | 'resetCounters'
  | 'put'
  | 'remove'
  | 'take'
  | 'swap';

/** A call of one of these methods. */
export type StateCall = {
  [Method in StateMethod]: { readonly op: Method; readonly args: Parameters<State[Method]> };
}[StateMethod];

type Operation =
  | { readonly op: 'open'; readonly folder: string; readonly mark: string; readonly proved: SharedArrayBuffer }
  | { readonly op: 'news' }
  | { readonly op: 'close' }
  | StateCall;

/** A request to the thread. */
export type StateRequest = Operation & { readonly id: number; readonly follower: number };

/** An answer of the thread: the result, and the changes since its last answer. `stamp` was read before the changes. */
export type StateResponse =
  | { readonly result: unknown; readonly stamp: string; readonly changes: ValueChanges }
  /** The answer of an operation that changed no value. */
  | { readonly result: unknown }
  | {
      readonly failed: { readonly code: ErrorCode; readonly message: string; readonly next: string };
      readonly busy?: true;
      /** There was no answer. */
      readonly unknown?: true;
    };

/** One message of the thread. Id 0: it answers no request. */
export interface StateMessage {
  readonly id: number;
  readonly follower: number;
  readonly answer: StateResponse;
}

/** The thread of this process. It keeps the process running only while an answer is missing. */
class Thread {
  readonly #followers = new Map<number, Follower>();
  #lastNumber = 0;
  #unanswered = 0;
  #worker: Worker | undefined;

  /** Adds a follower and returns its number, by which the thread answers it. */
  add(follower: Follower): number {
    this.#lastNumber += 1;
    this.#followers.set(this.#lastNumber, follower);
    return this.#lastNumber;
  }

  remove(number: number): void {
    this.#followers.delete(number);
  }

  send(request: StateRequest): void {
    if (this.#worker === undefined) {
      this.#worker = this.#start();
      // A new thread knows no follower, so each is opened there first.
      for (const [number, follower] of this.#followers)
        if (request.op !== 'open' || number !== request.follower) follower.open().catch(() => undefined);
    }
    this.#worker.postMessage(request);
    this.#count(1);
  }

  #start(): Worker {
    // The thread may not print to stdout, because MCP uses it.
    const worker = new Worker(threadFile('state-thread'), {
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB },
    });
    worker.on('message', ({ id, follower, answer }: StateMessage) => {
      this.#followers.get(follower)?.receive(id, answer);
      if (id !== 0) this.#count(-1);
    });
    worker.once('error', () => this.#end(worker));
    worker.once('exit', () => this.#end(worker));
    // After the listeners, which would keep the process running.
    worker.unref();
    return worker;
  }

  #count(change: 1 | -1): void {
    this.#unanswered += change;
    if (this.#unanswered === 1 && change === 1) this.#worker?.ref();
    if (this.#unanswered === 0) this.#worker?.unref();
  }

  #end(worker: Worker): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    this.#unanswered = 0;
    for (const follower of this.#followers.values()) follower.fail();
    setTimeout(() => {
      if (this.#worker === undefined)
        for (const follower of this.#followers.values()) follower.open().catch(() => undefined);
    }, RESTART_MS).unref();
  }
}

/** The later result of such a call. */
type Called<Method extends StateMethod> = Promise<Awaited<ReturnType<State[Method]>>>;

const THREAD = new Thread();

/**
 * Opens the state of a folder for a process that serves. Rejects with STATE_TOO_NEW, STATE_FAILED, STATE_LOST.
 * `onFault` is called for each read and write that fails. `isShared`: other processes serve the same sessions.
 */
export async function followState(
  folder: string,
  onFault: () => void = () => undefined,
  isShared = false,
): Promise<State> {
  const follower = new Follower(folder, onFault, isShared);
  try {
    await follower.open();
    return follower;
  } catch (thrown) {
    await follower.close();
    throw thrown;
  }
}

class Follower implements State {
  readonly isShared: boolean;
  readonly machine = '';
  readonly #folder: string;
  readonly #onFault: () => void;
  readonly #number: number;
  readonly #pending = new Map<number, (answer: StateResponse) => void>();
  readonly #values = new ValueCopy();
  readonly #proved = new BigInt64Array(new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT));
  #stops: Stops | undefined;
  #isClosed = false;
  #lastId = 0;
  #stamp = '';
  #fault: TollgateError | undefined;
  #renewal: Promise<void> | undefined;
  #upToDateUntil = Number.NEGATIVE_INFINITY;

  constructor(folder: string, onFault: () => void, isShared: boolean) {
    this.isShared = isShared;
    this.#folder = path.resolve(folder);
    this.#onFault = onFault;
    this.#number = THREAD.add(this);
  }

  async open(): Promise<void> {
    // The mark says that this process has the database open, so that no other process replaces it.
    await this.#ask({
      op: 'open',
      folder: this.#folder,
      mark: this.#tryMark(),
      proved: this.#proved.buffer as SharedArrayBuffer,
    });
    this.#stops ??= new Stops(this.#folder);
  }

  get stops(): Stops {
    if (this.#stops === undefined) throw closed();
    return this.#stops;
  }

  /** All processes of a machine read one stop file. */
  shareStops(): void {}

  refresh(): Promise<void> | undefined {
    if (this.#isUpToDate()) return undefined;
    if (this.#renewal === undefined) {
      this.#renewal = this.#renew().finally(() => (this.#renewal = undefined));
      this.#renewal.catch(this.#onFault);
    }
    return this.#renewal;
  }

  get(space: string, key: string): string | undefined {
    this.#check();
    return this.#values.get(space, key);
  }

  list(space: string, prefix?: string): ReadonlyMap<string, string> {
    this.#check();
    return this.#values.list(space, prefix);
  }

  stamp(): string {
    this.#check();
    return String(this.#values.version);
  }

  reserve(...args: Parameters<State['reserve']>): Called<'reserve'> {
    return this.#call('reserve', args);
  }

  async settle(...args: Parameters<State['settle']>): Called<'settle'> {
    if (needsSettle(...args)) await this.#call('settle', args);
  }

  endScope(...args: Parameters<State['endScope']>): Called<'endScope'> {
    return this.#call('endScope', args);
  }

  counters(...args: Parameters<State['counters']>): Called<'counters'> {
    return this.#call('counters', args);
  }

  resetCounters(...args: Parameters<State['resetCounters']>): Called<'resetCounters'> {
    return this.#call('resetCounters', args);
  }

  put(...args: Parameters<State['put']>): Called<'put'> {
    return this.#call('put', args);
  }

  remove(...args: Parameters<State['remove']>): Called<'remove'> {
    return this.#call('remove', args);
  }

  take(...args: Parameters<State['take']>): Called<'take'> {
    return this.#call('take', args);
  }

  swap(...args: Parameters<State['swap']>): Called<'swap'> {
    return this.#call('swap', args);
  }

  mark(): string {
    return ownMark(this.#folder);
  }

  /** Returns the mark; '' on a full disk. Then calls that need it are refused later. */
  #tryMark(): string {
    try {
      return this.mark();
    } catch {
      return '';
    }
  }

  isAlive(mark: string): boolean {
    return isAlive(this.#folder, mark);
  }

  async close(): Promise<void> {
    // The thread answers this after all earlier requests.
    await Promise.race([
      this.#ask({ op: 'close' }).catch(() => undefined),
      sleep(REFRESH_MS, undefined, { ref: false }),
    ]);
    this.#isClosed = true;
    THREAD.remove(this.#number);
    this.#stops?.close();
    this.#fault = closed();
    this.fail(this.#fault);
  }

  /** Receives a message of the thread. */
  receive(id: number, answer: StateResponse): void {
    const waiting = this.#pending.get(id);
    this.#pending.delete(id);
    if ('changes' in answer || id === 0) this.#upToDateUntil = Number.NEGATIVE_INFINITY;
    if ('changes' in answer) {
      this.#values.apply(answer.changes);
      this.#stamp = answer.stamp;
      this.#fault = undefined;
    } else if ('failed' in answer && id === 0 && answer.busy !== true) {
      this.#fault = errorOf(answer);
    }
    waiting?.(answer);
  }

  /** Fails all waiting requests, and every read until a thread answers again. */
  fail(
    fault = new TollgateError('STATE_FAILED', {
      detail: 'The thread of the state has ended. Another one is being started.',
    }),
  ): void {
    this.#fault = fault;
    this.#upToDateUntil = Number.NEGATIVE_INFINITY;
    const failed = { code: fault.code, message: fault.message, next: fault.next };
    for (const answer of this.#pending.values()) answer({ failed, unknown: true });
    this.#pending.clear();
  }

  #ask(work: Operation): Promise<unknown> {
    if (this.#isClosed) return Promise.reject(closed());
    this.#lastId += 1;
    const id = this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, (answer) => ('failed' in answer ? reject(errorOf(answer)) : resolve(answer.result)));
      THREAD.send({ ...work, id, follower: this.#number });
    });
  }

  #call<Method extends StateMethod>(op: Method, args: Parameters<State[Method]>): Called<Method> {
    const called = this.#ask({ op, args } as StateCall) as Called<Method>;
    called.catch(this.#onFault);
    return called;
  }

  #isUpToDate(): boolean {
    // A call asks several times. The check is valid as long as the stamp that it read.
    const now = performance.now();
    if (now < this.#upToDateUntil) return true;
    const age = Number(process.hrtime.bigint() - Atomics.load(this.#proved, 0)) / 1e6;
    const isUpToDate = this.#fault === undefined && age < PROOF_MS && this.#stamp === this.stops.valueStamp();
    if (isUpToDate) this.#upToDateUntil = now + HEADER_MS;
    return isUpToDate;
  }

  async #renew(): Promise<void> {
    const until = performance.now() + REFRESH_MS;
    while (!this.#isUpToDate()) {
      const left = until - performance.now();
      if (left <= 0)
        throw new TollgateError('STATE_FAILED', {
          detail: 'The decisions of people cannot be read now, so nothing runs.',
          next: 'Call again. If this continues, check the state: tollgate state check',
        });
      await Promise.race([this.#ask({ op: 'news' }), sleep(left, undefined, { ref: false })]);
    }
  }

  /** Throws the present fault, because old values must not be used. */
  #check(): void {
    if (this.#fault === undefined) return;
    this.#onFault();
    throw this.#fault;
  }
}

function errorOf({ failed, unknown }: Extract<StateResponse, { failed: unknown }>): TollgateError {
  const { code, message: detail, next } = failed;
  return new TollgateError(code, { detail, next, ...(unknown && { cause: OUTCOME_UNKNOWN }) });
}

function closed(): TollgateError {
  return new TollgateError('STATE_FAILED', { detail: 'The state is closed.' });
}
