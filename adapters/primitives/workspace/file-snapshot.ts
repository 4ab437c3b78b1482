/** Owns one look at a file: its bytes, state and version taken through one open handle; refuses what is no regular file or too large. */
import type { BigIntStats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { MAX_INPUT_BYTES, runWithinBounds } from '../../../catalogs/text/time-slices.ts';
import { isHashed, toolFailure, versionOf, versionOfStat } from './file-text.ts';
import type { OpenFolder } from './open-folder.ts';

/** What opens files by their names. */
export type FileOpener = Pick<OpenFolder, 'openFile'>;

/** A file as it was at one moment. */
export interface FileSnapshot {
  readonly bytes: Buffer;
  readonly stat: BigIntStats;
  readonly version: string;
}

/**
 * Reads `name` whole, and works on it before the next large file is read (see `inBounds`). Throws TOOL_FAILED for other than regular
 * files and above `most` bytes (16 MiB), else errors of the system and of `use`.
 */
export async function withFileSnapshot<T>(
  at: { readonly folder: FileOpener; readonly name: string; readonly most?: number; readonly signal?: AbortSignal },
  use: (file: FileSnapshot) => T | Promise<T>,
): Promise<T> {
  const { folder, name, most = MAX_INPUT_BYTES, signal } = at;
  const handle = await folder.openFile(name);
  try {
    const stat = await regularStat(handle, name);
    if (stat.size > BigInt(most)) {
      throw toolFailure(
        `${JSON.stringify(name)} has ${stat.size} bytes; at most ${most} are read.`,
        `Take a part: bash command="sed -n '1,200p' …", or search it.`,
      );
    }
    return await runWithinBounds(
      Number(stat.size),
      async () => {
        const bytes = await readBytes(handle, Number(stat.size));
        return use({ bytes, stat, version: isHashed(bytes.length) ? versionOf(bytes) : versionOfStat(stat) });
      },
      signal,
    );
  } finally {
    await handle.close();
  }
}

/** The first bytes of a file, as many as it had: another process may make it longer meanwhile. */
async function readBytes(handle: FileHandle, size: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(size);
  for (let done = 0; done < size; ) {
    const { bytesRead } = await handle.read(bytes, done, size - done, done);
    if (bytesRead === 0) return bytes.subarray(0, done);
    done += bytesRead;
  }
  return bytes;
}

/** The version that a file has now, without holding more than 1 MiB of it; undefined when there is none. */
export async function currentFileVersion(
  folder: FileOpener,
  name: string,
): Promise<{ readonly version: string; readonly stat: BigIntStats } | undefined> {
  const handle = await folder.openFile(name).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (handle === undefined) return undefined;
  try {
    const stat = await regularStat(handle, name);
    if (!isHashed(Number(stat.size))) return { version: versionOfStat(stat), stat };
    return { version: versionOf(await readBytes(handle, Number(stat.size))), stat };
  } finally {
    await handle.close();
  }
}

async function regularStat(handle: FileHandle, name: string): Promise<BigIntStats> {
  const stat = await handle.stat({ bigint: true });
  if (stat.isDirectory()) throw Object.assign(new Error('directory'), { code: 'EISDIR' });
  if (!stat.isFile())
    throw toolFailure(`${JSON.stringify(name)} is no regular file.`, 'Only regular files are read and written.');
  return stat;
}
