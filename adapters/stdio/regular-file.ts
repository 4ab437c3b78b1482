/** Opens regular files only. Another program may replace a file by a pipe, and reading a pipe could block for ever. */
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK;

/** Opens a regular file for reading, and follows links. Throws EINVAL for other kinds, and errors of the system. */
export async function openRegularFile(file: string): Promise<FileHandle> {
  const handle = await open(file, FLAGS);
  try {
    if ((await handle.stat()).isFile()) return handle;
    throw invalidFile();
  } catch (thrown) {
    await handle.close();
    throw thrown;
  }
}

/** Returns the text of a regular file. Throws EINVAL for other kinds and larger files, and errors of the system. */
export function readRegularFileSync(file: string, maxBytes: number): string {
  const descriptor = openSync(file, FLAGS);
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile() || status.size > maxBytes) throw invalidFile();
    return readFileSync(descriptor, 'utf8');
  } finally {
    closeSync(descriptor);
  }
}

function invalidFile(): Error {
  return Object.assign(new Error('not a regular file of an allowed size'), { code: 'EINVAL' });
}
