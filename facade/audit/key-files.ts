/** The key files of a state folder, each made once: the key of the audit's digests, and others. */
import { hash, randomBytes } from 'node:crypto';
import { existsSync, linkSync, mkdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { unlessMissing } from '../../catalogs/readers/missing-files.ts';

const KEY_BYTES = 32;
/** The block size of SHA-256. The key is shorter, so it is not hashed first (RFC 2104). */
const BLOCK_BYTES = 64;
const HASH_BYTES = 32;
/** More than the usual text needs, and the most bytes of one UTF-16 unit in UTF-8. */
const [ROOM_BYTES, MOST_BYTES] = [8192, 3];

/** Returns the key of the audit's digests, `audit.key`. Throws STATE_FAILED. */
export function readAuditKey(folder: string): Buffer {
  return readKeyFile(folder, 'audit.key');
}

/**
 * Reads `<folder>/<name>` (mode 0600, 32 random bytes), or makes it. Processes that start together agree on one key,
 * because it is linked into place complete, and only once. Throws STATE_FAILED.
 */
export function readKeyFile(folder: string, name: string): Buffer {
  const path = join(folder, name);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const key = unlessMissing(() => readFileSync(path)) ?? create(path);
    if (key.length !== KEY_BYTES) throw new Error(`${name} has ${key.length} bytes`);
    return key;
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', {
      detail: `${name} is not a file of ${KEY_BYTES} bytes that can be read or made.`,
      cause,
    });
  }
}

/** Makes `audit.key` with a key that several machines share. Throws STATE_FAILED if there is another one. */
export function writeAuditKey(folder: string, key: Buffer): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (!create(join(folder, 'audit.key'), key).equals(key))
    throw new TollgateError('STATE_FAILED', { detail: 'Another process has just made another audit.key.' });
}

/** Returns the key if it exists. A reader makes none. Throws STATE_FAILED. */
export function findKeyFile(folder: string, name: string): Buffer | undefined {
  return existsSync(join(folder, name)) ? readKeyFile(folder, name) : undefined;
}

/**
 * Returns HMAC-SHA-256 (RFC 2104) under one key, as hex. Plain hashes of short arguments could be found in a
 * dictionary; these cannot without the key. The two padded keys are made once, with room for the text, so that Node
 * hashes in one step.
 */
export function createDigest(key: Buffer): (text: string) => string {
  const padded = Buffer.concat([key], BLOCK_BYTES);
  const inner = padded.map((byte) => byte ^ 0x36);
  const outer = padded.map((byte) => byte ^ 0x5c);
  const within = Buffer.concat([inner], BLOCK_BYTES + ROOM_BYTES);
  const around = Buffer.concat([outer], BLOCK_BYTES + HASH_BYTES);
  return (text) => {
    const fits = text.length * MOST_BYTES <= ROOM_BYTES;
    const message = fits
      ? within.subarray(0, BLOCK_BYTES + within.write(text, BLOCK_BYTES))
      : Buffer.concat([inner, Buffer.from(text)]);
    around.write(hash('sha256', message, 'hex'), BLOCK_BYTES, 'hex');
    return hash('sha256', around, 'hex');
  };
}

function create(path: string, key: Buffer = randomBytes(KEY_BYTES)): Buffer {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  writeFileSync(draft, key, { mode: 0o600, flag: 'wx', flush: true });
  try {
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(draft);
  }
  return readFileSync(path);
}
