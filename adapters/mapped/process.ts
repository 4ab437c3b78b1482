/** Owns bash on a backend with processes: run, start, send, poll, kill, list; refuses what the backend cannot do to a stdin. */
import { randomBytes } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors.ts';
import { firstOf, note } from '../../catalogs/paging.ts';
import type { ToolResult } from '../../catalogs/tool.ts';
import { answer } from '../internal/text.ts';
import { wrapCommand } from './marks.ts';
import { newSession, refresh, terminate, waitFor, type Session } from './session.ts';
import { failure, find, step, type Work } from './work.ts';

const MAX_SESSIONS = 16;
const IDLE_MS = 30 * 60_000;
const RUN_MS = 120_000;
const MAX_RUN_MS = 600_000;
const WAIT_MS = 1000;
const MAX_WAIT_MS = 30_000;
/** Longest wait inside the backend; beyond it the output is polled, so that no single answer is late. */
const BACKEND_WAIT_MS = 20_000;
const LINES = 2000;

/** The sessions of one backend, by scope. */
export class Processes {
  readonly #scopes = new Map<string, Map<string, Session>>();
  #made = 0;

  /** Carries out a `bash` action. */
  async call(work: Work): Promise<ToolResult> {
    const action = work.args['action'] ?? 'run';
    if (action === 'run') return this.#run(work);
    if (action === 'start') return this.#start(work);
    if (action === 'list') return this.#list(work);
    const session = this.#find(work);
    session.touchedAt = Date.now();
    if (action === 'kill') return this.#kill(work, session);
    return action === 'send' ? this.#send(work, session) : this.#poll(work, session);
  }

  /** Ends what a scope left running; the first failure is thrown after all were tried. */
  async endScope(scope: string, work: Work): Promise<void> {
    const sessions = [...(this.#scopes.get(scope)?.values() ?? [])];
    this.#scopes.delete(scope);
    const ended = await Promise.allSettled(sessions.map((session) => terminate(work, session)));
    const failed = ended.find((outcome) => outcome.status === 'rejected');
    if (failed) throw failed.reason;
  }

  /** Scopes that have sessions. */
  scopes(): readonly string[] {
    return [...this.#scopes.keys()];
  }

  async #run(work: Work): Promise<ToolResult> {
    const ms = Math.max(1, Math.min(number(work, 'timeout_ms') ?? RUN_MS, MAX_RUN_MS));
    const session = await this.#spawn(work, Math.min(ms, BACKEND_WAIT_MS));
    try {
      await waitFor(work, session, { ms: session.startedAt + ms - Date.now(), until: () => false });
    } catch (error) {
      if (work.call.signal.aborted) await terminate(uncancelled(work), session);
      throw error;
    }
    if (session.ended) this.#of(work).delete(session.id);
    return show(work, session);
  }

  async #start(work: Work): Promise<ToolResult> {
    const ms = waitOf(work);
    const session = await this.#spawn(work, Math.max(1, ms));
    await waitFor(work, session, { ms: session.startedAt + ms - Date.now(), until: () => hasNews(session) });
    return show(work, session);
  }

  async #send(work: Work, session: Session): Promise<ToolResult> {
    await refresh(work, session);
    if (session.ended) throw over(session);
    const sent = await step(work, 'input', { pid: session.pid, input: String(work.args['input'] ?? '') });
    if (sent.failed) throw failure(work, sent);
    await waitFor(work, session, { ms: waitOf(work), until: () => hasNews(session) });
    return show(work, session);
  }

  async #poll(work: Work, session: Session): Promise<ToolResult> {
    const offset = number(work, 'offset');
    await waitFor(work, session, { ms: waitOf(work), until: () => offset !== undefined || hasNews(session) });
    return offset === undefined ? show(work, session) : showFrom(work, session, offset);
  }

  async #kill(work: Work, session: Session): Promise<ToolResult> {
    const was = session.ended;
    await terminate(work, session);
    this.#of(work).delete(session.id);
    return answer(unseen(session), note(was ? `session ${session.id} had ended: ${ending(session)}` : `session ${session.id} killed with its process group`));
  }

  async #list(work: Work): Promise<ToolResult> {
    const sessions = [...this.#of(work).values()];
    for (const session of sessions) await refresh(work, session);
    const lines = sessions.map((session) => {
      const age = Math.round((Date.now() - session.startedAt) / 1000);
      const unread = session.lines.length + session.dropped - session.seen;
      return `${session.id}  ${session.ended ? ending(session) : 'running'}  ${age} s  ${unread} unread lines  ${session.command.split('\n', 1)[0]}`;
    });
    return answer(lines.join('\n'), note(`${sessions.length} ${sessions.length === 1 ? 'session' : 'sessions'}`));
  }

  async #spawn(work: Work, wait: number): Promise<Session> {
    const command = work.args['command'];
    if (typeof command !== 'string' || command.trim() === '') throw new TollgateError('ARGS_INVALID', { detail: 'command is missing.', next: 'Give the shell command in command.' });
    const sessions = this.#of(work);
    await this.#makeRoom(work, sessions);
    const token = `@tollgate-${randomBytes(8).toString('hex')}`;
    const cwd = typeof work.args['cwd'] === 'string' ? work.args['cwd'] : work.root;
    const started = await step(work, 'spawn', { command: wrapCommand({ command, cwd, token }), wait });
    const blocked = find(work, 'blocked', started.text);
    if (blocked) throw new TollgateError('DENIED', { detail: `${work.inner.name} blocks this command by its own list` });
    const pid = Number(find(work, 'pid', started.text)?.['pid']);
    if (started.failed || !Number.isInteger(pid)) throw failure(work, started);
    this.#made += 1;
    const session = newSession({ id: `s${this.#made}`, pid, token, command });
    sessions.set(session.id, session);
    return session;
  }

  async #makeRoom(work: Work, sessions: Map<string, Session>): Promise<void> {
    for (const [id, session] of sessions) {
      if (Date.now() - session.touchedAt < IDLE_MS) continue;
      await terminate(work, session);
      sessions.delete(id);
    }
    const done = [...sessions.values()].find((session) => session.ended);
    if (sessions.size >= MAX_SESSIONS && done) sessions.delete(done.id);
    if (sessions.size < MAX_SESSIONS) return;
    throw new TollgateError('TOOL_FAILED', { detail: `${MAX_SESSIONS} sessions are running, which is the most.`, next: 'End one: bash action="kill" session="…"' });
  }

  #find(work: Work): Session {
    const id = work.args['session'];
    const session = this.#of(work).get(String(id));
    if (session) return session;
    throw new TollgateError('TOOL_FAILED', { detail: id === undefined ? 'session is missing.' : 'There is no such session.', next: 'List them: bash action="list"' });
  }

  #of(work: Work): Map<string, Session> {
    const known = this.#scopes.get(work.call.scope) ?? new Map<string, Session>();
    this.#scopes.set(work.call.scope, known);
    return known;
  }
}

/** What cannot be sent: the backend always ends input with a line end and never closes it. Pure; throws NOT_SUPPORTED. */
export function checkSend(args: Readonly<Record<string, unknown>>): void {
  if (args['action'] !== 'send') return;
  if (args['eof'] === true) throw new TollgateError('NOT_SUPPORTED', { detail: 'this backend cannot close the stdin of a session', next: 'Run the command with its input: command <<EOF … EOF' });
  if (args['raw'] === true && !String(args['input'] ?? '').endsWith('\n')) {
    throw new TollgateError('NOT_SUPPORTED', { detail: 'this backend always adds a line end to input', next: 'Send it without raw, or run the command with its input from printf.' });
  }
}

function uncancelled(work: Work): Work {
  return { ...work, call: { ...work.call, signal: AbortSignal.timeout(10_000), timeoutMs: 10_000, hardTimeoutMs: 10_000 } };
}

function number(work: Work, name: string): number | undefined {
  const value = work.args[name];
  return typeof value === 'number' ? value : undefined;
}

function waitOf(work: Work): number {
  return Math.max(0, Math.min(number(work, 'wait_ms') ?? WAIT_MS, MAX_WAIT_MS));
}

function hasNews(session: Session): boolean {
  return session.lines.length + session.dropped > session.seen || session.partial.length > session.seenPartial;
}

function over(session: Session): TollgateError {
  return new TollgateError('TOOL_FAILED', { detail: `session ${session.id} has ended: ${ending(session)}.`, next: `Read its output: bash action="poll" session="${session.id}"` });
}

/** Takes what the caller has not seen, and moves the cursor. */
function unseen(session: Session): string {
  const first = Math.max(0, session.seen - session.dropped);
  const fresh = [...session.lines.slice(first), ...(session.partial === '' ? [] : [session.partial])];
  const cut = session.seenPartial;
  session.seen = session.lines.length + session.dropped;
  session.seenPartial = session.partial.length;
  const text = fresh.join('\n');
  return cut > 0 ? text.slice(cut) : text;
}

function show(work: Work, session: Session): ToolResult {
  const lost = Math.max(0, session.dropped - session.seen);
  const text = unseen(session);
  const limit = number(work, 'limit') ?? LINES;
  if (limit < 1) throw new TollgateError('ARGS_INVALID', { detail: 'limit must be at least 1.', next: 'Leave limit out for the default.' });
  const lines = text.split('\n');
  const kept = lines.slice(-limit);
  const cut = kept.length < lines.length ? ` · last ${kept.length} of ${lines.length} lines` : '';
  const gone = lost > 0 ? ` · ${lost} earlier lines are lost` : '';
  return answer(kept.join('\n'), note(`${state(session)}${cut}${gone}`));
}

/** Lines from an offset, whether they were shown or not. */
function showFrom(work: Work, session: Session, offset: number): ToolResult {
  const total = session.lines.length + session.dropped;
  const from = firstOf({ offset, limit: number(work, 'limit') }, total);
  if (from <= session.dropped) throw new TollgateError('TOOL_FAILED', { detail: `line ${from} is no longer held; the first is ${session.dropped + 1}.`, next: `Use offset=${session.dropped + 1}.` });
  const index = from - 1 - session.dropped;
  const lines = session.lines.slice(index, index + (number(work, 'limit') ?? LINES));
  return answer(lines.join('\n'), note(`lines ${from}-${from + lines.length - 1} of ${total} · ${state(session)}`));
}

function state(session: Session): string {
  if (!session.ended) return `still running, session ${session.id}. Next: bash action="poll" session="${session.id}"`;
  const seconds = ((session.endedAt ?? session.startedAt) - session.startedAt) / 1000;
  return `${ending(session)} · ${seconds.toFixed(1)} s${session.torn ? ' · the backend may have lost the end of the output' : ''}`;
}

function ending(session: Session): string {
  return session.code === undefined ? 'ended, exit code unknown' : `exit ${session.code}`;
}
