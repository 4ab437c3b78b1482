/** Owns the workers that evaluate user Rego: one at work, one warm; stops what runs away and refuses what it was asked. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads';
import { TollgateError } from '../catalogs/errors.ts';
import { openThreadClock, type ThreadClock } from './thread-clock.ts';
import type { WasmLimits } from './wasm.ts';

/** One question to the wasm. */
export interface Question {
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
  readonly data: string;
  readonly entrypoints: readonly string[];
  readonly limits: Partial<WasmLimits>;
}

/** What a worker answers: the result, or the public detail of the refusal; the first answer says which thread it is. */
export type WorkerAnswer = ({ readonly result: Readonly<Record<string, unknown>> } | { readonly failed: string }) & { readonly thread?: number | undefined };

/** The refusal of a question that took too long: whether it does depends on the machine, too. */
export const TIMED_OUT = 'The policy did not decide in time and was stopped.';

/** Milliseconds that a worker has to load the module. */
const START_MS = 10_000;
/** Milliseconds more for the first question of a worker: code that has never run is compiled meanwhile. */
const COLD_MS = 200;
/** Milliseconds by the wall after which nothing is waited for, however little of the processor a worker had: a busy machine is no reason to refuse, a stuck one is. */
const PATIENCE_MS = 1_000;

/**
 * Evaluates in a worker, one question at a time, in order. A question that passes its deadline is refused and its worker
 * ended; the spare, loaded and warm, takes the next one. A worker that dies refuses what it had.
 */
export class WorkerEvaluator {
  /** User Rego sees its arguments whole. */
  readonly projects = false;
  readonly #parts: WorkerParts;
  #active: Helper;
  #spare: Helper;
  #last: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#active = new Helper(parts);
    this.#spare = new Helper(parts);
  }

  /** Resolves once both workers are warm. Throws POLICY_INVALID when the module cannot be loaded. */
  async start(): Promise<void> {
    try {
      await Promise.all([this.#active.ready, this.#spare.ready]);
    } catch (thrown) {
      this.close();
      throw new TollgateError('POLICY_INVALID', { detail: thrown instanceof Error ? thrown.message : 'The policy cannot be loaded.', cause: thrown });
    }
  }

  /** Throws POLICY_FAILED. */
  evaluate(question: Question): Promise<Readonly<Record<string, unknown>>> {
    const answer = this.#last.then(() => this.#ask(question));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  close(): void {
    this.#closed = true;
    this.#active.stop();
    this.#spare.stop();
  }

  async #ask(question: Question): Promise<Readonly<Record<string, unknown>>> {
    if (this.#closed) throw new TollgateError('POLICY_FAILED', { detail: 'The policy is closed.' });
    if (this.#active.dead) this.#replace();
    const answer = await this.#active.ask(question);
    if (this.#active.dead) this.#replace();
    if ('failed' in answer) throw new TollgateError('POLICY_FAILED', { detail: answer.failed });
    return answer.result;
  }

  #replace(): void {
    this.#active.stop();
    if (this.#closed) return;
    this.#active = this.#spare.dead ? new Helper(this.#parts) : this.#spare;
    this.#spare = new Helper(this.#parts);
  }
}

/** One worker and the port to it. */
class Helper {
  readonly ready: Promise<void>;
  dead = false;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  #coldMs = COLD_MS;
  #clock: ThreadClock = openThreadClock(undefined);
  #settle: ((answer: WorkerAnswer) => void) | undefined;

  constructor(parts: WorkerParts) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    // Nothing of the process is passed on, and what the worker prints stays here: stdout belongs to the wire.
    this.#worker = new Worker(workerFile(), { workerData: { ...parts, port: port2 }, transferList: [port2], env: {}, execArgv: [], stdout: true, stderr: true, resourceLimits: { maxOldGenerationSizeMb: 128 } });
    this.ready = new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#fail('The policy took too long to load.', reject), START_MS);
      this.#settle = (answer) => {
        clearTimeout(timer);
        if ('failed' in answer) return this.#fail(answer.failed, reject);
        this.#clock = openThreadClock(answer.thread);
        resolve();
      };
    });
    this.ready.catch(() => undefined);
    this.#port.on('message', (answer: WorkerAnswer) => this.#take(answer));
    const died = (): void => this.#take({ failed: 'The worker of the policy ended.' }, true);
    this.#worker.on('error', died);
    this.#worker.on('exit', died);
    this.#worker.unref();
    this.#port.unref();
  }

  async ask(question: Question): Promise<WorkerAnswer> {
    try {
      await this.ready;
    } catch (thrown) {
      return { failed: thrown instanceof Error ? thrown.message : 'The policy cannot be loaded.' };
    }
    if (this.dead) return { failed: 'The worker of the policy ended.' };
    return new Promise((resolve) => {
      const allowed = question.deadlineMs + this.#coldMs;
      this.#coldMs = 0;
      const [before, latest] = [this.#clock.ms(), performance.now() + allowed + PATIENCE_MS];
      const expire = (): void => {
        const [had, left] = [this.#clock.ms(), latest - performance.now()];
        const due = before === undefined || had === undefined ? 0 : Math.min(allowed - (had - before), left);
        if (due > 0) timer = setTimeout(expire, Math.max(due, 1));
        else this.#expire();
      };
      let timer = setTimeout(expire, allowed);
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

  /** An answer may lie in the port already when this thread was busy: only its absence is a runaway. */
  #expire(): void {
    const late = receiveMessageOnPort(this.#port) as { message: WorkerAnswer } | undefined;
    if (late !== undefined) {
      this.#take(late.message);
      return;
    }
    this.dead = true;
    this.#take({ failed: TIMED_OUT });
  }

  #take(answer: WorkerAnswer, died = false): void {
    if (died) this.dead = true;
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(answer);
  }

  #fail(detail: string, reject: (reason: Error) => void): void {
    this.dead = true;
    reject(new Error(detail));
  }
}

/** Node 20 cannot run TypeScript in a worker: the sources use the built file, as a package does. */
function workerFile(): string {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const beside = path.join(here, 'worker.js');
  return existsSync(beside) ? beside : path.join(path.dirname(here), 'dist', 'policies', 'worker.js');
}
