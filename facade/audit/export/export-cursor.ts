/** How far the log was copied to one target. It is replaced in one step, after the target has what it says. */
import { createHash, randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';

/** The place after a record of a chain file, and the hash of that record. */
export interface ExportPlace {
  readonly offset: number;
  readonly hash: string;
}

/** Chain file → the place that was reached in it. */
export type ExportPlaces = Readonly<Record<string, ExportPlace>>;

/** The target file before a batch. A file that was replaced has another `ino`. */
export interface TargetFile {
  readonly ino: number;
  readonly size: number;
}

/** A batch that may have been delivered. It is delivered again as it was, with the same key. */
export interface PendingBatch {
  readonly places: ExportPlaces;
  readonly records: number;
  readonly before?: TargetFile | undefined;
}

/** The position of one target. */
export interface ExportCursor {
  readonly places: ExportPlaces;
  /** The number of records that the target has acknowledged. */
  readonly records: number;
  /** When it last acknowledged some, ISO. */
  readonly at?: string;
  readonly pending?: PendingBatch;
}

/** The position of a target that has nothing. */
export const NOTHING_EXPORTED: ExportCursor = { places: {}, records: 0 };

/** Returns the file of the cursor of a target, in the state folder. */
export function cursorFile(state: string, target: string): string {
  const name = createHash('sha256').update(target).digest('hex').slice(0, 16);
  return path.join(state, 'audit-export', `${name}.json`);
}

/**
 * Reads a cursor. A missing one is at the start. Throws for a damaged one: a wrong position could skip records
 * silently.
 */
export async function readCursor(file: string): Promise<ExportCursor> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return NOTHING_EXPORTED;
    throw error;
  }
  const cursor = JSON.parse(text) as ExportCursor;
  if (!isPlaces(cursor.places) || !Number.isSafeInteger(cursor.records)) throw new Error('the cursor is damaged');
  if (cursor.pending !== undefined && !isPlaces(cursor.pending.places)) throw new Error('the cursor is damaged');
  return cursor;
}

function isPlaces(places: unknown): places is ExportPlaces {
  return (
    typeof places === 'object' &&
    places !== null &&
    Object.values(places).every(
      ({ offset, hash }: Partial<ExportPlace>) => Number.isSafeInteger(offset) && typeof hash === 'string',
    )
  );
}

/** Replaces a cursor, and waits until the disk has it. Throws what node:fs throws. */
export async function writeCursor(file: string, cursor: ExportCursor): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    const handle = await open(temporary, 'wx', 0o600);
    try {
      await handle.writeFile(JSON.stringify(cursor));
      await handle.datasync();
    } finally {
      await handle.close();
    }
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}
