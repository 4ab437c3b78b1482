/**
 * Executes the code of one run. Answered calls of its log are replayed, later calls are made. A live execution stops
 * when a person must be asked. A dry one executes reads, and collects the other calls instead of making them.
 */
import { isDeepStrictEqual } from 'node:util';
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { joinText, sizeOfText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import type { Effect } from '../../policies/port.ts';
import type { CallGate } from '../call/decide.ts';
import type { OpenSession } from '../call/identify.ts';
import type { CodeConfig } from '../config/config.ts';
import type { Approvals, CallToApprove } from '../consent/approvals/approval-port.ts';
import type { PlanLine } from '../consent/approvals/loop-approval.ts';
import type { Reply } from '../serve/facade-port.ts';
import type { CodeModule } from './code-modules.ts';
import type { InnerFacade } from './code-server.ts';
import type { RunLog } from './run-log.ts';
import type { CodeSandbox, SandboxRun } from './sandbox/code-sandbox.ts';
import type { SandboxAnswer, SandboxCall, SandboxOutcome } from './sandbox/sandbox-program.ts';

/** The call of run_code that an execution serves, and what it may use. */
export interface RunHost {
  readonly facade: InnerFacade;
  readonly session: OpenSession;
  /** The decision id of the call of run_code. */
  readonly parent: string;
  /** The run that labels and budgets are counted for. */
  readonly run: string;
  readonly signal: CancelSignal;
  readonly modules: ReadonlyMap<string, CodeModule>;
  readonly limits: CodeConfig;
  readonly sandbox: CodeSandbox;
}

/** A call that a person must be asked about. */
export interface AskedCall {
  readonly seq: number;
  readonly call: CallToApprove;
  /** It may have run before the run was interrupted. */
  readonly isAgain: boolean;
}

/** A consent that was given while the run waited, and the call that it was given to. */
export interface GivenConsent {
  readonly id: string;
  readonly call: CallToApprove;
}

/** A call that a dry execution collected. */
export interface PlannedCall extends Pick<PlanLine, 'seq' | 'tool'> {
  readonly argsText: string;
  readonly outcome: 'allow' | 'ask' | 'unknown';
}

/** How an execution ended. */
export interface ExecutionEnd {
  readonly outcome: SandboxOutcome;
  /** Present if a live execution stopped for a person. */
  readonly asked?: AskedCall;
  /** Of a dry execution. */
  readonly planned: readonly PlannedCall[];
}

/** The limit of one value towards code (HA-11). A longer result crosses as the handle of a spill. */
const VALUE_CAP = { bytes: 1_000_000, lines: Number.MAX_SAFE_INTEGER };
/** Calls that a dry execution collects. A person cannot judge more one by one. */
const MAX_PLANNED = 200;

/** One execution. */
export class CodeExecution {
  readonly #host: RunHost;
  readonly #log: RunLog;
  readonly #isDry: boolean;
  /** Consents that were given while the run waited, by the number of the call. */
  readonly #consents: ReadonlyMap<number, GivenConsent>;
  readonly #answers = new Map<number, SandboxAnswer>();
  /** The numbers of answered calls. The code gets the answers in this order, as it did before. */
  readonly #order: number[];
  #given = 0;
  readonly #waiting = new Set<number>();
  readonly #running = new Set<Promise<void>>();
  readonly #planned = new Map<number, PlannedCall>();
  #asked: AskedCall | undefined;
  #failure: unknown;
  #sandboxed: SandboxRun | undefined;

  constructor(
    host: RunHost,
    log: RunLog,
    { isDry, consents = new Map() }: { readonly isDry: boolean; readonly consents?: ReadonlyMap<number, GivenConsent> },
  ) {
    this.#host = host;
    this.#log = log;
    this.#isDry = isDry;
    this.#consents = consents;
    this.#order = [...log.order];
    for (const { seq, answer } of log.calls.values()) if (answer !== undefined) this.#answers.set(seq, answer);
  }

  /** Runs the code to its end. Throws CODE_DIVERGED, and what the log throws. */
  async run(): Promise<ExecutionEnd> {
    const { sandbox, modules, limits, signal } = this.#host;
    const { code, startedAt, id, args, variables, parallel } = this.#log.start;
    const program = {
      code,
      modules: [...modules.values()].map(({ name, functions }) => ({
        name,
        functions: [...functions.values()].map((one) => ({
          name: one.name,
          json: one.exposed.entry?.tool.outputSchema !== undefined,
        })),
      })),
      limits: {
        memoryBytes: limits.memory,
        stackBytes: limits.stack,
        timeMs: limits.timeMs,
        outputBytes: limits.output,
        calls: limits.calls,
        parallel,
      },
      startedAt,
      seed: id,
      ...(args !== undefined && { args }),
      ...(variables !== undefined && { variables }),
    };
    const sandboxed = (this.#sandboxed = sandbox.start(program, (call) => this.#onCall(call)));
    const stop = (): void => sandboxed.stop();
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
    const outcome = await sandboxed.done;
    signal.removeEventListener('abort', stop);
    await Promise.all(this.#running);
    if (this.#failure !== undefined) throw this.#failure;
    return {
      outcome,
      planned: [...this.#planned.values()].sort((one, other) => one.seq - other.seq),
      ...(this.#asked !== undefined && { asked: this.#asked }),
    };
  }

  #onCall(call: SandboxCall): void {
    if (this.#asked !== undefined || this.#failure !== undefined) return;
    const known = this.#log.calls.get(call.seq);
    try {
      if (known !== undefined) requireSame(known, call);
      else if (!this.#isDry) this.#log.noteCall(call);
    } catch (thrown) {
      return this.#fail(thrown);
    }
    this.#waiting.add(call.seq);
    if (known?.answer !== undefined) return this.#giveAnswers();
    const making = this.#make(call, known?.isSent === true)
      .catch((thrown: unknown) => this.#fail(thrown))
      .finally(() => this.#running.delete(making));
    this.#running.add(making);
  }

  /** Gives the code its answers, in order, as far as it has made the calls. */
  #giveAnswers(): void {
    for (;;) {
      const seq = this.#order[this.#given];
      const answer = seq === undefined ? undefined : this.#answers.get(seq);
      if (seq === undefined || answer === undefined || !this.#waiting.delete(seq)) return;
      this.#given += 1;
      this.#sandboxed?.answer(seq, answer);
    }
  }

  #fail(thrown: unknown): void {
    this.#failure ??= thrown;
    this.#sandboxed?.stop();
  }

  /** Makes a call, and gives the code its answer. `isAgain`: it is not known whether the call ran before. */
  async #make(call: SandboxCall, isAgain: boolean): Promise<void> {
    const { facade, session, parent, run, signal, modules } = this.#host;
    const { seq } = call;
    const exposed = modules.get(call.module)?.functions.get(call.function)?.exposed;
    if (exposed === undefined) throw new TollgateError('INTERNAL');
    const args = parseJsonDoc(call.args);
    if (call.args.length > LARGE_INPUT_BYTES) await ownEventLoopTurn();
    const held = { isHeld: false };
    const named = run.slice(session.principal.id.length + 1);
    const reply = await facade.performInner(
      session,
      {
        name: exposed.name,
        args,
        parent,
        signal,
        ...(run !== session.id && { meta: { 'tollgate/run': named } }),
        onForward: () => {
          if (!this.#isDry) this.#log.noteSent(seq);
        },
      },
      { cap: VALUE_CAP, ...(this.#isDry ? this.#planning(seq, isAgain) : this.#asking(seq, isAgain, held)) },
    );
    if (held.isHeld) return;
    // This may be the failure of an interruption. When the run goes on, the call is made or asked about.
    if (signal.aborted || session.closed.aborted) return this.#sandboxed?.stop();
    if (reply.kind === 'result' && sizeOfText(reply.text) > LARGE_INPUT_BYTES) await ownEventLoopTurn();
    const answer: SandboxAnswer = this.#planned.has(seq) ? { kind: 'planned' } : answerOf(reply);
    if (!this.#isDry) this.#log.noteDone(seq, answer, facade.labelsOf(session, run));
    this.#answers.set(seq, answer);
    this.#order.push(seq);
    this.#giveAnswers();
  }

  /** A call that needs a person stops the run. Calls that have not started by then wait for its continuation. */
  #asking(seq: number, isAgain: boolean, held: { isHeld: boolean }): { gate: CallGate; obtain: Obtain } {
    let hasConsent = false;
    const hold = (): never => {
      held.isHeld = true;
      throw new TollgateError('APPROVAL_REQUIRED', { detail: 'The run of code waits for a person.' });
    };
    const asking = { id: this.#log.start.id, seq, ...(isAgain && { again: seq }) };
    return {
      gate: {
        asksAlways: isAgain,
        admit: () => {
          if (this.#asked !== undefined && !hasConsent) hold();
        },
      },
      obtain: async (call, approvals) => {
        if (this.#asked !== undefined) hold();
        const consent = this.#consents.get(seq);
        const given =
          consent !== undefined && isSameCall(consent.call, call)
            ? consent.id
            : await approvals.use({ ...call, asking });
        hasConsent = given !== undefined;
        if (given !== undefined) return given;
        this.#asked ??= { seq, call, isAgain };
        this.#sandboxed?.stop();
        return hold();
      },
    };
  }

  /** Only calls that read and that the policy allows are made. */
  #planning(seq: number, isAgain: boolean): { gate: CallGate; obtain: Obtain } {
    const plan = (effect: Effect, argsText: string, outcome: PlannedCall['outcome']): never => {
      this.#planned.set(seq, { seq, tool: `${effect.server}.${effect.tool}`, argsText, outcome });
      if (this.#planned.size >= MAX_PLANNED) this.#sandboxed?.stop();
      throw new TollgateError('PLANNED');
    };
    return {
      gate: {
        asksAlways: isAgain,
        admit: ({ effect, argsText }) => {
          if (effect.verb !== 'read') plan(effect, argsText, 'allow');
        },
      },
      obtain: async ({ effect, argsText }) => plan(effect, argsText, isAgain ? 'unknown' : 'ask'),
    };
  }
}

type Obtain = (call: CallToApprove, approvals: Approvals) => Promise<string | undefined>;

/** A consent counts for the call as it was: a link, a definition, the caller or the policy may have changed since. */
function isSameCall(one: CallToApprove, other: CallToApprove): boolean {
  const facts = ({ caller, effect, argsText, sentText, revision, pin }: CallToApprove): unknown[] => [
    caller.principal,
    effect,
    argsText,
    sentText,
    revision,
    pin,
  ];
  return isDeepStrictEqual(facts(one), facts(other));
}

function requireSame(
  logged: Pick<SandboxCall, 'module' | 'function' | 'args'>,
  { seq, module, function: name, args }: SandboxCall,
): void {
  if (logged.module === module && logged.function === name && logged.args === args) return;
  throw new TollgateError('CODE_DIVERGED', {
    detail: `Call ${seq} was ${logged.module} ${logged.function} before the wait, and is ${module} ${name} now.`,
  });
}

function answerOf(reply: Reply): SandboxAnswer {
  if (reply.kind === 'result') return { kind: 'result', text: joinText(reply.text) };
  const { code } = (reply.error.data ?? {}) as { readonly code?: unknown };
  return { kind: 'failure', error: reply.error.message, code: typeof code === 'string' ? code : 'TOOL_FAILED' };
}
