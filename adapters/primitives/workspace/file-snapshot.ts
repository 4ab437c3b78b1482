/** Reads bytes, stat and version of a regular file through one open handle. */
import type { BigIntStats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { MAX_INPUT_BYTES, runWithinBounds } from '../../../catalogs/text/time-slices.ts';
import { isHashed, toolFailure, versionOf, versionOfFile, versionOfStat } from './file-text.ts';
import type { OpenFolder } from './open-folder.ts';

/** Opens files by name. */
export type FileOpener = Pick<OpenFolder, 'openFile'>;

/** The state of a file at one moment. */
export interface FileSnapshot {
  readonly bytes: Buffer;
  readonly stat: BigIntStats;
  readonly version: string;
}

/**
 * Reads a whole file and runs `use` on it before the next large file is read (see `runWithinBounds`). Throws
 * TOOL_FAILED if it is not a regular file or larger than `maxBytes` (default 16 MiB), and errors of the system and of
 * `use`.
 */
export async function withFileSnapshot<T>(
  source: {
    readonly folder: FileOpener;
    readonly name: string;
    readonly maxBytes?: number;
    readonly signal?: AbortSignal;
  },
  use: (file: FileSnapshot) => T | Promise<T>,
): Promise<T> {
  const { folder, name, maxBytes = MAX_INPUT_BYTES, signal } = source;
  const handle = await folder.openFile(name);
  try {
    const stat = await regularStat(handle, name);
    if (stat.size > BigInt(maxBytes)) {
      throw toolFailure(
        `${JSON.stringify(name)} has ${stat.size} bytes. Files of at most ${maxBytes} bytes can be read.`,
        `Read a part: bash command="sed -n '1,200p' …", or search it.`,
      );
    }
    return await runWithinBounds(
      Number(stat.size),
      async () => {
        const bytes = await readBytes(handle, Number(stat.size));
        return use({ bytes, stat, version: versionOfFile(bytes, stat) });
      },
      signal,
    );
  } finally {
    await handle.close();
  }
}

/** Reads the first `size` bytes. Another process may make the file longer meanwhile. */
async function readBytes(handle: FileHandle, size: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(size);
  for (let done = 0; done < size; ) {
    const { bytesRead } = await handle.read(bytes, done, size - done, done);
    if (bytesRead === 0) return bytes.subarray(0, done);
    done += bytesRead;
  }
  return bytes;
}

/**
 * Returns the current version of a file, with at most 1 MiB of it in memory. Returns undefined if it does not exist.
 */
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
  if (!stat.isFile()) throw toolFailure(`${JSON.stringify(name)} is not a regular file.`, 'Use a regular file.');
  return stat;
}
