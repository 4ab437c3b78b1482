/** Replaces files atomically, and appends to files. */
import { randomBytes } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { access, type FileHandle, link, lstat, rename, unlink } from 'node:fs/promises';
import { pathChanged } from '../../../catalogs/readers/path-handles.ts';
import type { FileOpener } from './file-snapshot.ts';
import type { OpenFolder } from './open-folder.ts';

/** The file to write. `previous` is the file that is replaced. Its mode and owner are kept. */
export interface WriteTarget {
  readonly folder: OpenFolder;
  readonly name: string;
  readonly previous?: BigIntStats | undefined;
}

/**
 * Creates or replaces a file through a temporary file next to it. Without `previous`, throws EEXIST if the file exists
 * by then.
 */
export async function storeFile(target: WriteTarget, bytes: Buffer): Promise<BigIntStats> {
  const { folder, name, previous } = target;
  if (previous !== undefined) await access(folder.at(name), constants.W_OK);
  const temporary = `.tollgate-${randomBytes(6).toString('hex')}.tmp`;
  const handle = await folder.openFile(
    temporary,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL,
    previous === undefined ? 0o666 : 0o600,
  );
  try {
    await handle.writeFile(bytes);
    await copyModeAndOwner(handle, target);
    await checkUnchanged(target);
    if (previous === undefined) await link(folder.at(temporary), folder.at(name));
    else await rename(folder.at(temporary), folder.at(name));
    return await handle.stat({ bigint: true });
  } finally {
    await handle.close();
    await unlink(folder.at(temporary)).catch(ignoreMissing);
  }
}

/** Appends bytes to an existing file. If this fails, for example on a full disk, the file gets its old size again. */
export async function appendFile(
  target: { readonly present: FileOpener; readonly name: string },
  bytes: Buffer,
): Promise<BigIntStats> {
  const handle = await target.present.openFile(target.name, constants.O_WRONLY | constants.O_APPEND);
  try {
    const before = await handle.stat();
    try {
      await handle.writeFile(bytes);
    } catch (error) {
      await handle.truncate(before.size);
      throw error;
    }
    return await handle.stat({ bigint: true });
  } finally {
    await handle.close();
  }
}

/**
 * Checks, right before the rename, that the folder was not moved and the name still refers to the file. Throws DENIED.
 */
async function checkUnchanged({ folder, name, previous }: WriteTarget): Promise<void> {
  if (!(await folder.isInPlace())) throw pathChanged();
  if (previous === undefined) return;
  const now = await lstat(folder.at(name), { bigint: true });
  if (now.dev !== previous.dev || now.ino !== previous.ino) throw pathChanged();
}

/**
 * Sets mode and owner as before. A new file made by root gets the owner of the folder, who could not change it
 * otherwise.
 */
async function copyModeAndOwner(handle: FileHandle, target: WriteTarget): Promise<void> {
  const { previous } = target;
  if (previous !== undefined) await handle.chmod(Number(previous.mode & 0o7777n));
  const created = await handle.stat();
  const owner = previous ?? (process.getuid?.() === 0 ? await target.folder.stat() : created);
  if (Number(owner.uid) === created.uid && Number(owner.gid) === created.gid) return;
  await handle.chown(Number(owner.uid), Number(owner.gid)).catch(ignoreForbidden);
  if (previous !== undefined) await handle.chmod(Number(previous.mode & 0o7777n));
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

/** Only root may change the owner. The write succeeds without it. */
function ignoreForbidden(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPERM') throw error;
}
