/** Owns the search for what rules close among the files that a program is given; refuses to start one when it cannot look everywhere. */
import { type BigIntStats, lstatSync, opendirSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { type GlobPosition, type PathClosure, PathTree } from '../../../catalogs/readers/path-globs.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { type FolderEntries, NO_FOLDER_ENTRIES, readFolderEntries, repositoryKey } from './folder-entries.ts';

/** What was found: absolute, outermost first. Nothing lies beneath a hidden one. */
export type ClosedPaths = ReadonlyMap<string, PathClosure>;

/** What a search found. */
export interface ClosedPathSearch {
  readonly closed: ClosedPaths;
  /** Literal names that rules close. Those that do not exist have to be held, or a program creates them. */
  readonly names: readonly string[];
  /** The repositories of git, as `repositoryKey` names them. */
  readonly repositories: ReadonlySet<string>;
}

/** Where is looked: absolute and real. */
export interface SearchedPaths {
  readonly roots: readonly string[];
  readonly workspace: string;
  /** Files that are read-only for other reasons: their other names are too. */
  readonly fixed?: readonly string[];
}

/** Folders and files; a walk of so many takes seconds. */
const MAX_ENTRIES = 1_000_000;
/** Each is a mount, and the time for mounts grows with the square of their number: half a second for so many. */
const MAX_CLOSED = 400;
/** Literal names that are held where they are missing: mounts too. A nested repository has eight of the rules of a starter. */
const MAX_NAMES = 600;
const TRIES = 3;

/** A folder that was listed is not there any more: something moves while we look. */
class Moved extends Error {}

/**
 * Finds what the globs close among the roots. Links are not followed: what they lead to is closed where it lies, or open. A
 * closed file is closed under each of its names (hard links). A folder that cannot be listed counts as hidden. Throws SANDBOX_UNAVAILABLE beyond the bounds, and when folders keep moving.
 */
export async function findClosedPaths({ hidden, fixed }: Confinement, given: SearchedPaths): Promise<ClosedPathSearch> {
  const trees = {
    inside: new PathTree({ hidden, fixed }, 'inside'),
    outside: new PathTree({ hidden, fixed }, 'outside'),
  };
  for (let tries = 1; ; tries += 1) {
    try {
      const walk = new Walk(trees, given.workspace);
      for (const root of given.roots) await walk.from(root);
      const linked = linkedFiles([
        ...[...(given.fixed ?? [])].map((at): [string, PathClosure] => [at, 'fixed']),
        ...walk.closed,
      ]);
      if (linked.size === 0) return walk.found;
      const again = new Walk(trees, given.workspace, linked);
      for (const root of given.roots) await again.from(root);
      return again.found;
    } catch (thrown) {
      if (!(thrown instanceof Moved)) throw thrown;
      if (tries === TRIES)
        throw refused(
          'folders are moved while they are looked through, or their names are no UTF-8',
          'Run it again when nothing moves them.',
        );
    }
  }
}

interface Folder {
  readonly at: string;
  readonly standing: GlobPosition;
  readonly isFixed: boolean;
}

class Walk {
  readonly closed = new Map<string, PathClosure>();
  readonly #names = new Set<string>();
  readonly #repositories = new Set<string>();
  readonly #trees: Readonly<Record<'inside' | 'outside', PathTree>>;
  readonly #workspace: string;
  readonly #pace = new TimeSlices();
  #entries = 0;

  readonly #linked: ReadonlyMap<string, PathClosure>;

  constructor(
    trees: Readonly<Record<'inside' | 'outside', PathTree>>,
    workspace: string,
    linked: ReadonlyMap<string, PathClosure> = new Map(),
  ) {
    this.#linked = linked;
    this.#trees = trees;
    this.#workspace = workspace;
  }

  get found(): ClosedPathSearch {
    return { closed: this.closed, names: [...this.#names], repositories: this.#repositories };
  }

  async from(root: string): Promise<void> {
    const { standing, closure } = this.#enter(root);
    const first = this.#take({ at: root, standing, isFixed: false }, closure);
    const waiting = first !== undefined && statSync(root).isDirectory() ? [first] : [];
    while (waiting.length > 0) {
      const folder = waiting.pop() as Folder;
      this.#noteNames(folder, folder.at === root || folder.at === this.#workspace);
      const { folders, files } = await this.#list(folder.at);
      for (const name of files) {
        const next = this.#step(folder, name);
        if (this.#linked.size > 0) this.#closeOtherName(path.join(folder.at, name), next?.standing.closure);
        if (this.#pace.isDue) await this.#pace.rest();
      }
      for (const name of folders) {
        const next = this.#step(folder, name);
        if (next !== undefined) waiting.push(next);
      }
      if (this.#pace.isDue) await this.#pace.rest();
    }
  }

  /** What lies in a closed folder cannot be created anyway. */
  #noteNames({ at, standing, isFixed }: Folder, isTop: boolean): void {
    if (!isFixed) for (const name of standing.literals(isTop)) this.#names.add(path.join(at, name));
    if (this.#names.size > MAX_NAMES)
      throw refused(
        `more than ${MAX_NAMES} names fall under rules on paths, in nested repositories for example`,
        'Take nested repositories (folders with .git) out of the workspace, or narrow these rules.',
      );
  }

  /** What the globs say of a place and of all folders above it, on its side. */
  #enter(root: string): { readonly standing: GlobPosition; readonly closure: PathClosure | undefined } {
    const side = isPathWithin(root, this.#workspace) ? 'inside' : 'outside';
    let standing = this.#trees[side].start;
    let { closure } = standing;
    for (const name of path
      .relative(side === 'inside' ? this.#workspace : '/', root)
      .split('/')
      .filter((part) => part !== '')) {
      standing = standing.descend(name);
      closure = closure === 'hidden' ? closure : (standing.closure ?? closure);
    }
    return { standing, closure };
  }

  /** An entry; what it returns is to be looked into, if it is a folder. */
  #step(folder: Folder, name: string): Folder | undefined {
    this.#entries += 1;
    if (this.#entries > MAX_ENTRIES)
      throw refused(
        `rules on paths would have to look at more than ${MAX_ENTRIES} files`,
        'Begin the globs of these rules with a folder instead of **.',
      );
    const standing = folder.standing.descend(name);
    const at = folder.at === '/' ? `/${name}` : `${folder.at}/${name}`;
    return this.#take({
      at,
      standing: at === this.#workspace ? this.#trees.inside.start : standing,
      isFixed: folder.isFixed,
    });
  }

  /** Closes another name of a closed file. */
  #closeOtherName(at: string, closure: PathClosure | undefined): void {
    const stat = fileAt(at);
    const wanted = stat === undefined ? undefined : this.#linked.get(keyOf(stat));
    if (wanted !== undefined && closure !== 'hidden' && this.closed.get(at) !== 'hidden') this.#close(at, wanted);
  }

  /** Notes what is closed; undefined where nothing is left to look for below. */
  #take(folder: Folder, closure = folder.standing.closure): Folder | undefined {
    const isNew = closure === 'hidden' || (closure === 'fixed' && !folder.isFixed);
    if (isNew) this.#close(folder.at, closure);
    if (closure === 'hidden') return undefined;
    const reaches = !folder.standing.isOver || isPathWithin(this.#workspace, folder.at);
    return reaches ? { ...folder, isFixed: folder.isFixed || closure === 'fixed' } : undefined;
  }

  #close(at: string, closure: PathClosure): void {
    this.closed.set(at, closure);
    if (this.closed.size > MAX_CLOSED)
      throw refused(
        `more than ${MAX_CLOSED} files fall under rules on paths, each to be covered by itself`,
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
          'a folder has a path that is longer than the system takes',
          'Remove the deeply nested folder, for example with rm -r.',
        );
      // A program that owns it could open it again, and then see what nobody looked at.
      this.#close(folder, 'hidden');
      return NO_FOLDER_ENTRIES;
    }
  }
}

/** Files with several names among what is closed, by object: closed files, and those directly in a closed folder. */
function linkedFiles(closed: readonly (readonly [string, PathClosure])[]): ReadonlyMap<string, PathClosure> {
  const linked = new Map<string, PathClosure>();
  for (const [at, closure] of closed) {
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
    // It is no folder, or closed to us too.
  }
  return files;
}

/** Undefined for what is no regular file. */
function fileAt(file: string): BigIntStats | undefined {
  try {
    const stat = lstatSync(file, { bigint: true });
    return stat.isFile() ? stat : undefined;
  } catch {
    return undefined;
  }
}

function keyOf({ dev, ino }: BigIntStats): string {
  return `${dev}:${ino}`;
}

/** True for the folder itself too. Both absolute and normal. */
export function isPathWithin(file: string, folder: string): boolean {
  return file === folder || folder === '/' || file.startsWith(`${folder}/`);
}

function refused(what: string, next: string): TollgateError {
  return new TollgateError('SANDBOX_UNAVAILABLE', { detail: `A sandbox cannot keep to the policy: ${what}.`, next });
}
