/** Computes digests of the files that a start runs. It remembers a digest only for a file that no server can change. */
import { createHash } from 'node:crypto';
import { realpath, stat } from 'node:fs/promises';
import { openRegularFile } from './regular-file.ts';

/** The real path of a file, and the SHA-256 of its bytes in hex. */
export interface FileDigest {
  readonly path: string;
  /** If `large`, the digest of the file's path, inode, size and times. */
  readonly sha256: string;
  /** The file is too large to be read at each start. */
  readonly large?: true;
}

/**
 * Keeps digests of large files for later processes. `identity` is the file's path, inode, size and times. The methods
 * do not throw: without a stored digest, the file is read.
 */
export interface DigestStore {
  get(identity: string): Promise<string | undefined>;
  put(identity: string, sha256: string): Promise<void>;
}

/** Digests that this process computed, by identity. */
const known = new Map<string, string>();
const MAX_KNOWN = 256;
/** Files of at least this many bytes get a row in the store. Also the bytes of one read. */
const LARGE = 1024 * 1024;
/** Mode bits: the group or other users may write. */
const WRITABLE = 0o022n;
/** Milliseconds. A second change within this time may leave the times as they are: file systems count time in ticks. */
const TICK_MS = 1_000;

/**
 * Returns the digest of a file, or undefined if it cannot be read. Does not read a file of root again while its inode,
 * size and times stay the same, because a program can have 100 MB. A file of more than `maxBytes` is never read: its
 * digest covers its path, inode, size and times.
 */
export async function digestStartFile(
  file: string,
  { maxBytes, store }: { readonly maxBytes?: bigint; readonly store?: DigestStore | undefined } = {},
): Promise<FileDigest | undefined> {
  try {
    const real = await realpath(file);
    const { dev, ino, size, mtimeNs, ctimeNs, uid, mode } = await stat(real, { bigint: true });
    const identity = [real, dev, ino, size, mtimeNs, ctimeNs].join('\0');
    if (maxBytes !== undefined && size > maxBytes)
      return { path: real, sha256: createHash('sha256').update(identity).digest('hex'), large: true };
    // A write through a shared memory map need not change the times, so a file that a server's user may write is always
    // read.
    if (uid !== 0n || (mode & WRITABLE) !== 0n) return { path: real, sha256: await digestOf(real) };
    const usedStore = size >= LARGE ? store : undefined;
    const found = known.get(identity) ?? (await usedStore?.get(identity));
    const sha256 = found ?? (await digestOf(real));
    if (found === undefined && Date.now() - Number(ctimeNs / 1_000_000n) < TICK_MS) return { path: real, sha256 };
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(identity, sha256);
    if (found === undefined) await usedStore?.put(identity, sha256);
    return { path: real, sha256 };
  } catch {
    return undefined;
  }
}

/** Uses one buffer for all reads: a stream would allocate a hundred buffers for a program. */
async function digestOf(file: string): Promise<string> {
  const hash = createHash('sha256');
  const handle = await openRegularFile(file);
  try {
    const buffer = Buffer.allocUnsafe(LARGE);
    for (;;) {
      const { bytesRead } = await handle.read(buffer, 0, LARGE, null);
      if (bytesRead === 0) return hash.digest('hex');
      hash.update(buffer.subarray(0, bytesRead));
    }
  } finally {
    await handle.close();
  }
}
