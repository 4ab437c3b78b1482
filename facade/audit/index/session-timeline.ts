/** What happened in one session and around it, in order: for a person who reconstructs what an agent did. */
import type { AuditRecord } from '../audit-chain.ts';
import type { AuditFilter } from './audit-filter.ts';
import type { AuditPage, IndexedRecord } from './audit-index.ts';

/** One event. A call is one event: `intent` is its first record, if it has two. */
export interface TimelineEvent {
  readonly found: IndexedRecord;
  readonly intent?: IndexedRecord;
}

/** Events of a session, oldest first. */
export interface SessionTimeline {
  readonly session: string;
  readonly events: readonly TimelineEvent[];
  /** There are older events: only the newest are here. */
  readonly isCut: boolean;
  /** The clock of the machine went back meanwhile: times are not in the order of the events. */
  readonly isClockBack: boolean;
}

/** Returns the newest records of a filter. */
type FindNewest = (filter: AuditFilter, limit: number) => AuditPage;

/** Records of the session itself, and records of each kind around it, that a timeline has at most. */
const MAX_RECORDS = 5000;
const MAX_AROUND = 500;
/** What happens outside of sessions, and changes what a session can do. */
const AROUND = ['config', 'switch', 'upgrade'] as const;

/** Returns the timeline of a session, by its whole id. */
export function sessionTimeline(page: FindNewest, session: string): SessionTimeline {
  const { records, next } = page({ session }, MAX_RECORDS);
  const own = [...records].reverse();
  const [first, last] = [own.at(0), own.at(-1)];
  if (first === undefined || last === undefined) return { session, events: [], isCut: false, isClockBack: false };
  const during = { since: first.record.ts, until: new Date(Date.parse(last.record.ts) + 1).toISOString() };
  const servers = new Set(own.flatMap(({ record }) => fieldOf(record, 'server') ?? []));
  const around = [
    ...AROUND.flatMap((type) => page({ type, ...during }, MAX_AROUND).records),
    ...[...servers].flatMap((server) =>
      ['server', 'consent'].flatMap((type) => page({ type, server, ...during }, MAX_AROUND).records),
    ),
    ...approvalsOf(page, own),
  ];
  return { session, ...inOrder(joinCalls([...own, ...around])), isCut: next !== undefined };
}

/** Approvals that calls of the session asked for or used, also those that were given after its end. */
function approvalsOf(page: FindNewest, own: readonly IndexedRecord[]): readonly IndexedRecord[] {
  const ids = new Set<string>();
  for (const { record } of own) {
    const consent = fieldOf(record, 'consent');
    if (consent !== undefined) ids.add(consent);
    if (fieldOf(record, 'code') !== 'APPROVAL_REQUIRED') continue;
    for (const { record: asked } of page({ call: String(fieldOf(record, 'id')) }, MAX_AROUND).records)
      if (asked.type === 'approval') ids.add(asked.id);
  }
  return [...ids].slice(0, MAX_AROUND).flatMap((approval) => page({ type: 'approval', approval }, MAX_AROUND).records);
}

/** Joins the intent of a call to its outcome, and leaves out records that are there twice. */
function joinCalls(records: readonly IndexedRecord[]): readonly TimelineEvent[] {
  const intents = new Map<string, IndexedRecord>();
  const ended = new Set<string>();
  for (const found of records) {
    const { record } = found;
    if (record.type === 'intent') intents.set(record.id, found);
    if (record.type === 'outcome') ended.add(record.id);
  }
  const unique = new Map(records.map((found) => [`${found.file} ${found.record.seq}`, found]));
  return [...unique.values()].flatMap((found): TimelineEvent[] => {
    const { record } = found;
    if (record.type === 'intent' && ended.has(record.id)) return [];
    const intent = record.type === 'outcome' ? intents.get(record.id) : undefined;
    return [{ found, ...(intent !== undefined && { intent }) }];
  });
}

/**
 * Sorts by the beginning of each event. Records of one file stay in the order in which they were written, also if the
 * clock went back: a record counts as no older than the one before it.
 */
function inOrder(events: readonly TimelineEvent[]): {
  readonly events: readonly TimelineEvent[];
  readonly isClockBack: boolean;
} {
  const begin = ({ found, intent }: TimelineEvent): IndexedRecord => intent ?? found;
  const written = [...events].sort((a, b) => begin(a).record.seq - begin(b).record.seq);
  const latest = new Map<string, string>();
  let isClockBack = false;
  const timed = written.map((event) => {
    const { file, record } = begin(event);
    const before = latest.get(file) ?? '';
    const time = record.ts < before ? before : record.ts;
    isClockBack ||= time !== record.ts;
    latest.set(file, time);
    return { event, time };
  });
  timed.sort((a, b) => (a.time < b.time ? -1 : Number(a.time > b.time)));
  return { events: timed.map(({ event }) => event), isClockBack };
}

/** Returns a text of a record. */
function fieldOf(record: AuditRecord, name: string): string | undefined {
  const value = (record as unknown as Readonly<Record<string, unknown>>)[name];
  return typeof value === 'string' ? value : undefined;
}
