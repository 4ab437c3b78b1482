/**
 * Finds the paths that rules close among the files that a program gets. A program does not start if the search is
 * incomplete.
 */
import { type BigIntStats, lstatSync, opendirSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import { type ClosurePosition, type PathClosure, PathTree } from '../../../catalogs/readers/path-globs.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { type FolderEntries, NO_FOLDER_ENTRIES, readFolderEntries, repositoryKey } from './folder-entries.ts';

/**
 * Closed paths: absolute, outermost first. The map has no path below a hidden one. `open`: a path in a read-only folder
 * that is as writable as without rules.
 */
export type ClosedPaths = ReadonlyMap<string, PathClosure | 'open'>;

/** The result of a search for closed paths. */
export interface ClosedPathSearch {
  readonly closed: ClosedPaths;
  /** Literal names that rules close. A missing one needs a placeholder, or the program could create it. */
  readonly names: readonly string[];
  /** The git repositories, as `repositoryKey` names them. */
  readonly repositories: ReadonlySet<string>;
}

/** The folders to search. All paths are absolute and real. */
export interface SearchedPaths {
  readonly roots: readonly string[];
  readonly workspace: string;
  /** Files that are read-only for other reasons. Their other names become read-only too. */
  readonly fixed?: readonly string[];
}

/** Folders and files. A search of this many takes seconds. */
const MAX_ENTRIES = 1_000_000;
/**
 * Each closed path is a mount. The time for mounts grows with the square of their number: half a second for this many.
 */
const MAX_CLOSED = 400;
/** Placeholders are mounts too. The starter rules need eight in a nested repository. */
const MAX_NAMES = 600;
const TRIES = 3;

type Trees = Readonly<Record<'inside' | 'outside', PathTree>>;

/** A listed folder is gone: another program moves folders during the search. */
class Moved extends Error {}

/**
 * Finds what the globs close among the roots. It does not follow links: their targets are closed, or open, at their own
 * place. A hidden folder with open paths becomes read-only, and everything else in it is hidden. A closed file is
 * closed under each of its names (hard links). A folder that cannot be listed counts as hidden.
 * Throws SANDBOX_UNAVAILABLE beyond the limits, and when folders keep moving.
 */
export async function findClosedPaths(confinement: Confinement, given: SearchedPaths): Promise<ClosedPathSearch> {
  const trees = { inside: new PathTree(confinement, 'inside'), outside: new PathTree(confinement, 'outside') };
  for (let tries = 1; ; tries += 1) {
    try {
      return await search(trees, given);
    } catch (thrown) {
      if (!(thrown instanceof Moved)) throw thrown;
      if (tries === TRIES)
        throw refused(
          'folders moved during the search for closed files, or their names are not UTF-8',
          'Run it again when no program moves folders there.',
        );
    }
  }
}

/** Searches a second time for the other names of the closed files, if they have any. */
async function search(trees: Trees, { roots, workspace, fixed = [] }: SearchedPaths): Promise<ClosedPathSearch> {
  const walk = new Walk(trees, workspace, new Map());
  for (const root of roots) await walk.from(root);
  const linked = linkedFiles([...fixed.map((at) => [at, 'fixed'] as const), ...walk.closed]);
  if (linked.size === 0) return walk.found;
  const again = new Walk(trees, workspace, linked);
  for (const root of roots) await again.from(root);
  return again.found;
}

interface Folder {
  readonly at: string;
  readonly position: ClosurePosition;
  /** What applies to the folder around it. */
  readonly around: PathClosure | undefined;
}

interface Entry extends Folder {
  readonly isFolder: boolean;
}

class Walk {
  readonly closed = new Map<string, PathClosure | 'open'>();
  readonly #names = new Set<string>();
  readonly #repositories = new Set<string>();
  readonly #trees: Trees;
  readonly #workspace: string;
  readonly #linked: ReadonlyMap<string, PathClosure>;
  readonly #pace = new TimeSlices();
  #entries = 0;

  /** `linked`: closed files with several names, by `keyOf`. */
  constructor(trees: Trees, workspace: string, linked: ReadonlyMap<string, PathClosure>) {
    this.#trees = trees;
    this.#workspace = workspace;
    this.#linked = linked;
  }

  get found(): ClosedPathSearch {
    return { closed: this.closed, names: [...this.#names], repositories: this.#repositories };
  }

  async from(root: string): Promise<void> {
    const first = this.#take({ at: root, position: this.#enter(root), around: undefined });
    const waiting = first !== undefined && statSync(root).isDirectory() ? [first] : [];
    for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
      if (folder.position.closure === 'hidden') {
        waiting.push(...(await this.#openWithin(folder)));
        continue;
      }
      this.#noteNames(folder, folder.at === root || folder.at === this.#workspace);
      const { folders, files } = await this.#list(folder.at);
      await this.#takeFiles(folder, files);
      for (const name of folders) {
        const next = this.#step(folder, name);
        if (next !== undefined) waiting.push(next);
      }
      if (this.#pace.isDue) await this.#pace.rest();
    }
  }

  async #takeFiles(folder: Folder, files: readonly string[]): Promise<void> {
    for (const name of files) {
      const next = this.#step(folder, name);
      if (this.#linked.size > 0) this.#closeOtherName(path.join(folder.at, name), next?.position.closure);
      if (this.#pace.isDue) await this.#pace.rest();
    }
  }

  /** A program cannot create names in a closed folder, so these need no placeholder. */
  #noteNames({ at, position }: Folder, isTop: boolean): void {
    if (position.closure === undefined)
      for (const name of position.literals(isTop)) this.#names.add(path.join(at, name));
    if (this.#names.size > MAX_NAMES)
      throw refused(
        `more than ${MAX_NAMES} names fall under rules on paths, in nested repositories for example`,
        'Move nested repositories (folders with .git) out of the workspace, or narrow these rules.',
      );
  }

  /** Returns what the rules say about a root and about all folders above it. */
  #enter(root: string): ClosurePosition {
    const side = isPathWithin(root, this.#workspace) ? 'inside' : 'outside';
    return path
      .relative(side === 'inside' ? this.#workspace : '/', root)
      .split('/')
      .filter((part) => part !== '')
      .reduce((position, name) => position.descend(name), this.#trees[side].start());
  }

  /** Records one entry of a folder. Returns the entry if it may be a folder that the search must continue in. */
  #step(folder: Folder, name: string): Folder | undefined {
    return this.#take(this.#entryOf(folder, name));
  }

  #entryOf({ at: folder, position }: Folder, name: string): Folder {
    this.#entries += 1;
    if (this.#entries > MAX_ENTRIES)
      throw refused(
        `rules on paths would need a search through more than ${MAX_ENTRIES} files`,
        'Begin the globs of these rules with a folder instead of **.',
      );
    const at = folder === '/' ? `/${name}` : `${folder}/${name}`;
    const around = position.closure;
    return {
      at,
      position: at === this.#workspace ? this.#trees.inside.start(around) : position.descend(name),
      around,
    };
  }

  /**
   * Searches a hidden folder for paths that exceptions open. If there are any, hides what surrounds them instead of the
   * folder. Returns the open ones, in which the search must continue.
   */
  async #openWithin(hidden: Folder): Promise<readonly Folder[]> {
    const open = new Map<string, Entry>();
    const folders: { readonly at: string; readonly entries: readonly Entry[] }[] = [];
    const pending = [hidden];
    for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
      const entries = await this.#entriesOf(folder);
      folders.push({ at: folder.at, entries });
      for (const entry of entries) {
        if (entry.position.closure !== 'hidden') open.set(entry.at, entry);
        else if (entry.isFolder && entry.position.mayOpen) pending.push(entry);
      }
      if (this.#pace.isDue) await this.#pace.rest();
    }
    if (open.size === 0) return [];
    this.closed.delete(hidden.at);
    const around = new Set([...open.keys()].flatMap((at) => foldersBetween(hidden.at, at)));
    for (const { at, entries } of folders.filter((folder) => around.has(folder.at))) {
      this.#close(at, 'fixed');
      for (const entry of entries.filter((one) => !around.has(one.at))) {
        if (!open.has(entry.at)) this.#close(entry.at, 'hidden');
        else if (entry.position.closure === undefined) this.#close(entry.at, 'open');
        if (!entry.isFolder) this.#closeOtherName(entry.at, entry.position.closure);
      }
    }
    return [...open.values()].filter(({ isFolder, position }) => isFolder && !position.isOver);
  }

  async #entriesOf(folder: Folder): Promise<readonly Entry[]> {
    const { folders, files } = await this.#list(folder.at);
    const entry = (name: string, isFolder: boolean): Entry => ({ ...this.#entryOf(folder, name), isFolder });
    return [...folders.map((name) => entry(name, true)), ...files.map((name) => entry(name, false))];
  }

  /** Closes another name of a closed file. */
  #closeOtherName(at: string, closure: PathClosure | undefined): void {
    const stat = fileAt(at);
    const wanted = stat === undefined ? undefined : this.#linked.get(keyOf(stat));
    if (wanted !== undefined && closure !== 'hidden' && this.closed.get(at) !== 'hidden') this.#close(at, wanted);
  }

  /** Notes a closed path, or an open one in a closed folder. Returns undefined if the search is over there. */
  #take(folder: Folder): Folder | undefined {
    const { at, position, around } = folder;
    const { closure } = position;
    if (closure === 'hidden' || closure !== around) this.#close(at, closure ?? 'open');
    if (closure === 'hidden') return position.mayOpen ? folder : undefined;
    return !position.isOver || isPathWithin(this.#workspace, at) ? folder : undefined;
  }

  #close(at: string, closure: PathClosure | 'open'): void {
    this.closed.set(at, closure);
    if (this.closed.size > MAX_CLOSED)
      throw refused(
        `more than ${MAX_CLOSED} files fall under rules on paths, and each needs its own mount`,
        'Write these rules for whole folders (folder/**).',
      );
  }

  async #list(folder: string): Promise<FolderEntries> {
    try {
      const entries = await readFolderEntries(folder, this.#pace, MAX_ENTRIES + 1);
      const repository = repositoryKey(folder, entries);
      if (repository !== undefined) this.#repositories.add(repository);
      return entries;
    } catch (thrown) {
      const { code } = thrown as NodeJS.ErrnoException;
      if (code === 'ENOENT' || code === 'ENOTDIR') throw new Moved();
      if (code === 'ENAMETOOLONG')
        throw refused(
          'the path of a folder is longer than the system allows',
          'Remove the deeply nested folder, for example with rm -r.',
        );
      // A program that owns the folder could change its mode, and read files that this search has not checked.
      this.#close(folder, 'hidden');
      return NO_FOLDER_ENTRIES;
    }
  }
}

/** Returns a folder, and the folders between it and a path in it. */
function foldersBetween(folder: string, at: string): readonly string[] {
  const parent = path.dirname(at);
  return parent === folder ? [folder] : [...foldersBetween(folder, parent), parent];
}

/** Returns closed files, and files directly in closed folders, that have several names (hard links), by `keyOf`. */
function linkedFiles(closed: readonly (readonly [string, PathClosure | 'open'])[]): ReadonlyMap<string, PathClosure> {
  const linked = new Map<string, PathClosure>();
  for (const [at, closure] of closed) {
    if (closure === 'open') continue;
    for (const file of [at, ...filesIn(at)]) {
      const stat = fileAt(file);
      if (stat !== undefined && stat.nlink > 1n && linked.get(keyOf(stat)) !== 'hidden')
        linked.set(keyOf(stat), closure);
    }
  }
  return linked;
}

function filesIn(folder: string): readonly string[] {
  const files: string[] = [];
  try {
    const opened = opendirSync(folder);
    for (let entry = opened.readSync(); entry !== null && files.length < MAX_CLOSED; entry = opened.readSync())
      if (entry.isFile()) files.push(path.join(folder, entry.name));
    opened.closeSync();
  } catch {
    // It is not a folder, or this process cannot read it either.
  }
  return files;
}

/** Returns undefined unless the path is a regular file. */
function fileAt(file: string): BigIntStats | undefined {
  const stat = unlessUnreadable(() => lstatSync(file, { bigint: true }));
  return stat?.isFile() === true ? stat : undefined;
}

function keyOf({ dev, ino }: BigIntStats): string {
  return `${dev}:${ino}`;
}

function refused(what: string, next: string): TollgateError {
  return new TollgateError('SANDBOX_UNAVAILABLE', { detail: `A sandbox cannot enforce the policy: ${what}.`, next });
}
