/**
 * The runs of code of a state folder. A run that stopped for a person, or whose process ended, is continued from its
 * log by the next call with the same code: no call is made twice.
 */
import { createHash, randomInt } from 'node:crypto';
import path from 'node:path';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import type { Principal } from '../../policies/port.ts';
import { type PlanLine, proposeTerms, type ShownRun } from '../consent/approvals/loop-approval.ts';
import type { Redactor } from '../output/redactor.ts';
import type { State } from '../state/state-port.ts';
import {
  type AskedCall,
  CodeExecution,
  type ExecutionEnd,
  type GivenConsent,
  type PlannedCall,
  type RunHost,
} from './code-execution.ts';
import { type LoggedCall, RunLog, type RunStart } from './run-log.ts';
import type { SandboxOutcome } from './sandbox/sandbox-program.ts';

/** What runs are kept in. */
export interface CodeRunsParts {
  readonly state: State;
  /** The state folder. */
  readonly folder: string;
  readonly redactor: Redactor;
  /** Milliseconds after which a run that does not go on is forgotten. */
  readonly keepMs: () => number;
  /** Milliseconds that an owner has to decide, and that a proposed loop is valid. */
  readonly expireMs: () => number;
  readonly now: () => number;
}

/** A run that has not ended, as the shared state has it. */
interface OpenRun {
  readonly principal: string;
  /** A host of an owner acts for many origins as one principal. */
  readonly origin: string;
  /** Digest of the code and its arguments. */
  readonly code: string;
  readonly since: number;
  /** The mark of the process that executes it; empty while it waits. */
  readonly owner: string;
}

/** How a run ended, and whether it continued an earlier one. */
export interface FinishedRun {
  readonly id: string;
  readonly outcome: SandboxOutcome;
  readonly continued: boolean;
}

const SPACE = 'code-runs';
const FOLDER = 'code-runs';
/** Without letters and digits that look alike. */
const LETTERS = '23456789abcdefghjkmnpqrstuvwxyz';
const ID_LENGTH = 10;
/** Characters of the arguments of all calls that the proposed terms of a loop cover. */
const TERMS_CHARS = 100_000;
/** Runs of one principal that have not ended. Each has a log on the disk. */
const MAX_UNFINISHED = 32;
/** Characters of the arguments of one call that a person is shown. */
const ARGS_CHARS = 500;
/**
 * Milliseconds that a run is kept after its end: until then its caller has the reply. If the process is killed before,
 * the next call with the same code gets the result from the log, and makes no call twice.
 */
const REPLY_MS = 1_000;

/** All runs. Methods throw STATE_FAILED. */
export class CodeRuns {
  readonly #parts: CodeRunsParts;
  readonly #folder: string;
  /** Runs that have ended and are kept for REPLY_MS. This process counts as executing them. */
  readonly #ended = new Map<string, NodeJS.Timeout>();

  constructor(parts: CodeRunsParts) {
    this.#parts = parts;
    this.#folder = path.join(parts.folder, FOLDER);
  }

  /**
   * Runs code, or continues the run of the same principal with the same code and arguments that has not ended. Throws
   * APPROVAL_REQUIRED if no person decided in time, and what an execution throws.
   */
  async run(host: RunHost, program: Pick<RunStart, 'code' | 'args' | 'variables'>): Promise<FinishedRun> {
    await this.#sweep();
    const { state, now } = this.#parts;
    const { id: principal, origin } = host.session.principal;
    const digest = digestOf(program);
    const unfinished: string[] = [];
    for (const [id, text] of state.list(SPACE)) {
      const open = JSON.parse(text) as OpenRun;
      if (!isOf(open, host.session.principal)) continue;
      if (!this.#ended.has(id)) unfinished.push(id);
      if (open.code !== digest || this.#isRunning(open)) continue;
      const log = await this.#claim(id, text);
      if (log !== undefined) return this.#drive(host, log, true);
    }
    if (unfinished.length >= MAX_UNFINISHED) throw tooMany(unfinished);
    const id = Array.from({ length: ID_LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join('');
    const since = now();
    const open: OpenRun = { principal, origin, code: digest, since, owner: state.mark() };
    await state.put(SPACE, id, JSON.stringify(open));
    const { parallel } = host.limits;
    // The code and its variables may contain what the session has read, and another session may continue the run.
    const labels = host.facade.labelsOf(host.session, host.run);
    const log = await this.#opened(id, () =>
      RunLog.create(this.#folder, { ...program, id, principal, startedAt: since, parallel, labels }),
    );
    return this.#drive(host, log, false);
  }

  /** Continues a run. Throws ARGS_INVALID if the principal has no such run, or if it is executed elsewhere. */
  async resume(host: RunHost, id: string): Promise<FinishedRun> {
    return this.#drive(host, await this.#own(host.session.principal, id), true);
  }

  /** Forgets a run. Throws as `resume` does. */
  async discard(principal: Principal, id: string): Promise<void> {
    (await this.#own(principal, id)).close();
    await this.#forget(id);
  }

  /** Forgets the runs that have ended. Call it after the last reply. */
  close(): void {
    for (const [id, timer] of this.#ended) {
      clearTimeout(timer);
      this.#forgetEnded(id);
    }
  }

  /** Takes a run of a principal over. */
  async #own(principal: Principal, id: string): Promise<RunLog> {
    const { state } = this.#parts;
    await state.refresh();
    const text = state.get(SPACE, id);
    const open = text === undefined ? undefined : (JSON.parse(text) as OpenRun);
    if (text === undefined || open === undefined || !isOf(open, principal) || this.#ended.has(id)) throw noRun(id);
    const log = this.#isRunning(open) ? undefined : await this.#claim(id, text);
    if (log === undefined)
      throw state.get(SPACE, id) === undefined
        ? noRun(id)
        : new TollgateError('ARGS_INVALID', {
            detail: `Run ${id} is executed by another call now.`,
            next: 'Wait for the answer of that call.',
          });
    return log;
  }

  #isRunning({ owner }: OpenRun): boolean {
    return owner !== '' && this.#parts.state.isAlive(owner);
  }

  /** Returns undefined if another process was faster. A run without a log has made no call and is forgotten. */
  async #claim(id: string, text: string): Promise<RunLog | undefined> {
    const { state } = this.#parts;
    const open: OpenRun = { ...(JSON.parse(text) as OpenRun), owner: state.mark() };
    if (!(await state.swap(SPACE, id, { from: text, to: JSON.stringify(open) }))) return undefined;
    const log = await this.#opened(id, () => RunLog.open(this.#folder, id));
    if (log === undefined) await this.#forget(id);
    return log;
  }

  /** Opens a log. If that fails, this process does not count as executing the run. */
  async #opened<Log>(id: string, open: () => Log | Promise<Log>): Promise<Log> {
    try {
      return await open();
    } catch (thrown) {
      await this.#release(id);
      throw thrown;
    }
  }

  async #forget(id: string): Promise<void> {
    RunLog.remove(this.#folder, id);
    await this.#parts.state.remove(SPACE, id);
  }

  /** Without its log, a run that stays in the state is forgotten by the next process that finds it. */
  #forgetEnded(id: string): void {
    this.#ended.delete(id);
    this.#forget(id).catch(() => undefined);
  }

  /** Forgets runs that did not go on for too long. */
  async #sweep(): Promise<void> {
    const { state, keepMs, now } = this.#parts;
    await state.refresh();
    for (const [id, text] of state.list(SPACE)) {
      const open = JSON.parse(text) as OpenRun;
      if (open.since < now() - keepMs() && !this.#isRunning(open)) await this.#forget(id);
    }
  }

  /** Executes a run until it ends or waits for a person. */
  async #drive(host: RunHost, log: RunLog, continued: boolean): Promise<FinishedRun> {
    const { id } = log.start;
    let hasEnded = false;
    try {
      await host.facade.joinLabels(host.session, host.run, log.labels);
      const { outcome } = await this.#execute(host, log);
      // A run that was cancelled or switched off goes on with the next call. A client that did not wait long enough
      // would otherwise repeat what the run has done.
      hasEnded = outcome.kind !== 'stopped';
      return { id, outcome, continued };
    } catch (thrown) {
      const { code } = asTollgateError(thrown);
      hasEnded = code === 'CODE_LIMIT' || code === 'CODE_DIVERGED';
      throw code === 'APPROVAL_REQUIRED' ? waitingError(asTollgateError(thrown), id) : thrown;
    } finally {
      log.close();
      if (hasEnded) this.#ended.set(id, setTimeout(() => this.#forgetEnded(id), REPLY_MS).unref());
      else await this.#release(id);
    }
  }

  async #execute(host: RunHost, log: RunLog): Promise<ExecutionEnd> {
    const consents = new Map<number, GivenConsent>();
    for (let last = 0; ; ) {
      const end = await new CodeExecution(host, log, { isDry: false, consents }).run();
      const { asked } = end;
      if (asked === undefined) return end;
      const given = await this.#ask(host, log, asked).catch((thrown: unknown) => {
        // The call itself gets the refusal when it is made again.
        if (isRefusalOfCall(thrown) && asked.seq !== last) return undefined;
        throw thrown;
      });
      if (given !== undefined) consents.set(asked.seq, { id: given, call: asked.call });
      last = asked.seq;
    }
  }

  /** Asks a person about a call, and shows what would follow. */
  async #ask(host: RunHost, log: RunLog, asked: AskedCall): Promise<string | undefined> {
    const { seq, call, isAgain } = asked;
    const { revision } = call;
    const { plan } = log;
    if (plan?.seq !== seq || plan.isAgain !== isAgain || plan.revision !== revision)
      log.notePlan({ seq, isAgain, revision, shown: await this.#show(host, log, asked) });
    const shown = log.plan?.shown;
    const asking = { id: log.start.id, seq, ...(isAgain && { again: seq }), ...(shown !== undefined && { shown }) };
    const caller = { ...call.caller, startedAt: this.#parts.now() };
    return host.facade.askPerson({ ...call, caller, asking });
  }

  async #show(host: RunHost, log: RunLog, { call }: AskedCall): Promise<ShownRun> {
    const end = await new CodeExecution(host, log, { isDry: true }).run();
    const tool = `${call.effect.server}.${call.effect.tool}`;
    // The approval of a loop only answers "ask", so calls that the policy allows need no place in it.
    const same = end.planned.filter((one) => one.tool === tool && one.outcome === 'ask');
    const args = proposable(same).map(({ argsText }) => JSON.parse(argsText) as Readonly<Record<string, unknown>>);
    const mask = (text: string): string => this.#parts.redactor.redact(text).value.replaceAll('[redacted]', '***');
    const slices = new TimeSlices();
    const shown = async (text: string): Promise<string> => {
      if (slices.isDue) await slices.rest();
      return cut(mask(text));
    };
    const made: PlanLine[] = [];
    for (const one of [...log.calls.values()].sort((left, right) => left.seq - right.seq))
      if (one.isSent || one.answer !== undefined) made.push(shownCall(one, await shown(one.args)));
    const planned: PlanLine[] = [];
    for (const { seq, tool: name, argsText, outcome } of end.planned)
      planned.push({ seq, tool: name, args: await shown(argsText), outcome });
    return {
      code: mask(log.start.code),
      made,
      planned,
      end: endOf(end),
      proposal: JSON.parse(mask(JSON.stringify(proposeTerms(args, this.#parts.expireMs())))) as ShownRun['proposal'],
    };
  }

  async #release(id: string): Promise<void> {
    const { state } = this.#parts;
    const text = state.get(SPACE, id);
    if (text === undefined) return;
    const open: OpenRun = { ...(JSON.parse(text) as OpenRun), owner: '' };
    await state.swap(SPACE, id, { from: text, to: JSON.stringify(open) });
  }
}

function isOf(open: OpenRun, { id, origin }: Principal): boolean {
  return open.principal === id && open.origin === origin;
}

function tooMany(ids: readonly string[]): TollgateError {
  return new TollgateError('CODE_LIMIT', {
    detail: `${ids.length} runs have not ended: ${ids.join(', ')}. No more can begin.`,
    next: 'Continue one with {"resume": "ID"}, or forget one with {"discard": "ID"}.',
  });
}

/** Variables are left out: they differ after each run. */
function digestOf({ code, args }: Pick<RunStart, 'code' | 'args'>): string {
  return createHash('sha256')
    .update(JSON.stringify([code, args]))
    .digest('hex');
}

/** Refusals that belong to the call that asked, not to the run. */
function isRefusalOfCall(thrown: unknown): boolean {
  const { code } = asTollgateError(thrown);
  return code === 'DENIED' || code === 'PIN_MISMATCH' || code === 'SWITCHED_OFF' || code === 'SERVER_UNAVAILABLE';
}

function noRun(id: string): TollgateError {
  return new TollgateError('ARGS_INVALID', {
    detail: `There is no run ${id} to continue: it has ended, it had not made a call, or it was too old.`,
    next: 'Call run_code with code.',
  });
}

function waitingError(thrown: TollgateError, id: string): TollgateError {
  return new TollgateError('APPROVAL_REQUIRED', {
    detail: thrown.message,
    next:
      `Run ${id} waits. After the decision, call run_code with {"resume": "${id}"} or with the same code: ` +
      'it goes on, and makes no call twice.',
    data: { ...thrown.data, coderun: id },
    cause: thrown,
  });
}

/** Returns the first calls whose arguments a person can be shown completely as terms, at least one. */
function proposable(calls: readonly PlannedCall[]): readonly PlannedCall[] {
  let left = TERMS_CHARS;
  return calls.filter(({ argsText }, at) => (left -= argsText.length) >= 0 || at === 0);
}

function shownCall({ seq, module, function: name, answer }: LoggedCall, args: string): PlanLine {
  const outcome = answer === undefined ? 'unknown' : isFailed(answer) ? 'failed' : 'done';
  return { seq, tool: `${module.replace(/^host:(mcp-)?/, '')}.${name}`, args, outcome };
}

function isFailed(answer: NonNullable<LoggedCall['answer']>): boolean {
  return answer.kind === 'failure' || (answer.kind === 'result' && answer.text.includes('"isError":true'));
}

function cut(text: string): string {
  return text.length <= ARGS_CHARS ? text : `${text.slice(0, ARGS_CHARS)}… (${text.length} characters)`;
}

/** Returns what ended a dry run, for the person who reads the plan. */
function endOf({
  outcome,
  planned,
}: {
  readonly outcome: SandboxOutcome;
  readonly planned: readonly PlannedCall[];
}): string {
  if (outcome.kind === 'returned')
    return 'The code ends after these calls, unless it behaves differently in a dry run.';
  if (outcome.kind === 'used-planned')
    return `The code uses the result of call ${outcome.seq}, so it is not known what follows.`;
  if (outcome.kind === 'failed') return `The code fails after these calls: ${outcome.message}`;
  return `Only the first ${planned.length} calls are shown; more may follow.`;
}
