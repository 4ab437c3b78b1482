/** Reads bytes, stat and version of a regular file through one open handle. */
import { type BigIntStats, closeSync, constants, openSync, readSync, statfsSync, statSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { unlessUnreadable } from '../../../catalogs/readers/missing-files.ts';
import type { PathHandle } from '../../../catalogs/readers/path-handles.ts';
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

/** Types of file systems on disks and in memory (statfs(2)): ext2 to ext4, XFS, Btrfs, ZFS, F2FS, tmpfs. */
const LOCAL_TYPES: ReadonlySet<number> = new Set([0xef53, 0x58465342, 0x9123683e, 0x2fc12fc1, 0xf2f52010, 0x01021994]);
/** Largest file that `readSmallFile` reads, in bytes. */
const MAX_SMALL_BYTES = 65_536;

/** Returns the device of a folder if no other machine or program answers for its file system, otherwise undefined. */
export function localDeviceOf(folder: string): bigint | undefined {
  return unlessUnreadable(() =>
    LOCAL_TYPES.has(statfsSync(folder).type) ? statSync(folder, { bigint: true }).dev : undefined,
  );
}

/**
 * Reads a judged file of at most 64 KiB on a local device at once, because each task for another thread costs more.
 * Returns undefined for any other file, and if the file cannot be read.
 */
export function readSmallFile({ object, stat }: PathHandle, localDevice: bigint | undefined): Buffer | undefined {
  if (object === undefined || stat?.isFile() !== true || stat.dev !== localDevice) return undefined;
  const size = Number(stat.size);
  if (size > MAX_SMALL_BYTES) return undefined;
  let file: number | undefined;
  try {
    file = openSync(object, constants.O_RDONLY | constants.O_NONBLOCK);
    // One byte more shows whether the file has become longer.
    const bytes = Buffer.allocUnsafe(size + 1);
    const length = readSync(file, bytes, 0, size + 1, 0);
    return length > size ? undefined : bytes.subarray(0, length);
  } catch {
    return undefined;
  } finally {
    if (file !== undefined) closeSync(file);
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
