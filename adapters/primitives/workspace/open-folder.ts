/** Folders of the workspace that are held open, so that a symlink swapped in after the check is refused (TOCTOU). */
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

/**
 * With /proc, a name in an open folder is opened as openat(2) does. Elsewhere the real path is compared after opening.
 */
const HAS_PROC = supportsPathHandles();
/** Most entries of one folder. All of them are read and sorted before the first is shown. */
const MAX_ENTRIES = 200_000;

/** An open folder. Names are single path components. Symlinks are not followed. The caller must close it. */
export class OpenFolder {
  readonly #handle: FileHandle;
  readonly #path: string;
  /** The judged entry. Its name opens the judged object, even if the name refers to another object now. */
  readonly #judged: PathHandle | undefined;

  private constructor(handle: FileHandle, absolute: string, judged?: PathHandle) {
    this.#handle = handle;
    this.#path = absolute;
    this.#judged = judged;
  }

  /**
   * Opens the folder of a judged path. Throws ENOENT if it is missing. The last name of the path opens the judged
   * object.
   */
  static async around(pathHandle: PathHandle): Promise<OpenFolder> {
    return OpenFolder.#openParent(pathHandle, { judged: pathHandle });
  }

  /** Opens the folder of a judged path. Every name opens the current object. `create` creates missing folders. */
  static async of(pathHandle: PathHandle, create: boolean): Promise<OpenFolder> {
    return OpenFolder.#openParent(pathHandle, { create });
  }

  static async #openParent(
    pathHandle: PathHandle,
    { judged, create = false }: { readonly judged?: PathHandle; readonly create?: boolean },
  ): Promise<OpenFolder> {
    const missing = pathHandle.missing.slice(0, -1);
    const folderPath = missing.reduce((folder) => path.dirname(folder), path.dirname(pathHandle.location.absolute));
    const handle =
      pathHandle.parent === undefined
        ? await open(folderPath, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
        : await open(pathHandle.parent, O_RDONLY | O_DIRECTORY);
    let folder = new OpenFolder(handle, folderPath, missing.length === 0 ? judged : undefined);
    for (const [index, name] of missing.entries())
      folder = await folder.#enterAndClose(name, create, index === missing.length - 1 ? judged : undefined);
    return folder;
  }

  /** Opens the root of the workspace, given as a real path. */
  static async root(absolute: string): Promise<OpenFolder> {
    return new OpenFolder(await open(absolute, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), absolute);
  }

  /**
   * Returns a path to `name` in this folder that stays valid if the folder is moved. Without a name, to the folder
   * itself.
   */
  at(name = ''): string {
    return HAS_PROC ? `${pathOfDescriptor(this.#handle.fd)}/${name}` : path.join(this.#path, name);
  }

  /** The descriptor, for a child process that is spawned before this folder is closed. */
  get fd(): number {
    return this.#handle.fd;
  }

  /** Returns the path of this folder for a child process that is spawned before this folder is closed. */
  forChild(): string {
    return HAS_PROC ? `/proc/${process.pid}/fd/${this.#handle.fd}` : this.#path;
  }

  /** Opens a subfolder and closes this folder. */
  async #enterAndClose(name: string, create: boolean, judged: PathHandle | undefined): Promise<OpenFolder> {
    const inner = await this.enter(name, create).finally(() => this.close());
    return judged === undefined ? inner : new OpenFolder(inner.#handle, inner.#path, judged);
  }

  /** Returns true while this folder is at the path at which it was judged. */
  async isInPlace(): Promise<boolean> {
    return HAS_PROC
      ? (await readlink(pathOfDescriptor(this.#handle.fd))) === this.#path
      : (await realpath(this.#path)) === this.#path;
  }

  /** Opens a subfolder. `create` creates it if it is missing. Throws DENIED for a symlink, and system errors. */
  async enter(name: string, create = false): Promise<OpenFolder> {
    if (create) await this.#make(name);
    const handle = await this.#open(name, O_RDONLY | O_DIRECTORY, 0);
    return new OpenFolder(handle, path.join(this.#path, name));
  }

  /** Opens a file without waiting for the other end of a pipe. Throws DENIED for a symlink, and system errors. */
  openFile(name: string, flags: number = O_RDONLY, mode = 0o666): Promise<FileHandle> {
    return this.#open(name, flags | O_NONBLOCK, mode);
  }

  /** Returns the entries, sorted by name. Throws TOOL_FAILED for a folder with more than 200,000 entries. */
  async entries(pace: TimeSlices): Promise<readonly Dirent[]> {
    const entries: Dirent[] = [];
    for await (const entry of await opendir(this.at(), { bufferSize: 1024 })) {
      entries.push(entry);
      if (entries.length > MAX_ENTRIES)
        throw toolFailure(
          `A folder has more than ${MAX_ENTRIES} entries: ${path.basename(this.#path)}.`,
          'List it with a program: bash command="ls -f … | head".',
        );
      if (pace.isDue) await pace.rest();
    }
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Returns owner and mode of the folder. */
  stat(): Promise<Stats> {
    return this.#handle.stat();
  }

  async close(): Promise<void> {
    await this.#handle.close();
  }

  /** Creates a subfolder. If root creates it, it gets the owner of this folder, who could not use it otherwise. */
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
      const isAnotherObject = judged !== undefined && !judged.isObject(await handle.stat({ bigint: true }));
      if (
        isAnotherObject ||
        (!HAS_PROC && (await realpath(path.join(this.#path, name))) !== path.join(this.#path, name))
      ) {
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

/**
 * Returns an opener for the judged object. Returns undefined if there was no object, or the platform has no path
 * descriptors.
 */
export function judgedFileOpener({ object }: PathHandle): Pick<OpenFolder, 'openFile'> | undefined {
  return object === undefined ? undefined : { openFile: (_name, flags = O_RDONLY) => open(object, flags | O_NONBLOCK) };
}

/** Opens a judged folder. */
export async function openJudgedFolder(pathHandle: PathHandle): Promise<OpenFolder> {
  const parent = await OpenFolder.around(pathHandle);
  return parent.enter(path.basename(pathHandle.location.absolute)).finally(() => parent.close());
}

/** Opens the folder at `names` below the real root, component by component. */
export async function openFolder(root: string, names: readonly string[]): Promise<OpenFolder> {
  let folder = await OpenFolder.root(root);
  for (const name of names) {
    const parent = folder;
    folder = await parent.enter(name).finally(() => parent.close());
  }
  return folder;
}
