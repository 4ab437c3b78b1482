/** Finds every place on the disk that decides what a named file is: the name, each link on the way to it, and its real place. */
import { lstatSync, readdirSync, readlinkSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { isWithin } from './files.ts';

const MAX_LINKS = 40;
/** Entries of one folder of policies; a folder with more is no policy. */
const MAX_ENTRIES = 10_000;

/** Every place of the named files and folders, absolute: names first, then links and real places. Nothing needs to exist. */
export function placesOf(named: readonly string[]): readonly string[] {
  const linked = named.flatMap((file) => linksIn(file));
  return [...new Set([...named, ...[...named, ...linked].flatMap((file) => hopsOf(file))])];
}

/** The links on the way to a path, each where it really lies, and last the real path of its end. A circle ends where it was noticed. */
export function hopsOf(file: string): readonly string[] {
  const hops: string[] = [];
  let rest = path.resolve(file).split('/').filter((name) => name !== '');
  let current = '/';
  for (let links = 0; rest.length > 0; ) {
    const [name = '', ...after] = rest;
    const at = name === '..' ? path.dirname(current) : path.join(current, name);
    const target = linkAt(at);
    rest = after;
    if (target === undefined) current = at;
    else {
      hops.push(at);
      links += 1;
      if (links > MAX_LINKS) return hops;
      rest = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...after];
      if (target.startsWith('/')) current = '/';
    }
  }
  return [...hops, current];
}

/** Whether an agent that may write in `roots` can change what a path leads to, or put something there. Roots are real. */
export function isExposed(file: string, roots: readonly string[]): boolean {
  return placesOf([file]).some((place) => roots.some((root) => isWithin(place, root) || isWithin(root, place)));
}

/** Those that are the real places of what they name, and no links: what a sandbox can mount. */
export function realPlaces(places: readonly string[]): readonly string[] {
  return places.filter((place) => hopsOf(place).length === 1);
}

/** Links in a folder, hidden names excepted: a folder of Rego follows them. */
function linksIn(folder: string): readonly string[] {
  try {
    if (!lstatSync(realpathSync(folder)).isDirectory()) return [];
    const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
    return entries.slice(0, MAX_ENTRIES).filter((entry) => entry.isSymbolicLink()).map((entry) => path.join(entry.parentPath, entry.name));
  } catch {
    // It does not exist, or cannot be listed: nothing of it is loaded either.
    return [];
  }
}

function linkAt(file: string): string | undefined {
  try {
    return readlinkSync(file);
  } catch {
    return undefined;
  }
}
