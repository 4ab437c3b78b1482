/**
 * Withholds settings and hooks that a sandboxed program wrote into git repositories: git on the host would run them.
 */
import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, opendirSync, renameSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openPlainHandle } from '../../../catalogs/readers/path-handles.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import type { ClosedPaths } from './closed-paths.ts';
import { type FolderEntries, NO_FOLDER_ENTRIES, readFolderEntries, repositoryKey } from './folder-entries.ts';
import { plainTextOf, RepositorySettings } from './git-settings.ts';

/**
 * Milliseconds between two scans while the program runs. The pause is at least SCAN_SHARE times as long as the last
 * scan.
 */
const SCAN_MS = 3000;
const SCAN_SHARE = 50;
/** Far less than the time after which settings count as settled, however many folders a program makes. */
const MAX_WAIT_MS = 60_000;
/** The clock of a file system may be this many milliseconds behind the clock of the process. */
const CLOCK_MS = 100;
const END_MS = 2000;
const WITHHELD = '.withheld';
/** Characters of a name that stay in the new name. A name has 255 bytes at most. */
const MAX_KEPT = 50;
/** A path has 4096 bytes at most on Linux, including the zero byte at its end. */
const MAX_PATH_BYTES = 4095;
const HOOKS = 'hooks';
/** Entries of a repository that start programs, or that name the place of such entries. */
const RUN = ['config', 'config.worktree', 'commondir', HOOKS, 'HEAD'] as const;
/** The next steps of an interrupted rebase. A line can be a command. */
const [REBASE, TODO] = ['rebase-merge', 'git-rebase-todo'] as const;
const COMMAND = /^[ \t]*(?:exec|x)\b/m;

/** Which folders to scan, and what needs no check in them. All paths are absolute and real. */
export interface RepositoryScope {
  /** Folders that the program may write. */
  readonly writable: readonly string[];
  /** Paths that were closed at the start: the program cannot have changed them. */
  readonly closed: ClosedPaths;
  /** The repositories that existed at the start, as `repositoryKey` names them. */
  readonly known: ReadonlySet<string>;
  /** Unix milliseconds. */
  readonly since: number;
  /** Those of `closed` that did not stay closed until the end. */
  readonly lost: ReadonlySet<string>;
  /** The text of the closed settings files at the start, as `gitSettingsIn` returns it. */
  readonly before: ReadonlyMap<string, string>;
}

/** What a scan did, and what was found at the end of a program. */
export interface WithheldSettings {
  /** Paths that were closed to the program at the start but not at the end. */
  readonly lost?: readonly string[];
  /** The former names of the renamed entries. */
  readonly withheld: readonly string[];
  /** The system's error code, if the scan could not read or rename something. */
  readonly failed?: string;
}

/**
 * Scans repeatedly while a program runs. Returns a function to call after the program ends, which waits for `over` (no
 * process of the program is left) and scans once more. `report` gets each scan that renamed something or failed.
 */
export function watchRepositories(
  scope: RepositoryScope,
  over: Promise<void>,
  report: (found: WithheldSettings) => void,
): () => Promise<void> {
  const ended = new AbortController();
  const scan = async (): Promise<number> => {
    const began = performance.now();
    const withheld: string[] = [];
    const failed = await withholdSettings(scope, withheld).then(
      () => undefined,
      (thrown: NodeJS.ErrnoException) => thrown.code ?? 'unknown',
    );
    if (withheld.length > 0 || failed !== undefined) report({ withheld, ...(failed !== undefined && { failed }) });
    return performance.now() - began;
  };
  const scanning = (async () => {
    for (let wait = SCAN_MS; !ended.signal.aborted; ) {
      await sleep(wait, undefined, { ref: false, signal: ended.signal }).catch(() => undefined);
      if (!ended.signal.aborted) wait = Math.min(MAX_WAIT_MS, Math.max(SCAN_MS, SCAN_SHARE * (await scan())));
    }
  })();
  return async () => {
    ended.abort();
    await scanning;
    await Promise.race([over, sleep(END_MS, undefined, { ref: false })]);
    await scan();
  };
}

/**
 * Renames the entries that git would run, and adds their former names to `withheld`. Throws the first error of the
 * system after it has scanned all folders.
 */
export async function withholdSettings(scope: RepositoryScope, withheld: string[]): Promise<void> {
  await new RepositoryScan(scope, withheld).run();
}

/** Returns true if the program can have written an entry. `open`: the same entry, below the folder's descriptor. */
type IsChangeable = (file: string, open: string) => boolean;

/** A folder, and the path of its open descriptor. */
interface OpenFolder {
  readonly folder: string;
  readonly at: string;
}

/** One scan of all folders that a program may write. A failure in one folder does not stop the scan of the others. */
class RepositoryScan {
  readonly #scope: RepositoryScope;
  readonly #withheld: string[];
  readonly #pace = new TimeSlices();
  readonly #waiting: string[];
  #failed: { readonly thrown: unknown } | undefined;

  constructor(scope: RepositoryScope, withheld: string[]) {
    this.#scope = scope;
    this.#withheld = withheld;
    this.#waiting = [...scope.writable];
  }

  async run(): Promise<void> {
    for (let folder = this.#waiting.pop(); folder !== undefined; folder = this.#waiting.pop()) {
      if (this.#scope.closed.get(folder) !== 'hidden') await this.#attempt(this.#scan(folder));
      if (this.#pace.isDue) await this.#pace.rest();
    }
    if (this.#failed !== undefined) throw this.#failed.thrown;
  }

  async #attempt<T>(work: Promise<T>): Promise<T | undefined> {
    return work.catch((thrown: unknown) => void (this.#failed ??= { thrown }));
  }

  async #scan(folder: string): Promise<void> {
    const entries = await this.#entriesOf(folder);
    const key = repositoryKey(folder, entries);
    if (key !== undefined) await this.#attempt(this.#withholdIn(folder, !this.#scope.known.has(key)));
    const isOdd = (name: string): boolean =>
      name.includes('\ufffd') || Buffer.byteLength(path.join(folder, name)) > MAX_PATH_BYTES;
    for (const name of entries.folders) if (!isOdd(name)) this.#waiting.push(path.join(folder, name));
    if (entries.folders.some(isOdd)) await this.#attempt(this.#moveOddFolders(folder));
  }

  /** Returns no entries for a folder that is gone. */
  async #entriesOf(folder: string): Promise<FolderEntries> {
    try {
      return await readFolderEntries(folder, this.#pace);
    } catch (thrown) {
      const { code = '' } = thrown as NodeJS.ErrnoException;
      if (['ENOENT', 'ENOTDIR'].includes(code)) return NO_FOLDER_ENTRIES;
      // git can read settings in a folder without the right to list it.
      if (code !== 'EACCES' || !(await withFolder(folder, () => Promise.resolve()))) throw thrown;
      return readFolderEntries(folder, this.#pace);
    }
  }

  /**
   * Moves folders whose names are not UTF-8, or whose paths are longer than the system allows, to the top, where the
   * scan reaches them. No sandbox starts with such folders, so a program made them.
   */
  async #moveOddFolders(folder: string): Promise<void> {
    const top = this.#scope.writable.find((root) => isPathWithin(folder, root)) ?? folder;
    await withFolder(top, (above) =>
      withFolder(folder, async (at) => {
        for await (const name of foldersIn(at, this.#pace)) {
          const next = this.#moveIfOdd(name, { folder, at }, { folder: top, at: above });
          if (next !== undefined) this.#waiting.push(next);
        }
      }),
    );
  }

  /** Returns the folder if the scan still has to reach it: it has moved, or `#scan` has taken it for an odd one. */
  #moveIfOdd(name: Buffer, from: OpenFolder, to: OpenFolder): string | undefined {
    const file = path.join(from.folder, name.toString());
    // A name may contain the replacement character itself, and is then not odd.
    if (isUtf8(name) && Buffer.byteLength(file) <= MAX_PATH_BYTES) return file.includes('\ufffd') ? file : undefined;
    const moved = withhold({ at: from.at, name }, to.at);
    if (moved === undefined) return undefined;
    this.#withheld.push(file);
    return path.join(to.folder, moved);
  }

  /** Keeps the repository's folder open during the check, so that no program can exchange it. */
  async #withholdIn(folder: string, isNew: boolean): Promise<void> {
    const isChangeable = this.#changeableIn(folder, isNew);
    const hooks = await this.#attempt(this.#hooksIn(folder));
    await withFolder(folder, async (at) => {
      const settings = new RepositorySettings(at, folder, isNew ? new Map() : this.#scope.before);
      for (const name of RUN) {
        const [file, open] = [path.join(folder, name), path.join(at, name)];
        const isFault = (): boolean =>
          name === HOOKS ? hooks?.isEmpty !== true || !isFolder(open) : settings.isFault(name, isNew);
        if (exists(open) && isChangeable(file, open) && isFault()) await this.#attempt(this.#withhold(file, at));
      }
    });
    if (isFolder(path.join(folder, REBASE)))
      await this.#attempt(this.#withholdTodo(path.join(folder, REBASE), isChangeable));
    // A program can rewrite a hook in a folder of hooks that existed before.
    if (!isNew && hooks !== undefined) await this.#withholdHooks(path.join(folder, HOOKS), hooks.files, isChangeable);
  }

  /** `files`: the entries that git would run as hooks. */
  async #hooksIn(folder: string): Promise<{ readonly isEmpty: boolean; readonly files: readonly string[] }> {
    const { folders, files, links } = await this.#entriesOf(path.join(folder, HOOKS));
    const run = [...files, ...links].filter((hook) => !isIgnoredHook(hook));
    return { isEmpty: run.length === 0 && folders.every(isIgnoredHook), files: run };
  }

  /**
   * In a folder that became a repository later, closed paths need the check too: they were not settings at the start.
   */
  #changeableIn(folder: string, isNew: boolean): IsChangeable {
    const { closed, since, lost } = this.#scope;
    const covers = [...closed.keys()].filter(
      (at) => !lost.has(at) && (isPathWithin(at, folder) || isPathWithin(folder, at)),
    );
    const isCovered = (file: string): boolean => {
      const around = covers.filter((at) => isPathWithin(file, at)).sort((one, other) => one.length - other.length);
      return around.length > 0 && closed.get(around.at(-1) ?? '') !== 'open';
    };
    return (file, open) => isNew || (!isCovered(file) && isChanged(open, since));
  }

  /** `git rebase --continue` runs the commands of this file. */
  async #withholdTodo(folder: string, isChangeable: IsChangeable): Promise<void> {
    await withFolder(folder, async (at) => {
      const [file, open] = [path.join(folder, TODO), path.join(at, TODO)];
      if (exists(open) && isChangeable(file, open) && COMMAND.test(plainTextOf(open) ?? 'exec'))
        await this.#attempt(this.#withhold(file, at));
    });
  }

  async #withholdHooks(folder: string, hooks: readonly string[], isChangeable: IsChangeable): Promise<void> {
    await withFolder(folder, async (at) => {
      for (const hook of hooks) {
        const file = path.join(folder, hook);
        if (isChangeable(file, path.join(at, hook))) await this.#attempt(this.#withhold(file, at));
        if (this.#pace.isDue) await this.#pace.rest();
      }
    });
  }

  async #withhold(file: string, at: string): Promise<void> {
    if (withhold({ at, name: path.basename(file) }) !== undefined) this.#withheld.push(file);
  }
}

function exists(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false }) !== undefined;
}

function isFolder(file: string): boolean {
  return lstatSync(file, { throwIfNoEntry: false })?.isDirectory() === true;
}

/**
 * Calls `work` with the path of the open folder's descriptor. The owner gets all rights on the folder first. Returns
 * false if a link is on the way by now.
 */
async function withFolder(folder: string, work: (at: string) => Promise<unknown>): Promise<boolean> {
  const handle = openPlainHandle(folder);
  try {
    if (handle?.object === undefined) return false;
    const mode = Number(handle.stat?.mode ?? 0n) & 0o7777;
    if ((mode & 0o700) !== 0o700) chmodSync(handle.object, mode | 0o700);
    await work(handle.object);
    return true;
  } finally {
    handle?.close();
  }
}

/** Yields the names of the folders in an open folder, as bytes. */
async function* foldersIn(at: string, pace: TimeSlices): AsyncGenerator<Buffer> {
  // Node returns buffers here, but its types say strings.
  const opened = opendirSync(at, { encoding: 'buffer' as BufferEncoding });
  try {
    for (let entry = opened.readSync(); entry !== null; entry = opened.readSync()) {
      if (entry.isDirectory()) yield entry.name as unknown as Buffer;
      if (pace.isDue) await pace.rest();
    }
  } finally {
    opened.closeSync();
  }
}

/** git runs neither samples nor renamed hooks. */
function isIgnoredHook(name: string): boolean {
  return name.endsWith('.sample') || name.endsWith(WITHHELD);
}

/** Uses the ctime, which no program can set. */
function isChanged(file: string, since: number): boolean {
  const stat = lstatSync(file, { throwIfNoEntry: false });
  return stat !== undefined && stat.ctimeMs >= since - CLOCK_MS;
}

/**
 * Renames an entry of an open folder to a free name in the folder `to`. Returns that name, or undefined if the entry is
 * gone.
 */
function withhold({ at, name }: { readonly at: string; readonly name: string | Buffer }, to = at): string | undefined {
  const short = name.toString().slice(0, MAX_KEPT);
  // The random part keeps a program from taking all free names beforehand.
  const random = exists(path.join(to, `${short}${WITHHELD}`)) ? `.${randomBytes(6).toString('hex')}` : '';
  const free = `${short}${random}${WITHHELD}`;
  try {
    renameSync(Buffer.concat([Buffer.from(`${at}/`), Buffer.from(name)]), path.join(to, free));
    return free;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
    return undefined;
  }
}
