/** One worker of a policy: its start, one query at a time, and its end when a query takes too long. */
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { threadFile } from '../../../catalogs/programs/own-code.ts';
import { openThreadClock, type ThreadClock } from '../../../catalogs/text/thread-clock.ts';
import type { WasmLimits } from '../wasm/wasm-policy.ts';
import type { QueryOwner } from './fair-queue.ts';

/** One query to the policy, and its caller. */
export interface PolicyQuery extends QueryOwner {
  readonly entrypoint: string;
  readonly input: string;
  /** RFC 3339. The clock of the policy. */
  readonly time: string;
  /**
   * Milliseconds of processor time until the evaluation is stopped; of real time if the system does not count per
   * thread.
   */
  readonly deadlineMs: number;
}

/** What a worker is started with. */
export interface WorkerParts {
  readonly wasm: Uint8Array;
  /** A JSON object, or its bytes in UTF-8. Bytes in shared memory are not copied to the worker. */
  readonly data: string | Uint8Array;
  readonly entrypoints: readonly string[];
  readonly limits: Partial<WasmLimits>;
  /** Queries to run before the worker counts as ready. Their answers are ignored. */
  readonly warmUp?: readonly PolicyQuery[];
}

/** The answer of a worker: the result, or the public detail of a refusal. The first answer contains the thread id. */
export type WorkerAnswer = ({ readonly result: Readonly<Record<string, unknown>> } | { readonly failed: string }) & {
  readonly thread?: number | undefined;
};

/** The refusal of a query that took too long. The outcome of such a query depends on the machine. */
export const TIMED_OUT = 'The policy did not decide in time and was stopped.';

/** Milliseconds for a worker to load the module. */
const START_MS = 10_000;
/**
 * Milliseconds of real time, added to twice the deadline, after which a query is refused even if the worker had little
 * processor time. A busy machine must not cause refusals, but a stuck one must.
 */
const PATIENCE_MS = 1_000;

/** One worker and the port to it. */
export class WorkerHandle {
  /** Resolves when the worker has loaded the module and answered the warm-up queries. */
  readonly ready: Promise<void>;
  dead = false;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #openClock: typeof openThreadClock;
  #clock: ThreadClock = openThreadClock(undefined);
  #isReady = false;
  #settle: ((answer: WorkerAnswer) => void) | undefined;

  constructor({ warmUp = [], ...parts }: WorkerParts, openClock = openThreadClock) {
    this.#openClock = openClock;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    // The worker gets nothing of this process's environment. Its output is dropped: stdout carries the MCP protocol.
    this.#worker = new Worker(threadFile('policy-worker'), {
      workerData: { ...parts, port: port2 },
      transferList: [port2],
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { maxOldGenerationSizeMb: 128 },
    });
    this.#port.on('message', (answer: WorkerAnswer) => this.#take(answer));
    const died = (): void => this.#take({ failed: 'The worker of the policy ended.' }, true);
    this.#worker.on('error', died);
    this.#worker.on('exit', died);
    this.#worker.unref();
    this.#port.unref();
    this.ready = this.#load(warmUp);
    this.ready.catch(() => undefined);
  }

  /** Whether the worker can answer a query now. */
  get free(): boolean {
    return this.#isReady && !this.dead && this.#settle === undefined;
  }

  /** Call this only while `free`. If the query takes too long, it is refused and the worker ends. */
  ask(query: PolicyQuery): Promise<WorkerAnswer> {
    return new Promise((resolve) => {
      const { deadlineMs } = query;
      const [before, latest] = [this.#clock.ms(), performance.now() + 2 * deadlineMs + PATIENCE_MS];
      const expire = (): void => {
        const [had, left] = [this.#clock.ms(), latest - performance.now()];
        const due = before === undefined || had === undefined ? 0 : Math.min(deadlineMs - (had - before), left);
        if (due > 0) timer = setTimeout(expire, Math.max(due, 1));
        else this.#expire();
      };
      let timer = setTimeout(expire, deadlineMs);
      this.#settle = (answer) => {
        clearTimeout(timer);
        resolve(answer);
      };
      this.#port.postMessage({ entrypoint: query.entrypoint, input: query.input, time: query.time });
    });
  }

  stop(): void {
    this.dead = true;
    this.#clock.close();
    this.#port.close();
    void this.#worker.terminate();
    this.#take({ failed: 'The worker of the policy ended.' });
  }

  /** Code is compiled when it first runs. The warm-up queries do this before a call needs the worker. */
  async #load(warmUp: readonly PolicyQuery[]): Promise<void> {
    const loaded = await new Promise<WorkerAnswer>((resolve) => {
      const timer = setTimeout(() => this.#take({ failed: 'The policy took too long to load.' }, true), START_MS);
      this.#settle = (answer) => {
        clearTimeout(timer);
        resolve(answer);
      };
    });
    if ('failed' in loaded) return this.#fail(loaded.failed);
    this.#clock = this.#openClock(loaded.thread);
    for (const query of warmUp) {
      await this.ask(query);
      if (this.dead) return this.#fail('The policy cannot decide an empty call in time.');
    }
    this.#isReady = true;
  }

  /** If this thread was busy, an answer may already be in the port. Only without one has the query run too long. */
  #expire(): void {
    const late = receiveMessageOnPort(this.#port) as { message: WorkerAnswer } | undefined;
    if (late !== undefined) this.#take(late.message);
    else this.#take({ failed: TIMED_OUT }, true);
  }

  #take(answer: WorkerAnswer, died = false): void {
    if (died) this.dead = true;
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(answer);
  }

  #fail(detail: string): never {
    this.dead = true;
    throw new Error(detail);
  }
}
