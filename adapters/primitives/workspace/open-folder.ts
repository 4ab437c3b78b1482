/** Owns folders held open beneath the workspace, so that a symlink swapped in after the check is refused at use (TOCTOU). */

import { constants, type Dirent, type Stats } from 'node:fs';
import { type FileHandle, lchown, lstat, mkdir, open, opendir, readlink, realpath } from 'node:fs/promises';
import path from 'node:path';
import {
  type PathHandle,
  pathChanged,
  pathOfDescriptor,
  supportsPathHandles,
} from '../../../catalogs/readers/path-handles.ts';
import type { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { toolFailure } from './file-text.ts';

const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/** With /proc a name beneath an open folder is reached as openat(2) would; elsewhere the real path is compared after opening. */
const HAS_PROC = supportsPathHandles();
/** Entries of one folder. All of them are held and sorted before the first is shown. */
const MAX_ENTRIES = 200_000;

/** An open folder. Names are single components; none is followed when it is a symlink. Close it. */
export class OpenFolder {
  readonly #handle: FileHandle;
  readonly #path: string;
  /** The entry whose name opens the object that was judged, whatever has that name by now. */
  readonly #judged: PathHandle | undefined;

  private constructor(handle: FileHandle, where: string, judged?: PathHandle) {
    this.#handle = handle;
    this.#path = where;
    this.#judged = judged;
  }

  /** Opens the folder in which a judged path lies; missing folders are errors. The path's own name opens what was judged. */
  static async around(held: PathHandle): Promise<OpenFolder> {
    return OpenFolder.#over(held, { judged: held });
  }

  /** Opens the folder in which a judged path lies; every name opens what has it now. `create` makes missing folders. */
  static async of(held: PathHandle, create: boolean): Promise<OpenFolder> {
    return OpenFolder.#over(held, { create });
  }

  static async #over(
    held: PathHandle,
    { judged, create = false }: { readonly judged?: PathHandle; readonly create?: boolean },
  ): Promise<OpenFolder> {
    const missing = held.missing.slice(0, -1);
    const where = missing.reduce((folder) => path.dirname(folder), path.dirname(held.location.absolute));
    const handle =
      held.parent === undefined
        ? await open(where, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        : await open(held.parent, O_RDONLY | O_DIRECTORY);
    let folder = new OpenFolder(handle, where, missing.length === 0 ? judged : undefined);
    for (const [index, name] of missing.entries())
      folder = await folder.#down(name, create, index === missing.length - 1 ? judged : undefined);
    return folder;
  }

  /** Opens the workspace's root, which must be real (no symlink in it). */
  static async root(absolute: string): Promise<OpenFolder> {
    return new OpenFolder(await open(absolute, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), absolute);
  }

  /** A path that reaches `name` in this folder wherever the folder was moved; without a name, the folder itself. */
  at(name = ''): string {
    return HAS_PROC ? `${pathOfDescriptor(this.#handle.fd)}/${name}` : path.join(this.#path, name);
  }

  /** Its descriptor: for a child process that is spawned before this folder is closed. */
  get fd(): number {
    return this.#handle.fd;
  }

  /** As `at()`, for a child process: it must be spawned before this folder is closed. */
  forChild(): string {
    return HAS_PROC ? `/proc/${process.pid}/fd/${this.#handle.fd}` : this.#path;
  }

  /** Steps down into a folder and closes this one. */
  async #down(name: string, create: boolean, judged: PathHandle | undefined): Promise<OpenFolder> {
    try {
      const inner = await this.enter(name, create);
      return judged === undefined ? inner : new OpenFolder(inner.#handle, inner.#path, judged);
    } finally {
      await this.close();
    }
  }

  /** True while this folder has the place at which it was judged. */
  async isInPlace(): Promise<boolean> {
    return HAS_PROC
      ? (await readlink(pathOfDescriptor(this.#handle.fd))) === this.#path
      : (await realpath(this.#path)) === this.#path;
  }

  /** Opens the folder `name`; `create` makes it when it is missing. Throws DENIED for a symlink, else errors of the system. */
  async enter(name: string, create = false): Promise<OpenFolder> {
    if (create) await this.#make(name);
    const handle = await this.#open(name, O_RDONLY | O_DIRECTORY, 0);
    return new OpenFolder(handle, path.join(this.#path, name));
  }

  /** Opens the file `name`, without waiting on a pipe. Throws DENIED for a symlink, else errors of the system. */
  openFile(name: string, flags: number = O_RDONLY, mode = 0o666): Promise<FileHandle> {
    return this.#open(name, flags | O_NONBLOCK, mode);
  }

  /** Entries by name, in order of their code units. Throws TOOL_FAILED for a folder that holds more than 200,000. */
  async entries(pace: TimeSlices): Promise<readonly Dirent[]> {
    const entries: Dirent[] = [];
    for await (const entry of await opendir(this.at(), { bufferSize: 1024 })) {
      entries.push(entry);
      if (entries.length > MAX_ENTRIES)
        throw toolFailure(
          `A folder holds more than ${MAX_ENTRIES} entries: ${path.basename(this.#path)}.`,
          'Look at it with a program: bash command="ls -f … | head".',
        );
      if (pace.isDue) await pace.rest();
    }
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
    const judged =
      this.#judged !== undefined && name === path.basename(this.#judged.location.absolute) ? this.#judged : undefined;
    if (judged?.object !== undefined) return open(judged.object, flags);
    try {
      const handle = await open(this.at(name), flags | O_NOFOLLOW, mode);
      const isOther = judged !== undefined && !judged.isObject(await handle.stat({ bigint: true }));
      if (isOther || (!HAS_PROC && (await realpath(path.join(this.#path, name))) !== path.join(this.#path, name))) {
        await handle.close();
        throw pathChanged();
      }
      return handle;
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === 'ELOOP' || (code === 'ENOTDIR' && (await this.#isLink(name)))) throw pathChanged();
      throw error;
    }
  }

  async #isLink(name: string): Promise<boolean> {
    return lstat(this.at(name)).then(
      (stat) => stat.isSymbolicLink(),
      () => false,
    );
  }
}

/** Opens what was judged, by its name alone; undefined where only a folder can: nothing was there, or the platform has no descriptors. */
export function judgedFileOpener({ object }: PathHandle): Pick<OpenFolder, 'openFile'> | undefined {
  return object === undefined ? undefined : { openFile: (_name, flags = O_RDONLY) => open(object, flags | O_NONBLOCK) };
}

/** Opens the judged folder itself. */
export async function openJudgedFolder(held: PathHandle): Promise<OpenFolder> {
  const around = await OpenFolder.around(held);
  try {
    return await around.enter(path.basename(held.location.absolute));
  } finally {
    await around.close();
  }
}

/** Opens the folder at `names` beneath the real root, step by step; `create` makes what is missing. */
export async function openFolder(root: string, names: readonly string[], create = false): Promise<OpenFolder> {
  let folder = await OpenFolder.root(root);
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
