/** The thread of the sandbox for code: runs one program after the other, each in a new instance of QuickJS. */
import { parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads';
import { ownThread } from '../../../catalogs/text/thread-clock.ts';
import { GuestRun } from './guest-run.ts';
import { compiledCode } from './program-code.ts';
import { newEngine, type SandboxEngine, useProgramClock } from './sandbox-engine.ts';
import {
  type FromSandbox,
  MESSAGES,
  PHASE,
  PIECE_CHARS,
  type SandboxAnswer,
  type SandboxCall,
  type SandboxEnd,
  type SandboxProgram,
  type SandboxThreadData,
  THREAD,
  type ToSandbox,
  TURNS,
} from './sandbox-program.ts';

const port = parentPort as NonNullable<typeof parentPort>;
const { wasm, control } = workerData as SandboxThreadData;
const state = new Int32Array(control);

const CRASHED: SandboxEnd = {
  kind: 'failed',
  code: 'CODE_CRASHED',
  message: 'The engine that runs code failed.\nSimplify the program. Calls that it made may have happened.',
};

/** Waits for the next answer to a call of a run. */
function receive(run: number): { readonly seq: number; readonly answer: SandboxAnswer } {
  let before = '';
  Atomics.add(state, PHASE, 1);
  for (;;) {
    const seen = Atomics.load(state, MESSAGES);
    const message = (receiveMessageOnPort(port) as { readonly message: ToSandbox } | undefined)?.message;
    if (message === undefined) Atomics.wait(state, MESSAGES, seen);
    else if (message.run !== run) continue;
    else if ('piece' in message) before += message.piece;
    else if ('seq' in message) {
      Atomics.add(state, PHASE, 1);
      const { seq, answer } = message;
      return { seq, answer: answer.kind === 'result' ? { ...answer, text: before + answer.text } : answer };
    }
  }
}

const post = (message: FromSandbox): void => port.postMessage(message);

/** Sends all of a text but its end, which it returns. Waits until the main thread has taken each piece. */
function sendPieces(text: string): string {
  let at = 0;
  for (; text.length - at > PIECE_CHARS; at += PIECE_CHARS) {
    const turn = Atomics.load(state, TURNS);
    post({ piece: text.slice(at, at + PIECE_CHARS) });
    Atomics.add(state, PHASE, 1);
    Atomics.wait(state, TURNS, turn);
    Atomics.add(state, PHASE, 1);
  }
  return text.slice(at);
}

function execute(run: number, program: SandboxProgram, engine: SandboxEngine): void {
  let guest: GuestRun | undefined;
  let sent = 0;
  const printed = (): string => {
    const text = guest?.printed.slice(sent) ?? '';
    sent += text.length;
    return text;
  };
  const send = (call: SandboxCall): void =>
    post({ call: { ...call, args: sendPieces(call.args) }, printed: printed() });
  let end: SandboxEnd;
  Atomics.add(state, PHASE, 1);
  try {
    guest = new GuestRun(engine, program, { send, receive: () => receive(run) });
    end = guest.run();
  } catch {
    // A trap of WebAssembly, or the end of the thread's stack.
    end = CRASHED;
  }
  if (end.kind === 'returned') {
    for (const block of end.media) post({ media: sendPieces(block) });
    end = { ...end, media: [] };
  }
  Atomics.add(state, PHASE, 1);
  // An engine that was stopped in the middle is not trusted any more, and its memory is given back with the thread.
  const reusable = end.kind === 'returned' || (end.kind === 'failed' && /SYNTAX|FAILED/.test(end.code));
  post({ end, reusable, printed: printed() });
}

Atomics.store(state, THREAD, ownThread() ?? 0);
useProgramClock();
// V8 compiles code when it first runs. This happens before the first program arrives.
compiledCode('const first: number = 1;');
let next = newEngine(wasm);
port.on('message', (message: ToSandbox) => {
  // An answer to a call of a run that has ended.
  if (!('program' in message)) return;
  void next.then((engine) => {
    next = newEngine(wasm);
    execute(message.run, message.program, engine);
  });
});
