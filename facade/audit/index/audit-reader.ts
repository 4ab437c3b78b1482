/** Answers questions about the log: which calls, how many, how slow, and which have no outcome. It changes nothing. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { SqlValue } from '../../state/database.ts';
import { parseRecord } from '../audit-chain.ts';
import { isWriterAlive, listPartsOf, readLastLine, readLines } from '../chain-lines.ts';
import { type Alternative, type AuditFilter, type Clause, clausesOf, hasParts, meets } from './audit-filter.ts';
import {
  type AuditIndex,
  type AuditPage,
  INTENT,
  type IndexedRecord,
  type IndexPlaces,
  type IndexRow,
  indexRoot,
  intentQuery,
  openAuditIndex,
  ROW,
  readRecord,
  rowAt,
} from './audit-index.ts';
import { type LogOverview, type OverviewSpan, overviewOf, type RuleHits, ruleHitsOf } from './log-overview.ts';
import {
  endTerm,
  extensionTerm,
  HASH_DIGITS,
  isListed,
  type TermKey,
  termOf,
  termsOf,
  tokenOf,
  WORD,
  wordsOf,
} from './record-terms.ts';
import { type SessionTimeline, sessionTimeline } from './session-timeline.ts';

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
  /** Returns the newest `limit` records, or those before a cursor, newest first. Throws USAGE for another text. */
  page(filter: AuditFilter, at: { readonly before?: string; readonly limit: number }): AuditPage;
  /** Returns all records, oldest first. */
  all(filter: AuditFilter): Iterable<IndexedRecord>;
  /** Returns the records of an id, oldest first; of the beginning of an id or of a hash with 8 digits. Throws USAGE. */
  find(id: string): readonly IndexedRecord[];
  /**
   * Returns the calls that a process sent to a server, and that ended with this process before the outcome was
   * recorded: they may have run.
   */
  unknown(): IndexedRecord[];
  /** Returns the calls that living processes sent to a server, and that have no outcome yet: the newest 200. */
  running(): IndexedRecord[];
  stats(filter: AuditFilter): AuditStats;
  /** Counts the calls of a span: over time, and by tool. */
  overview(span: OverviewSpan): LogOverview;
  /** Counts the calls that each rule decided. */
  ruleHits(rules: readonly string[]): readonly RuleHits[];
  /** Returns the values of a field that begin with a text, in order; not of ids. */
  values(key: TermKey, begin: string): readonly string[];
  /** Returns what happened in a session and around it. The beginning of its id is enough. Throws USAGE. */
  timeline(session: string): SessionTimeline | undefined;
  /**
   * Yields what was appended since the last question, then each new record, until the signal aborts. Looks every
   * `everyMs`.
   */
  follow(filter: AuditFilter, signal: AbortSignal, everyMs?: number): AsyncIterable<IndexedRecord>;
  /** Makes the index again from the chain files. `onProgress` gets the bytes that were read. */
  rebuild(onProgress: (bytes: number) => void): void;
  close(): void;
}

/**
 * Opens a reader of the chain files in a folder, or of several logs, with its index at `indexPath`. `tell` gets what
 * the answers lack, one sentence each.
 */
export function openAuditReader(
  folders: string | readonly string[],
  indexPath: string,
  tell: (what: string) => void = () => undefined,
): AuditReader {
  const logs = typeof folders === 'string' ? [folders] : folders;
  const places = { logs, path: indexPath, tell };
  const index = openAuditIndex(places);
  index.update();
  const reading = new Reading(index, places);
  reading.checkCounts();
  const reader: AuditReader = {
    page: (filter, at) => reading.page(filter, at),
    all: (filter) => reading.all(filter),
    find: (id) => reading.find(id),
    unknown: () => reading.unknown(),
    running: () => reading.running(),
    overview: (span) => {
      index.update();
      return overviewOf(index, span);
    },
    ruleHits: (rules) => {
      index.update();
      return ruleHitsOf(index, rules);
    },
    stats: (filter) => {
      index.update();
      return statsOf(index, selectionOf(index, { ...filter, callsOnly: true }));
    },
    values: (key, begin) => {
      const rows = termsFrom(index, termOf(key, begin), MAX_VALUES);
      return rows.map((text) => text.slice(key.length + 1)).filter((text) => text !== '');
    },
    timeline: (session) => {
      const whole = reading.sessionOf(session);
      return whole === undefined
        ? undefined
        : sessionTimeline((filter, limit) => reading.page(filter, { limit }), whole);
    },
    follow: (filter, signal, everyMs = 250) => reading.follow(filter, signal, everyMs),
    rebuild: (onProgress) => index.rebuild(onProgress),
    close: () => index.close(),
  };
  return reader;
}

/** Running calls that are shown. */
const MAX_RUNNING = 200;
/** Values of a field that are listed. */
const MAX_VALUES = 1000;
/** Rows that are read from the index at once. */
const PAGE_ROWS = 500;
/** The least digits of an id or hash. Fewer could begin much of a long log. */
const MIN_DIGITS = 8;

/** What a filter selects: the part of a statement after `SELECT … FROM`, and the conditions that a record must meet. */
interface Selection {
  readonly from: string;
  readonly where: string;
  readonly values: readonly SqlValue[];
  readonly order: string;
  readonly clauses: readonly Clause[];
}

function selectionOf(index: AuditIndex, filter: AuditFilter): Selection {
  const clauses = clausesOf(filter);
  const terms: string[] = [];
  const values: SqlValue[] = [];
  const n = clauses.length === 0 ? 'record.n' : 'terms.rowid';
  if (clauses.length > 0) {
    const match = clauses.map((clause) => matchOf(index, clause));
    terms.push(match.includes('') ? '0' : 'terms MATCH ?');
    if (!match.includes('')) values.push(match.join(' AND '));
  }
  if (filter.since !== undefined) terms.push(`${n} >= ${rowAt(filter.since)}`);
  if (filter.until !== undefined) terms.push(`${n} < ${rowAt(filter.until)}`);
  if (filter.callsOnly === true) terms.push('record.last = 1');
  else if (filter.oncePerCall === true) terms.push('record.last > 0');
  const join = clauses.length === 0 ? 'record' : 'terms CROSS JOIN record ON record.n = terms.rowid';
  return {
    from: `${join} JOIN file ON file.id = record.file`,
    where: terms.join(' AND ') || '1',
    values,
    order: n,
    clauses,
  };
}

/** Terms that stand for a beginning. With more of them, FTS5 looks up the beginning itself, which takes longer. */
const MAX_ALTERNATIVES = 64;
/** Terms that are compared with a pattern, and those that match it. With more, each record is compared. */
const MAX_SCANNED = 4000;
const MAX_MATCHES = 1000;

/** Returns the query of FTS5 for a condition; '' if no record meets it. It may find more than the condition. */
function matchOf(index: AuditIndex, clause: Clause): string {
  const queries = clause.flatMap((one): readonly string[] => {
    const token = `"${tokenOf(one.term)}"`;
    if (one.kind === 'exact') return [token];
    if (!isListed(one.term)) return [`${token} *`];
    const isPattern = one.kind === 'pattern' && one.parts?.join('') !== '';
    // A path that begins with a star can be any, so its end is looked up.
    const ends = isPattern && one.term === ANY_PATH ? endsQuery(index, one) : undefined;
    if (ends !== undefined) return ends;
    const begun = termsFrom(index, one.term, isPattern ? MAX_SCANNED : MAX_ALTERNATIVES + 1);
    const meant = isPattern ? begun.filter((term) => hasParts(term, one)) : begun;
    const isMuch = begun.length === MAX_SCANNED || meant.length > (isPattern ? MAX_MATCHES : MAX_ALTERNATIVES);
    if (!isMuch) return meant.map((term) => `"${tokenOf(term)}"`);
    const words = wordsIn(one.parts);
    return [words.length === 0 ? `${token} *` : `(${words.join(' AND ')})`];
  });
  return queries.length === 0 ? '' : `(${queries.join(' OR ')})`;
}

const ANY_PATH = termOf('path', '');

/**
 * Returns the query for paths that match a pattern by their last name; none if no path does. Undefined if the pattern
 * does not say how the name ends.
 */
function endsQuery(index: AuditIndex, { parts = [] }: Alternative): readonly string[] | undefined {
  const end = parts.at(-1) ?? '';
  const at = end.lastIndexOf('/') + 1;
  const name = end.slice(at);
  if (name === '') return undefined;
  const words = wordsIn([...parts.slice(0, -1), end.slice(0, at)]);
  const both = (query: string): readonly string[] => [`(${[query, ...words].join(' AND ')})`];
  const term = endTerm(name);
  if (at > 0) return both(`"${tokenOf(term)}"`);
  if (/^\.[^.]+$/.test(name)) return both(`"${tokenOf(extensionTerm(name.slice(1)))}"`);
  const found = termsFrom(index, term, MAX_MATCHES + 1);
  if (found.length === 0) return [];
  if (found.length > MAX_MATCHES) return both(`"${tokenOf(term)}" *`);
  return both(`(${found.map((one) => `"${tokenOf(one)}"`).join(' OR ')})`);
}

/** Returns the tokens of the words that any value has which matches a pattern: words between its stars. */
function wordsIn(parts: readonly string[] = []): readonly string[] {
  return parts.flatMap((part, at) => {
    // The first word can continue one under the star before it, and the last word one under the star after it.
    const begun = part.replace(/^[\p{L}\p{N}]+/u, '');
    const whole = at === parts.length - 1 ? begun : begun.replace(/[\p{L}\p{N}]+$/u, '');
    return wordsOf(whole).map((word) => `"${tokenOf(termOf(WORD, word))}"`);
  });
}

/** Returns terms of the vocabulary that begin so. U+10FFFF follows every other character. */
function termsFrom(index: AuditIndex, begin: string, limit: number): readonly string[] {
  const text = begin.replaceAll('\0', '\uFFFD');
  return index
    .rows<{ text: string }>('SELECT text FROM term WHERE text >= ? AND text < ? ORDER BY text LIMIT ?', [
      text,
      `${text}\u{10FFFF}`,
      limit,
    ])
    .map((row) => row.text);
}

/** Reads the records that the index names, and compares them with it. */
class Reading {
  readonly #index: AuditIndex;
  readonly #logs: readonly string[];
  readonly #folder: string;
  readonly #tell: (what: string) => void;
  /** Files that were indexed again because the index and the file differed. */
  readonly #redone = new Set<string>();
  /** Files that were said to be unreadable. */
  readonly #unreadable = new Set<string>();

  constructor(index: AuditIndex, { logs, tell }: IndexPlaces) {
    this.#index = index;
    this.#logs = logs;
    this.#folder = indexRoot(logs);
    this.#tell = tell;
  }

  page(filter: AuditFilter, { before, limit }: { readonly before?: string; readonly limit: number }): AuditPage {
    this.#index.update();
    const selection = selectionOf(this.#index, filter);
    const asked = Math.min(limit + 1, PAGE_ROWS);
    const records: IndexedRecord[] = [];
    let [from, last] = [before === undefined ? Number.MAX_SAFE_INTEGER : cursorRow(before), 0];
    for (;;) {
      const rows = this.#rows(selection, { sql: `${selection.order} < ?`, from, order: 'DESC' }, asked);
      const found = this.#read(rows, selection.clauses, true);
      // Rows were made again, so they are asked for again.
      if (found === undefined) continue;
      for (const [n, record] of found) {
        if (records.length === limit) return { records, next: last.toString(36) };
        records.push(record);
        last = n;
      }
      if (rows.length < asked) return { records };
      from = rows.at(-1)?.n ?? 0;
    }
  }

  *all(filter: AuditFilter): Generator<IndexedRecord> {
    this.#index.update();
    const selection = selectionOf(this.#index, filter);
    for (let from = -1; ; ) {
      const rows = this.#rows(selection, { sql: `${selection.order} > ?`, from, order: 'ASC' }, PAGE_ROWS);
      const found = this.#read(rows, selection.clauses);
      if (found === undefined) continue;
      for (const [, record] of found) yield record;
      const end = rows.at(-1)?.n;
      if (end === undefined) return;
      from = end;
    }
  }

  find(id: string): readonly IndexedRecord[] {
    const named = [...this.all({ id })];
    if (named.length > 0 || !new RegExp(`^[0-9a-f][0-9a-f-]{${MIN_DIGITS - 1},63}$`).test(id)) return named;
    const begun = this.#begun('id', id);
    const ids = new Set(begun.map(({ record }) => (record as { readonly id?: string }).id));
    if (ids.size > 1) throw usage(`${id} is the beginning of ${ids.size} ids.`);
    return begun.length > 0
      ? begun
      : this.#begun('hash', id).filter(({ record }) => !('id' in record) && record.hash.startsWith(id));
  }

  /** Returns the records with a term that begins so, at most some. */
  #begun(key: string, value: string): IndexedRecord[] {
    const term = termOf(key, key === 'hash' ? value.slice(0, HASH_DIGITS) : value);
    const clauses: readonly Clause[] = [[{ kind: 'prefix', term }]];
    const rows = this.#index.rows<IndexRow>(
      `SELECT ${ROW} FROM terms CROSS JOIN record ON record.n = terms.rowid JOIN file ON file.id = record.file
       WHERE terms MATCH ? ORDER BY terms.rowid LIMIT ?`,
      [`"${tokenOf(term)}" *`, PAGE_ROWS],
    );
    return (this.#read(rows, clauses) ?? this.#begun(key, value).map((one) => [0, one] as const)).map(([, one]) => one);
  }

  /** Returns the session whose id begins so; undefined if there is none. Throws USAGE if there are several. */
  sessionOf(begin: string): string | undefined {
    this.#index.update();
    const exact = `"${tokenOf(termOf('session', begin))}"`;
    const first = this.#sessionBy(exact) ?? this.#sessionBy(`${exact} *`);
    if (first === undefined || first === begin) return first;
    const other = this.#sessionBy(`(${exact} *) NOT "${tokenOf(termOf('session', first))}"`);
    if (other !== undefined) throw usage(`${begin} is the beginning of the ids of several sessions.`);
    return first;
  }

  #sessionBy(query: string): string | undefined {
    const rows = this.#index.rows<IndexRow>(
      `SELECT ${ROW} FROM terms CROSS JOIN record ON record.n = terms.rowid JOIN file ON file.id = record.file
       WHERE terms MATCH ? LIMIT 1`,
      [query],
    );
    const [found] = rows.map((row) => readRecord(this.#folder, row));
    const session = (found?.record as { readonly session?: unknown } | undefined)?.session;
    return typeof session === 'string' ? session : undefined;
  }

  unknown(): IndexedRecord[] {
    const alive = this.#aliveFiles();
    return [...this.all({ type: 'intent', callsOnly: true })].filter(({ file }) => !alive.has(file));
  }

  running(): IndexedRecord[] {
    const alive = this.#aliveFiles();
    const { records } = this.page({ type: 'intent', callsOnly: true }, { limit: MAX_RUNNING });
    return records.filter(({ file }) => alive.has(file));
  }

  /** Returns the names of the files whose writer is alive. */
  #aliveFiles(): ReadonlySet<string> {
    return new Set(listPartsOf(this.#logs).flatMap((part) => (isWriterAlive(part) ? [part.name] : [])));
  }

  async *follow(filter: AuditFilter, signal: AbortSignal, everyMs: number): AsyncGenerator<IndexedRecord> {
    const selection = selectionOf(this.#index, filter);
    const { clauses } = selection;
    const last = filter.callsOnly === true ? 'AND last = 1' : filter.oncePerCall === true ? 'AND last > 0' : '';
    const ends = (): Map<string, number> =>
      new Map(this.#index.rows<{ name: string; done: number }>('SELECT name, done FROM file', []).map(endOf));
    const isWanted = (found: IndexedRecord): boolean =>
      (filter.since === undefined || found.record.ts >= filter.since) &&
      (filter.until === undefined || found.record.ts < filter.until) &&
      isMeant(found, clauses);
    for (let seen = ends(); !signal.aborted; await pause(everyMs, signal)) {
      this.#index.update();
      const now = ends();
      const rows = [...now].flatMap(([file, done]) => {
        const from = seen.get(file) ?? 0;
        return done <= from ? [] : this.#appended(file, from, last);
      });
      seen = now;
      const places = this.#placesOf(rows);
      for (const row of rows) {
        const found = readRecord(this.#folder, row);
        const joined = found === undefined ? undefined : this.#joined(found, places.get(row.first));
        if (joined !== undefined && isWanted(joined)) yield joined;
      }
    }
  }

  #appended(file: string, from: number, last: string): readonly IndexRow[] {
    return this.#index.rows<IndexRow>(
      `SELECT ${ROW} FROM record JOIN file ON file.id = record.file
       WHERE record.file = (SELECT id FROM file WHERE name = ?) AND offset >= ? ${last} ORDER BY offset`,
      [file, from],
    );
  }

  /**
   * Compares the number of rows of each file with the numbers of its first and last record. If they differ, rows were
   * removed from the index, or records from the file: a file that was indexed again tells which.
   */
  checkCounts(): void {
    const counts = (): readonly { name: string; done: number; count: number }[] =>
      this.#index.rows('SELECT name, done, (SELECT count(*) FROM record WHERE file = file.id) AS count FROM file', []);
    const isOff = ({ name, done, count }: { name: string; done: number; count: number }): boolean => {
      const expected = recordsIn(join(this.#folder, name), done);
      return expected !== undefined && expected !== count;
    };
    const [{ rows, listed } = { rows: 0, listed: 0 }] = this.#index.rows<{ rows: number; listed: number }>(
      'SELECT (SELECT count(*) FROM record) AS rows, (SELECT count(*) FROM terms_docsize) AS listed',
      [],
    );
    const off = counts().filter(isOff);
    if (rows !== listed) this.#index.rebuild();
    else for (const { name } of off) this.#index.redo(name);
    const still =
      off.length === 0
        ? new Set<string>()
        : new Set(
            counts()
              .filter(isOff)
              .map(({ name }) => name),
          );
    if (rows !== listed || off.some(({ name }) => !still.has(name)))
      this.#tell('Rows were missing in the index of the audit log. It was made again from the chain files.');
    for (const name of still) this.#tell(`Records are missing or repeated in ${name}. Run: tollgate audit verify`);
  }

  #rows(
    { from, where, values, order }: Selection,
    at: { readonly sql: string; readonly from: number; readonly order: 'ASC' | 'DESC' },
    limit: number,
  ): IndexRow[] {
    return this.#index.rows<IndexRow>(
      `SELECT ${ROW} FROM ${from} WHERE ${where} AND ${at.sql} ORDER BY ${order} ${at.order} LIMIT ?`,
      [...values, at.from, limit],
    );
  }

  /**
   * Returns the records of rows that meet the conditions; the index may name more. A row that names no record makes
   * its file be indexed again, once: then the result is undefined. After that, such a row is left out.
   */
  #read(
    rows: readonly IndexRow[],
    clauses: readonly Clause[],
    withIntents = clauses.length > 0,
  ): (readonly [number, IndexedRecord])[] | undefined {
    const found: (readonly [number, IndexedRecord])[] = [];
    const places = withIntents ? this.#placesOf(rows) : NO_PLACES;
    for (const row of rows) {
      const read = this.#readRow(row);
      if (read === UNREADABLE) continue;
      const record = read === undefined ? undefined : withIntents ? this.#joined(read, places.get(row.first)) : read;
      if (record === undefined) {
        if (this.#redo(row.file)) return undefined;
      } else if (!record.intact || isMeant(record, clauses)) {
        // A changed line is shown as changed, also if it no longer says what it was found by.
        found.push([row.n, record]);
      }
    }
    return found;
  }

  /** A file that became unreadable is left out, and said to be. */
  #readRow(row: IndexRow): IndexedRecord | typeof UNREADABLE | undefined {
    try {
      return readRecord(this.#folder, row);
    } catch (thrown) {
      const { code } = thrown as NodeJS.ErrnoException;
      if (code === undefined) throw thrown;
      if (!this.#unreadable.has(row.file))
        this.#tell(`${row.file} cannot be read (${code}). Its records are missing here.`);
      this.#unreadable.add(row.file);
      return UNREADABLE;
    }
  }

  /** Returns the places of the first records of calls, by their `n`. */
  #placesOf(rows: readonly IndexRow[]): ReadonlyMap<number | null, IndexRow> {
    const firsts = rows.flatMap(({ first }) => first ?? []);
    if (firsts.length === 0) return NO_PLACES;
    const found = this.#index.rows<IndexRow>(
      `SELECT ${ROW} FROM json_each(?) AS asked CROSS JOIN record ON record.n = asked.value
       JOIN file ON file.id = record.file`,
      [JSON.stringify(firsts)],
    );
    return new Map(found.map((row) => [row.n, row]));
  }

  /** Returns the last record of a call with the first one. `place`: where the index assumes it. */
  #joined(found: IndexedRecord, place: IndexRow | undefined): IndexedRecord {
    const { record } = found;
    if (record.type !== 'outcome') return found;
    const isFirst = (one: IndexedRecord | typeof UNREADABLE | undefined): one is IndexedRecord =>
      one !== UNREADABLE && one?.record.type === 'intent' && one.record.id === record.id;
    const assumed = place === undefined ? undefined : this.#readRow(place);
    if (isFirst(assumed)) return { ...found, intent: assumed };
    const [row] = this.#index.rows<IndexRow>(INTENT, [intentQuery(String(record.id))]);
    const intent = row === undefined ? undefined : this.#readRow(row);
    return isFirst(intent) ? { ...found, intent } : found;
  }

  /** Indexes a file again, and says so. Returns false if this was done before, or if the file was archived. */
  #redo(file: string): boolean {
    if (this.#redone.has(file) || !existsSync(join(this.#folder, file))) return false;
    this.#redone.add(file);
    this.#tell(`The index of the audit log did not agree with ${file}. It was made again for this file.`);
    this.#index.redo(file);
    return true;
  }
}

const UNREADABLE = Symbol('unreadable');
const NO_PLACES: ReadonlyMap<number | null, IndexRow> = new Map();

/** Returns true if the record, or the first one of its call, meets the conditions. */
function isMeant({ record, intent }: IndexedRecord, clauses: readonly Clause[]): boolean {
  const { own, ofCall } = termsOf(record);
  const more = intent === undefined ? [] : termsOf(intent.record).ofCall;
  const terms = [...own, ...ofCall, ...more].flatMap((group) => group.terms);
  return clauses.every((clause) => meets(terms, clause));
}

function endOf({ name, done }: { readonly name: string; readonly done: number }): readonly [string, number] {
  return [name, done];
}

/** Returns how many records a file has up to a byte offset, by the numbers in them; undefined if they have none. */
function recordsIn(path: string, end: number): number | undefined {
  try {
    const first = readLines(path).next().value?.bytes;
    const last = readLastLine(path, end);
    const [from, to] = [first, last].map((line) => (line === undefined ? undefined : parseRecord(line)?.seq));
    return typeof from === 'number' && typeof to === 'number' ? to - from + 1 : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the row of a cursor. Throws USAGE for another text. */
function cursorRow(cursor: string): number {
  const row = Number.parseInt(cursor, 36);
  if (Number.isSafeInteger(row) && row.toString(36) === cursor) return row;
  throw usage('The cursor is not one that a page ended with.');
}

function usage(detail: string): TollgateError {
  return new TollgateError('USAGE', { detail, next: 'Read `tollgate audit --help`.' });
}

function statsOf(index: AuditIndex, { from, where, values }: Selection): AuditStats {
  const groups = (column: string): AuditStat[] => {
    const times = new Map<string, { count: number; ms: number[] }>();
    for (const row of index.rows<{ name: string; ms: number | null }>(
      `SELECT term.text AS name, ms FROM ${from} JOIN term ON term.id = record.${column} WHERE ${where} ORDER BY ms`,
      values,
    )) {
      const group = times.get(row.name) ?? { count: 0, ms: [] };
      times.set(row.name, group);
      group.count += 1;
      if (row.ms !== null) group.ms.push(row.ms);
    }
    return [...times]
      .map(([key, { count, ms }]) => statOf(key.slice(key.indexOf('=') + 1), count, ms))
      .sort((a, b) => b.count - a.count || (a.name < b.name ? -1 : 1));
  };
  const byOutcome = groups('ended');
  return {
    calls: byOutcome.reduce((sum, { count }) => sum + count, 0),
    unknown: byOutcome.find(({ name }) => name === 'unknown')?.count ?? 0,
    byTool: groups('call'),
    byOutcome,
    byPrincipal: groups('principal'),
  };
}

/** Percentiles by nearest rank; `ms` is sorted. */
function statOf(name: string, count: number, ms: readonly number[]): AuditStat {
  const rank = (share: number): number => ms[Math.ceil(ms.length * share) - 1] ?? 0;
  return ms.length === 0 ? { name, count } : { name, count, p50: rank(0.5), p95: rank(0.95) };
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
