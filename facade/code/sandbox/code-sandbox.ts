/**
 * The sandbox for code: runs programs of agents in worker threads, each in a new instance of QuickJS in WebAssembly. A
 * program reaches nothing but the functions of its modules.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { PROGRAM } from '../../../catalogs/programs/own-code.ts';
import type { SandboxAnswer, SandboxCall, SandboxOutcome, SandboxProgram } from './sandbox-program.ts';
import { SandboxWorker } from './sandbox-worker.ts';

/** Runs at the same time in a process. Others wait, in their order. */
const MOST_RUNS = 4;
/** Milliseconds after which an idle worker ends. */
const IDLE_MS = 60_000;

/** A run of one program. */
export interface SandboxRun {
  /** Answers a call. Programs get answers in the order of these calls. */
  answer(seq: number, answer: SandboxAnswer): void;
  /** Ends the run at once, whatever it does. */
  stop(): void;
  /** Never rejects. */
  readonly done: Promise<SandboxOutcome>;
}

/** QuickJS, compiled once in a process. */
let compiled: Promise<WebAssembly.Module> | undefined;

function compiledEngine(): Promise<WebAssembly.Module> {
  compiled ??= readFile(path.join(PROGRAM, 'code', 'quickjs.wasm')).then((bytes) => WebAssembly.compile(bytes));
  return compiled;
}

/** The runs and the workers of one process. */
export class CodeSandbox {
  readonly #waiting: Run[] = [];
  readonly #running = new Set<Run>();
  readonly #idle = new Map<SandboxWorker, NodeJS.Timeout>();
  #isClosed = false;

  /** Starts a program, or lets it wait while four others run. `onCall` gets its calls, in their order. */
  start(program: SandboxProgram, onCall: (call: SandboxCall) => void): SandboxRun {
    const run = new Run(program, onCall, () => this.#drop(run));
    if (this.#isClosed) run.stop();
    else this.#waiting.push(run);
    void this.#startNext();
    return run;
  }

  /** Stops all runs and ends all workers. Later runs are stopped at once. */
  close(): void {
    this.#isClosed = true;
    for (const run of [...this.#waiting, ...this.#running]) run.stop();
    for (const worker of this.#idle.keys()) this.#endIdle(worker);
  }

  async #startNext(): Promise<void> {
    const run = this.#running.size < MOST_RUNS ? this.#waiting.shift() : undefined;
    if (run === undefined) return;
    this.#running.add(run);
    const worker = await this.#worker();
    if (worker !== undefined) await run.use(worker);
    else run.fail();
    this.#running.delete(run);
    if (worker !== undefined) this.#keep(worker);
    void this.#startNext();
  }

  #drop(run: Run): void {
    const at = this.#waiting.indexOf(run);
    if (at >= 0) this.#waiting.splice(at, 1);
  }

  /** Returns an idle worker or a new one; undefined if the engine cannot be loaded. */
  async #worker(): Promise<SandboxWorker | undefined> {
    try {
      const wasm = await compiledEngine();
      const [idle] = this.#idle.keys();
      if (idle === undefined) return new SandboxWorker(wasm);
      clearTimeout(this.#idle.get(idle));
      this.#idle.delete(idle);
      return idle.dead ? new SandboxWorker(wasm) : idle;
    } catch {
      compiled = undefined;
      return undefined;
    }
  }

  /** Keeps a worker for the next run. If it has ended, another one gets ready in its place. */
  #keep(worker: SandboxWorker): void {
    if (!worker.dead) this.#wait(worker);
    else if (this.#idle.size === 0 && !this.#isClosed) void this.#worker().then((made) => made && this.#wait(made));
  }

  #wait(worker: SandboxWorker): void {
    this.#idle.set(worker, setTimeout(() => this.#endIdle(worker), IDLE_MS).unref());
    if (this.#isClosed) this.#endIdle(worker);
  }

  #endIdle(worker: SandboxWorker): void {
    clearTimeout(this.#idle.get(worker));
    this.#idle.delete(worker);
    worker.end();
  }
}

/** A run: waiting, in a worker, or done. */
class Run implements SandboxRun {
  readonly done: Promise<SandboxOutcome>;
  readonly #program: SandboxProgram;
  readonly #onCall: (call: SandboxCall) => void;
  readonly #onStop: () => void;
  #settle: (outcome: SandboxOutcome) => void = () => undefined;
  #worker: SandboxWorker | undefined;
  #isDone = false;

  constructor(program: SandboxProgram, onCall: (call: SandboxCall) => void, onStop: () => void) {
    this.#program = program;
    this.#onCall = onCall;
    this.#onStop = onStop;
    this.done = new Promise((resolve) => (this.#settle = resolve));
  }

  answer(seq: number, answer: SandboxAnswer): void {
    this.#worker?.answer(seq, answer);
  }

  stop(): void {
    if (this.#worker !== undefined) return this.#worker.end();
    this.#onStop();
    this.#finish({ printed: '', kind: 'stopped' });
  }

  /** Runs in a worker, unless the run was stopped while the worker started. */
  async use(worker: SandboxWorker): Promise<void> {
    if (this.#isDone) return;
    this.#worker = worker;
    const outcome = await worker.run(this.#program, this.#onCall);
    this.#worker = undefined;
    this.#finish(outcome);
  }

  fail(): void {
    const message = 'The engine that runs code cannot be loaded.\nThe owner installs Tollgate again.';
    this.#finish({ printed: '', kind: 'failed', code: 'CODE_CRASHED', message });
  }

  #finish(outcome: SandboxOutcome): void {
    this.#isDone = true;
    this.#settle(outcome);
  }
}
