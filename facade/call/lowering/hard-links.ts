/** Finds the other names (hard links) of a file, so that a rule about one name protects the file under all of them. */

import { type BigIntStats, type Dirent, lstatSync, statSync } from 'node:fs';
import { opendir } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';

/** Directory entries that one walk may read. If there are more, a file with several names is refused. */
const MAX_ENTRIES = 1_000_000;
/** Milliseconds of one time slice. */
const SLICE_MS = 4;
/** Milliseconds after which an unused index is dropped. */
const KEEP_MS = 300_000;

/**
 * Milliseconds that are longer than a kernel clock tick. A timestamp that is older than this shows every later change.
 */
const TICK_MS = 100;

/**
 * The names of one file below the roots, and its change time (ctime) during the walk; undefined if it changed during
 * the walk.
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
 * Knows the names of files that have several. It keeps an index of the roots. A new, removed or changed name changes
 * the file's ctime, and then the roots are walked again. Names outside of the roots are known only if `known` lists
 * them.
 */
export class HardLinks {
  readonly #roots: readonly string[];
  readonly #known: readonly string[];
  #index = NOTHING;
  #running: Promise<Index> | undefined;
  #next: Promise<Index> | undefined;
  /** Files that the next walk must include, even if they have only one name by then. */
  #wanted = new Set<string>();
  #drop: NodeJS.Timeout | undefined;

  /** `roots`: absolute real paths of the workspaces. `known`: absolute paths of files that rules protect anywhere. */
  constructor(roots: readonly string[], known: readonly string[]) {
    this.#roots = roots;
    this.#known = known;
  }

  /** Returns the known files that are this file under another name. */
  knownNames(handle: PathHandle): readonly string[] {
    if (handle.stat?.isFile() !== true) return [];
    return this.#known.filter((file) => file !== handle.location.absolute && isSame(handle, file));
  }

  /**
   * Returns the absolute names of this file below the roots. Throws DENIED if the workspace is too large to find them.
   */
  async namesOf(handle: PathHandle): Promise<readonly string[]> {
    const { stat } = handle;
    if (stat === undefined || !hasOtherNames(stat)) return [];
    const key = keyOf(stat);
    const index = isCurrent(this.#index, key, handle) ? this.#index : await this.#refresh(key);
    return (index.files.get(key)?.names ?? []).filter((name) => name !== handle.location.absolute);
  }

  /** Walks the roots. A walk that is already running may have passed the file, so a new walk follows it. */
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
    const running = this.#walk(wanted).finally(() => {
      if (this.#running === running) this.#running = undefined;
    });
    this.#running = running;
    return running;
  }

  async #walk(wanted: ReadonlySet<string>): Promise<Index> {
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
  // The name in the call may be gone by now, so that the protected name is the only one left.
  if (!hasOtherNames(stat) && !wanted.has(key)) return;
  const known = files.get(key);
  if (known === undefined) files.set(key, { names: [name], changed: stat.ctimeNs });
  else known.names.push(name);
  if (known !== undefined && stat.ctimeNs !== known.changed) known.changed = undefined;
}

/** Returns true if the file has not changed since before the walk, so that the walk saw all its names. */
function isCurrent({ files, began }: Index, key: string, handle: PathHandle): boolean {
  const changed = files.get(key)?.changed;
  return (
    changed !== undefined && changed + BigInt(TICK_MS) * 1_000_000n < began && handle.statNow()?.ctimeNs === changed
  );
}

/** A folder that cannot be opened, or that no longer exists, has no entries. */
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

function isSame(handle: PathHandle, file: string): boolean {
  try {
    return handle.isObject(statSync(file, { bigint: true }));
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
    detail:
      'The file has several names (hard links). Its other names are not known, because the workspaces contain more ' +
      `than ${MAX_ENTRIES} entries.`,
    next: 'Replace the file with a copy of it: a copy has only one name.',
  });
}
