/** Keeps the places of missing closed files taken while a sandbox runs: what does not exist cannot be mounted read-only. */
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
import { mountedElsewhere } from '../bubblewrap/mount-check.ts';
import { isPathWithin } from './closed-paths.ts';

const { O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;

/** Milliseconds until the next look at a place that a sandbox of another process uses. */
const LATER_MS = 1000;

/** How many sandboxes of this process need a file or folder that we made. */
const held = new Map<string, number>();

/**
 * Files of a repository that git cannot read as folders, with a content that changes nothing. All other placeholders are empty
 * folders, which git does not track.
 */
const FILES_OF_GIT: ReadonlyMap<string, string> = new Map([
  ['commondir', '.\n'],
  ['config', ''],
  ['config.worktree', ''],
  ['attributes', ''],
]);

/**
 * Makes an empty folder at each place that is missing in a writable folder, so that the sandbox can cover it. Gives a function that
 * removes those that are still empty when no other sandbox of this process needs them. Throws what the system throws.
 */
export function createPlaceholders(places: readonly string[], writable: readonly string[]): () => void {
  const wanted = places.filter((place) => writable.some((folder) => place !== folder && isPathWithin(place, folder)));
  const taken: string[] = [];
  const release = (): void => letGo(taken.splice(0).reverse());
  try {
    for (const folder of wanted.flatMap(missingOf)) {
      if (!held.has(folder)) make(folder);
      held.set(folder, (held.get(folder) ?? 0) + 1);
      taken.push(folder);
    }
    return release;
  } catch (thrown) {
    release();
    throw thrown;
  }
}

/**
 * Holds the names that do not exist, and says which. A repository that does not exist is left free: with its folder, `git init`
 * would be closed too. So is what lies beneath a file or a link. Throws what the system throws.
 */
export function reserveNames(names: readonly string[]): {
  readonly places: readonly string[];
  readonly release: () => void;
} {
  const places = names.filter(
    (name) =>
      (held.has(name) || lstatSync(name, { throwIfNoEntry: false }) === undefined) && canHold(path.dirname(name)),
  );
  return { places, release: createPlaceholders(places, ['/']) };
}

function canHold(folder: string): boolean {
  const stat = lstatSync(folder, { throwIfNoEntry: false });
  if (stat !== undefined) return stat.isDirectory() && !isReadOnly(folder);
  return path.basename(folder) !== '.git' && canHold(path.dirname(folder));
}

/** On a disk that is mounted read-only, no program creates anything either. */
function isReadOnly(folder: string): boolean {
  try {
    accessSync(folder, constants.W_OK);
    return false;
  } catch (thrown) {
    return (thrown as NodeJS.ErrnoException).code === 'EROFS';
  }
}

/** What has to be made for a place, the outermost first; folders that we made before count as missing. */
function missingOf(place: string): readonly string[] {
  const isThere = lstatSync(place, { throwIfNoEntry: false }) !== undefined && !held.has(place);
  return isThere ? [] : [...missingOf(path.dirname(place)), place];
}

/** Belongs to the owner of the folder around it, who can remove it if we are killed before. */
function make(place: string): void {
  inFolderOf(place, ({ parent, missing }, at) => {
    if (missing.length !== 1) throw fault(missing.length === 0 ? 'EEXIST' : 'ENOENT', place);
    const content = contentOf(place);
    if (content === undefined) mkdirSync(at);
    const made = openSync(
      at,
      content === undefined ? O_RDONLY | O_DIRECTORY | O_NOFOLLOW : O_WRONLY | O_CREAT | O_EXCL,
      0o444,
    );
    try {
      if (content !== undefined) writeFileSync(made, content);
      // A command may have put another folder of ours in its place, which is not given away.
      const isOurs = content !== undefined || readdirSync(pathOfDescriptor(made)).length === 0;
      const { uid, gid } = statSync(parent);
      if (process.getuid?.() === 0 && isOurs) fchownSync(made, uid, gid);
    } finally {
      closeSync(made);
    }
  });
}

/**
 * Works on a name in the very folder that has its place now, without a link on the way: a command may exchange the folder for a link
 * at any moment, and we may be root. `at` reaches the name beneath the descriptor of that folder. Throws ELOOP.
 */
function inFolderOf<T>(place: string, work: (held: PathHandle & { readonly parent: string }, at: string) => T): T {
  const held = openPlainHandle(place);
  try {
    if (held?.parent === undefined) throw fault('ELOOP', place);
    return work(held as PathHandle & { readonly parent: string }, `${held.parent}/${path.basename(place)}`);
  } finally {
    held?.close();
  }
}

function fault(code: string, place: string): Error {
  return Object.assign(new Error(code), { code, path: place });
}

function contentOf(place: string): string | undefined {
  return path.dirname(place).split('/').includes('.git') ? FILES_OF_GIT.get(path.basename(place)) : undefined;
}

/** Frees places, the innermost first. */
function letGo(places: readonly string[]): void {
  const free = places.filter((place) => {
    const count = (held.get(place) ?? 1) - 1;
    if (count > 0) held.set(place, count);
    else held.delete(place);
    return count <= 0;
  });
  removeUnused(free);
}

/** A sandbox of another process may have covered a place that we made: removed, it would be open to that sandbox. */
function removeUnused(places: readonly string[]): void {
  const used = mountedElsewhere(places);
  const isUsed = (place: string): boolean => [...used].some((at) => isPathWithin(at, place));
  for (const place of places) if (!held.has(place) && !isUsed(place)) remove(place);
  const later = places.filter(isUsed);
  if (later.length > 0) setTimeout(() => removeUnused(later.filter((place) => !held.has(place))), LATER_MS).unref();
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
    // Its owner has put something there, or removed it: then it is not ours any more.
  }
}
