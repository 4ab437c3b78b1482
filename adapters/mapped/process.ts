/** Owns bash on a backend with processes: run, start, send, poll, kill, list; refuses what the backend cannot do to a stdin. */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors.ts';
import { note } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { history, news, nextPoll, report, seconds, whole } from '../internal/report.ts';
import { answer, failed, headOf, invalid, printable } from '../internal/text.ts';
import { unsupported } from './facts.ts';
import { markCommand } from './marks.ts';
import { RemoteSession } from './session.ts';
import { failure, find, step, type Work } from './work.ts';

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
  readonly sessions: Map<string, { readonly session: RemoteSession; touchedAt: number }>;
}

/** The sessions of one backend, by scope. */
export class Processes {
  readonly #shelves = new Map<string, Shelf>();

  /** Carries out a `bash` action. */
  async call(work: Work): Promise<ToolResult> {
    const action = work.args.action ?? 'run';
    if (action === 'run') return this.#run(work);
    if (action === 'start') return this.#start(work);
    if (action === 'list') return this.#list(work);
    const [id, session] = this.#wanted(work);
    if (action === 'kill') return kill(work, id, session);
    return action === 'send' ? send(work, id, session) : poll(work, id, session);
  }

  /** Ends what a scope left running; the first failure is thrown after all were tried. `work` carries time to do so. */
  async endScope(scope: string, work: Work): Promise<void> {
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

  async #run(work: Work): Promise<ToolResult> {
    const ms = Math.max(1, Math.min(number(work, 'timeout_ms') ?? RUN_MS, work.call.hardTimeoutMs - MARGIN_MS));
    await this.#makeRoom(work);
    const session = await launch(work, false);
    try {
      await session.waitFor(work, { ms: session.startedAt + ms - Date.now(), until: () => false });
    } catch (error) {
      if (work.call.signal.aborted) await session.kill(uncancelled(work));
      throw error;
    }
    if (session.end !== undefined) return whole(session, number(work, 'limit'));
    const id = this.#keep(work, session);
    return answer(
      news(session, number(work, 'limit')),
      note(`not finished after ${seconds(ms)}; it goes on as session ${id}, without stdin. ${nextPoll(id)}`),
    );
  }

  async #start(work: Work): Promise<ToolResult> {
    await this.#makeRoom(work);
    const wait = number(work, 'wait_ms') ?? WAIT_MS;
    const session = await launch(work, true);
    const id = this.#keep(work, session);
    await session.waitFor(work, { ms: session.startedAt + wait - Date.now(), until: () => session.log.unread > 0 });
    return report(id, session, number(work, 'limit'));
  }

  async #list(work: Work): Promise<ToolResult> {
    const lines: string[] = [];
    for (const [id, { session }] of this.#shelf(work).sessions) {
      await session.refresh(work);
      const state = session.end === undefined ? 'running' : `exit ${session.end.code}`;
      lines.push(
        `${id} ${state}, age ${seconds(Date.now() - session.startedAt)}, ${session.log.unread} unread lines: ${headOf(printable(session.command), 200)}`,
      );
    }
    return answer(lines.length > 0 ? lines.join('\n') : note('no sessions'));
  }

  /** Ends sessions that nobody asked for in half an hour, and forgets an ended one when all places are taken. */
  async #makeRoom(work: Work): Promise<void> {
    const { sessions } = this.#shelf(work);
    for (const [id, { session, touchedAt }] of sessions) {
      if (Date.now() - touchedAt < IDLE_MS) continue;
      await session.kill(work);
      sessions.delete(id);
    }
    if (sessions.size < MAX_SESSIONS) return;
    const done = [...sessions].find(([, { session }]) => session.end !== undefined);
    if (!done)
      throw failed(`There are ${MAX_SESSIONS} sessions already.`, 'End one: bash action="list", then action="kill".');
    sessions.delete(done[0]);
  }

  #keep(work: Work, session: RemoteSession): string {
    const shelf = this.#shelf(work);
    const id = `s${(shelf.next += 1)}`;
    shelf.sessions.set(id, { session, touchedAt: Date.now() });
    return id;
  }

  #wanted(work: Work): readonly [string, RemoteSession] {
    const id = work.args.session;
    if (typeof id !== 'string') throw invalid(`action="${work.args.action}" needs session.`, 'See bash action="list".');
    const kept = this.#shelf(work).sessions.get(id);
    if (!kept) throw failed('There is no such session.', 'See bash action="list".');
    kept.touchedAt = Date.now();
    return [id, kept.session];
  }

  #shelf(work: Work): Shelf {
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
      throw invalid(`${name} must be at most ${most}.`, `Leave ${name} out for the default.`);
  }
  if (typeof command === 'string' && command.includes('\0')) throw invalid('command holds NUL.', 'Give plain text.');
  if ((action === 'run' || action === 'start') && (typeof command !== 'string' || command.trim() === ''))
    throw invalid(`action="${action}" needs command.`, 'Give the shell command.');
  if (action !== 'send') return;
  if (args.eof === true)
    throw unsupported(
      'this backend cannot close the stdin of a session',
      'Run the command with its input: command <<EOF … EOF',
    );
  if (typeof args.input !== 'string') throw invalid('action="send" needs input.', 'Give the text for stdin.');
  if (args.raw === true && !args.input.endsWith('\n'))
    throw unsupported('this backend always adds a line end to input', 'Send it without raw.');
}

async function launch(work: Work, input: boolean): Promise<RemoteSession> {
  const token = `@tollgate-${randomBytes(8).toString('hex')}`;
  const command = String(work.args.command);
  const cwd = typeof work.args.cwd === 'string' ? work.args.cwd : work.root;
  const started = await step(uncancelled(work), 'spawn', {
    command: markCommand({ command, cwd, token, input }),
    wait: BACKEND_WAIT_MS,
  });
  if (find(work, 'blocked', started.text))
    throw new TollgateError('DENIED', { detail: `${work.inner.name} blocks this command by its own list.` });
  const pid = Number(find(work, 'pid', started.text)?.pid);
  if (started.failed || !Number.isInteger(pid)) throw failure(work, started);
  return new RemoteSession({ pid, token, command });
}

async function send(work: Work, id: string, session: RemoteSession): Promise<ToolResult> {
  await session.refresh(work);
  if (session.end !== undefined)
    throw failed('This session takes no input: it has ended.', 'Start a new one with action="start".');
  const input = String(work.args.input) + (work.args.raw === true ? '' : '\n');
  const sent = await step(work, 'input', { pid: session.pid, input });
  if (sent.failed) throw failure(work, sent);
  await session.waitFor(work, { ms: number(work, 'wait_ms') ?? WAIT_MS, until: () => session.log.unread > 0 });
  return report(id, session, number(work, 'limit'));
}

async function poll(work: Work, id: string, session: RemoteSession): Promise<ToolResult> {
  const offset = number(work, 'offset');
  const ms = number(work, 'wait_ms') ?? WAIT_MS;
  await session.waitFor(work, { ms, until: () => offset !== undefined || session.log.unread > 0 });
  if (offset === undefined) return report(id, session, number(work, 'limit'));
  return history(id, session, { offset, limit: number(work, 'limit') });
}

async function kill(work: Work, id: string, session: RemoteSession): Promise<ToolResult> {
  await session.refresh(work);
  if (session.end !== undefined) return report(id, session, number(work, 'limit'));
  await session.kill(work);
  return answer(news(session, number(work, 'limit')), note(`session ${id} and all its processes were ended`));
}

function number(work: Work, name: string): number | undefined {
  const value = work.args[name];
  return typeof value === 'number' ? value : undefined;
}

function uncancelled(work: Work): Work {
  return {
    ...work,
    call: { ...work.call, signal: AbortSignal.timeout(CLEANUP_MS), timeoutMs: CLEANUP_MS, hardTimeoutMs: CLEANUP_MS },
  };
}
