/**
 * Finds every place on the disk that decides the content of a named file: the name, each link on the way to it, and its
 * real path.
 */
import { type Dirent, readdirSync, readlinkSync, statSync } from 'node:fs';
import path from 'node:path';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';

const MAX_LINKS = 40;
/** The most entries of a folder of policies; a folder with more is no policy. */
const MAX_ENTRIES = 10_000;
const MAX_DEPTH = 16;

/**
 * Returns every place of the named files and folders, absolute: names first, then links and real paths. Nothing needs
 * to exist.
 */
export function placesOf(named: readonly string[]): readonly string[] {
  const linked = named.flatMap((file) => linksIn(file));
  return [...new Set([...named, ...[...named, ...linked].flatMap((file) => hopsOf(file))])];
}

/**
 * Returns the links on the way to a path, each at its real place, and last the real path of its end. A circle ends
 * where it was noticed.
 */
export function hopsOf(file: string): readonly string[] {
  const hops: string[] = [];
  let rest = path
    .resolve(file)
    .split('/')
    .filter((name) => name !== '');
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

/**
 * Returns whether an agent that may write in `roots` can change what a path leads to, or put something there. Roots are
 * real.
 */
export function isExposed(file: string, roots: readonly string[]): boolean {
  return placesOf([file]).some((place) => roots.some((root) => isPathWithin(place, root) || isPathWithin(root, place)));
}

/** Returns those that are real paths and no links, because a sandbox can mount them. */
export function realPlaces(places: readonly string[]): readonly string[] {
  return places.filter((place) => hopsOf(place).length === 1);
}

/** Returns links in a folder, except hidden names: a folder of Rego follows links to files. */
function linksIn(folder: string): readonly string[] {
  const links: string[] = [];
  const waiting = [{ at: folder, depth: 0 }];
  // Node's recursive listing follows links to folders, so one link to / would list the whole disk.
  for (let seen = 0, next = waiting.pop(); next !== undefined && seen < MAX_ENTRIES; next = waiting.pop()) {
    for (const entry of entriesOf(next.at)) {
      const at = path.join(next.at, entry.name);
      // No load follows a link to a folder, so its target is no control file.
      if (entry.isSymbolicLink() && statSync(at, { throwIfNoEntry: false })?.isFile() === true) links.push(at);
      else if (entry.isDirectory() && next.depth < MAX_DEPTH) waiting.push({ at, depth: next.depth + 1 });
      seen += 1;
    }
  }
  return links;
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith('.'));
  } catch {
    // It is no folder, does not exist, or cannot be listed, so nothing of it is loaded either.
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
