/**
 * Opens regular files that somebody else may exchange: a pipe in the place of a file would hold up a thread, or this
 * process, for ever.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/** Opens a regular file for reading, links followed. Throws EINVAL for what is none, else errors of the system. */
export async function openRegularFile(file: string): Promise<FileHandle> {
  const handle = await open(file, FLAGS);
  try {
    if ((await handle.stat()).isFile()) return handle;
    throw noFile();
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}

/** The text of a regular file of at most `most` bytes. Throws EINVAL for anything else, else errors of the system. */
export function readRegularFileSync(file: string, most: number): string {
  const descriptor = openSync(file, FLAGS);
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile() || status.size > most) throw noFile();
    return readFileSync(descriptor, 'utf8');
  } finally {
    closeSync(descriptor);
  }
}

function noFile(): Error {
  return Object.assign(new Error('no regular file of this size'), { code: 'EINVAL' });
}
