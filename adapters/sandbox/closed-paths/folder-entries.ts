/** Owns what lies in folders, asked of the disk again only where something changed; refuses to keep what may be changing right now. */
import { lstatSync, opendirSync } from 'node:fs';
import path from 'node:path';
import type { TimeSlices } from '../../../catalogs/text/time-slices.ts';

/** Names in a folder. */
export interface FolderEntries {
  readonly folders: readonly string[];
  readonly files: readonly string[];
  /** Symbolic links, whatever they lead to. */
  readonly links: readonly string[];
}

/** Of a folder that cannot be listed. */
export const NO_FOLDER_ENTRIES: FolderEntries = { folders: [], files: [], links: [] };

interface Kept {
  readonly entries: FolderEntries;
  readonly inode: bigint;
  /** Moves with every change of names or rights, and nobody can set it back, as they could the other times. */
  readonly changed: bigint;
}

/** Within this time a second change might not move the clock of the disk. */
const FRESH_NS = 2_000_000_000n;
const MAX_KEPT = 200_000;
const NAMES_A_LOOK = 1024;

const kept = new Map<string, Kept>();
let size = 0;

/** The entries of a folder. Throws the system's errors, and ENOTDIR where a link stands by now. `most` ends the look at a folder with more. */
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
  if (isSame && now - ctimeNs > FRESH_NS && size + lengthOf(entries) <= MAX_KEPT) {
    kept.set(folder, { entries, inode, changed: ctimeNs });
    size += lengthOf(entries);
  }
  return entries;
}

async function list(folder: string, pace: TimeSlices, most: number): Promise<FolderEntries> {
  const [folders, files, links]: [string[], string[], string[]] = [[], [], []];
  const opened = opendirSync(folder, { bufferSize: NAMES_A_LOOK });
  try {
    for (
      let count = 1, entry = opened.readSync();
      entry !== null && count <= most;
      count += 1, entry = opened.readSync()
    ) {
      if (entry.isDirectory()) folders.push(entry.name);
      else (entry.isSymbolicLink() ? links : files).push(entry.name);
      if (count % NAMES_A_LOOK === 0 && pace.isDue) await pace.rest();
    }
    return { folders, files, links };
  } finally {
    opened.closeSync();
  }
}

/** An empty folder takes its place too. */
function lengthOf({ folders, files, links }: FolderEntries): number {
  return 1 + folders.length + files.length + links.length;
}

/**
 * Identifies the folder of a repository's data, whatever its name; undefined for any other folder. A `.git` that is not complete counts too:
 * `git init` of the owner would complete it, and keep its settings.
 */
export function repositoryKey(folder: string, entries: FolderEntries): string | undefined {
  if (!isRepository(entries) && path.basename(folder).toLowerCase() !== '.git') return undefined;
  const stat = lstatSync(folder, { bigint: true, throwIfNoEntry: false });
  return stat === undefined ? undefined : `${stat.dev}:${stat.ino}`;
}

/** What git itself looks for; a disk that ignores capitals does too. */
function isRepository({ folders, files, links }: FolderEntries): boolean {
  const has = (name: string): boolean =>
    [folders, files, links].some((names) =>
      names.some((one) => one.length === name.length && one.toLowerCase() === name),
    );
  return (has('objects') && has('refs')) || (has('head') && has('commondir'));
}
