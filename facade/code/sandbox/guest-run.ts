/**
 * Runs one program in QuickJS to its end, in the thread that calls it. What the program does depends only on the
 * program and on the order and the content of the answers to its calls.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { QuickJSContext, QuickJSHandle } from 'quickjs-emscripten-core';
import { threadMs } from '../../../catalogs/text/thread-clock.ts';
import { nearestName } from '../../../catalogs/validation/validation-faults.ts';
import { CallValues } from './call-values.ts';
import { compiledCode, engineSyntaxEnd, PROGRAM_NAME, thrownLine } from './program-code.ts';
import type { SandboxEngine } from './sandbox-engine.ts';
import {
  limitEnd,
  type SandboxAnswer,
  type SandboxCall,
  type SandboxEnd,
  type SandboxProgram,
  timeEnd,
} from './sandbox-program.ts';

const PRELUDE = readFileSync(path.join(import.meta.dirname, 'guest-prelude.cjs'), 'utf8');
const PRELUDE_NAME = 'tollgate';
const MOST_ARGUMENT_BYTES = 1_000_000;
const MOST_MESSAGE_CHARS = 2_000;
const MOST_NAMES = 20;

/** An answer, and the call that it is for. */
interface Received {
  readonly seq: number;
  readonly answer: SandboxAnswer;
}

/** A call, and whether the texts of its result are JSON. */
interface NewCall {
  readonly call: SandboxCall;
  readonly isJson: boolean;
}

/** How a run reaches its caller. */
export interface GuestChannel {
  readonly send: (call: SandboxCall) => void;
  /** Waits for the next answer, in the order in which they were given. */
  readonly receive: () => Received;
}

/** What guest-prelude.cjs says of a thrown value: of an error, or of any other value as people read it. */
interface Thrown {
  readonly name?: string;
  readonly message?: string;
  readonly stack?: string;
  readonly value?: string;
}

/** The functions of guest-prelude.cjs. */
type Prelude = Readonly<Record<'settle' | 'finish' | 'describe', QuickJSHandle | undefined>>;

/** One run. */
export class GuestRun {
  printed = '';
  readonly #engine: SandboxEngine;
  readonly #program: SandboxProgram;
  readonly #channel: GuestChannel;
  readonly #values: CallValues;
  readonly #context: QuickJSContext;
  #prelude: Prelude | undefined;
  /** Why the program must not continue. The engine stops soon after this is set; nothing more gets out of it. */
  #end: SandboxEnd | undefined;
  /** By the clock `threadMs`: waiting does not count, and neither does preparing the program. */
  #lastMs = Number.POSITIVE_INFINITY;
  /** Of performance.now(). Before this time the thread cannot have reached `#lastMs`, so its clock is not read. */
  #readAt = Number.POSITIVE_INFINITY;
  #printedBytes = 0;
  #calls = 0;
  #sent = 0;
  /** Calls with `.async` that wait for their turn. */
  readonly #unsent: NewCall[] = [];
  /** Calls that were sent and have no answer yet, by `seq`. */
  readonly #pending = new Map<number, NewCall>();
  /** Answers that came while a call without `.async` waited. */
  readonly #answers: Received[] = [];

  constructor(engine: SandboxEngine, program: SandboxProgram, channel: GuestChannel) {
    this.#engine = engine;
    this.#program = program;
    this.#channel = channel;
    this.#values = new CallValues(program.limits);
    this.#context = engine.open(program);
    this.#context.runtime.setInterruptHandler(() => this.#mustEnd());
  }

  /** Runs the program and returns its end. Throws only if the engine itself fails. */
  run(): SandboxEnd {
    const { code } = this.#program;
    const text = compiledCode(code);
    if (typeof text !== 'string') return text;
    this.#startPrelude();
    const made = this.#context.evalCode(text, PROGRAM_NAME, { type: 'global', strict: true });
    if (made.error !== undefined) return this.#unreadable(this.#describe(made.error));
    const { timeMs } = this.#program.limits;
    [this.#lastMs, this.#readAt] = [threadMs() + timeMs, performance.now() + timeMs];
    const called = this.#context.callFunction(made.value, this.#context.undefined);
    if (called.error !== undefined) return this.#end ?? this.#thrownEnd(this.#describe(called.error));
    while (this.#turn(called.value));
    return this.#end ?? this.#finish(called.value);
  }

  /**
   * Runs all jobs, then takes one answer. Returns false when nothing is left to do. The state of the program's promise
   * is read in the engine, because the program may change what promises do.
   */
  #turn(program: QuickJSHandle): boolean {
    while (!this.#mustEnd() && this.#context.runtime.hasPendingJob()) {
      const { error } = this.#context.runtime.executePendingJobs(1);
      error?.dispose();
    }
    if (this.#end !== undefined) return false;
    const state = this.#context.getPromiseState(program);
    if (state.type === 'rejected') {
      const thrown = this.#describe(state.error);
      this.#stop(this.#thrownEnd(thrown));
      return false;
    }
    if (this.#pending.size === 0) {
      if (state.type === 'pending') this.#fail('The program waits for a promise that nothing can settle.');
      return false;
    }
    const received = this.#answers.shift() ?? this.#channel.receive();
    // A second answer to the same call.
    if (!this.#pending.has(received.seq)) return true;
    const text = this.#take(received);
    this.#sent -= 1;
    this.#sendNext();
    this.#call('settle', this.#context.newNumber(received.seq), this.#context.newString(text));
    return true;
  }

  #startPrelude(): void {
    const context = this.#context;
    const { modules, args, variables } = this.#program;
    const host = context.newObject();
    const give = (name: string, work: (...given: QuickJSHandle[]) => QuickJSHandle | undefined): void =>
      context
        .newFunction(name, (...given) => this.#guarded(() => work(...given)))
        .consume((made) => context.setProp(host, name, made));
    const text = (of = context.undefined): string => context.getString(of);
    const number = (of = context.undefined): number => context.getNumber(of);
    const called = ([module, index, args]: QuickJSHandle[], isAsync: boolean): NewCall | undefined =>
      this.#newCall([number(module), number(index)], text(args), isAsync);
    give('call', (...given) => context.newString(this.#callNow(called(given, false))));
    give('callAsync', (...given) => context.newNumber(this.#callLater(called(given, true))));
    give('print', (line) => this.#print(JSON.parse(text(line)) as string));
    give('usePlanned', (seq) => this.#stop({ kind: 'used-planned', seq: number(seq) }));
    give('unknownMember', (at, name) => context.newString(this.#unknownMember(number(at), JSON.parse(text(name)))));
    give('unknownModule', (name) => context.newString(this.#unknownModule(JSON.parse(text(name)))));
    give('args', () => context.newString(args ?? ''));
    give('vars', () => context.newString(variables ?? ''));
    give('ready', (...made) => {
      const [settle, finish, describe] = made.map((one) => one.dup());
      this.#prelude = { settle, finish, describe };
      return undefined;
    });
    const setup = JSON.stringify({
      modules: modules.map(({ name, functions }) => ({ name, functions: functions.map((one) => one.name) })),
      hasArgs: args !== undefined,
      hasVars: variables !== undefined,
    });
    const made = context.evalCode(`(function (host, setup) {'use strict';${PRELUDE}\n})`, PRELUDE_NAME, {
      type: 'global',
    });
    const started = context.callFunction(context.unwrapResult(made), context.undefined, host, context.newString(setup));
    if (started.error === undefined) return;
    // Only a memory that is too small for modules, arguments and variables makes the prelude fail.
    const { message = '' } = this.#describe(started.error);
    if (!this.#mustEnd()) this.#fail(`The program could not be prepared: ${message}`);
  }

  /** Host functions do nothing more once the run must end. Throws into the program, which soon stops. */
  #guarded(work: () => QuickJSHandle | undefined): QuickJSHandle {
    if (this.#mustEnd()) throw new Error('The run has ended.');
    return work() ?? this.#context.undefined;
  }

  #stop(end: SandboxEnd): undefined {
    this.#end ??= end;
  }

  #fail(message: string): void {
    this.#stop({ kind: 'failed', code: 'CODE_FAILED', message });
  }

  /** Returns true if the program must not continue. QuickJS asks often, and cannot be caught when it stops. */
  #mustEnd(): boolean {
    if (this.#end !== undefined) return true;
    if (this.#engine.isOutOfMemory()) this.#stop(this.#memoryEnd());
    else if (performance.now() > this.#readAt && this.#isOutOfTime()) this.#stop(timeEnd(this.#program.limits));
    return this.#end !== undefined;
  }

  #isOutOfTime(): boolean {
    const leftMs = this.#lastMs - threadMs();
    this.#readAt = performance.now() + leftMs;
    return leftMs <= 0;
  }

  #memoryEnd(): SandboxEnd {
    return limitEnd(
      `The program needed more than ${this.#program.limits.memoryBytes} bytes of memory.`,
      'Keep less at the same time: take what you need from each result, and drop the rest.',
    );
  }

  /** Returns a call with the next number; undefined if its arguments are too large. */
  #newCall(called: readonly [module: number, index: number], args: string, isAsync: boolean): NewCall | undefined {
    const module = this.#program.modules[called[0]];
    const { name = '', json = false } = module?.functions[called[1]] ?? {};
    if (Buffer.byteLength(args) > MOST_ARGUMENT_BYTES) return undefined;
    const { calls } = this.#program.limits;
    if (this.#calls >= calls) {
      this.#stop(
        limitEnd(`The program made more than ${calls} calls.`, 'Use tools that do more at once, or filter first.'),
      );
      throw new Error('The run has ended.');
    }
    this.#calls += 1;
    const call = { seq: this.#calls, module: module?.name ?? '', function: name, args, isAsync };
    return { call, isJson: json };
  }

  #send(made: NewCall): void {
    this.#pending.set(made.call.seq, made);
    this.#channel.send(made.call);
  }

  /** Sends a call and waits for its answer. Answers to other calls are kept in their order. */
  #callNow(made: NewCall | undefined): string {
    if (made === undefined) return '';
    this.#send(made);
    for (;;) {
      const received = this.#channel.receive();
      if (received.seq === made.call.seq) return this.#take(received);
      this.#answers.push(received);
    }
  }

  #callLater(made: NewCall | undefined): number {
    if (made === undefined) return 0;
    this.#unsent.push(made);
    this.#sendNext();
    return made.call.seq;
  }

  #sendNext(): void {
    while (this.#sent < Math.max(1, this.#program.limits.parallel) && this.#unsent.length > 0) {
      this.#sent += 1;
      this.#send(this.#unsent.shift() as NewCall);
    }
  }

  /** Returns the text of an answer for the prelude. */
  #take({ seq, answer }: Received): string {
    const text = this.#values.textOf(seq, answer, this.#pending.get(seq)?.isJson ?? false);
    this.#pending.delete(seq);
    const { exceeded } = this.#values;
    if (exceeded !== undefined) this.#stop(exceeded);
    return text;
  }

  #print(line: string): undefined {
    this.#printedBytes += Buffer.byteLength(line) + 1;
    if (this.#printedBytes <= this.#program.limits.outputBytes) this.printed += `${line}\n`;
    else this.#stop(this.#outputEnd('printed'));
  }

  #outputEnd(what: string): SandboxEnd {
    return limitEnd(
      `The program ${what} more than ${this.#program.limits.outputBytes} bytes.`,
      'Print and return less: filter and count in code, and return only what you need.',
    );
  }

  #thrownEnd({ name = 'Error', message, stack, value }: Thrown): SandboxEnd {
    if (name === 'InternalError' && message === 'out of memory') return this.#memoryEnd();
    if (/^(?:Internal|Syntax)Error$/.test(name) && message === 'stack overflow')
      return limitEnd(
        `The program nested calls or data deeper than ${this.#program.limits.stackBytes} bytes of stack allow.`,
        'Use a loop instead of recursion, and flatter data.',
      );
    const line = thrownLine(stack);
    const what = message === undefined ? `The program threw ${value}, which is no Error` : `${name}: ${message}`;
    const text = what.length > MOST_MESSAGE_CHARS ? `${what.slice(0, MOST_MESSAGE_CHARS)}…` : what;
    return {
      kind: 'failed',
      code: 'CODE_FAILED',
      message: line === undefined ? text : `${text} (line ${line})`,
    };
  }

  #unreadable({ name, message = '', stack = '' }: Thrown): SandboxEnd {
    if (this.#mustEnd() || name !== 'SyntaxError' || message === 'stack overflow')
      return this.#end ?? this.#thrownEnd({ name: name ?? 'Error', message, stack });
    return engineSyntaxEnd(this.#program.code, message, stack);
  }

  #finish(program: QuickJSHandle): SandboxEnd {
    const state = this.#context.getPromiseState(program);
    const text = state.type === 'fulfilled' ? this.#call('finish', state.value) : undefined;
    if (this.#end !== undefined || text === undefined) return this.#end ?? this.#memoryEnd();
    const { value, variables, thrown } = JSON.parse(text) as Readonly<Record<string, string | undefined>>;
    if (thrown !== undefined) return this.#thrownEnd(JSON.parse(thrown) as Thrown);
    if (this.#printedBytes + Buffer.byteLength(value ?? '') > this.#program.limits.outputBytes)
      return this.#outputEnd('printed and returned');
    const media = this.#values.mediaOf(value);
    if ('kind' in media) return media;
    return { kind: 'returned', value, media, ...(variables !== undefined && { variables }) };
  }

  /** Calls a function of the prelude. Returns its text, if it returned one. */
  #call(name: keyof Prelude, ...given: readonly QuickJSHandle[]): string | undefined {
    const { [name]: made } = this.#prelude ?? {};
    if (this.#mustEnd() || made === undefined) return undefined;
    const result = this.#context.callFunction(made, this.#context.undefined, ...given);
    for (const handle of given) handle.dispose();
    if (result.error !== undefined) {
      // The functions catch what programs throw, so this is a limit.
      if (!this.#mustEnd()) this.#stop(this.#thrownEnd(this.#describe(result.error)));
      return undefined;
    }
    return result.value.consume((value) =>
      this.#context.typeof(value) === 'string' ? this.#context.getString(value) : undefined,
    );
  }

  #describe(thrown: QuickJSHandle): Thrown {
    const text = this.#call('describe', thrown);
    return text === undefined ? {} : (JSON.parse(text) as Thrown);
  }

  #unknownMember(at: number, name: string): string {
    const { name: module = '', functions = [] } = this.#program.modules[at] ?? {};
    const names = functions.map((one) => one.name);
    return `${module} has no function ${shown(name)}${suggestion(name, names)}`;
  }

  #unknownModule(name: string): string {
    const names = [...new Set(this.#program.modules.map((one) => one.name))];
    return `There is no module ${shown(name)}${suggestion(name, names)}`;
  }
}

function shown(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

/** Returns the end of a message about an unknown name: the name that was meant, and the first of all names. */
function suggestion(name: string, names: readonly string[]): string {
  const near = nearestName(name, names);
  const more = names.length > MOST_NAMES ? `, and ${names.length - MOST_NAMES} more` : '';
  const all = names.length === 0 ? 'none' : `${names.slice(0, MOST_NAMES).join(', ')}${more}`;
  return `${near === undefined ? '.' : `; did you mean ${near}?`} There are: ${all}.`;
}
