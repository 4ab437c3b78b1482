/** Owns the putting of bytes into a file so that readers see the old or the new, never half; refuses to go on after a half write. */
import { randomBytes } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { access, type FileHandle, link, lstat, rename, unlink } from 'node:fs/promises';
import { pathChanged } from '../../../catalogs/readers/path-handles.ts';
import type { FileOpener } from './file-snapshot.ts';
import type { OpenFolder } from './open-folder.ts';

/** Where the bytes go. `previous` is the file that is replaced: its mode and owner are kept. */
export interface WriteTarget {
  readonly folder: OpenFolder;
  readonly name: string;
  readonly previous?: BigIntStats | undefined;
}

/** Creates or replaces a file through a temporary one beside it. Without `previous` a file that appears meanwhile is EEXIST. */
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
    await dress(handle, target);
    await confirm(target);
    if (previous === undefined) await link(folder.at(temporary), folder.at(name));
    else await rename(folder.at(temporary), folder.at(name));
    return await handle.stat({ bigint: true });
  } finally {
    await handle.close();
    await unlink(folder.at(temporary)).catch(ignoreMissing);
  }
}

/** Adds bytes at the end of an existing file; what a full disk left of them is taken back. */
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

/** The last look before the name changes hands: the folder has its place still, and the name its file. Throws DENIED. */
async function confirm({ folder, name, previous }: WriteTarget): Promise<void> {
  if (!(await folder.isInPlace())) throw pathChanged();
  if (previous === undefined) return;
  const now = await lstat(folder.at(name), { bigint: true });
  if (now.dev !== previous.dev || now.ino !== previous.ino) throw pathChanged();
}

/** Mode and owner as before; what root makes belongs to the folder's owner, or the workspace's own user could not change it. */
async function dress(handle: FileHandle, target: WriteTarget): Promise<void> {
  const { previous } = target;
  if (previous !== undefined) await handle.chmod(Number(previous.mode & 0o7777n));
  const made = await handle.stat();
  const owner = previous ?? (process.getuid?.() === 0 ? await target.folder.stat() : made);
  if (Number(owner.uid) === made.uid && Number(owner.gid) === made.gid) return;
  await handle.chown(Number(owner.uid), Number(owner.gid)).catch(ignoreForbidden);
  if (previous !== undefined) await handle.chmod(Number(previous.mode & 0o7777n));
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

/** Only root may give files away; the content still counts. */
function ignoreForbidden(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EPERM') throw error;
}
