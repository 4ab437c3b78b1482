/** Answers questions about the log: which calls, how many, how slow, and which have no outcome. It changes nothing. */
import type { SqlValue } from '../state/database.ts';
import { type AuditIndex, type IndexedRecord, type IndexRow, openAuditIndex, readRecord } from './audit-index.ts';
import { isWriterAlive, listParts } from './chain-lines.ts';

/** Selects records. All given conditions must hold. */
export interface AuditFilter {
  /** ISO times, inclusive and exclusive. */
  readonly since?: string;
  readonly until?: string;
  readonly type?: string;
  readonly principal?: string;
  readonly server?: string;
  /** The exposed name, the tool, or `server.tool`. */
  readonly tool?: string;
  readonly outcome?: string;
  readonly code?: string;
  readonly run?: string;
  readonly session?: string;
  readonly id?: string;
  /** The beginning of an id. */
  readonly idPrefix?: string;
  /** Anywhere in the record, as it is written. */
  readonly text?: string;
  /** Only calls, one record for each: its end, or the intent if no end is recorded. */
  readonly callsOnly?: boolean;
}

/** How often and how fast, by one field. Times in ms; undefined if no record has one. */
export interface AuditStat {
  readonly name: string;
  readonly count: number;
  readonly p50?: number;
  readonly p95?: number;
}

/** Calls counted in three ways. */
export interface AuditStats {
  readonly calls: number;
  /** Calls without an outcome: still running, or lost with their process. */
  readonly unknown: number;
  readonly byTool: readonly AuditStat[];
  readonly byOutcome: readonly AuditStat[];
  readonly byPrincipal: readonly AuditStat[];
}

/** Reads the log of all processes. Every question first indexes what was appended since the last one. */
export interface AuditReader {
  /** Returns the newest `limit` records, oldest first. */
  list(filter: AuditFilter, limit: number): IndexedRecord[];
  /** Returns all records, oldest first. */
  all(filter: AuditFilter): Iterable<IndexedRecord>;
  /**
   * Returns the calls that a process sent to a server, and that ended with this process before the outcome was
   * recorded: they may have run.
   */
  unknown(): IndexedRecord[];
  stats(filter: AuditFilter): AuditStats;
  /**
   * Yields what was appended since the last question, then each new record, until the signal aborts. Looks every
   * `everyMs`.
   */
  follow(filter: AuditFilter, signal: AbortSignal, everyMs?: number): AsyncIterable<IndexedRecord>;
  close(): void;
}

/** Selects the last record of each call, and intents without an outcome. */
const CALLS = `(type IN ('outcome', 'decision', 'budget') OR type = 'intent' AND NOT EXISTS (
  SELECT 1 FROM record AS o WHERE o.id = record.id AND o.type = 'outcome'))`;
const UNANSWERED = `type = 'intent' AND ${CALLS}`;
const IN_ORDER = 'ORDER BY ts, file, offset';

/** Opens a reader of a folder of chain files, with its index at `indexPath`. */
export function openAuditReader(folder: string, indexPath: string): AuditReader {
  const index = openAuditIndex(folder, indexPath);
  index.update();

  function* find(where: Where, order: string): Generator<IndexedRecord> {
    index.update();
    for (const row of index.rows<IndexRow>(
      `SELECT file, offset, length FROM record WHERE ${where.sql} ${order}`,
      where.values,
    )) {
      const found = readRecord(folder, row);
      if (found !== undefined && where.keeps(found)) yield found;
    }
  }
  return {
    list: (filter, limit) => {
      const newest: IndexedRecord[] = [];
      // Text is searched in the records themselves, so their number is not known before.
      const most = filter.text === undefined ? ` LIMIT ${Math.trunc(limit)}` : '';
      for (const found of find(whereOf(filter), `ORDER BY ts DESC, file DESC, offset DESC${most}`)) {
        if (newest.length >= limit) break;
        newest.push(found);
      }
      return newest.reverse();
    },
    all: (filter) => find(whereOf(filter), IN_ORDER),
    unknown: () => {
      index.update();
      const dead = new Set(
        listParts(folder)
          .filter((part) => !isWriterAlive(part))
          .map((part) => part.name),
      );
      const rows = index.rows<IndexRow>(`SELECT * FROM record WHERE ${UNANSWERED} ${IN_ORDER}`, []);
      return rows.filter((row) => dead.has(row.file)).flatMap((row) => readRecord(folder, row) ?? []);
    },
    stats: (filter) => {
      index.update();
      return statsOf(index, whereOf({ ...filter, callsOnly: true }));
    },
    follow: (filter, signal, everyMs = 250) => {
      const last = index.rows<{ n: number | null }>('SELECT max(n) AS n FROM record', [])[0]?.n ?? 0;
      return follow({ folder, index, where: whereOf(filter), signal, everyMs }, last);
    },
    close: () => index.close(),
  };
}

interface Where {
  readonly sql: string;
  readonly values: readonly SqlValue[];
  keeps(found: IndexedRecord): boolean;
}

function whereOf(filter: AuditFilter): Where {
  const terms: string[] = ['1'];
  const values: SqlValue[] = [];
  const add = (term: string, ...given: SqlValue[]): void => {
    terms.push(term);
    values.push(...given);
  };
  if (filter.since !== undefined) add('ts >= ?', filter.since);
  if (filter.until !== undefined) add('ts < ?', filter.until);
  for (const column of ['type', 'principal', 'server', 'outcome', 'code', 'run', 'session', 'id'] as const) {
    const wanted = filter[column];
    if (wanted !== undefined) add(`${column} = ?`, wanted);
  }
  // U+FFFF follows every character of an id.
  if (filter.idPrefix !== undefined) add('id >= ? AND id < ?', filter.idPrefix, `${filter.idPrefix}\uffff`);
  if (filter.tool !== undefined)
    add(`(tool = ? OR exposed = ? OR server || '.' || tool = ?)`, filter.tool, filter.tool, filter.tool);
  if (filter.callsOnly === true) add(CALLS);
  const { text } = filter;
  return { sql: terms.join(' AND '), values, keeps: (found) => text === undefined || found.line.includes(text) };
}

function statsOf(index: AuditIndex, where: Where): AuditStats {
  const groups = (name: string): AuditStat[] => {
    const times = new Map<string, { count: number; ms: number[] }>();
    for (const row of index.rows<{ name: string; ms: number | null }>(
      `SELECT ${name} AS name, ms FROM record WHERE ${where.sql} ORDER BY ms`,
      where.values,
    )) {
      const group = times.get(row.name) ?? { count: 0, ms: [] };
      times.set(row.name, group);
      group.count += 1;
      if (row.ms !== null) group.ms.push(row.ms);
    }
    return [...times]
      .map(([key, { count, ms }]) => statOf(key, count, ms))
      .sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
  };
  const count = (more: string): number =>
    index.rows<{ n: number }>(`SELECT count(*) AS n FROM record WHERE ${where.sql} ${more}`, where.values)[0]?.n ?? 0;
  return {
    calls: count(''),
    unknown: count(`AND type = 'intent'`),
    byTool: groups(`CASE WHEN tool = '' THEN exposed ELSE server || '.' || tool END`),
    byOutcome: groups(
      `CASE WHEN type = 'intent' THEN 'unknown' WHEN code = '' THEN outcome ELSE outcome || ' ' || code END`,
    ),
    byPrincipal: groups('principal'),
  };
}

/** Percentiles by nearest rank; `ms` is sorted. */
function statOf(name: string, count: number, ms: readonly number[]): AuditStat {
  const rank = (share: number): number => ms[Math.ceil(ms.length * share) - 1] ?? 0;
  return ms.length === 0 ? { name, count } : { name, count, p50: rank(0.5), p95: rank(0.95) };
}

interface Following {
  readonly folder: string;
  readonly index: AuditIndex;
  readonly where: Where;
  readonly signal: AbortSignal;
  readonly everyMs: number;
}

async function* follow(at: Following, from: number): AsyncGenerator<IndexedRecord> {
  const { where, index } = at;
  let last = from;
  let { times } = index;
  const seen = new Map(
    index
      .rows<{ file: string; end: number }>('SELECT file, max(offset) AS end FROM record GROUP BY file', [])
      .map(({ file, end }) => [file, end]),
  );
  const after = (n: number): readonly IndexRow[] =>
    index.rows<IndexRow>(`SELECT * FROM record WHERE ${where.sql} AND n > ? ORDER BY n`, [...where.values, n]);
  while (!at.signal.aborted) {
    index.update();
    let rows = after(last);
    if (index.times !== times) {
      // The index was made again, and counts its rows from 1.
      times = index.times;
      rows = after(0).filter(({ file, offset }) => offset > (seen.get(file) ?? -1));
    }
    for (const row of rows) {
      last = row.n;
      seen.set(row.file, row.offset);
      const found = readRecord(at.folder, row);
      if (found !== undefined && where.keeps(found)) yield found;
    }
    await pause(at.everyMs, at.signal);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end, { once: true });
  });
}
