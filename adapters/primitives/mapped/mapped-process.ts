/** Owns bash on a backend with processes: run, start, send, poll, kill, list; refuses what the backend cannot do to a stdin. */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { note } from '../../../catalogs/text/text-pages.ts';
import type { ToolResult } from '../../../catalogs/tools/tool-definition.ts';
import {
  formatSeconds,
  newOutput,
  nextPollCall,
  outputHistory,
  sessionReport,
  wholeOutput,
} from '../shell/command-report.ts';
import { headOf, invalidArguments, printableName, textResult, toolFailure } from '../workspace/file-text.ts';
import { markCommand } from './command-markers.ts';
import { backendFailure, callMappingStep, type MappedCall, matchMappingText } from './mapped-call.ts';
import { notSupported } from './mapped-file-facts.ts';
import { MappedSession } from './mapped-session.ts';

/** Milliseconds and lines that may be asked for. */
const LIMITS = [
  ['timeout_ms', 600_000],
  ['wait_ms', 30_000],
  ['limit', 200_000],
] as const;
const MAX_SESSIONS = 16;
const IDLE_MS = 30 * 60_000;
const RUN_MS = 120_000;
const WAIT_MS = 1000;
/** Wait inside the backend at a start, which nobody can cancel: until it answers, the process has no name. Then the output is polled. */
const BACKEND_WAIT_MS = 250;
/** Kept between the promotion of a run and the facade's hard end of the call: reading the output takes several calls. */
const MARGIN_MS = 3000;
const CLEANUP_MS = 10_000;

interface Shelf {
  next: number;
  readonly sessions: Map<string, { readonly session: MappedSession; touchedAt: number }>;
}

/** The sessions of one backend, by scope. */
export class MappedProcesses {
  readonly #shelves = new Map<string, Shelf>();

  /** Carries out a `bash` action. */
  async call(work: MappedCall): Promise<ToolResult> {
    const action = work.args.action ?? 'run';
    if (action === 'run') return this.#run(work);
    if (action === 'start') return this.#start(work);
    if (action === 'list') return this.#list(work);
    const [id, session] = this.#wanted(work);
    if (action === 'kill') return kill(work, id, session);
    return action === 'send' ? send(work, id, session) : poll(work, id, session);
  }

  /** Ends what a scope left running; the first failure is thrown after all were tried. `work` carries time to do so. */
  async endScope(scope: string, work: MappedCall): Promise<void> {
    const shelf = this.#shelves.get(scope);
    this.#shelves.delete(scope);
    const ended = await Promise.allSettled(
      [...(shelf?.sessions.values() ?? [])].map(({ session }) => session.kill(work)),
    );
    const failure = ended.find((outcome) => outcome.status === 'rejected');
    if (failure) throw failure.reason;
  }

  /** True while a session may be running: its backend must not be given up for others. */
  get any(): boolean {
    return [...this.#shelves.values()].some(({ sessions }) =>
      [...sessions.values()].some(({ session }) => session.end === undefined),
    );
  }

  /** Scopes that have had sessions. */
  scopes(): readonly string[] {
    return [...this.#shelves.keys()];
  }

  async #run(work: MappedCall): Promise<ToolResult> {
    const ms = Math.max(1, Math.min(number(work, 'timeout_ms') ?? RUN_MS, work.call.hardTimeoutMs - MARGIN_MS));
    await this.#makeRoom(work);
    const session = await launch(work, false);
    try {
      await session.waitFor(work, { ms: session.startedAt + ms - Date.now(), until: () => false });
    } catch (error) {
      if (work.call.signal.aborted) await session.kill(uncancelled(work));
      throw error;
    }
    if (session.end !== undefined) return wholeOutput(session, number(work, 'limit'));
    const id = this.#keep(work, session);
    return textResult(
      newOutput(session, number(work, 'limit')),
      note(`not finished after ${formatSeconds(ms)}; it goes on as session ${id}, without stdin. ${nextPollCall(id)}`),
    );
  }

  async #start(work: MappedCall): Promise<ToolResult> {
    await this.#makeRoom(work);
    const wait = number(work, 'wait_ms') ?? WAIT_MS;
    const session = await launch(work, true);
    const id = this.#keep(work, session);
    await session.waitFor(work, { ms: session.startedAt + wait - Date.now(), until: () => session.log.unread > 0 });
    return sessionReport(id, session, number(work, 'limit'));
  }

  async #list(work: MappedCall): Promise<ToolResult> {
    const lines: string[] = [];
    for (const [id, { session }] of this.#shelf(work).sessions) {
      await session.refresh(work);
      const state = session.end === undefined ? 'running' : `exit ${session.end.code}`;
      lines.push(
        `${id} ${state}, age ${formatSeconds(Date.now() - session.startedAt)}, ${session.log.unread} unread lines: ${headOf(printableName(session.command), 200)}`,
      );
    }
    return textResult(lines.length > 0 ? lines.join('\n') : note('no sessions'));
  }

  /** Ends sessions that nobody asked for in half an hour, and forgets an ended one when all places are taken. */
  async #makeRoom(work: MappedCall): Promise<void> {
    const { sessions } = this.#shelf(work);
    for (const [id, { session, touchedAt }] of sessions) {
      if (Date.now() - touchedAt < IDLE_MS) continue;
      await session.kill(work);
      sessions.delete(id);
    }
    if (sessions.size < MAX_SESSIONS) return;
    const done = [...sessions].find(([, { session }]) => session.end !== undefined);
    if (!done)
      throw toolFailure(
        `There are ${MAX_SESSIONS} sessions already.`,
        'End one: bash action="list", then action="kill".',
      );
    sessions.delete(done[0]);
  }

  #keep(work: MappedCall, session: MappedSession): string {
    const shelf = this.#shelf(work);
    const id = `s${(shelf.next += 1)}`;
    shelf.sessions.set(id, { session, touchedAt: Date.now() });
    return id;
  }

  #wanted(work: MappedCall): readonly [string, MappedSession] {
    const id = work.args.session;
    if (typeof id !== 'string')
      throw invalidArguments(`action="${work.args.action}" needs session.`, 'See bash action="list".');
    const kept = this.#shelf(work).sessions.get(id);
    if (!kept) throw toolFailure('There is no such session.', 'See bash action="list".');
    kept.touchedAt = Date.now();
    return [id, kept.session];
  }

  #shelf(work: MappedCall): Shelf {
    const known = this.#shelves.get(work.call.scope) ?? { next: 0, sessions: new Map() };
    this.#shelves.set(work.call.scope, known);
    return known;
  }
}

/** What cannot be run or sent: the backend always ends input with a line end and never closes it. Pure; throws NOT_SUPPORTED. */
export function checkProcess(args: Readonly<Record<string, unknown>>): void {
  const { action = 'run', command } = args;
  for (const [name, most] of LIMITS) {
    const value = args[name];
    if (typeof value === 'number' && (value < (name === 'wait_ms' ? 0 : 1) || value > most))
      throw invalidArguments(`${name} must be at most ${most}.`, `Leave ${name} out for the default.`);
  }
  if (typeof command === 'string' && command.includes('\0'))
    throw invalidArguments('command holds NUL.', 'Give plain text.');
  if ((action === 'run' || action === 'start') && (typeof command !== 'string' || command.trim() === ''))
    throw invalidArguments(`action="${action}" needs command.`, 'Give the shell command.');
  if (action !== 'send') return;
  if (args.eof === true)
    throw notSupported(
      'this backend cannot close the stdin of a session',
      'Run the command with its input: command <<EOF … EOF',
    );
  if (typeof args.input !== 'string') throw invalidArguments('action="send" needs input.', 'Give the text for stdin.');
  if (args.raw === true && !args.input.endsWith('\n'))
    throw notSupported('this backend always adds a line end to input', 'Send it without raw.');
}

async function launch(work: MappedCall, input: boolean): Promise<MappedSession> {
  const token = `@tollgate-${randomBytes(8).toString('hex')}`;
  const command = String(work.args.command);
  const cwd = typeof work.args.cwd === 'string' ? work.args.cwd : work.root;
  const started = await callMappingStep(uncancelled(work), 'spawn', {
    command: markCommand({ command, cwd, token, input }),
    wait: BACKEND_WAIT_MS,
  });
  if (matchMappingText(work, 'blocked', started.text))
    throw new TollgateError('DENIED', { detail: `${work.inner.name} blocks this command by its own list.` });
  const pid = Number(matchMappingText(work, 'pid', started.text)?.pid);
  if (started.failed || !Number.isInteger(pid)) throw backendFailure(work, started);
  return new MappedSession({ pid, token, command });
}

async function send(work: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  await session.refresh(work);
  if (session.end !== undefined)
    throw toolFailure('This session takes no input: it has ended.', 'Start a new one with action="start".');
  const input = String(work.args.input) + (work.args.raw === true ? '' : '\n');
  const sent = await callMappingStep(work, 'input', { pid: session.pid, input });
  if (sent.failed) throw backendFailure(work, sent);
  await session.waitFor(work, { ms: number(work, 'wait_ms') ?? WAIT_MS, until: () => session.log.unread > 0 });
  return sessionReport(id, session, number(work, 'limit'));
}

async function poll(work: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  const offset = number(work, 'offset');
  const ms = number(work, 'wait_ms') ?? WAIT_MS;
  await session.waitFor(work, { ms, until: () => offset !== undefined || session.log.unread > 0 });
  if (offset === undefined) return sessionReport(id, session, number(work, 'limit'));
  return outputHistory(id, session, { offset, limit: number(work, 'limit') });
}

async function kill(work: MappedCall, id: string, session: MappedSession): Promise<ToolResult> {
  await session.refresh(work);
  if (session.end !== undefined) return sessionReport(id, session, number(work, 'limit'));
  await session.kill(work);
  return textResult(newOutput(session, number(work, 'limit')), note(`session ${id} and all its processes were ended`));
}

function number(work: MappedCall, name: string): number | undefined {
  const value = work.args[name];
  return typeof value === 'number' ? value : undefined;
}

function uncancelled(work: MappedCall): MappedCall {
  return {
    ...work,
    call: { ...work.call, signal: AbortSignal.timeout(CLEANUP_MS), timeoutMs: CLEANUP_MS, hardTimeoutMs: CLEANUP_MS },
  };
}
