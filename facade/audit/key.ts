/** Owns the key of the audit's digests, made once per state folder; refuses a key that is not whole. */
import { createHmac, randomBytes } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';

const KEY_BYTES = 32;

/**
 * Reads `<folder>/audit.key` (0600), or makes it. Processes that start together agree on one key: it is linked into place
 * whole, and only once. Throws STATE_FAILED.
 */
export function readAuditKey(folder: string): Buffer {
  const path = join(folder, 'audit.key');
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const key = readIfThere(path) ?? create(path);
    if (key.length !== KEY_BYTES) throw new Error(`audit.key has ${key.length} bytes`);
    return key;
  } catch (cause) {
    throw new TollgateError('STATE_FAILED', { detail: `audit.key is not a file of ${KEY_BYTES} bytes that can be read or made.`, cause });
  }
}

/** HMAC-SHA-256, hex. Plain hashes of short arguments could be looked up in a dictionary; these cannot without the key. */
export function keyedDigest(key: Buffer, text: string): string {
  return createHmac('sha256', key).update(text).digest('hex');
}

function create(path: string): Buffer {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  writeFileSync(draft, randomBytes(KEY_BYTES), { mode: 0o600, flag: 'wx', flush: true });
  try {
    linkSync(draft, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    unlinkSync(draft);
  }
  return readFileSync(path);
}

function readIfThere(path: string): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
