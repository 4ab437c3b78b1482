/** Finds the other names of a file, so that a rule about one name of a file holds for all of them. */
import { lstatSync, statSync } from 'node:fs';
import type { BigIntStats, Dir, Dirent } from 'node:fs';
import { opendir } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { TollgateError } from '../catalogs/errors.ts';
import type { Held } from '../catalogs/held.ts';

/** Entries of the workspace that are looked at. A file with several names is refused in a larger workspace. */
const MAX_ENTRIES = 1_000_000;
/** Milliseconds of work between two turns of the event loop. */
const SLICE_MS = 4;
/** An index that nobody asked for so long is dropped. Milliseconds. */
const KEEP_MS = 300_000;

/** All names of one file beneath the workspace, as they were when its state changed last. */
interface Names {
  readonly names: string[];
  changed: bigint;
}

/**
 * The names of files that have several. An index of the workspace is kept: a new name of a file, and a renaming, change its time of
 * change (ctime), and the workspace is then walked again. Names outside the workspace are known only if `known` lists them.
 */
export class HardLinks {
  readonly #root: string;
  readonly #known: readonly string[];
  #index = new Map<string, Names>();
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #drop: NodeJS.Timeout | undefined;

  /** `root` is real and absolute; `known` are files that rules protect wherever they lie, absolute. */
  constructor(root: string, known: readonly string[]) {
    this.#root = root;
    this.#known = known;
  }

  /** Known files that are this object under another name. */
  knownNames(held: Held): readonly string[] {
    if (held.stat?.isFile() !== true) return [];
    return this.#known.filter((file) => file !== held.location.absolute && isSame(held, file));
  }

  /** Names of this object beneath the workspace, absolute. Throws DENIED when the workspace is too large to find them. */
  async namesOf(held: Held): Promise<readonly string[]> {
    const { stat } = held;
    if (stat === undefined || !hasOtherNames(stat)) return [];
    const known = this.#index.get(keyOf(stat));
    const others = (names: Names | undefined): readonly string[] => (names?.names ?? []).filter((name) => name !== held.location.absolute);
    if (known !== undefined && (known.changed === stat.ctimeNs || isWhole(known, held))) return others(known);
    await this.#refresh();
    return others(this.#index.get(keyOf(stat)));
  }

  /** A walk that began before the question may have passed what the question is about, so the next one answers it. */
  #refresh(): Promise<void> {
    if (this.#running === undefined) return this.#begin();
    this.#next ??= this.#running.catch(() => undefined).then(() => {
      this.#next = undefined;
      return this.#begin();
    });
    return this.#next;
  }

  #begin(): Promise<void> {
    const running = this.#look().finally(() => {
      if (this.#running === running) this.#running = undefined;
    });
    this.#running = running;
    return running;
  }

  async #look(): Promise<void> {
    const index = new Map<string, Names>();
    let entries = 0;
    let began = performance.now();
    const folders = [this.#root];
    for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
      const at = folder;
      for await (const entry of entriesOf(at)) {
        entries += 1;
        if (entries > MAX_ENTRIES) throw tooMany();
        const name = path.join(at, entry.name);
        if (entry.isDirectory()) folders.push(name);
        else if (entry.isFile()) note(index, name);
        if (performance.now() - began < SLICE_MS) continue;
        await nextTurn();
        began = performance.now();
      }
    }
    this.#index = index;
    clearTimeout(this.#drop);
    this.#drop = setTimeout(() => (this.#index = new Map()), KEEP_MS).unref();
  }
}

function note(index: Map<string, Names>, name: string): void {
  const stat = lstatSync(name, { bigint: true, throwIfNoEntry: false });
  if (stat === undefined || !hasOtherNames(stat)) return;
  const known = index.get(keyOf(stat));
  if (known === undefined) index.set(keyOf(stat), { names: [name], changed: stat.ctimeNs });
  else known.names.push(name);
  // The earliest counts: a name that was added during the walk may have been passed already.
  if (known !== undefined && stat.ctimeNs < known.changed) known.changed = stat.ctimeNs;
}

/** What cannot be opened, and what has gone meanwhile, has no names here. */
async function* entriesOf(folder: string): AsyncGenerator<Dirent> {
  let open: Dir;
  try {
    open = await opendir(folder, { bufferSize: 512 });
  } catch {
    return;
  }
  yield* open;
}

/** True when the names that are known are all that there are. */
function isWhole({ names }: Names, held: Held): boolean {
  return BigInt(names.length) === held.stat?.nlink && names.every((name) => isSame(held, name));
}

function isSame(held: Held, file: string): boolean {
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
    detail: `The file has several names (hard links), and the workspace holds more than ${MAX_ENTRIES} entries, so its other names are not known.`,
    next: 'Replace the file by a copy of it: a copy has one name.',
  });
}
