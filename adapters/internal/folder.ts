/** Owns folders held open beneath the workspace, so that a symlink swapped in after the check is refused at use (TOCTOU). */
import { constants, existsSync } from 'node:fs';
import type { Dirent, Stats } from 'node:fs';
import { lchown, lstat, mkdir, open, readdir, realpath } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors.ts';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** With /proc a name beneath an open folder is reached as openat(2) would; elsewhere the real path is compared after opening. */
const HAS_PROC = existsSync('/proc/self/fd');

/** An open folder. Names are single components; none is followed when it is a symlink. Close it. */
export class Folder {
  readonly #handle: FileHandle;
  readonly #path: string;

  private constructor(handle: FileHandle, where: string) {
    this.#handle = handle;
    this.#path = where;
  }

  /** Opens the workspace's root, which must be real (no symlink in it). */
  static async root(absolute: string): Promise<Folder> {
    return new Folder(await open(absolute, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), absolute);
  }

  /** A path that reaches `name` in this folder wherever the folder was moved; without a name, the folder itself. */
  at(name = ''): string {
    return HAS_PROC ? `/proc/self/fd/${this.#handle.fd}/${name}` : path.join(this.#path, name);
  }

  /** As `at()`, for a child process: it must be spawned before this folder is closed. */
  forChild(): string {
    return HAS_PROC ? `/proc/${process.pid}/fd/${this.#handle.fd}` : this.#path;
  }

  /** Opens the folder `name`; `create` makes it when it is missing. Throws DENIED for a symlink, else errors of the system. */
  async enter(name: string, create = false): Promise<Folder> {
    if (create) await this.#make(name);
    const handle = await this.#open(name, O_RDONLY | O_DIRECTORY, 0);
    return new Folder(handle, path.join(this.#path, name));
  }

  /** Opens the file `name`, without waiting on a pipe. Throws DENIED for a symlink, else errors of the system. */
  openFile(name: string, flags: number = O_RDONLY, mode = 0o666): Promise<FileHandle> {
    return this.#open(name, flags | O_NONBLOCK, mode);
  }

  /** Entries by name, in order of their code units. */
  async entries(): Promise<readonly Dirent[]> {
    const entries = await readdir(this.at(), { withFileTypes: true });
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Owner and mode of the folder. */
  stat(): Promise<Stats> {
    return this.#handle.stat();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  /** What root makes belongs to the owner of this folder, or the workspace's own user could not use it. */
  async #make(name: string): Promise<void> {
    try {
      await mkdir(this.at(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      return;
    }
    if (process.getuid?.() !== 0) return;
    const owner = await this.stat();
    await lchown(this.at(name), owner.uid, owner.gid);
  }

  async #open(name: string, flags: number, mode: number): Promise<FileHandle> {
    try {
      const handle = await open(this.at(name), flags | O_NOFOLLOW, mode);
      if (!HAS_PROC && (await realpath(path.join(this.#path, name))) !== path.join(this.#path, name)) {
        await handle.close();
        throw swapped();
      }
      return handle;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === 'ELOOP' || (code === 'ENOTDIR' && (await this.#isLink(name)))) throw swapped();
      throw error;
    }
  }

  async #isLink(name: string): Promise<boolean> {
    return lstat(this.at(name)).then((stat) => stat.isSymbolicLink(), () => false);
  }
}

/** Opens the folder at `names` beneath the real root, step by step; `create` makes what is missing. */
export async function openFolder(root: string, names: readonly string[], create = false): Promise<Folder> {
  let folder = await Folder.root(root);
  for (const name of names) {
    try {
      const next = await folder.enter(name, create);
      await folder.close();
      folder = next;
    } catch (error) {
      await folder.close();
      throw error;
    }
  }
  return folder;
}

function swapped(): TollgateError {
  return new TollgateError('DENIED', { detail: 'The path became a symlink while it was opened.', next: 'Call again; if it stays so, someone else changes this folder.' });
}
