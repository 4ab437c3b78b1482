/** Finds every place that decides the content of a named file: its name, each link on the way, and its real path. */
import { type Dirent, readdirSync, readlinkSync, statSync } from 'node:fs';
import path from 'node:path';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';

const MAX_LINKS = 40;
/** The most entries of a folder of policies that are read. */
const MAX_ENTRIES = 10_000;
const MAX_DEPTH = 16;

/** Returns every place of the named files, absolute: names first, then links and real paths. They need not exist. */
export function placesOf(named: readonly string[]): readonly string[] {
  const linked = named.flatMap((file) => linksIn(file));
  return [...new Set([...named, ...[...named, ...linked].flatMap((file) => linkChain(file))])];
}

/** Returns the links on the way to a path, each at its real place, and last its real path. Stops at a circle. */
export function linkChain(file: string): readonly string[] {
  const chain: string[] = [];
  let remaining = path
    .resolve(file)
    .split('/')
    .filter((name) => name !== '');
  let current = '/';
  for (let links = 0; remaining.length > 0; ) {
    const [name = '', ...after] = remaining;
    const at = name === '..' ? path.dirname(current) : path.join(current, name);
    const target = linkAt(at);
    remaining = after;
    if (target === undefined) current = at;
    else {
      chain.push(at);
      links += 1;
      if (links > MAX_LINKS) return chain;
      remaining = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...after];
      if (target.startsWith('/')) current = '/';
    }
  }
  return [...chain, current];
}

/** Returns whether an agent that may write in `roots` (real paths) can change or replace the file at a path. */
export function isExposed(file: string, roots: readonly string[]): boolean {
  return placesOf([file]).some((place) => roots.some((root) => isPathWithin(place, root) || isPathWithin(root, place)));
}

/** Returns the real paths among the places. A sandbox can mount these, but not links. */
export function realPlaces(places: readonly string[]): readonly string[] {
  return places.filter((place) => linkChain(place).length === 1);
}

/** Returns the links in a folder, except hidden names, because a folder of Rego follows links to files. */
function linksIn(folder: string): readonly string[] {
  const links: string[] = [];
  const pending = [{ at: folder, depth: 0 }];
  // Node's recursive listing follows links to folders, so one link to / would list the whole disk.
  for (let entries = 0, next = pending.pop(); next !== undefined && entries < MAX_ENTRIES; next = pending.pop()) {
    for (const entry of entriesOf(next.at)) {
      const at = path.join(next.at, entry.name);
      // No load follows a link to a folder, so its target is not a control file.
      if (entry.isSymbolicLink() && statSync(at, { throwIfNoEntry: false })?.isFile() === true) links.push(at);
      else if (entry.isDirectory() && next.depth < MAX_DEPTH) pending.push({ at, depth: next.depth + 1 });
      entries += 1;
    }
  }
  return links;
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith('.'));
  } catch {
    // It is not a folder, does not exist, or cannot be listed, so a load reads nothing of it either.
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
