/** Owns the rows that must be kept when a disk takes nothing more: one file of fixed size, made ahead and written over in place; refuses to take what it cannot read for no rows. */
import { closeSync, constants, fsyncSync, linkSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { TollgateError } from '../../catalogs/errors.ts';

/** Room for some thirty switches, in one block: to write over it takes room from nobody. */
const BYTES = 4096;
/** The row that stops everything has room of its own, whatever stands there already. */
const [ALL, ALL_BYTES] = ['*', 256];

/** The file, open until `close`. What another process has written is there at the next read. Every method throws STATE_FAILED. */
export class InPlace {
  #file: number;
  readonly #bytes = Buffer.alloc(BYTES);
  readonly #known = Buffer.alloc(BYTES);
  #version = 0;

  constructor(path: string) {
    this.#file = guard(() => openOrMake(path));
  }

  /** Another number once the rows are others. */
  version(): number {
    this.#read();
    if (!this.#bytes.equals(this.#known)) {
      this.#bytes.copy(this.#known);
      this.#version += 1;
    }
    return this.#version;
  }

  rows(): ReadonlyMap<string, string> {
    this.#read();
    // The second look is for one that met a writer.
    const found = rowsIn(this.#bytes) ?? rowsIn(this.#read());
    if (found === undefined) throw new TollgateError('STATE_FAILED', { detail: 'The list of switches that were thrown on a full disk is damaged.', next: 'Find out what wrote to the state folder. Once nothing runs that must not, remove `stops` from it, and start Tollgate anew.' });
    return found;
  }

  /** Whoever changes rows holds the write lock of the database meanwhile. */
  write(rows: ReadonlyMap<string, string>): void {
    guard(() => {
      writeSync(this.#file, pageOf(rows), 0, BYTES, 0);
      fsyncSync(this.#file);
    });
  }

  close(): void {
    if (this.#file >= 0) closeSync(this.#file);
    // Its number may be another file's by now.
    this.#file = -1;
  }

  #read(): Buffer {
    guard(() => this.#bytes.fill(0, readSync(this.#file, this.#bytes, 0, BYTES, 0)));
    return this.#bytes;
  }
}

/** It is there whole or not at all, whichever processes start at once. */
function openOrMake(path: string): number {
  const open = (): number => openSync(path, constants.O_RDWR | constants.O_NOFOLLOW);
  try {
    return open();
  } catch (error) {
    if (codeOf(error) !== 'ENOENT') throw error;
  }
  const draft = `${path}.${process.pid}`;
  try {
    const file = openSync(draft, 'w', 0o600);
    try {
      writeSync(file, pageOf(new Map()));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    linkSync(draft, path);
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return open();
}

function pageOf(rows: ReadonlyMap<string, string>): Buffer {
  const text = Buffer.from(JSON.stringify(Object.fromEntries(rows)));
  if (text.length > (rows.has(ALL) ? BYTES : BYTES - ALL_BYTES)) throw new TollgateError('STATE_FAILED', { detail: 'The disk is full, and so is the room that is kept for switches.', next: 'Free some of the disk.' });
  return Buffer.concat([text, Buffer.alloc(BYTES - text.length, ' ')]);
}

function rowsIn(bytes: Buffer): ReadonlyMap<string, string> | undefined {
  try {
    const value: unknown = JSON.parse(bytes.toString());
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
    return new Map(Object.entries(value as Record<string, string>));
  } catch {
    return undefined;
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}

function guard<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof TollgateError) throw error;
    throw new TollgateError('STATE_FAILED', { detail: `The list of switches cannot be used (${codeOf(error) ?? 'unknown'}).`, cause: error });
  }
}
