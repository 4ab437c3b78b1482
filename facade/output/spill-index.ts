/**
 * The index of spills: by handle, and by run and principal in their order. No operation costs more with their number.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { Effect } from '../../policies/port.ts';

/** Whose spill it is. */
export interface SpillOwner {
  readonly principal: string;
  readonly run: string;
}

/** One spill. `at`: when it was stored, ms of a monotonic clock. */
export interface Spill extends SpillOwner, SpillFile {
  readonly handle: string;
  readonly bytes: number;
  readonly effect: Effect;
  readonly labels: readonly string[];
  readonly at: number;
}

/** Number of spills, and their bytes. */
export interface SpillLimit {
  readonly files: number;
  readonly bytes: number;
}

/** Above this many items, a list is cleared of removed ones. */
const CLEAR_FROM = 32;

/** Spills in their order. A removed one is skipped, and cleared once half of the items are removed. */
class Line {
  #items: Spill[] = [];
  #front = 0;
  readonly #isThere: (spill: Spill) => boolean;
  files = 0;
  bytes = 0;

  constructor(isThere: (spill: Spill) => boolean) {
    this.#isThere = isThere;
  }

  add(spill: Spill): void {
    this.#items.push(spill);
    this.files += 1;
    this.bytes += spill.bytes;
  }

  lose(spill: Spill): void {
    this.files -= 1;
    this.bytes -= spill.bytes;
    if (this.#items.length < CLEAR_FROM || this.#items.length < 2 * this.files) return;
    this.#items = this.#items.slice(this.#front).filter(this.#isThere);
    this.#front = 0;
  }

  get oldest(): Spill | undefined {
    for (let first = this.#items[this.#front]; first !== undefined; first = this.#items[(this.#front += 1)])
      if (this.#isThere(first)) return first;
    return undefined;
  }

  exceeds({ files, bytes }: SpillLimit): boolean {
    return this.files > files || this.bytes > bytes;
  }
}

/** The spills of one process. `onDrop` is called for each removed one. */
export class SpillIndex {
  readonly #byHandle = new Map<string, Spill>();
  readonly #isThere = ({ handle }: Spill): boolean => this.#byHandle.has(handle);
  readonly #all = new Line(this.#isThere);
  readonly #lines = new Map<string, Line>();
  readonly #onDrop: (spill: Spill) => void;

  constructor(onDrop: (spill: Spill) => void) {
    this.#onDrop = onDrop;
  }

  find(handle: string): Spill | undefined {
    return this.#byHandle.get(handle);
  }

  /** How many there are, and bytes of all. */
  get kept(): { readonly files: number; readonly bytes: number } {
    return { files: this.#all.files, bytes: this.#all.bytes };
  }

  /** The oldest one. */
  get oldest(): Spill | undefined {
    return this.#all.oldest;
  }

  /**
   * Adds a spill, and drops the oldest of its run and of its principal beyond the limits. The new one stays, however
   * large it is.
   */
  add(spill: Spill, limits: { readonly run: SpillLimit; readonly principal: SpillLimit }): void {
    this.#byHandle.set(spill.handle, spill);
    this.#all.add(spill);
    for (const key of keysOf(spill)) this.#line(key).add(spill);
    const [run, principal] = keysOf(spill);
    this.#trim(this.#line(run), limits.run);
    this.#trim(this.#line(principal), limits.principal);
  }

  /** Drops the spills of a run. */
  dropRun(owner: SpillOwner): void {
    const [run] = keysOf(owner);
    for (let spill = this.#lines.get(run)?.oldest; spill !== undefined; spill = this.#lines.get(run)?.oldest)
      this.drop(spill);
  }

  drop(spill: Spill): void {
    this.#byHandle.delete(spill.handle);
    this.#all.lose(spill);
    for (const key of keysOf(spill)) {
      const line = this.#line(key);
      line.lose(spill);
      if (line.files === 0) this.#lines.delete(key);
    }
    this.#onDrop(spill);
  }

  #trim(line: Line, limit: SpillLimit): void {
    while (line.files > 1 && line.exceeds(limit) && line.oldest !== undefined) this.drop(line.oldest);
  }

  #line(key: string): Line {
    const line = this.#lines.get(key) ?? new Line(this.#isThere);
    this.#lines.set(key, line);
    return line;
  }
}

/** The key of its run and its principal. Ids of principals contain no line break. */
function keysOf({ principal, run }: SpillOwner): readonly [string, string] {
  return [`${principal}\n${run}`, principal];
}

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** Where a text is stored, and the identity of the file. */
export interface SpillFile {
  readonly file: string;
  readonly object: string;
}

/** Writes a new file of mode 0600. Throws errors of the system, EEXIST if it exists. */
export function writeSpillFile(file: string, bytes: Buffer): SpillFile {
  const descriptor = openSync(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    for (let done = 0; done < bytes.length; ) done += writeSync(descriptor, bytes, done);
    return { file, object: objectOf(descriptor) };
  } finally {
    closeSync(descriptor);
  }
}

/** Returns the text of a stored file; undefined if its name leads to another file by now, or to none. */
export function readSpillFile({ file, object }: SpillFile): string | undefined {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, O_RDONLY | O_NOFOLLOW);
    return objectOf(descriptor) === object ? readFileSync(descriptor, 'utf8') : undefined;
  } catch {
    return undefined;
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

function objectOf(descriptor: number): string {
  const { dev, ino } = fstatSync(descriptor, { bigint: true });
  return `${dev}:${ino}`;
}
