/** Reads and writes files that only their owner may read: completely or not at all, and never through a link. */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/**
 * Returns the text of a private file; undefined if there is none. Throws VAULT_FAILED for a link, another owner, or
 * permissions for others.
 */
export function readPrivate(file: string): string | undefined {
  let opened: number;
  try {
    opened = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw failure(file, 'cannot be read', thrown);
  }
  try {
    const { mode, uid } = fstatSync(opened);
    if ((mode & 0o077) !== 0)
      throw new TollgateError('VAULT_FAILED', {
        detail: `${path.basename(file)} in the state folder can be read by other users.`,
        next:
          'Make it private with chmod 600. ' +
          'Then replace the secrets in it with new ones, because they may have been read.',
      });
    if (process.getuid !== undefined && uid !== process.getuid())
      throw new TollgateError('VAULT_FAILED', {
        detail: `${path.basename(file)} in the state folder belongs to another user.`,
        next: 'Run Tollgate as the user who owns it.',
      });
    return readFileSync(opened, 'utf8');
  } finally {
    closeSync(opened);
  }
}

/**
 * Replaces a private file in one step: a reader gets the old text or the new one, even after a power failure. Throws
 * VAULT_FAILED.
 */
export function writePrivate(file: string, text: string): void {
  place(file, text, renameSync);
}

/**
 * Creates a private file. Returns false if it exists, and then changes nothing: of two processes, the first one wins.
 * Throws VAULT_FAILED.
 */
export function createPrivate(file: string, text: string): boolean {
  try {
    place(file, text, linkSync);
    return true;
  } catch (thrown) {
    if (((thrown as Error).cause as NodeJS.ErrnoException | undefined)?.code === 'EEXIST') return false;
    throw thrown;
  }
}

function place(file: string, text: string, put: (temporary: string, file: string) => void): void {
  const temporary = `${file}.${process.pid}.${randomBytes(6).toString('hex')}`;
  try {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(temporary, text, { mode: 0o600, flag: 'wx', flush: true });
    put(temporary, file);
    syncFolder(path.dirname(file));
  } catch (thrown) {
    throw failure(file, 'cannot be written', thrown);
  } finally {
    removeIfThere(temporary);
  }
}

function syncFolder(folder: string): void {
  const opened = openSync(folder, constants.O_RDONLY);
  try {
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
}

function removeIfThere(file: string): void {
  try {
    unlinkSync(file);
  } catch {
    // It was not created, or it was renamed.
  }
}

function failure(file: string, what: string, cause: unknown): TollgateError {
  const code = (cause as NodeJS.ErrnoException).code ?? 'unknown';
  return new TollgateError('VAULT_FAILED', {
    detail: `${path.basename(file)} in the state folder ${what} (${code}).`,
    next: 'Free space on the disk, or correct the state folder.',
    cause,
  });
}
