/** The programs that the sandbox for code runs, the calls that they make, and what becomes of them. */
import type { ErrorCode } from '../../../catalogs/errors/error-table.ts';

/** What one run may use. A run that exceeds a limit ends with CODE_LIMIT, and its program cannot prevent this. */
export interface CodeLimits {
  /** Memory of the program, and that of media which it got. At least 10 MB are always there. */
  readonly memoryBytes: number;
  /** At most 1 MiB, which is about 5,000 nested calls. Code can catch this limit, as in any JavaScript engine. */
  readonly stackBytes: number;
  /** Milliseconds in which the program may run. Waiting for calls does not count. */
  readonly timeMs: number;
  /** Printed text and the JSON text of the returned value, together, in UTF-8. */
  readonly outputBytes: number;
  readonly calls: number;
  /** Calls with `.async` that are sent at the same time. A further one waits in the worker. */
  readonly parallel: number;
}

/** A module that code can import. */
export interface SandboxModule {
  /** Such as `host:mcp-github`. Of two modules with one name, the first counts. */
  readonly name: string;
  /** `json`: the texts of its results are JSON. */
  readonly functions: readonly { readonly name: string; readonly json: boolean }[];
}

/** One program, and all that decides what it does, apart from the answers to its calls. */
export interface SandboxProgram {
  /** JavaScript or TypeScript. */
  readonly code: string;
  readonly modules: readonly SandboxModule[];
  readonly limits: CodeLimits;
  /** Milliseconds since 1970. The clock of the program starts here and moves by 1 ms at each reading. */
  readonly startedAt: number;
  /** Equal seeds give equal numbers of `Math.random`. */
  readonly seed: string;
  /** JSON text of the constant `args`. Absent: there is no `args`. */
  readonly args?: string;
  /** JSON text of the object `vars`, which code may change. Absent: there is no `vars`. */
  readonly variables?: string;
}

/** One call that a program makes. */
export interface SandboxCall {
  /** Counts from 1, in the order in which the program makes its calls. */
  readonly seq: number;
  readonly module: string;
  readonly function: string;
  /** JSON text of the only argument; `{}` if there is none. At most 1,000,000 bytes. */
  readonly args: string;
  readonly isAsync: boolean;
}

/** The answer to a call. */
export type SandboxAnswer =
  /** `text`: JSON of a result of tools/call. */
  | { readonly kind: 'result'; readonly text: string }
  /** A refusal. The program gets `{error, code}`. */
  | { readonly kind: 'failure'; readonly error: string; readonly code: string }
  /** In a dry run: a value that the program can pass on and await. Its first use ends the run. */
  | { readonly kind: 'planned' };

/** The codes of a run that failed. */
export type SandboxFailureCode = Extract<ErrorCode, `CODE_${string}`>;

/** What became of a run, apart from what it printed. */
export type SandboxEnd =
  | {
      readonly kind: 'returned';
      /** JSON text; undefined if the program returned nothing. */
      readonly value: string | undefined;
      /** JSON texts of the content blocks whose handles are in the value, each once, in their order there. */
      readonly media: readonly string[];
      /** JSON text of `vars`. Present if the program had variables. */
      readonly variables?: string;
    }
  | { readonly kind: 'failed'; readonly code: SandboxFailureCode; readonly message: string }
  /** A planned value was used. `seq`: of the call that it stands for. */
  | { readonly kind: 'used-planned'; readonly seq: number }
  | { readonly kind: 'stopped' };

/** What became of a run. `printed`: one line for each call of `print` or of `console`. */
export type SandboxOutcome = { readonly printed: string } & SandboxEnd;

/** Returns the end of a run that exceeded a limit. Its message has two lines: what happened, and what to do. */
export function limitEnd(what: string, next: string): SandboxEnd {
  return { kind: 'failed', code: 'CODE_LIMIT', message: `${what}\n${next}` };
}

/** Returns the end of a run that exceeded its time. */
export function timeEnd({ timeMs }: CodeLimits): SandboxEnd {
  return limitEnd(
    `The program ran longer than ${timeMs} ms, not counting the time in which it waited for calls.`,
    'Let a tool search or filter instead of the code, use simpler regular expressions, or split the work.',
  );
}

/** What a worker is started with. */
export interface SandboxThreadData {
  readonly wasm: WebAssembly.Module;
  /** An Int32Array of CONTROL_BYTES. MESSAGES, PHASE, TURNS and THREAD are its places. */
  readonly control: SharedArrayBuffer;
}

/** Place in the control memory: counts the messages to the worker. */
export const MESSAGES = 0;
/** Place in the control memory: is odd while code runs, and grows at each change. */
export const PHASE = 1;
/** Place in the control memory: counts the pieces that the main thread took, each in a turn of its own. */
export const TURNS = 2;
/** Place in the control memory: the id that the system gave to the thread; 0 if it gave none. */
export const THREAD = 3;
export const CONTROL_BYTES = 4 * Int32Array.BYTES_PER_ELEMENT;

/** The longest text in one message. A longer one is sent in pieces, so that no turn of the event loop takes long. */
export const PIECE_CHARS = 131_072;

/**
 * A message to a worker. `run` numbers the runs of a process, so that a late answer reaches no other run. A `piece` is
 * the beginning of the text in the next answer.
 */
export type ToSandbox = { readonly run: number } & (
  | { readonly program: SandboxProgram }
  | { readonly piece: string }
  | { readonly seq: number; readonly answer: SandboxAnswer }
);

/**
 * A message of a worker. A `piece` is the beginning of the text in the next message: of the arguments of a call, or of
 * a content block with media. `printed`: since the last call. `reusable`: the worker may run another program.
 */
export type FromSandbox =
  | { readonly piece: string }
  | { readonly media: string }
  | { readonly call: SandboxCall; readonly printed: string }
  | { readonly end: SandboxEnd; readonly printed: string; readonly reusable: boolean };
