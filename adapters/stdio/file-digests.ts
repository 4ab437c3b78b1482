/**
 * Owns digests of files that decide what runs; refuses to answer from memory for a file that may have changed since.
 */
import { createHash } from 'node:crypto';
import { realpath, stat } from 'node:fs/promises';
import { openRegularFile } from './regular-file.ts';

/** A file as it is now: its real path and the SHA-256 of its bytes, hex. */
export interface FileDigest {
  readonly path: string;
  /** Of its place, size and times where `large`. */
  readonly sha256: string;
  /** It is too large to be read at each start. */
  readonly large?: true;
}

/**
 * Keeps digests of large files from one process to the next. `identity` names a file with its inode, size and times.
 * Neither throws: without it a file is read.
 */
export interface DigestStore {
  get(identity: string): Promise<string | undefined>;
  put(identity: string, sha256: string): Promise<void>;
}

/** Digests that this process has made, by identity. */
const known = new Map<string, string>();
const MAX_KNOWN = 256;
/** Bytes from which a digest is worth a row in the store; also the size of a read. */
const LARGE = 1024 * 1024;
/** Bits of a mode: its group may write, or everybody. */
const WRITABLE = 0o022n;
/** Milliseconds for which a change may bear the times of the one before: file systems count time in ticks. */
const TICK_MS = 1_000;

/**
 * Reads a file; undefined when it is not there. One of the system's own that the kernel calls unchanged (inode, size,
 * times of content and of inode) is not read again: a program has a hundred megabytes. Of a file of more than `most`
 * bytes its identity stands for it.
 */
export async function digestStartFile(
  file: string,
  { most, store }: { readonly most?: bigint; readonly store?: DigestStore | undefined } = {},
): Promise<FileDigest | undefined> {
  try {
    const real = await realpath(file);
    const { dev, ino, size, mtimeNs, ctimeNs, uid, mode } = await stat(real, { bigint: true });
    const identity = [real, dev, ino, size, mtimeNs, ctimeNs].join('\0');
    if (most !== undefined && size > most)
      return { path: real, sha256: createHash('sha256').update(identity).digest('hex'), large: true };
    // What is written through a shared map moves no time: only a file that no server's user may write is believed
    // unchanged.
    if (uid !== 0n || (mode & WRITABLE) !== 0n) return { path: real, sha256: await digestOf(real) };
    const kept = size >= LARGE ? store : undefined;
    const found = known.get(identity) ?? (await kept?.get(identity));
    const sha256 = found ?? (await digestOf(real));
    if (found === undefined && Date.now() - Number(ctimeNs / 1_000_000n) < TICK_MS) return { path: real, sha256 };
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(identity, sha256);
    if (found === undefined) await kept?.put(identity, sha256);
    return { path: real, sha256 };
  } catch {
    return undefined;
  }
}

/** One buffer for all reads: a stream would make a hundred of them for a program. */
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
