/** `bash` through a backend that runs processes: run, start, send, poll, kill and list. */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import { type BashArgs, checkBashArguments } from '../shell/bash-action.ts';
import {
  continuedRun,
  killedReport,
  outputHistory,
  sessionList,
  sessionReport,
  wholeOutput,
} from '../shell/command-report.ts';
import { invalidArguments, toolFailure } from '../workspace/file-text.ts';
import { markCommand } from './command-markers.ts';
import { backendFailure, callMappingStep, type MappedCall, matchMappingText, requireSuccess } from './mapped-call.ts';
import { notSupported } from './mapped-file-facts.ts';
import { MappedSession } from './mapped-session.ts';

const MAX_SESSIONS = 16;
const IDLE_MS = 30 * 60_000;
const RUN_MS = 120_000;
const WAIT_MS = 1000;
/**
 * How long the backend waits at a start. It cannot be cancelled, because the process has no id until the backend
 * answers. After that, the output is polled.
 */
const BACKEND_WAIT_MS = 250;
/**
 * Time between turning a run into a session and the hard timeout of the call. Reading the output takes several calls.
 */
const MARGIN_MS = 3000;
const CLEANUP_MS = 10_000;

interface ScopeSessions {
  next: number;
  readonly sessions: Map<string, { readonly session: MappedSession; touchedAt: number }>;
}

/** The sessions of one backend, by scope. */
export class MappedProcesses {
  readonly #scopes = new Map<string, ScopeSessions>();

  /** Runs a `bash` action. */
  async call(call: MappedCall): Promise<ToolResult> {
    const action = call.args.action ?? 'run';
    if (action === 'run') return this.#run(call);
    if (action === 'start') return this.#start(call);
    if (action === 'list') return this.#list(call);
    const [id, session] = this.#requestedSession(call);
    if (action === 'kill') return kill(call, id, session);
    return action === 'send' ? send(call, id, session) : poll(call, id, session);
  }

  /** Ends all sessions of a scope, then throws the first failure. `call` has the timeouts for this. */
  async endScope(scope: string, call: MappedCall): Promise<void> {
    const scoped = this.#scopes.get(scope);
    this.#scopes.delete(scope);
    const ended = await Promise.allSettled(
      [...(scoped?.sessions.values() ?? [])].map(({ session }) => session.kill(call)),
    );
    const failure = ended.find((outcome) => outcome.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** True while a session may be running. The backend must not be stopped then to free its place. */
  get hasRunningSession(): boolean {
    return [...this.#scopes.values()].some(({ sessions }) =>
      [...sessions.values()].some(({ session }) => session.end === undefined),
    );
  }

  /** Returns the scopes that have had sessions. */
  scopes(): readonly string[] {
    return [...this.#scopes.keys()];
  }

  async #run(call: MappedCall): Promise<ToolResult> {
    const { timeout_ms = RUN_MS, limit } = call.args as BashArgs;
    const ms = Math.max(1, Math.min(timeout_ms, call.request.hardTimeoutMs - MARGIN_MS));
    await this.#removeIdleSessions(call);
    const session = await launch(call, false);
    try {
      await session.waitFor(call, { ms: session.startedAt + ms - Date.now(), until: () => false });
    } catch (error) {
      if (call.request.signal.aborted) await session.kill(uncancelled(call));
      throw error;
    }
    if (session.end !== undefined) return wholeOutput(session, limit);
    return continuedRun(this.#keep(call, session), session, { ms, limit });
  }

  async #start(call: MappedCall): Promise<ToolResult> {
    await this.#removeIdleSessions(call);
    const { wait_ms = WAIT_MS, limit } = call.args as BashArgs;
    const session = await launch(call, true);
    const id = this.#keep(call, session);
    await session.waitFor(call, { ms: session.startedAt + wait_ms - Date.now(), until: () => session.log.unread > 0 });
    return sessionReport(id, session, limit);
  }

  async #list(call: MappedCall): Promise<ToolResult> {
    const sessions = [...this.#sessionsOf(call).sessions].map(([id, { session }]) => [id, session] as const);
    for (const [, session] of sessions) await session.refresh(call);
    return sessionList(sessions);
  }

  /**
   * Ends sessions that were not used for half an hour. If the limit is still reached, forgets a session that has
   * ended.
   */
  async #removeIdleSessions(call: MappedCall): Promise<void> {
    const { sessions } = this.#sessionsOf(call);
    for (const [id, { session, touchedAt }] of sessions) {
      if (Date.now() - touchedAt < IDLE_MS) continue;
      await session.kill(call);
      sessions.delete(id);
    }
    if (sessions.size < MAX_SESSIONS) return;
    const ended = [...sessions].find(([, { session }]) => session.end !== undefined);
    if (!ended)
      throw toolFailure(
        `There are already ${MAX_SESSIONS} sessions.`,
        'End one: bash action="list", then action="kill".',
      );
    sessions.delete(ended[0]);
  }

  #keep(call: MappedCall, session: MappedSession): string {
    const scoped = this.#sessionsOf(call);
    const id = `s${(scoped.next += 1)}`;
    scoped.sessions.set(id, { session, touchedAt: Date.now() });
    return id;
  }

  #requestedSession(call: MappedCall): readonly [string, MappedSession] {
    const id = call.args.session;
    if (typeof id !== 'string')
      throw invalidArguments(`action="${call.args.action}" needs session.`, 'See bash action="list".');
    const entry = this.#sessionsOf(call).sessions.get(id);
    if (!entry) throw toolFailure('There is no session with this id.', 'See bash action="list".');
    entry.touchedAt = Date.now();
    return [id, entry.session];
  }

  #sessionsOf(call: MappedCall): ScopeSessions {
    const scoped = this.#scopes.get(call.request.scope) ?? { next: 0, sessions: new Map() };
    this.#scopes.set(call.request.scope, scoped);
    return scoped;
  }
}

/**
 * Checks that the backend can run this action. It always adds a line end to input, and cannot close stdin. Does no I/O.
 * Throws ARGS_INVALID and NOT_SUPPORTED.
 */
export function checkProcess(args: BashArgs): void {
  checkBashArguments(args);
  if (args.action !== 'send') return;
  if (args.eof === true)
    throw notSupported(
      'this backend cannot close the stdin of a session',
      'Run the command with its input: command <<EOF … EOF',
    );
  if (args.input === undefined)
    throw invalidArguments('action="send" needs input.', 'Set input to the text for stdin.');
  if (args.raw === true && !args.input.endsWith('\n'))
    throw notSupported('this backend always adds a line end to input', 'Send it without raw.');
}

async function launch(call: MappedCall, acceptsInput: boolean): Promise<MappedSession> {
  const token = `@tollgate-${randomBytes(8).toString('hex')}`;
  const command = String(call.args.command);
  const cwd = typeof call.args.cwd === 'string' ? call.args.cwd : call.root;
  const started = await callMappingStep(uncancelled(call), 'spawn', {
    command: markCommand({ command, cwd, token, input: acceptsInput }),
    wait: BACKEND_WAIT_MS,
  });
  if (matchMappingText(call, 'blocked', started.text))
    throw new TollgateError('DENIED', {
      detail: `${call.inner.name} blocks this command: it is on the list of blocked commands of this server.`,
    });
  const pid = Number(matchMappingText(call, 'pid', started.text)?.pid);
  if (started.failed || !Number.isInteger(pid)) throw backendFailure(call, started);
  return new MappedSession({ pid, token, command });
}

async function send(call: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  const { input, raw, wait_ms: ms = WAIT_MS, limit } = call.args as BashArgs;
  await session.refresh(call);
  if (session.end !== undefined)
    throw toolFailure('This session accepts no input: it has ended.', 'Start a new one with action="start".');
  const line = raw === true ? input : `${input}\n`;
  await requireSuccess(call, callMappingStep(call, 'input', { pid: session.pid, input: line }));
  await session.waitFor(call, { ms, until: () => session.log.unread > 0 });
  return sessionReport(id, session, limit);
}

async function poll(call: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  const { offset, limit, wait_ms: ms = WAIT_MS } = call.args as BashArgs;
  await session.waitFor(call, { ms, until: () => offset !== undefined || session.log.unread > 0 });
  return offset === undefined ? sessionReport(id, session, limit) : outputHistory(id, session, { offset, limit });
}

async function kill(call: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  const { limit } = call.args as BashArgs;
  await session.refresh(call);
  if (session.end !== undefined) return sessionReport(id, session, limit);
  await session.kill(call);
  return killedReport(id, session, limit);
}

function uncancelled(call: MappedCall): MappedCall {
  return {
    ...call,
    request: {
      ...call.request,
      signal: AbortSignal.timeout(CLEANUP_MS),
      timeoutMs: CLEANUP_MS,
      hardTimeoutMs: CLEANUP_MS,
    },
  };
}
