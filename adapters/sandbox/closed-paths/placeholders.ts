/** Makes placeholders for missing closed files while a sandbox runs: a path must exist to be mounted read-only. */
import {
  accessSync,
  closeSync,
  constants,
  fchownSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { openPlainHandle, type PathHandle, pathOfDescriptor } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { mountedElsewhere } from '../bubblewrap/mount-check.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** Milliseconds until the next check of a placeholder that a sandbox of another process uses. */
const RETRY_MS = 1000;

/** Counts the sandboxes of this process that need a placeholder. */
const users = new Map<string, number>();

/**
 * Placeholders that must be files, because git fails on a folder of that name. Their content changes nothing. All other
 * placeholders are empty folders, which git does not track.
 */
const FILES_OF_GIT: ReadonlyMap<string, string> = new Map([
  ['commondir', '.\n'],
  ['config', ''],
  ['config.worktree', ''],
  ['attributes', ''],
]);

/**
 * Makes a placeholder for each path that is missing in a writable folder, so that the sandbox can mount over it.
 * Returns a function that removes the unchanged ones when no other sandbox of this process needs them. Throws the
 * system's errors.
 */
export function createPlaceholders(places: readonly string[], writable: readonly string[]): () => void {
  const wanted = places.filter((place) => writable.some((folder) => place !== folder && isPathWithin(place, folder)));
  const taken: string[] = [];
  const release = (): void => releaseAll(taken.splice(0).reverse());
  try {
    for (const folder of wanted.flatMap(missingOf)) {
      if (!users.has(folder)) make(folder);
      users.set(folder, (users.get(folder) ?? 0) + 1);
      taken.push(folder);
    }
    return release;
  } catch (thrown) {
    release();
    throw thrown;
  }
}

/**
 * Makes placeholders for the names that do not exist, and returns these names. It skips a repository that does not
 * exist, because its folder would block `git init`. It also skips names below a file or a link. Throws the system's
 * errors.
 */
export function reserveNames(names: readonly string[]): {
  readonly places: readonly string[];
  readonly release: () => void;
} {
  const places = names.filter(
    (name) =>
      (users.has(name) || lstatSync(name, { throwIfNoEntry: false }) === undefined) && canReserveIn(path.dirname(name)),
  );
  return { places, release: createPlaceholders(places, ['/']) };
}

function canReserveIn(folder: string): boolean {
  const stat = lstatSync(folder, { throwIfNoEntry: false });
  if (stat !== undefined) return stat.isDirectory() && !isReadOnly(folder);
  return path.basename(folder) !== '.git' && canReserveIn(path.dirname(folder));
}

/** A program cannot create names on a read-only disk either, so these need no placeholder. */
function isReadOnly(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EROFS';
  }
}

/** Returns the folders and the file to make for a path, outermost first. Existing placeholders count as missing. */
function missingOf(place: string): readonly string[] {
  const isThere = lstatSync(place, { throwIfNoEntry: false }) !== undefined && !users.has(place);
  return isThere ? [] : [...missingOf(path.dirname(place)), place];
}

/** Gives the placeholder to the owner of its folder, who can remove it if this process is killed. */
function make(place: string): void {
  inFolderOf(place, ({ parent, missing }, at) => {
    if (missing.length !== 1) throw fault(missing.length === 0 ? 'EEXIST' : 'ENOENT', place);
    const content = contentOf(place);
    const made = content === undefined ? makeFolder(at) : openSync(at, O_WRONLY | O_CREAT | O_EXCL, 0o444);
    try {
      if (content !== undefined) writeFileSync(made, content);
      // A command may have put another folder of this process there, which must not change its owner.
      const isOurs = content !== undefined || readdirSync(pathOfDescriptor(made)).length === 0;
      const { uid, gid } = statSync(parent);
      if (process.getuid?.() === 0 && isOurs) fchownSync(made, uid, gid);
    } finally {
      closeSync(made);
    }
  });
}

function makeFolder(at: string): number {
  mkdirSync(at);
  return openSync(at, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

/**
 * Calls `work` with `at`, the name below the descriptor of its folder. A command may exchange a folder for a link at
 * any moment, and this process may be root. Throws ELOOP if a link is on the way.
 */
function inFolderOf<T>(place: string, work: (handle: PathHandle & { readonly parent: string }, at: string) => T): T {
  const handle = openPlainHandle(place);
  try {
    if (handle?.parent === undefined) throw fault('ELOOP', place);
    return work(handle as PathHandle & { readonly parent: string }, `${handle.parent}/${path.basename(place)}`);
  } finally {
    handle?.close();
  }
}

function fault(code: string, place: string): Error {
  return Object.assign(new Error(code), { code, path: place });
}

function contentOf(place: string): string | undefined {
  return path.dirname(place).split('/').includes('.git') ? FILES_OF_GIT.get(path.basename(place)) : undefined;
}

/** Removes the placeholders that no sandbox of this process needs, innermost first. */
function releaseAll(places: readonly string[]): void {
  const free = places.filter((place) => {
    const count = (users.get(place) ?? 1) - 1;
    if (count > 0) users.set(place, count);
    else users.delete(place);
    return count <= 0;
  });
  removeUnused(free);
}

/**
 * Keeps a placeholder that a sandbox of another process has mounted over: without it, that sandbox could write there.
 */
function removeUnused(places: readonly string[]): void {
  const used = mountedElsewhere(places);
  const isUsed = (place: string): boolean => [...used].some((at) => isPathWithin(at, place));
  for (const place of places) if (!users.has(place) && !isUsed(place)) remove(place);
  const later = places.filter(isUsed);
  if (later.length > 0) setTimeout(() => removeUnused(later.filter((place) => !users.has(place))), RETRY_MS).unref();
}

function remove(place: string): void {
  try {
    inFolderOf(place, ({ object, stat }, at) => {
      const content = contentOf(place);
      if (content === undefined) rmdirSync(at);
      else if (object !== undefined && stat?.isFile() === true && readFileSync(object, 'utf8') === content)
        unlinkSync(at);
    });
  } catch {
    // The owner has put something there, or removed it. It is not our placeholder any more.
  }
}
