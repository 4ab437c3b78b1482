/**
 * Caches the entries of folders. A folder is read again if it changed; one that may be changing right now is not
 * cached.
 */
import { lstatSync, opendirSync } from 'node:fs';
import path from 'node:path';
import type { TimeSlices } from '../../../catalogs/text/time-slices.ts';

/** The names in a folder. */
export interface FolderEntries {
  readonly folders: readonly string[];
  readonly files: readonly string[];
  /** Symbolic links to any kind of target. */
  readonly links: readonly string[];
}

/** The entries of a folder that cannot be listed. */
export const NO_FOLDER_ENTRIES: FolderEntries = { folders: [], files: [], links: [] };

interface Kept {
  readonly entries: FolderEntries;
  readonly inode: bigint;
  /** The ctime in nanoseconds. It changes with every name and mode, and no program can set it. */
  readonly changed: bigint;
}

/** A second change within this time may leave the ctime as it is. */
const UNSETTLED_NS = 2_000_000_000n;
const MAX_KEPT = 200_000;
const NAMES_PER_READ = 1024;

const kept = new Map<string, Kept>();
let size = 0;

/** Returns the entries of a folder, `most` and one more at most. Throws the system's errors, and ENOTDIR for a link. */
export async function readFolderEntries(
  folder: string,
  pace: TimeSlices,
  most = Number.POSITIVE_INFINITY,
): Promise<FolderEntries> {
  const found = lstatSync(folder, { bigint: true });
  if (!found.isDirectory()) throw Object.assign(new Error('no folder'), { code: 'ENOTDIR' });
  const { ino, ctimeNs, dev } = found;
  const [inode, now] = [(dev << 64n) | ino, BigInt(Date.now()) * 1_000_000n];
  const known = kept.get(folder);
  if (known?.inode === inode && known.changed === ctimeNs) return known.entries;
  const entries = await list(folder, pace, most);
  const before = kept.get(folder);
  if (before !== undefined) size -= lengthOf(before.entries);
  kept.delete(folder);
  const isSame = lstatSync(folder, { bigint: true }).ctimeNs === ctimeNs;
  if (isSame && now - ctimeNs > UNSETTLED_NS && size + lengthOf(entries) <= MAX_KEPT) {
    kept.set(folder, { entries, inode, changed: ctimeNs });
    size += lengthOf(entries);
  }
  return entries;
}

async function list(folder: string, pace: TimeSlices, most: number): Promise<FolderEntries> {
  const [folders, files, links]: [string[], string[], string[]] = [[], [], []];
  const opened = opendirSync(folder, { bufferSize: NAMES_PER_READ });
  try {
    for (
      let count = 1, entry = opened.readSync();
      entry !== null && count <= most;
      count += 1, entry = opened.readSync()
    ) {
      if (entry.isDirectory()) folders.push(entry.name);
      else (entry.isSymbolicLink() ? links : files).push(entry.name);
      if (count % NAMES_PER_READ === 0 && pace.isDue) await pace.rest();
    }
    return { folders, files, links };
  } finally {
    opened.closeSync();
  }
}

/** Counts the folder itself too, because an empty one needs memory. */
function lengthOf({ folders, files, links }: FolderEntries): number {
  return 1 + folders.length + files.length + links.length;
}

/**
 * Returns the identity of a folder with a repository's data, whatever its name, and undefined for other folders. An
 * incomplete `.git` counts too: `git init` of the owner would complete it and keep its settings.
 */
export function repositoryKey(folder: string, entries: FolderEntries): string | undefined {
  if (!isRepository(entries) && path.basename(folder).toLowerCase() !== '.git') return undefined;
  const stat = lstatSync(folder, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.dev}:${stat.ino}`;
}

/** Checks the entries that git checks. Case does not count, because some file systems ignore it. */
function isRepository({ folders, files, links }: FolderEntries): boolean {
  const has = (name: string): boolean =>
    [folders, files, links].some((names) =>
      names.some((one) => one.length === name.length && one.toLowerCase() === name),
    );
  return (has('objects') && has('refs')) || (has('head') && has('commondir'));
}
