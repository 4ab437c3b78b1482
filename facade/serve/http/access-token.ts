/** The access token file of `tollgate serve`. A file that others can read, or that is not a token, is refused. */
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { unlessMissing } from '../../../catalogs/readers/missing-files.ts';

const FORM = /^[A-Za-z0-9_-]{43}$/;

/**
 * Returns the access token in `<stateDir>/token`: 256 random bits, base64url, made at the first call, mode 0600.
 * Several processes that start at once get the same one. Throws STATE_FAILED.
 */
export function ensureToken(stateDir: string): string {
  const path = join(stateDir, 'token');
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
    return readToken(path) ?? makeToken(path);
  } catch (thrown) {
    if (thrown instanceof TollgateError) throw thrown;
    throw new TollgateError('STATE_FAILED', { detail: 'The access token cannot be read or made.', cause: thrown });
  }
}

function readToken(path: string): string | undefined {
  // A link in its place could lead to a file whose text someone else chose.
  const file = unlessMissing(() => openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW));
  if (file === undefined) return undefined;
  try {
    if ((fstatSync(file).mode & 0o077) !== 0) throw bad('The access token file can be read by other users.');
    const token = readFileSync(file, 'utf8').trim();
    if (!FORM.test(token)) throw bad('The access token file does not contain a token.');
    return token;
  } finally {
    closeSync(file);
  }
}

/**
 * Written to another file and linked into place, so that another process sees no file or a complete one, and the first
 * link wins.
 */
function makeToken(path: string): string {
  const token = randomBytes(32).toString('base64url');
  const aside = `${path}.${process.pid}.${randomBytes(6).toString('hex')}`;
  writeFileSync(aside, `${token}\n`, { mode: 0o600, flag: 'wx' });
  try {
    linkSync(aside, path);
    return token;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST') throw thrown;
    return readToken(path) ?? token;
  } finally {
    unlinkSync(aside);
  }
}

function bad(detail: string): TollgateError {
  return new TollgateError('STATE_FAILED', {
    detail,
    next: 'Delete the file named token in the state folder; the next start makes a new one.',
  });
}
