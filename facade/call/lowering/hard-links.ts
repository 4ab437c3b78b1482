/** Finds the other names of a file, so that a rule about one name of a file holds for all of them. */

import { type BigIntStats, type Dirent, lstatSync, statSync } from 'node:fs';
import { opendir } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';

/** Entries of all roots that are looked at. A file with several names is refused where there are more. */
const MAX_ENTRIES = 1_000_000;
/** Milliseconds of work between two turns of the event loop. */
const SLICE_MS = 4;
/** An index that nobody asked for so long is dropped. Milliseconds. */
const KEEP_MS = 300_000;

/**
 * Time stamps of files are as coarse as the kernel's clock tick; a state that is older than this has not changed since.
 * Milliseconds.
 */
const TICK_MS = 100;

/**
 * Names of one file beneath the roots, and its time of change when they were seen; undefined when they were seen at
 * several.
 */
interface Names {
  readonly names: string[];
  changed: bigint | undefined;
}

interface Index {
  readonly files: ReadonlyMap<string, Names>;
  /** When the walk began, in nanoseconds since 1970. */
  readonly began: bigint;
}

const NOTHING: Index = { files: new Map(), began: 0n };

/**
 * The names of files that have several. An index of the roots is kept: a new name, a removed one and a renaming change
 * a file's time of change (ctime), and the roots are then walked again. Names elsewhere are known only if `known` lists
 * them.
 */
export class HardLinks {
  readonly #roots: readonly string[];
  readonly #known: readonly string[];
  #index = NOTHING;
  #running: Promise<Index> | undefined;
  #next: Promise<Index> | undefined;
  /** Files that the next walk looks for, however many names they have by then. */
  #wanted = new Set<string>();
  #drop: NodeJS.Timeout | undefined;

  /**
   * `roots`, the workspace and folders of others, are real and absolute; `known` are files that rules protect wherever
   * they lie, absolute.
   */
  constructor(roots: readonly string[], known: readonly string[]) {
    this.#roots = roots;
    this.#known = known;
  }

  /** Known files that are this object under another name. */
  knownNames(held: PathHandle): readonly string[] {
    if (held.stat?.isFile() !== true) return [];
    return this.#known.filter((file) => file !== held.location.absolute && isSame(held, file));
  }

  /** Names of this object beneath the roots, absolute. Throws DENIED when the workspace is too large to find them. */
  async namesOf(held: PathHandle): Promise<readonly string[]> {
    const { stat } = held;
    if (stat === undefined || !hasOtherNames(stat)) return [];
    const key = keyOf(stat);
    const index = isCurrent(this.#index, key, held) ? this.#index : await this.#refresh(key);
    return (index.files.get(key)?.names ?? []).filter((name) => name !== held.location.absolute);
  }

  /** A walk that began before the question may have passed what the question is about, so the next one answers it. */
  #refresh(key: string): Promise<Index> {
    this.#wanted.add(key);
    if (this.#running === undefined) return this.#begin();
    this.#next ??= this.#running
      .catch(() => undefined)
      .then(() => {
        this.#next = undefined;
        return this.#begin();
      });
    return this.#next;
  }

  #begin(): Promise<Index> {
    const wanted = this.#wanted;
    this.#wanted = new Set();
    const running = this.#look(wanted).finally(() => {
      if (this.#running === running) this.#running = undefined;
    });
    this.#running = running;
    return running;
  }

  async #look(wanted: ReadonlySet<string>): Promise<Index> {
    const files = new Map<string, Names>();
    const index = { files, began: BigInt(Date.now()) * 1_000_000n };
    let entries = 0;
    let began = performance.now();
    const folders = [...this.#roots];
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      const at = folder;
      for await (const entry of entriesOf(at)) {
        entries += 1;
        if (entries > MAX_ENTRIES) throw tooMany();
        const name = path.join(at, entry.name);
        if (entry.isDirectory()) folders.push(name);
        else if (entry.isFile()) note(files, wanted, name);
        if (performance.now() - began < SLICE_MS) continue;
        await nextTurn();
        began = performance.now();
      }
    }
    this.#index = index;
    clearTimeout(this.#drop);
    this.#drop = setTimeout(() => (this.#index = NOTHING), KEEP_MS).unref();
    return index;
  }
}

function note(files: Map<string, Names>, wanted: ReadonlySet<string>, name: string): void {
  const stat = statOf(name);
  if (stat?.isFile() !== true) return;
  const key = keyOf(stat);
  // The name that was asked about may be gone by now, and leave the protected one as the only one.
  if (!hasOtherNames(stat) && !wanted.has(key)) return;
  const known = files.get(key);
  if (known === undefined) files.set(key, { names: [name], changed: stat.ctimeNs });
  else known.names.push(name);
  if (known !== undefined && stat.ctimeNs !== known.changed) known.changed = undefined;
}

/** True when the file has not changed from before the walk until now: then no name of it was passed over. */
function isCurrent({ files, began }: Index, key: string, held: PathHandle): boolean {
  const changed = files.get(key)?.changed;
  return changed !== undefined && changed + BigInt(TICK_MS) * 1_000_000n < began && held.statNow()?.ctimeNs === changed;
}

/** What cannot be opened, and what has gone meanwhile, has no names here. */
async function* entriesOf(folder: string): AsyncGenerator<Dirent> {
  try {
    yield* await opendir(folder, { bufferSize: 512 });
  } catch {
    return;
  }
}

function statOf(file: string): BigIntStats | undefined {
  try {
    return lstatSync(file, { bigint: true });
  } catch {
    return undefined;
  }
}

function isSame(held: PathHandle, file: string): boolean {
  try {
    return held.isObject(statSync(file, { bigint: true }));
  } catch {
    return false;
  }
}

function hasOtherNames(stat: BigIntStats): boolean {
  return stat.isFile() && stat.nlink > 1n;
}

function keyOf(stat: BigIntStats): string {
  return `${stat.dev}:${stat.ino}`;
}

function tooMany(): TollgateError {
  return new TollgateError('DENIED', {
    detail: `The file has several names (hard links), and the workspace, with the other ones that are named, holds more than ${MAX_ENTRIES} entries, so its other names are not known.`,
    next: 'Replace the file by a copy of it: a copy has one name.',
  });
}
