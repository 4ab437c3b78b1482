/** What sessions have put into the context of models, in the form in which commands and the host API show it. */
import type { State } from '../../state/state-port.ts';
import {
  CONTEXT_KINDS,
  CONTEXT_SIDES,
  type ContextCounts,
  type ContextKind,
  type ContextSide,
  contextTokens,
  savedPercent,
  sumContext,
} from './context-counts.ts';
import { type ContextDay, type ContextSession, isSessionRunning, readContext } from './context-store.ts';
import { hasTokenizer, TOKENIZER } from './token-samples.ts';

/** An amount. `tokens`: estimated; absent without a sample. */
export interface ReportedAmount {
  readonly bytes: number;
  readonly tokens?: number;
}

/** Both sides. `savedPercent`: of bytes; negative if Tollgate showed more, null if there is nothing to compare with. */
export type Compared = Readonly<Record<ContextSide, ReportedAmount>> & { readonly savedPercent: number | null };

/** The counts of one or more sessions, by kind and together. `largest`: bytes of the largest list that was shown. */
export type ReportedCounts = Readonly<Record<ContextKind, Compared & { readonly count: number }>> & {
  readonly lists: { readonly largest: number };
  /** `metaBytes`: what Tollgate added under `_meta`, which is not in `shown`. */
  readonly results: { readonly metaBytes: number };
  readonly total: Compared;
};

/** One session. Times in ISO 8601. */
export interface ReportedSession extends ReportedCounts {
  readonly id: string;
  readonly principal: string;
  readonly started: string;
  readonly ended?: string;
  readonly running: boolean;
}

/** The older sessions of one day, UTC. */
export interface ReportedDay extends ReportedCounts {
  readonly day: string;
  readonly sessions: number;
}

/** All of it, the newest first. */
export interface ContextReport {
  readonly tokens: {
    readonly encoding: 'o200k_base';
    /** Models that count with another encoding count differently. */
    readonly estimated: true;
    /** Whether the package that counts is installed. */
    readonly installed: boolean;
    readonly package: string;
  };
  readonly total: ReportedCounts;
  readonly sessions: readonly ReportedSession[];
  readonly days: readonly ReportedDay[];
}

/** Reads the counts of all processes of a state folder. Throws STATE_FAILED. */
export function readContextReport(state: Pick<State, 'list' | 'isAlive'>): ContextReport {
  const { sessions, days } = readContext(state);
  const sum = sumContext([...sessions, ...days].map(({ counts }) => counts));
  return {
    tokens: { encoding: 'o200k_base', estimated: true, installed: hasTokenizer(), package: TOKENIZER },
    total: reported(sum, sum),
    sessions: sessions.map((one) => reportedSession(state, one, sum)),
    days: days.map(({ day, sessions: count, counts }: ContextDay) => ({
      day,
      sessions: count,
      ...reported(counts, sum),
    })),
  };
}

function reportedSession(state: Pick<State, 'isAlive'>, session: ContextSession, all: ContextCounts): ReportedSession {
  const { id, principal, started, ended, counts } = session;
  return {
    id,
    principal,
    started: new Date(started).toISOString(),
    ...(ended !== undefined && { ended: new Date(ended).toISOString() }),
    running: isSessionRunning(state, session),
    ...reported(counts, all),
  };
}

/** `all`: the counts whose samples are used for what has no sample of its own. */
function reported(counts: ContextCounts, all: ContextCounts): ReportedCounts {
  const amount = (kinds: readonly ContextKind[], side: ContextSide): ReportedAmount => {
    const tokens = kinds.map((kind) => contextTokens(counts, { kind, side }, all));
    const sum = tokens.reduce((sum, more) => (sum === undefined || more === undefined ? undefined : sum + more), 0);
    return {
      bytes: kinds.reduce((bytes, kind) => bytes + counts[kind][side].bytes, 0),
      ...(sum !== undefined && { tokens: Math.round(sum) }),
    };
  };
  const compared = (...kinds: readonly ContextKind[]): Compared => {
    const [shown, without] = CONTEXT_SIDES.map((side) => amount(kinds, side)) as [ReportedAmount, ReportedAmount];
    const percent = savedPercent({ shown: shown.bytes, without: without.bytes });
    return { shown, without, savedPercent: percent === undefined ? null : Math.round(percent * 10) / 10 };
  };
  const { lists, calls, results } = counts;
  return {
    lists: { count: lists.count, largest: counts.largestList, ...compared('lists') },
    calls: { count: calls.count, ...compared('calls') },
    results: { count: results.count, metaBytes: counts.metaBytes, ...compared('results') },
    total: compared(...CONTEXT_KINDS),
  };
}
