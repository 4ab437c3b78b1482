/** Owns one worker of a policy: its start, one question at a time, and its end when it runs away; queues nothing. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import type { WasmLimits } from '../wasm/wasm-policy.ts';
import type { QueryOwner } from './fair-queue.ts';
import { openThreadClock, type ThreadClock } from './thread-clock.ts';

/** One question to the wasm, and whose it is. */
export interface PolicyQuery extends QueryOwner {
  readonly entrypoint: string;
  readonly input: string;
  /** RFC 3339: what the policy's clock shows. */
  readonly time: string;
  /** Milliseconds of processor time after which the evaluation is stopped, where it can be; of the wall's where the system does not count per thread. */
  readonly deadlineMs: number;
}

/** What a worker is started with. */
export interface WorkerParts {
  readonly wasm: Uint8Array;
  /** A JSON object, or its bytes in UTF-8; bytes in shared memory are not copied to the worker. */
  readonly data: string | Uint8Array;
  readonly entrypoints: readonly string[];
  readonly limits: Partial<WasmLimits>;
  /** Asked, whatever the answers, before a worker counts as ready. */
  readonly warmUp?: readonly PolicyQuery[];
}

/** What a worker answers: the result, or the public detail of the refusal; the first answer says which thread it is. */
export type WorkerAnswer = ({ readonly result: Readonly<Record<string, unknown>> } | { readonly failed: string }) & {
  readonly thread?: number | undefined;
};

/** The refusal of a question that took too long: whether it does depends on the machine, too. */
export const TIMED_OUT = 'The policy did not decide in time and was stopped.';

/** Milliseconds that a worker has to load the module. */
const START_MS = 10_000;
/** Milliseconds by the wall, beside twice the deadline, after which nothing is waited for, however little of the processor a worker had: a busy machine is no reason to refuse, a stuck one is. */
const PATIENCE_MS = 1_000;

/** One worker and the port to it. */
export class WorkerHandle {
  /** Settles once it has loaded the module and decided what it is warmed with. */
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
    // Nothing of the process is passed on, and what the worker prints stays here: stdout belongs to the wire.
    this.#worker = new Worker(workerFile(), {
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

  /** It can be asked now. */
  get free(): boolean {
    return this.#isReady && !this.dead && this.#settle === undefined;
  }

  /** Only while it is free. A question that has had its time is refused, and the worker ends. */
  ask(question: PolicyQuery): Promise<WorkerAnswer> {
    return new Promise((resolve) => {
      const { deadlineMs } = question;
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
      this.#port.postMessage({ entrypoint: question.entrypoint, input: question.input, time: question.time });
    });
  }

  stop(): void {
    this.dead = true;
    this.#clock.close();
    this.#port.close();
    void this.#worker.terminate();
    this.#take({ failed: 'The worker of the policy ended.' });
  }

  /** Code that has never run is compiled when it first runs: what that costs must be no caller's time. */
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
    for (const question of warmUp) {
      await this.ask(question);
      if (this.dead) return this.#fail('The policy does not even decide a call that carries nothing in time.');
    }
    this.#isReady = true;
  }

  /** An answer may lie in the port already when this thread was busy: only its absence is a runaway. */
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

/** Node 20 cannot run TypeScript in a worker: the sources use the built file, as a package does. */
function workerFile(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const beside = path.join(here, 'policy-worker.js');
  return existsSync(beside) ? beside : path.join(here, '../../../dist/policies/engine/workers/policy-worker.js');
}
