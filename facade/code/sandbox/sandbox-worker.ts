/** One worker thread of the sandbox for code, seen from the main thread. */
import { Worker } from 'node:worker_threads';
import { threadFile } from '../../../catalogs/programs/own-code.ts';
import { openThreadClock } from '../../../catalogs/text/thread-clock.ts';
import {
  CONTROL_BYTES,
  type FromSandbox,
  MESSAGES,
  PHASE,
  PIECE_CHARS,
  type SandboxAnswer,
  type SandboxCall,
  type SandboxEnd,
  type SandboxOutcome,
  type SandboxProgram,
  type SandboxThreadData,
  THREAD,
  type ToSandbox,
  TURNS,
  timeEnd,
} from './sandbox-program.ts';

/**
 * The stack of the thread: 32 bytes for each byte of the program's stack, and some more. The system gives memory only
 * to what is used.
 */
const STACK_MB = 40;
const HEAP_MB = 512;
/** Processor time beyond the time limit, in which the engine must notice it, before the thread is ended, ms. */
const GRACE_MS = 1_000;
const WATCH_MS = 250;

/** A run in a worker. */
interface CurrentRun {
  readonly id: number;
  readonly program: SandboxProgram;
  readonly onCall: (call: SandboxCall) => void;
  readonly resolve: (outcome: SandboxOutcome) => void;
}

/** Numbers the runs of this process. */
let runs = 0;

/** A worker. It runs one program at a time, and is of no more use once `dead`. */
export class SandboxWorker {
  dead = false;
  readonly #worker: Worker;
  readonly #state = new Int32Array(new SharedArrayBuffer(CONTROL_BYTES));
  #current: CurrentRun | undefined;
  #printed = '';
  /** The beginning of the text in the next message, and the media that were returned. */
  #piece = '';
  #media: string[] = [];
  /** Answers that are not sent yet, the first one perhaps in part. */
  #answers: { readonly seq: number; readonly answer: SandboxAnswer }[] = [];
  #watch: NodeJS.Timeout | undefined;

  constructor(wasm: WebAssembly.Module) {
    // The thread gets nothing of this process's environment. Its output is dropped: stdout carries the MCP protocol.
    this.#worker = new Worker(threadFile('sandbox-thread'), {
      workerData: { wasm, control: this.#state.buffer } satisfies SandboxThreadData,
      env: {},
      execArgv: [],
      stdout: true,
      stderr: true,
      resourceLimits: { stackSizeMb: STACK_MB, maxOldGenerationSizeMb: HEAP_MB },
    });
    this.#worker.on('message', (message: FromSandbox) => this.#take(message));
    this.#worker.on('error', () => this.#crash());
    this.#worker.on('exit', () => this.#crash());
    this.#worker.unref();
  }

  /** Runs a program. Call it only while no other runs. Never rejects. */
  run(program: SandboxProgram, onCall: (call: SandboxCall) => void): Promise<SandboxOutcome> {
    return new Promise((resolve) => {
      runs += 1;
      this.#current = { id: runs, program, onCall, resolve };
      [this.#printed, this.#piece, this.#media, this.#answers] = ['', '', [], []];
      // A run keeps the process running, an idle worker does not.
      this.#worker.ref();
      this.#post({ run: runs, program });
      this.#watch = this.#watchPhase(program.limits.timeMs + GRACE_MS);
    });
  }

  /** Answers a call of the current run. A long text is sent in pieces, one in each turn of the event loop. */
  answer(seq: number, answer: SandboxAnswer): void {
    if (this.#answers.push({ seq, answer }) === 1) this.#sendAnswers();
  }

  /** Ends the thread, and the current run with it. */
  end(end: SandboxEnd = { kind: 'stopped' }): void {
    this.dead = true;
    void this.#worker.terminate();
    this.#finish(end);
  }

  #sendAnswers(): void {
    const [first] = this.#answers;
    if (first === undefined || this.#current === undefined) return;
    const run = this.#current.id;
    const { seq, answer } = first;
    if (answer.kind === 'result' && answer.text.length > PIECE_CHARS) {
      this.#post({ run, piece: answer.text.slice(0, PIECE_CHARS) });
      this.#answers[0] = { seq, answer: { ...answer, text: answer.text.slice(PIECE_CHARS) } };
      setImmediate(() => this.#sendAnswers());
      return;
    }
    this.#answers.shift();
    this.#post({ run, seq, answer });
    this.#sendAnswers();
  }

  #post(message: ToSandbox): void {
    this.#worker.postMessage(message);
    Atomics.add(this.#state, MESSAGES, 1);
    Atomics.notify(this.#state, MESSAGES);
  }

  /** The engine cannot stop all of its own work. A thread that stays in one phase of running for too long is ended. */
  #watchPhase(mostMs: number): NodeJS.Timeout {
    let [phase, since] = [-1, 0];
    return setInterval(() => {
      const [now, ms] = [Atomics.load(this.#state, PHASE), this.#threadMs()];
      if (now !== phase) [phase, since] = [now, ms];
      const isTooLong = phase % 2 === 1 && ms - since > mostMs;
      if (isTooLong && this.#current !== undefined) this.end(timeEnd(this.#current.program.limits));
    }, WATCH_MS).unref();
  }

  /** Processor time of the thread, ms; real time if the system does not count per thread. */
  #threadMs(): number {
    const clock = openThreadClock(Atomics.load(this.#state, THREAD) || undefined);
    const ms = clock.ms() ?? performance.now();
    clock.close();
    return ms;
  }

  #take(message: FromSandbox): void {
    if (this.#current === undefined) return;
    if ('piece' in message) {
      this.#piece += message.piece;
      // The worker continues in the next turn of the event loop.
      setImmediate(() => (Atomics.add(this.#state, TURNS, 1), Atomics.notify(this.#state, TURNS)));
      return;
    }
    const piece = this.#piece;
    this.#piece = '';
    if ('media' in message) return void this.#media.push(piece + message.media);
    this.#printed += message.printed;
    if ('call' in message) return this.#current.onCall({ ...message.call, args: piece + message.call.args });
    const end = message.end.kind === 'returned' ? { ...message.end, media: this.#media } : message.end;
    if (message.reusable) this.#finish(end);
    else this.end(end);
  }

  #crash(): void {
    this.end({
      kind: 'failed',
      code: 'CODE_CRASHED',
      message:
        'The thread that ran the program ended.\nUse less data at once. Calls that the program made may have happened.',
    });
  }

  #finish(end: SandboxEnd): void {
    clearInterval(this.#watch);
    this.#worker.unref();
    const current = this.#current;
    this.#current = undefined;
    current?.resolve({ printed: this.#printed, ...end });
  }
}
