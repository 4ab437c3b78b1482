/** Keeps the places of missing closed files taken while a sandbox runs: what does not exist cannot be mounted read-only. */
import { accessSync, constants, lchownSync, lstatSync, mkdirSync, readFileSync, rmdirSync, statSync, unlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { isWithin } from './closed.ts';

/** How many sandboxes of this process need a file or folder that we made. */
const held = new Map<string, number>();

/**
 * Files of a repository that git cannot read as folders, with a content that changes nothing. All other placeholders are empty
 * folders, which git does not track.
 */
const FILES_OF_GIT: ReadonlyMap<string, string> = new Map([['commondir', '.\n'], ['config', ''], ['config.worktree', ''], ['attributes', '']]);

/**
 * Makes an empty folder at each place that is missing in a writable folder, so that the sandbox can cover it. Gives a function that
 * removes those that are still empty when no other sandbox of this process needs them. Throws what the system throws.
 */
export function holdPlaces(places: readonly string[], writable: readonly string[]): () => void {
  const wanted = places.filter((place) => writable.some((folder) => place !== folder && isWithin(place, folder)));
  const taken: string[] = [];
  const release = (): void => {
    for (const folder of taken.splice(0).reverse()) letGo(folder);
  };
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
export function holdNames(names: readonly string[]): { readonly places: readonly string[]; readonly release: () => void } {
  const places = names.filter((name) => (held.has(name) || lstatSync(name, { throwIfNoEntry: false }) === undefined) && canHold(path.dirname(name)));
  return { places, release: holdPlaces(places, ['/']) };
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
function make(folder: string): void {
  const content = contentOf(folder);
  if (content === undefined) mkdirSync(folder);
  else writeFileSync(folder, content, { flag: 'wx', mode: 0o444 });
  const { uid, gid } = statSync(path.dirname(folder));
  // Not through a link: a command of another Tollgate on this workspace may have put one in its place.
  if (process.getuid?.() === 0) lchownSync(folder, uid, gid);
}

function contentOf(place: string): string | undefined {
  return path.dirname(place).split('/').includes('.git') ? FILES_OF_GIT.get(path.basename(place)) : undefined;
}

function letGo(folder: string): void {
  const count = (held.get(folder) ?? 1) - 1;
  if (count > 0) {
    held.set(folder, count);
    return;
  }
  held.delete(folder);
  try {
    const content = contentOf(folder);
    if (content === undefined) rmdirSync(folder);
    else if (lstatSync(folder).isFile() && readFileSync(folder, 'utf8') === content) unlinkSync(folder);
  } catch {
    // Its owner has put something there, or removed it: then it is not ours any more.
  }
}
