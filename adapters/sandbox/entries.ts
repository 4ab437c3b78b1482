/** Owns what lies in folders, asked of the disk again only where something changed; refuses to keep what may be changing right now. */
import { lstatSync, readdirSync } from 'node:fs';

/** Names in a folder; links and what they lead to are left out. */
export interface Entries {
  readonly folders: readonly string[];
  readonly files: readonly string[];
}

interface Kept {
  readonly entries: Entries;
  readonly inode: bigint;
  /** Moves with every change of names or rights, and nobody can set it back, as they could the other times. */
  readonly changed: bigint;
}

/** Within this time a second change might not move the clock of the disk. */
const FRESH_NS = 2_000_000_000n;
const MAX_KEPT = 200_000;

const kept = new Map<string, Kept>();
let size = 0;

/** The entries of a folder. Throws the system's errors, and ENOTDIR where a link stands by now. */
export function entriesOf(folder: string): Entries {
  const found = lstatSync(folder, { bigint: true });
  if (!found.isDirectory()) throw Object.assign(new Error('no folder'), { code: 'ENOTDIR' });
  const { ino, ctimeNs, dev } = found;
  const [inode, now] = [(dev << 64n) | ino, BigInt(Date.now()) * 1_000_000n];
  const known = kept.get(folder);
  if (known?.inode === inode && known.changed === ctimeNs) return known.entries;
  const entries = list(folder);
  if (known !== undefined) size -= lengthOf(known.entries);
  kept.delete(folder);
  if (now - ctimeNs > FRESH_NS && size + lengthOf(entries) <= MAX_KEPT) {
    kept.set(folder, { entries, inode, changed: ctimeNs });
    size += lengthOf(entries);
  }
  return entries;
}

function list(folder: string): Entries {
  const all = readdirSync(folder, { withFileTypes: true });
  return { folders: all.filter((entry) => entry.isDirectory()).map(({ name }) => name), files: all.filter((entry) => !entry.isDirectory() && !entry.isSymbolicLink()).map(({ name }) => name) };
}

/** An empty folder takes its place too. */
function lengthOf({ folders, files }: Entries): number {
  return 1 + folders.length + files.length;
}
