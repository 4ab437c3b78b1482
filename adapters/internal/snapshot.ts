/** Owns one look at a file: its bytes, state and version taken through one open handle; refuses what is no regular file or too large. */
import type { BigIntStats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import type { Folder } from './folder.ts';
import { failed, isHashed, versionOf, versionOfStat } from './text.ts';

/** Largest file that is held in memory. */
const MAX_BYTES = 64 * 1024 * 1024;

/** What opens files by their names. */
export type Opener = Pick<Folder, 'openFile'>;

/** A file as it was at one moment. */
export interface Snapshot {
  readonly bytes: Buffer;
  readonly stat: BigIntStats;
  readonly version: string;
}

/** Reads `name` whole. Throws TOOL_FAILED for other than regular files and above `most` bytes (64 MiB), else errors of the system. */
export async function takeSnapshot(folder: Opener, name: string, most = MAX_BYTES): Promise<Snapshot> {
  const handle = await folder.openFile(name);
  try {
    const stat = await regularStat(handle, name);
    if (stat.size > BigInt(most)) {
      throw failed(`${JSON.stringify(name)} has ${stat.size} bytes; at most ${most} are read.`, `Take a part: bash command="sed -n '1,200p' …", or search it.`);
    }
    const bytes = await handle.readFile();
    return { bytes, stat, version: isHashed(bytes.length) ? versionOf(bytes) : versionOfStat(stat) };
  } finally {
    await handle.close();
  }
}

/** The version that a file has now, without holding more than 1 MiB of it; undefined when there is none. */
export async function presentVersion(folder: Opener, name: string): Promise<{ readonly version: string; readonly stat: BigIntStats } | undefined> {
  const handle = await folder.openFile(name).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (handle === undefined) return undefined;
  try {
    const stat = await regularStat(handle, name);
    if (!isHashed(Number(stat.size))) return { version: versionOfStat(stat), stat };
    return { version: versionOf(await handle.readFile()), stat };
  } finally {
    await handle.close();
  }
}

async function regularStat(handle: FileHandle, name: string): Promise<BigIntStats> {
  const stat = await handle.stat({ bigint: true });
  if (stat.isDirectory()) throw Object.assign(new Error('directory'), { code: 'EISDIR' });
  if (!stat.isFile()) throw failed(`${JSON.stringify(name)} is no regular file.`, 'Only regular files are read and written.');
  return stat;
}
