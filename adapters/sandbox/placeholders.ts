/** Keeps the places of missing control files taken while a sandbox runs: a folder that does not exist cannot be mounted read-only. */
import { lchownSync, lstatSync, mkdirSync, rmdirSync, statSync } from 'node:fs';
import path from 'node:path';
import { isWithin } from './closed.ts';

/** How many sandboxes of this process need a folder that we made. */
const held = new Map<string, number>();

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

/** What has to be made for a place, the outermost first; folders that we made before count as missing. */
function missingOf(place: string): readonly string[] {
  const isThere = lstatSync(place, { throwIfNoEntry: false }) !== undefined && !held.has(place);
  return isThere ? [] : [...missingOf(path.dirname(place)), place];
}

/** Belongs to the owner of the folder around it, who can remove it if we are killed before. */
function make(folder: string): void {
  mkdirSync(folder);
  const { uid, gid } = statSync(path.dirname(folder));
  // Not through a link: a command of another Tollgate on this workspace may have put one in its place.
  if (process.getuid?.() === 0) lchownSync(folder, uid, gid);
}

function letGo(folder: string): void {
  const count = (held.get(folder) ?? 1) - 1;
  if (count > 0) {
    held.set(folder, count);
    return;
  }
  held.delete(folder);
  try {
    rmdirSync(folder);
  } catch {
    // Its owner has put something there, or removed it: then it is not ours any more.
  }
}
