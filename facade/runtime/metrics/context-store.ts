/**
 * Keeps the counts of sessions in the shared state, so that any process can show them: the last sessions one by one,
 * older ones as the sum of their day.
 */
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import type { State } from '../../state/state-port.ts';
import { type ContextCounts, contextBytes, sumContext } from './context-counts.ts';

/** One session. Times in ms since 1970. */
export interface ContextSession {
  readonly id: string;
  readonly principal: string;
  readonly started: number;
  /** When the session ended. Absent: it runs, or its process was killed. */
  readonly ended?: number;
  /** The mark of its process (see process-mark.ts). */
  readonly mark: string;
  readonly counts: ContextCounts;
}

/** The older sessions of one day. */
export interface ContextDay {
  /** `2026-11-27`, UTC: the day on which they began. */
  readonly day: string;
  readonly sessions: number;
  readonly counts: ContextCounts;
}

/** The parts of the state that are used. */
export type ContextState = Pick<State, 'get' | 'put' | 'list' | 'take' | 'remove' | 'swap' | 'mark' | 'isAlive'>;

const SPACE = 'context';
const [SESSION, DAY] = ['session ', 'day '];
/** Sessions that are kept one by one. */
const KEPT_SESSIONS = 200;
/** Days for which the sums of older sessions are kept. */
const KEPT_DAYS = 30;
const DAY_MS = 86_400_000;
/** Tries when other processes write at the same moment. */
const TRIES = 20;

/** Writes a session, in place of its earlier counts. Throws STATE_FAILED. Keys are sorted by time. */
export function putSession(state: ContextState, session: ContextSession): Awaitable<void> {
  const key = `${SESSION}${String(session.started).padStart(15, '0')} ${session.id}`;
  return state.put(SPACE, key, JSON.stringify(session));
}

/**
 * Adds the oldest ended sessions to the sums of their days, so that 200 are left, and removes old days. Each session is
 * taken by one process. Throws STATE_FAILED.
 */
export async function sumUpSessions(state: ContextState): Promise<void> {
  const all = [...state.list(SPACE, SESSION)];
  const isFull = all.length > KEPT_SESSIONS;
  const ended = isFull ? all.filter(([, text]) => !isSessionRunning(state, parseSession(text))) : [];
  for (const [key, text] of ended.slice(0, Math.max(0, ended.length - KEPT_SESSIONS))) {
    const session = parseSession(text);
    if ((await state.take(SPACE, key, text)) !== undefined && session !== undefined) await addToDay(state, session);
  }
  const oldest = dayOf(Date.now() - KEPT_DAYS * DAY_MS);
  for (const key of state.list(SPACE, DAY).keys()) if (key.slice(DAY.length) < oldest) await state.remove(SPACE, key);
}

async function addToDay(state: ContextState, { started, counts }: ContextSession): Promise<void> {
  const day = dayOf(started);
  for (let tries = 0; tries < TRIES; tries += 1) {
    const from = state.get(SPACE, DAY + day);
    const before = from === undefined ? undefined : parseDay(from);
    const sum: ContextDay = {
      day,
      sessions: (before?.sessions ?? 0) + 1,
      counts: sumContext(before === undefined ? [counts] : [before.counts, counts]),
    };
    const to = JSON.stringify(sum);
    if (await state.swap(SPACE, DAY + day, { ...(from !== undefined && { from }), to })) return;
  }
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** Returns whether the session runs now. */
export function isSessionRunning(state: Pick<State, 'isAlive'>, session: ContextSession | undefined): boolean {
  return session !== undefined && session.ended === undefined && state.isAlive(session.mark);
}

/**
 * Returns the kept sessions of all processes, the newest first, and the sums of older ones. Throws STATE_FAILED. A
 * value that cannot be read is left out.
 */
export function readContext(state: Pick<State, 'list'>): {
  readonly sessions: readonly ContextSession[];
  readonly days: readonly ContextDay[];
} {
  const newest = (prefix: string): readonly string[] => [...state.list(SPACE, prefix).values()].reverse();
  return {
    sessions: newest(SESSION).flatMap((text) => parseSession(text) ?? []),
    days: newest(DAY).flatMap((text) => parseDay(text) ?? []),
  };
}

function parseSession(text: string): ContextSession | undefined {
  return parse<ContextSession>(text);
}

function parseDay(text: string): ContextDay | undefined {
  return parse<ContextDay>(text);
}

/** Returns a value whose counts can be added; undefined for a damaged one. */
function parse<T extends { readonly counts: ContextCounts }>(text: string): T | undefined {
  try {
    const value = JSON.parse(text) as T;
    return Number.isFinite(contextBytes(sumContext([value.counts]), 'shown')) ? value : undefined;
  } catch {
    return undefined;
  }
}
