/** Owns the output of one command on a backend: an own buffer and cursor over pages that repeat and shift; refuses to guess an exit code. */
import { TollgateError } from '../../catalogs/errors.ts';
import { endGroupCommand, findMarks, readPage, type OutputPage } from './marks.ts';
import { find, step, type Work } from './work.ts';

const PAGE_LINES = 2000;
const MAX_LINES = 200_000;
const POLL_MS = 150;
const KILL_WAIT_MS = 6000;

/** A command that runs or ran. Lines are those of the command, without marks. */
export interface Session {
  readonly id: string;
  readonly pid: number;
  readonly token: string;
  readonly command: string;
  readonly startedAt: number;
  /** Process group of the command, once its first mark was read. */
  group?: number;
  /** Next line of the backend to read; its line 0 cannot be asked for. */
  next: number;
  evicted: number;
  began: boolean;
  lines: string[];
  /** Lines dropped from the front, by the backend or here. */
  dropped: number;
  partial: string;
  /** Lines and characters of the last line that the caller has seen. */
  seen: number;
  seenPartial: number;
  ended: boolean;
  code?: number;
  /** The last mark never came: the end of the output may be missing. */
  torn: boolean;
  endedAt?: number;
  touchedAt: number;
}

/** A session as it begins. */
export function newSession(given: Pick<Session, 'id' | 'pid' | 'token' | 'command'>): Session {
  const now = Date.now();
  return { ...given, startedAt: now, touchedAt: now, next: 1, evicted: 0, began: false, lines: [], dropped: 0, partial: '', seen: 0, seenPartial: 0, ended: false, torn: false };
}

/** Takes all output that the backend holds by now. */
export async function refresh(work: Work, session: Session): Promise<void> {
  while (!session.ended) {
    const page = await readOutput(work, session.pid, { start: Math.max(1, session.next - session.evicted), count: PAGE_LINES });
    if (!page) {
      end(session, undefined);
      return;
    }
    take(session, page);
    const atEnd = page.start + page.lines.length >= page.total;
    if (page.ended !== undefined && atEnd) await conclude(work, session, page);
    if (atEnd) return;
  }
}

/** Waits until `until` holds, the command ends or the time is over; looks every 150 ms, since the backend cannot wait at an offset. */
export async function waitFor(work: Work, session: Session, wait: { readonly ms: number; readonly until: () => boolean }): Promise<void> {
  const deadline = Date.now() + wait.ms;
  for (;;) {
    await refresh(work, session);
    const left = deadline - Date.now();
    if (session.ended || wait.until() || left <= 0) return;
    await pause(Math.min(POLL_MS, left), work.call.signal);
  }
}

/** Ends the command's process group, then the shell around it, and checks both. Throws TOOL_FAILED when something is left. */
export async function terminate(work: Work, session: Session): Promise<void> {
  if (session.ended) return;
  if (session.group === undefined) await refresh(work, session);
  const group = session.group;
  if (group !== undefined && !session.ended) await endGroup(work, group);
  await step(work, 'terminate', { pid: session.pid });
  const deadline = Date.now() + KILL_WAIT_MS;
  while (await isListed(work, session.pid)) {
    if (Date.now() > deadline) throw new TollgateError('TOOL_FAILED', { detail: `session ${session.id} is still running`, next: `Try again: bash action="kill" session="${session.id}"` });
    await pause(POLL_MS, work.call.signal);
  }
  await refresh(work, session);
  if (!session.ended) end(session, undefined);
}

/** True when the backend still lists the process. */
async function isListed(work: Work, pid: number): Promise<boolean> {
  const { text } = await step(work, 'sessions', {});
  return text.split('\n').some((line) => Number(find(work, 'sessionLine', line)?.['pid']) === pid);
}

async function endGroup(work: Work, group: number): Promise<void> {
  const answer = await step(work, 'spawn', { command: endGroupCommand(group), wait: KILL_WAIT_MS });
  const pid = Number(find(work, 'pid', answer.text)?.['pid']);
  if (!Number.isInteger(pid)) throw new TollgateError('TOOL_FAILED', { detail: `${work.inner.name} could not signal the process group` });
  const deadline = Date.now() + KILL_WAIT_MS;
  for (;;) {
    const page = await readOutput(work, pid, { start: -5, count: 5 });
    if (page?.lines.includes('gone')) return;
    if (!page || page.lines.includes('left') || Date.now() > deadline) break;
    await pause(POLL_MS, work.call.signal);
  }
  throw new TollgateError('TOOL_FAILED', { detail: 'some processes of the session could not be ended', next: 'Look for them with bash command="ps -ef".' });
}

async function readOutput(work: Work, pid: number, range: { readonly start: number; readonly count: number }): Promise<OutputPage | undefined> {
  const answer = await step(work, 'output', { pid, ...range });
  return answer.failed ? undefined : readPage(work.mapping, answer.text);
}

/** Moves a page into the buffer. The last line of a running command may still grow: it is kept apart. */
function take(session: Session, page: OutputPage): void {
  if (page.evicted > session.evicted) {
    const missed = page.start + page.evicted - session.next;
    if (missed > 0) session.dropped += missed;
    session.evicted = page.evicted;
  }
  const open = page.ended === undefined && page.start + page.lines.length >= page.total;
  const whole = open ? page.lines.slice(0, -1) : page.lines;
  session.next = page.start + page.evicted + whole.length;
  const last = open ? (page.lines.at(-1) ?? '') : '';
  push(session, whole);
  session.partial = session.began && !session.ended && !last.startsWith(session.token) ? last : '';
}

function push(session: Session, lines: readonly string[]): void {
  const marks = findMarks(lines, session.token);
  let from = 0;
  if (!session.began) {
    if (marks.first === undefined) return;
    session.began = true;
    if (marks.group !== undefined) session.group = marks.group;
    from = marks.first;
  }
  for (const line of lines.slice(from, marks.last ?? lines.length)) session.lines.push(line);
  const over = session.lines.length - MAX_LINES;
  if (over > 0) {
    session.lines.splice(0, over);
    session.dropped += over;
  }
  if (marks.last === undefined) return;
  // The line end that stands before the mark is ours.
  if (session.lines.at(-1) === '') session.lines.pop();
  end(session, marks.code);
}

/** The process is gone without its last mark: it was killed, the shell refused the command, or the backend lost the end. */
async function conclude(work: Work, session: Session, page: OutputPage): Promise<void> {
  if (session.ended) return;
  if (!session.began) {
    const all = await readOutput(work, session.pid, { start: -PAGE_LINES, count: PAGE_LINES });
    session.lines = [...(all?.lines ?? page.lines)];
    if (session.lines.at(-1) === '') session.lines.pop();
  } else {
    session.torn = true;
  }
  end(session, Number.isNaN(page.ended) ? undefined : page.ended);
}

function end(session: Session, code: number | undefined): void {
  session.ended = true;
  session.endedAt = Date.now();
  session.partial = '';
  if (code !== undefined) session.code = code;
}

/** Sleeps; throws CANCELLED when the caller gives up. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(new TollgateError('CANCELLED'));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
