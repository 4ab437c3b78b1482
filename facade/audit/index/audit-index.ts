/**
 * The SQLite index that merges all chains by time. It can be deleted at any time, because it contains only the places
 * of records and the terms by which they are found.
 */
import { rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Database, openDatabase, type SqlValue } from '../../state/database.ts';
import { type AuditRecord, checkSeal, parseRecord } from '../audit-chain.ts';
import { type ChainLine, type ChainPart, listPartsOf, readLineAt, readLines } from '../chain-lines.ts';
import { GZIP, readCompressed } from '../compressed-file.ts';
import { TERM_TOKENIZER, type TermGroup, termOf, termsOf, tokenOf } from './record-terms.ts';

/**
 * Bytes of the log that are indexed in one transaction, which takes about two seconds. Other commands get their turn
 * after it, and continue from there.
 */
const BATCH_BYTES = 32 * 1024 * 1024;

/**
 * `record.n` is the time in ms times `SLOTS`, plus a number for records of one ms: its order is that of time, also in
 * the lists of FTS5. `last` is 0 for the intent of a call that has ended, 1 for the last record of a call, and 2 for a
 * record of no call. `first` is the `n` of the intent. `call`, `ended` and `principal` are terms, for counts. FTS5
 * collects the lists of a whole batch in memory (`hashsize`), and so writes and merges fewer of them.
 */
const SCHEMA = {
  version: 3,
  sql: `
    CREATE TABLE file (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, inode INTEGER NOT NULL,
      done INTEGER NOT NULL) STRICT;
    CREATE TABLE term (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
    CREATE TABLE record (
      n INTEGER PRIMARY KEY, file INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
      hash INTEGER NOT NULL, last INTEGER NOT NULL, first INTEGER, ms REAL,
      call INTEGER NOT NULL, ended INTEGER NOT NULL, principal INTEGER NOT NULL) STRICT;
    CREATE INDEX record_file ON record (file, offset);
    CREATE VIRTUAL TABLE terms USING fts5 (
      text, content = '', contentless_delete = 1, detail = none, tokenize = "${TERM_TOKENIZER}");
    INSERT INTO terms (terms, rank) VALUES ('hashsize', ${BATCH_BYTES})`,
};

/** Records of one ms that are in the order in which they were read. More of them move on to the next ms. */
const SLOTS = 1024;
/** The last ms whose `n` is exact in a double; in the year 2248. */
const MAX_MS = Math.floor(Number.MAX_SAFE_INTEGER / SLOTS) - 1;

/** Returns the least `n` of a record at a time or later. `iso`: the time. */
export function rowAt(iso: string): number {
  return slotOf(Date.parse(iso));
}

function slotOf(ms: number): number {
  return Math.min(MAX_MS, Math.max(0, ms)) * SLOTS;
}

/** The place of a record. */
export interface IndexRow {
  readonly n: number;
  readonly file: string;
  readonly offset: number;
  readonly length: number;
  /** The beginning of the hash of the line, as a number. */
  readonly hash: number;
  /** The `n` of the first record of the same call. */
  readonly first: number | null;
}

/** The columns of an `IndexRow`, for `SELECT … FROM record JOIN file ON file.id = record.file`. */
export const ROW = 'record.n, file.name AS file, offset, length, hash, first';

/** The index. */
export interface AuditIndex {
  /** Indexes what was appended since the last time. `onProgress` gets the bytes that were read. */
  update(onProgress?: (bytes: number) => void): void;
  /** Returns the rows of a statement. */
  rows<Row>(sql: string, values: readonly SqlValue[]): Row[];
  /** Removes the rows of a file that do not agree with it, and those of its chain, and indexes the chain again. */
  redo(file: string): void;
  /** Removes all rows, and indexes every file again. */
  rebuild(onProgress?: (bytes: number) => void): void;
  close(): void;
}

/** A record as read from its file. `intact` is false if the line is not what was sealed. */
export interface IndexedRecord {
  readonly record: AuditRecord;
  readonly line: string;
  readonly intact: boolean;
  /** The name of the chain file, and the byte where the line begins. */
  readonly file: string;
  readonly offset: number;
  /** The first record of the same call, which has its facts. */
  readonly intent?: IndexedRecord;
}

/** Returns a record as lists show it: with the facts of its call. */
export function shownRecord({ record, intent }: IndexedRecord): AuditRecord {
  const { facts } = (intent?.record ?? {}) as { readonly facts?: unknown };
  return facts === undefined ? record : ({ ...record, facts } as AuditRecord);
}

/** Records, newest first. `next`: where older ones continue, for `before`; absent if there are none. */
export interface AuditPage {
  readonly records: readonly IndexedRecord[];
  readonly next?: string;
}

/** Name of the index in a state folder. Every command that reads the log uses it. */
export const AUDIT_INDEX = 'audit-index.db';

/**
 * Returns the folder in which the files of an index are: that of the one log. The files of several logs have absolute
 * names.
 */
export function indexRoot(logs: readonly string[]): string {
  return logs.length === 1 ? (logs[0] ?? '') : '';
}

/** Where the log and its index are. `tell` gets what a reader of the log should know, one sentence each. */
export interface IndexPlaces {
  /** The folders of the logs. */
  readonly logs: readonly string[];
  readonly path: string;
  readonly tell: (what: string) => void;
}

/**
 * Opens the index file. Works in memory if no file can be written, or if another process holds it for long. A damaged
 * index is made again, whenever the damage is noticed.
 */
export function openAuditIndex(places: IndexPlaces): AuditIndex {
  const { path } = places;
  let { database, update } = attach(openOrRebuild(places), places);
  const guarded = <T>(work: () => T): T => {
    try {
      return work();
    } catch (thrown) {
      const isOurs = isUnusable(thrown) || isDamaged(thrown);
      if (!isOurs || path === ':memory:') throw thrown;
      database.close();
      const next = isDamaged(thrown) ? rebuildFile(places, DAMAGED) : inMemory(places, thrown);
      ({ database, update } = attach(next, places));
      update();
      return work();
    }
  };
  return {
    update: (onProgress) => guarded(() => update(onProgress)),
    rows: <Row>(sql: string, values: readonly SqlValue[]) => guarded(() => database.all<Row>(sql)(...values)),
    redo: (file) =>
      guarded(() => {
        database.transact(() => createForget(database).chainOf(file));
        update();
      }),
    rebuild: (onProgress) => {
      database.close();
      ({ database, update } = attach(rebuildFile(places), places));
      update(onProgress);
    },
    close: () => database.close(),
  };
}

const DAMAGED = 'was damaged';

/** Memory for pages of the index, KiB. With SQLite's default of 2 MB, a million records take 6 % longer. */
const CACHE_KIB = 65_536;

/** Prepares the statements. A damaged file can be noticed only now. */
function attach(database: Database, places: IndexPlaces): { readonly database: Database; readonly update: Update } {
  try {
    database.first(`PRAGMA cache_size = -${CACHE_KIB}`)();
    return { database, update: createUpdate(database, places) };
  } catch (thrown) {
    database.close();
    if (!isDamaged(thrown)) throw thrown;
    const next = rebuildFile(places, DAMAGED);
    return { database: next, update: createUpdate(next, places) };
  }
}

function openOrRebuild(places: IndexPlaces): Database {
  try {
    return openDatabase(places.path, SCHEMA);
  } catch (thrown) {
    // Another process uses the index, so its work must not be lost.
    if (isUnusable(thrown)) return inMemory(places, thrown);
    // Damaged, or of another version. Nothing is lost, because everything comes from the chain files.
    return rebuildFile(places, isDamaged(thrown) ? DAMAGED : 'is of another version of Tollgate');
  }
}

function inMemory({ tell }: IndexPlaces, thrown: unknown): Database {
  tell(
    `The index of the audit log cannot be used (${sqliteCode(thrown) || 'no permission'}). This command reads the ` +
      'whole log instead, which takes longer.',
  );
  return openDatabase(':memory:', SCHEMA);
}

function rebuildFile(places: IndexPlaces, why?: string): Database {
  const { path, tell } = places;
  try {
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${path}${suffix}`, { force: true });
    const database = openDatabase(path, SCHEMA);
    if (why !== undefined) tell(`The index of the audit log ${why}. It is made again from the chain files.`);
    return database;
  } catch (thrown) {
    return inMemory(places, thrown);
  }
}

/** Held by another process, or on a disk that is full or cannot be written. */
function isUnusable(thrown: unknown): boolean {
  return /^(SQLITE_(BUSY|LOCKED|FULL|READONLY|CANTOPEN)|EACCES|EROFS|EPERM|ENOSPC|EDQUOT)/.test(sqliteCode(thrown));
}

function isDamaged(thrown: unknown): boolean {
  return /^SQLITE_(CORRUPT|NOTADB|IOERR|ERROR)/.test(sqliteCode(thrown));
}

function sqliteCode(thrown: unknown): string {
  const { cause } = thrown as { readonly cause?: { readonly code?: unknown } };
  return String(cause?.code ?? '');
}

/**
 * Reads the line of a row from its chain file, so that the log itself is shown and not a copy. Returns undefined for a
 * row that does not name exactly one line, or another one than was indexed.
 */
export function readRecord(folder: string, { file, offset, length, hash }: IndexRow): IndexedRecord | undefined {
  const from = Math.max(0, offset - 1);
  const bytes = readLineAt(join(folder, file), from, offset - from + length + 1);
  const line = bytes?.subarray(offset - from, -1);
  if (bytes === undefined || line === undefined || bytes.at(-1) !== NEWLINE) return undefined;
  if ((offset > 0 && bytes[0] !== NEWLINE) || line.includes(NEWLINE)) return undefined;
  const record = parseRecord(line);
  if (record === undefined || hashNumber(record.hash) !== hash) return undefined;
  return { record, line: line.toString(), intact: checkSeal(line) !== undefined, file, offset };
}

const NEWLINE = 10;

/** The first 48 bits of a hash. */
function hashNumber(hash: unknown): number {
  const number = Number.parseInt(String(hash).slice(0, 12), 16);
  return Number.isNaN(number) ? 0 : number;
}

interface IndexedFile {
  readonly id: number;
  readonly name: string;
  readonly inode: number;
  /** Bytes that have been indexed. */
  readonly done: number;
}

/** The cost of a file besides its bytes. */
const FILE_BYTES = 1024;

type Update = (onProgress?: (bytes: number) => void) => void;

/** How often files that were replaced meanwhile are looked at again in one update. */
const MAX_PASSES = 3;

function createUpdate(database: Database, { logs, tell }: IndexPlaces): Update {
  const folder = indexRoot(logs);
  const known = database.all<IndexedFile>('SELECT id, name, inode, done FROM file');
  const forget = createForget(database);
  let take = createTake(database, { folder, forget });
  const told = new Set<string>();
  /** Leaves a file out, and says so once. */
  const leaveOut = (part: ChainPart, why: string): Taken => {
    if (!told.has(part.name)) tell(`${basename(part.path)} ${why}. Its records are missing here.`);
    told.add(part.name);
    return { bytes: 0, isWhole: true };
  };
  const takeReadable = (part: ChainPart, room: number): Taken => {
    const isCompressed = part.path.endsWith(GZIP);
    try {
      if (isCompressed) readCompressed(part.path);
      return take(part, room);
    } catch (thrown) {
      const { code, syscall } = thrown as NodeJS.ErrnoException;
      if (code === undefined || (syscall === undefined && !isCompressed)) throw thrown;
      return leaveOut(
        part,
        syscall === undefined ? 'is damaged: it cannot be decompressed' : `cannot be read (${code})`,
      );
    }
  };
  const findBehind = (): ChainPart[] => {
    const parts = listPartsOf(logs);
    const here = new Set(parts.map(({ name }) => name));
    const gone = known().filter(({ name }) => !here.has(name));
    if (gone.length > 0) database.transact(() => forget.files(gone.map(({ name }) => name)));
    const files = new Map(known().map((file) => [file.name, file]));
    return parts.filter((part) => isBehind(part, files.get(part.name)) && !told.has(part.name));
  };
  return (onProgress) => {
    for (let pass = 0; pass < MAX_PASSES; pass += 1) {
      const behind = findBehind();
      if (behind.length === 0) return;
      for (let at = 0; at < behind.length; ) {
        const indexBatch = (): void => {
          for (let room = BATCH_BYTES, part = behind[at]; room > 0 && part !== undefined; part = behind[at]) {
            const { bytes, isWhole } = takeReadable(part, room);
            onProgress?.(bytes);
            room -= bytes + FILE_BYTES;
            if (isWhole) at += 1;
          }
        };
        try {
          database.transact(indexBatch);
        } catch (thrown) {
          // What was taken for stored was rolled back.
          take = createTake(database, { folder, forget });
          throw thrown;
        }
      }
    }
  };
}

function isBehind(part: ChainPart, known: IndexedFile | undefined): boolean {
  const found = statSync(part.path, { throwIfNoEntry: false });
  return found !== undefined && (known?.inode !== found.ino || known.done !== found.size);
}

/**
 * Removes files from the index. An outcome marks its intent, which can be in an earlier file of the chain: then the
 * whole chain is removed, and indexed again. The first files of a chain go alone, because they were archived.
 */
interface Forget {
  files(names: readonly string[]): void;
  chainOf(name: string): void;
}

function createForget(database: Database): Forget {
  const inChain = database.all<{ id: number; name: string }>(
    `SELECT id, name FROM file WHERE substr(name, 1, ?) = ? ORDER BY length(name), name`,
  );
  const unlist = database.run('DELETE FROM terms WHERE rowid IN (SELECT n FROM record WHERE file = ?)');
  const drop = database.run('DELETE FROM record WHERE file = ?');
  const unmark = database.run('DELETE FROM file WHERE id = ?');
  const filesOf = (name: string): { id: number; name: string }[] => {
    const chain = name.slice(0, name.indexOf('.', name.lastIndexOf('/') + 1) + 1);
    return inChain(chain.length, chain);
  };
  const remove = ({ id }: { readonly id: number }): void => {
    unlist(id);
    drop(id);
    unmark(id);
  };
  return {
    files: (names) => {
      const gone = new Set(names);
      for (const name of names) {
        const files = filesOf(name);
        const at = files.findIndex((file) => file.name === name);
        const isArchived = files.slice(0, at).every((file) => gone.has(file.name));
        for (const file of isArchived ? files.slice(at, at + 1) : files) remove(file);
      }
    },
    chainOf: (name) => filesOf(name).forEach(remove),
  };
}

interface Taken {
  readonly bytes: number;
  readonly isWhole: boolean;
}

/** Indexes about `room` bytes of a file, from where the last command stopped. `isWhole` says that nothing is left. */
function createTake(
  database: Database,
  { folder, forget }: { readonly folder: string; readonly forget: Forget },
): (part: ChainPart, room: number) => Taken {
  const find = database.first<IndexedFile>('SELECT id, inode, done FROM file WHERE name = ?');
  const enter = database.run('INSERT INTO file (name, inode, done) VALUES (?, ?, 0)');
  const mark = database.run('UPDATE file SET done = ? WHERE id = ?');
  const writer = new RowWriter(database, folder);
  return (part, room) => {
    const found = statSync(part.path, { throwIfNoEntry: false });
    if (found === undefined) return { bytes: 0, isWhole: true };
    let before = find(part.name);
    // `done` of a compressed file is its size: it is indexed as a whole, and does not grow.
    const isCompressed = part.path.endsWith(GZIP);
    if (before !== undefined && (before.inode !== found.ino || before.done > found.size || isCompressed)) {
      forget.chainOf(part.name);
      before = undefined;
    }
    const from = before?.done ?? 0;
    if (before === undefined) enter(part.name, found.ino);
    const id = before?.id ?? find(part.name)?.id ?? 0;
    let done = from;
    let isWhole = true;
    for (const { offset, bytes, whole } of linesOf(part, from)) {
      if (!whole) break;
      if (done - from >= room && !isCompressed) {
        isWhole = false;
        break;
      }
      done = offset + bytes.length + 1;
      const record = parseRecord(bytes);
      if (record !== undefined) writer.add(record, { file: id, offset, length: bytes.length });
    }
    writer.flush();
    mark(isCompressed ? found.size : done, id);
    return { bytes: done - from, isWhole };
  };
}

/** Returns nothing for a file that was archived or removed a moment ago. */
function* linesOf(part: ChainPart, from: number): Generator<ChainLine> {
  try {
    yield* readLines(part.path, from);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
  }
}

/** A row that is not written yet, or a moment ago. */
interface NewRow {
  n: number;
  isWritten: boolean;
  last: 0 | 1 | 2;
  /** The intent of the same call, or its `n`. */
  readonly first: { readonly n: number } | undefined;
  readonly at: { readonly file: number; readonly offset: number; readonly length: number };
  readonly record: AuditRecord;
  readonly terms: readonly TermGroup[];
  readonly ofCall: readonly TermGroup[];
}

/** The types of the last record of a call, besides an intent that has no outcome. */
const ENDS: ReadonlySet<string> = new Set(['outcome', 'decision', 'budget']);
/** Intents whose outcomes are awaited. */
const MAX_OPEN = 20_000;
/** Rows that are put into order before they are written. */
const MAX_ROWS = 5_000;
/** Terms that are known to be stored. */
const MAX_KNOWN = 200_000;

/** Writes rows in the order of time, because FTS5 starts a new segment for each row that is out of order. */
class RowWriter {
  readonly #folder: string;
  readonly #open = new Map<string, NewRow>();
  /** Groups whose terms are stored. */
  readonly #stored = new Set<TermGroup>();
  readonly #known = new Map<string, number>();
  #rows: NewRow[] = [];
  #lastMs = 0;
  readonly #insert;
  readonly #list;
  readonly #answer;
  readonly #findIntent;
  readonly #topOf;
  readonly #store;
  readonly #findTerm;

  constructor(database: Database, folder: string) {
    this.#folder = folder;
    this.#insert = database.run(`INSERT OR IGNORE INTO record VALUES (${Array(11).fill('?').join(', ')})`);
    this.#list = database.run('INSERT INTO terms (rowid, text) VALUES (?, ?)');
    this.#answer = database.run('UPDATE record SET last = 0 WHERE n = ?');
    this.#findIntent = database.first<IndexRow>(INTENT);
    this.#topOf = database.first<{ n: number | null }>('SELECT max(n) AS n FROM record WHERE n >= ? AND n < ?');
    this.#store = database.run('INSERT OR IGNORE INTO term (text) VALUES (?)');
    this.#findTerm = database.first<{ id: number }>('SELECT id FROM term WHERE text = ?');
  }

  add(record: AuditRecord, at: NewRow['at']): void {
    const { own, ofCall } = termsOf(record);
    const ms = Date.parse(String(record.ts));
    if (!Number.isNaN(ms)) this.#lastMs = ms;
    const { id } = record as { readonly id?: unknown };
    // What only the intent says holds for the call, so its last record is found by it too.
    const intent = record.type === 'outcome' && typeof id === 'string' ? this.#takeIntent(id) : undefined;
    const row: NewRow = {
      n: slotOf(this.#lastMs),
      isWritten: false,
      last: record.type === 'intent' || ENDS.has(record.type) ? 1 : 2,
      first: intent,
      at,
      record,
      terms: [...own, ...(intent?.ofCall ?? ofCall)],
      ofCall,
    };
    if (record.type === 'intent' && typeof id === 'string') {
      if (this.#open.size >= MAX_OPEN) this.#open.clear();
      this.#open.set(id, row);
    }
    this.#rows.push(row);
    if (this.#rows.length >= MAX_ROWS) this.flush();
  }

  /** Marks the intent of an outcome as answered, and returns its place and what it says of the call. */
  #takeIntent(id: string): Pick<NewRow, 'n' | 'ofCall'> | undefined {
    const open = this.#open.get(id);
    this.#open.delete(id);
    if (open !== undefined) {
      open.last = 0;
      if (open.isWritten) this.#answer(open.n);
      return open;
    }
    const row = this.#findIntent(intentQuery(id));
    if (row === undefined) return undefined;
    this.#answer(row.n);
    const found = readRecord(this.#folder, row);
    return { n: row.n, ofCall: found === undefined ? [] : termsOf(found.record).ofCall };
  }

  flush(): void {
    const rows = this.#rows.sort((a, b) => a.n - b.n);
    this.#rows = [];
    let last = -1;
    for (const row of rows) {
      row.n = Math.max(row.n, last + 1);
      last = this.#write(row);
    }
  }

  #write(row: NewRow): number {
    const { at, record, terms } = row;
    const values = [
      at.file,
      at.offset,
      at.length,
      hashNumber(record.hash),
      row.last,
      row.first?.n ?? null,
      ...this.#countedValues(record),
    ];
    while (this.#insert(row.n, ...values) === 0) {
      // Records of another file have this time: the next free place of this ms, or of a later one.
      const end = (Math.floor(row.n / SLOTS) + 1) * SLOTS;
      row.n = (this.#topOf(row.n, end)?.n ?? row.n) + 1;
    }
    let tokens = '';
    for (const group of terms) {
      tokens += `${group.tokens} `;
      if (group.isListed && !this.#stored.has(group)) this.#storeTerms(group);
    }
    this.#list(row.n, tokens);
    row.isWritten = true;
    return row.n;
  }

  #storeTerms(group: TermGroup): void {
    for (const term of group.terms) this.#idOf(term);
    if (this.#stored.size >= MAX_KNOWN) this.#stored.clear();
    this.#stored.add(group);
  }

  /** What `stats` counts by. */
  #countedValues(record: AuditRecord): readonly SqlValue[] {
    const { ms, type, outcome, code, exposed, server, tool, principal } = record as unknown as Record<string, unknown>;
    const text = (value: unknown): string => (typeof value === 'string' ? value : '');
    const ended = type === 'intent' ? 'unknown' : [outcome, code].map(text).filter(Boolean).join(' ');
    return [
      typeof ms === 'number' && Number.isFinite(ms) ? ms : null,
      this.#idOf(termOf('call', text(tool) === '' ? text(exposed) : `${text(server)}.${text(tool)}`)),
      this.#idOf(termOf('ended', ended)),
      this.#idOf(termOf('principal', text((principal as { id?: unknown } | null | undefined)?.id))),
    ];
  }

  /** Returns the number of a term, and stores it. A text from outside may contain NUL, which the database refuses. */
  #idOf(term: string): number {
    const known = this.#known.get(term);
    if (known !== undefined) return known;
    const text = term.replaceAll('\0', '\uFFFD');
    this.#store(text);
    const id = this.#findTerm(text)?.id ?? 0;
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(term, id);
    return id;
  }
}

/** Finds the place of an intent; its value is an `intentQuery`. */
export const INTENT = `SELECT ${ROW} FROM terms CROSS JOIN record ON record.n = terms.rowid
  JOIN file ON file.id = record.file WHERE terms MATCH ? LIMIT 1`;

/** Returns the query of FTS5 for the intent of a call. */
export function intentQuery(id: string): string {
  return `"${tokenOf(termOf('id', id))}" AND "${tokenOf(termOf('type', 'intent'))}"`;
}
