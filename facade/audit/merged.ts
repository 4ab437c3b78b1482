/** Owns the SQLite index that merges all chains by time; refuses to be a source: it can be deleted, and keeps places, not records. */
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { openDatabase, type Database, type Value } from '../state/database.ts';
import { checkSeal, parseRecord, type AuditRecord } from './chain.ts';
import { listParts, readLineAt, readLines, type ChainPart } from './lines.ts';

const COLUMNS = ['type', 'id', 'outcome', 'code', 'principal', 'exposed', 'server', 'tool', 'run', 'session'] as const;
type Column = (typeof COLUMNS)[number];

const SCHEMA = {
  version: 1,
  sql: `
    CREATE TABLE file (name TEXT PRIMARY KEY, inode INTEGER NOT NULL, done INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE record (
      n INTEGER PRIMARY KEY AUTOINCREMENT, file TEXT NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, ts TEXT NOT NULL, seq INTEGER NOT NULL,
      ms REAL, ${COLUMNS.map((column) => `${column} TEXT NOT NULL`).join(', ')}) STRICT;
    CREATE INDEX record_ts ON record (ts);
    CREATE INDEX record_id ON record (id);
    CREATE INDEX record_file ON record (file)`,
};

/** Where a record stands. `n` grows in the order in which records were found. */
export interface IndexRow extends Readonly<Record<Column, string>> {
  readonly n: number;
  readonly file: string;
  readonly offset: number;
  readonly length: number;
  readonly ts: string;
  readonly ms: number | null;
}

/** The index. `folder` is the one of the chain files. */
export interface AuditIndex {
  /** Takes up what was appended since. */
  update(): void;
  /** Rows of a query: `SELECT … FROM record …`. */
  rows<Row>(sql: string, values: readonly Value[]): Row[];
  close(): void;
}

/** A record as read from its file. `intact` is false when the line is not what was sealed. */
export interface Found {
  readonly record: AuditRecord;
  readonly line: string;
  readonly intact: boolean;
}

/** Opens the index file, makes it anew when it cannot be used, and does without a file where none can be written. */
export function openIndex(folder: string, path: string): AuditIndex {
  const database = openOrRebuild(path);
  const update = createUpdate(database, folder);
  return {
    update,
    rows: <Row>(sql: string, values: readonly Value[]) => database.all<Row>(sql)(...values),
    close: () => database.close(),
  };
}

function openOrRebuild(path: string): Database {
  try {
    return openDatabase(path, SCHEMA);
  } catch {
    // Spoilt, or of another version: nothing is lost, since everything in it comes from the chain files.
  }
  try {
    for (const suffix of ['', '-wal', '-shm']) rmSync(`${path}${suffix}`, { force: true });
    return openDatabase(path, SCHEMA);
  } catch {
    return openDatabase(':memory:', SCHEMA);
  }
}

/** Reads the line of a row from its chain file: what is shown is the log, not a copy of it. */
export function readRecord(folder: string, row: Pick<IndexRow, 'file' | 'offset' | 'length'>): Found | undefined {
  const bytes = readLineAt(join(folder, row.file), row.offset, row.length);
  const record = bytes === undefined ? undefined : parseRecord(bytes);
  return bytes === undefined || record === undefined ? undefined : { record, line: bytes.toString(), intact: checkSeal(bytes) !== undefined };
}

interface IndexedFile {
  readonly name: string;
  readonly inode: number;
  /** Bytes that have been taken up. */
  readonly done: number;
}

function createUpdate(database: Database, folder: string): () => void {
  const known = database.all<IndexedFile>('SELECT name, inode, done FROM file');
  const mark = database.run('INSERT OR REPLACE INTO file VALUES (?, ?, ?)');
  const unmark = database.run('DELETE FROM file WHERE name = ?');
  const forget = database.run('DELETE FROM record WHERE file = ?');
  const names = ['file', 'offset', 'length', 'ts', 'seq', 'ms', ...COLUMNS];
  const insert = database.run(`INSERT INTO record (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})`);

  const take = (part: ChainPart, from: number): number => {
    let done = from;
    for (const { offset, bytes, whole } of readLines(part.path, from)) {
      if (!whole) break;
      done = offset + bytes.length + 1;
      const record = parseRecord(bytes);
      if (record !== undefined) insert(part.name, offset, bytes.length, ...valuesOf(record));
    }
    return done;
  };
  const updateFile = (part: ChainPart, before: IndexedFile | undefined): void => {
    const { ino, size } = statSync(part.path);
    const isSame = before !== undefined && before.inode === ino && before.done <= size;
    if (isSame && before.done === size) return;
    if (before !== undefined && !isSame) forget(part.name);
    mark(part.name, ino, take(part, isSame ? before.done : 0));
  };
  return () =>
    database.transact(() => {
      const gone = new Map(known().map((file) => [file.name, file]));
      for (const part of listParts(folder)) {
        updateFile(part, gone.get(part.name));
        gone.delete(part.name);
      }
      for (const name of gone.keys()) {
        forget(name);
        unmark(name);
      }
    });
}

function valuesOf(record: AuditRecord): Value[] {
  const fields = new Map(Object.entries(record as object));
  const principal = fields.get('principal') as { id?: unknown } | undefined;
  fields.set('principal', principal?.id);
  // A name from outside may hold what the database refuses; it stands whole in the chain file.
  const text = (value: unknown): string => (typeof value === 'string' ? value.replaceAll('\0', '\uFFFD') : '');
  const number = (value: unknown): number | null => (typeof value === 'number' && Number.isFinite(value) ? value : null);
  return [text(record.ts), number(record.seq) ?? 0, number(fields.get('ms')), ...COLUMNS.map((column) => text(fields.get(column)))];
}
