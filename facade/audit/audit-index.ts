/**
 * The SQLite index that merges all chains by time. It can be deleted at any time, because it contains only the places
 * of records.
 */
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Database, openDatabase, type SqlValue } from '../state/database.ts';
import { type AuditRecord, checkSeal, parseRecord } from './audit-chain.ts';
import { type ChainLine, type ChainPart, listParts, readLineAt, readLines } from './chain-lines.ts';

const COLUMNS = ['type', 'id', 'outcome', 'code', 'principal', 'exposed', 'server', 'tool', 'run', 'session'] as const;
type Column = (typeof COLUMNS)[number];

const SCHEMA = {
  version: 1,
  sql: `
    CREATE TABLE file (name TEXT PRIMARY KEY, inode INTEGER NOT NULL, done INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE record (
      n INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL,
      ts TEXT NOT NULL, seq INTEGER NOT NULL, ms REAL,
      ${COLUMNS.map((column) => `${column} TEXT NOT NULL`).join(', ')}) STRICT;
    CREATE INDEX record_ts ON record (ts);
    CREATE INDEX record_id ON record (id);
    CREATE INDEX record_file ON record (file)`,
};

/** The place of a record. `n` grows in the order in which records were found. */
export interface IndexRow extends Readonly<Record<Column, string>> {
  readonly n: number;
  readonly file: string;
  readonly offset: number;
  readonly length: number;
  readonly ts: string;
  readonly ms: number | null;
}

/** The index. `folder` contains the chain files. */
export interface AuditIndex {
  /** Changes when the index is made again, because rows then get other numbers. */
  readonly times: number;
  /** Indexes what was appended since the last time. */
  update(): void;
  /** Returns the rows of a query: `SELECT … FROM record …`. */
  rows<Row>(sql: string, values: readonly SqlValue[]): Row[];
  close(): void;
}

/** A record as read from its file. `intact` is false if the line is not what was sealed. */
export interface IndexedRecord {
  readonly record: AuditRecord;
  readonly line: string;
  readonly intact: boolean;
  /** The chain file that has it, and the byte where its line begins. */
  readonly file: string;
  readonly offset: number;
}

/** Name of the index in a state folder. Every command that reads the log uses it. */
export const AUDIT_INDEX = 'audit-index.db';

/**
 * Opens the index file. Works in memory if no file can be written, or if another process holds it for long. A damaged
 * index is made again, whenever the damage is noticed.
 */
export function openAuditIndex(folder: string, path: string): AuditIndex {
  let database = openOrRebuild(path);
  let update = createUpdate(database, folder);
  let times = 1;
  const guarded = <T>(work: () => T): T => {
    try {
      return work();
    } catch (thrown) {
      const isOurs = isHeld(thrown) || isDamaged(thrown);
      if (!isOurs) throw thrown;
      database.close();
      database = isHeld(thrown) ? openDatabase(':memory:', SCHEMA) : rebuild(path);
      update = createUpdate(database, folder);
      times += 1;
      update();
      return work();
    }
  };
  return {
    get times() {
      return times;
    },
    update: () => guarded(() => update()),
    rows: <Row>(sql: string, values: readonly SqlValue[]) => guarded(() => database.all<Row>(sql)(...values)),
    close: () => database.close(),
  };
}

function openOrRebuild(path: string): Database {
  try {
    return openDatabase(path, SCHEMA);
  } catch (thrown) {
    // Another process uses the index, so its work must not be lost.
    if (isHeld(thrown)) return openDatabase(':memory:', SCHEMA);
    // Damaged, or of another version. Nothing is lost, because everything comes from the chain files.
    return rebuild(path);
  }
}

function rebuild(path: string): Database {
  try {
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${path}${suffix}`, { force: true });
    return openDatabase(path, SCHEMA);
  } catch {
    return openDatabase(':memory:', SCHEMA);
  }
}

function isHeld(thrown: unknown): boolean {
  return /^SQLITE_(BUSY|LOCKED)/.test(sqliteCode(thrown));
}

function isDamaged(thrown: unknown): boolean {
  return /^SQLITE_(CORRUPT|NOTADB|IOERR)/.test(sqliteCode(thrown));
}

function sqliteCode(thrown: unknown): string {
  const { cause } = thrown as { readonly cause?: { readonly code?: unknown } };
  return String(cause?.code ?? '');
}

/** Reads the line of a row from its chain file, so that the log itself is shown and not a copy. */
export function readRecord(
  folder: string,
  row: Pick<IndexRow, 'file' | 'offset' | 'length'>,
): IndexedRecord | undefined {
  const bytes = readLineAt(join(folder, row.file), row.offset, row.length);
  const record = bytes === undefined ? undefined : parseRecord(bytes);
  return bytes === undefined || record === undefined
    ? undefined
    : {
        record,
        line: bytes.toString(),
        intact: checkSeal(bytes) !== undefined,
        file: row.file,
        offset: row.offset,
      };
}

interface IndexedFile {
  readonly name: string;
  readonly inode: number;
  /** Bytes that have been indexed. */
  readonly done: number;
}

/**
 * Bytes of the log that are indexed in one transaction. Other commands get their turn after it, and continue from
 * there.
 */
const BATCH_BYTES = 4 * 1024 * 1024;
/** The cost of a file besides its bytes. */
const FILE_BYTES = 1024;

function createUpdate(database: Database, folder: string): () => void {
  const known = database.all<IndexedFile>('SELECT name, inode, done FROM file');
  const unmark = database.run('DELETE FROM file WHERE name = ?');
  const forget = database.run('DELETE FROM record WHERE file = ?');
  const take = createTake(database, forget);
  return () => {
    const gone = new Map(known().map((file) => [file.name, file]));
    const behind: ChainPart[] = [];
    for (const part of listParts(folder)) {
      if (isBehind(part, gone.get(part.name))) behind.push(part);
      gone.delete(part.name);
    }
    for (let at = 0; at < behind.length; ) {
      database.transact(() => {
        for (let room = BATCH_BYTES, part = behind[at]; room > 0 && part !== undefined; part = behind[at]) {
          const { bytes, isWhole } = take(part, room);
          room -= bytes + FILE_BYTES;
          if (isWhole) at += 1;
        }
      });
    }
    if (gone.size === 0) return;
    database.transact(() => {
      for (const name of gone.keys()) {
        forget(name);
        unmark(name);
      }
    });
  };
}

function isBehind(part: ChainPart, known: IndexedFile | undefined): boolean {
  const found = statSync(part.path, { throwIfNoEntry: false });
  return found !== undefined && (known?.inode !== found.ino || known.done !== found.size);
}

/** Indexes about `room` bytes of a file, from where the last command stopped. `isWhole` says that nothing is left. */
function createTake(
  database: Database,
  forget: (name: string) => number,
): (part: ChainPart, room: number) => { readonly bytes: number; readonly isWhole: boolean } {
  const find = database.first<IndexedFile>('SELECT inode, done FROM file WHERE name = ?');
  const mark = database.run('INSERT OR REPLACE INTO file VALUES (?, ?, ?)');
  const names = ['file', 'offset', 'length', 'ts', 'seq', 'ms', ...COLUMNS];
  const insert = database.run(`INSERT INTO record (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`);
  const indexLines = (part: ChainPart, from: number, room: number): { done: number; isWhole: boolean } => {
    let done = from;
    for (const { offset, bytes, whole } of linesOf(part, from)) {
      if (!whole) break;
      if (done - from >= room) return { done, isWhole: false };
      done = offset + bytes.length + 1;
      const record = parseRecord(bytes);
      if (record !== undefined) insert(part.name, offset, bytes.length, ...valuesOf(record));
    }
    return { done, isWhole: true };
  };
  return (part, room) => {
    const found = statSync(part.path, { throwIfNoEntry: false });
    if (found === undefined) return { bytes: 0, isWhole: true };
    const before = find(part.name);
    const isSame = before?.inode === found.ino && before.done <= found.size;
    if (before !== undefined && !isSame) forget(part.name);
    const from = isSame ? before.done : 0;
    const { done, isWhole } = indexLines(part, from, room);
    mark(part.name, found.ino, done);
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

function valuesOf(record: AuditRecord): SqlValue[] {
  const fields = new Map(Object.entries(record as object));
  const principal = fields.get('principal') as { id?: unknown } | undefined;
  fields.set('principal', principal?.id);
  // A name from outside may contain what the database refuses. The chain file has it unchanged.
  const text = (value: unknown): string => (typeof value === 'string' ? value.replaceAll('\0', '\uFFFD') : '');
  const number = (value: unknown): number | null =>
    typeof value === 'number' && Number.isFinite(value) ? value : null;
  return [
    text(record.ts),
    number(record.seq) ?? 0,
    number(fields.get('ms')),
    ...COLUMNS.map((column) => text(fields.get(column))),
  ];
}
