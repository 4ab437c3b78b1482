/** Withholds what git would run on the host: settings and hooks of repositories that a program in a sandbox made or changed. */
import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  opendirSync,
  openSync,
  readFileSync,
  renameSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { PathTree } from '../../../catalogs/readers/path-globs.ts';
import { openPlainHandle } from '../../../catalogs/readers/path-handles.ts';
import { TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { type ClosedPaths, isPathWithin } from './closed-paths.ts';
import { type FolderEntries, NO_FOLDER_ENTRIES, readFolderEntries, repositoryKey } from './folder-entries.ts';

/** Milliseconds between two looks while the program runs, and how many times the cost of the last look it is at least. */
const LOOK_MS = 3000;
const LOOK_SHARE = 50;
/** Far less than SETTLED_MS, however many folders a program makes. */
const MOST_WAIT_MS = 60_000;
/** The clock of a file system is behind that of the process by up to this many milliseconds. */
const CLOCK_MS = 100;
const MAX_CONFIG = 64 * 1024;
const END_MS = 2000;
const WITHHELD = '.withheld';
/** Characters of a name that stay in the new name: its bytes are at most 255. */
const MOST_KEPT = 50;
/** Linux: a path has 4096 bytes, with the zero at its end. */
const MOST_PATH_BYTES = 4095;
const HOOKS = 'hooks';
/** Entries of a repository that start programs, or say where such entries are. */
const RUN = ['config', 'config.worktree', 'commondir', HOOKS, 'HEAD'] as const;

/** By then, every program that could write a file has been looked at many times. */
const SETTLED_MS = 600_000;
const MOST_SETTLED = 10_000;
const SETTINGS: ReadonlySet<string> = new Set(['config', 'config.worktree']);
/** What a rebase that was interrupted does next: a line can be a command. */
const [REBASE, TODO] = ['rebase-merge', 'git-rebase-todo'] as const;
const COMMAND = /^[ \t]*(?:exec|x)\b/m;

/** Settings that start no program and lead to no other settings, as `section.name`, or `section.*.name` where a subsection stands. */
const HARMLESS: ReadonlySet<string> = new Set([
  ...[
    'repositoryformatversion',
    'filemode',
    'bare',
    'logallrefupdates',
    'ignorecase',
    'precomposeunicode',
    'symlinks',
    'autocrlf',
    'eol',
    'safecrlf',
    'quotepath',
    'sparsecheckout',
    'sparsecheckoutcone',
  ].map((name) => `core.${name}`),
  ...['objectformat', 'refstorage', 'partialclone', 'worktreeconfig'].map((name) => `extensions.${name}`),
  ...['url', 'pushurl', 'fetch', 'push', 'tagopt', 'prune', 'promisor', 'partialclonefilter'].map(
    (name) => `remote.*.${name}`,
  ),
  ...['remote', 'merge', 'rebase', 'pushremote', 'description'].map((name) => `branch.*.${name}`),
  ...['url', 'active', 'branch'].map((name) => `submodule.*.${name}`),
  'submodule.active',
  'user.name',
  'user.email',
  'init.defaultbranch',
  'pull.rebase',
  'pull.ff',
  'push.default',
  'push.autosetupremote',
  'fetch.prune',
  'gc.auto',
  'merge.conflictstyle',
]);
const SECTION = /^\[([A-Za-z][A-Za-z0-9-]*)(?: "([^"\\]*)")?\]$/;
const SETTING = /^\s*([A-Za-z][A-Za-z0-9-]*)(?:\s*=([^"\\#;\r\0]*))?$/;

/** Where to look, and what needs no look. All paths absolute and real. */
export interface RepositoryScope {
  /** Folders that the program may write. */
  readonly writable: readonly string[];
  /** What was covered at the start: the program cannot have changed it. */
  readonly closed: ClosedPaths;
  /** The repositories that were there at the start, as `repositoryKey` names them. */
  readonly known: ReadonlySet<string>;
  /** Unix milliseconds. */
  readonly since: number;
  /** Of `closed`, what was not closed to the end. */
  readonly lost: ReadonlySet<string>;
  /** What the closed files of settings said at the start, as `settingsIn` gives it. */
  readonly before: ReadonlyMap<string, string>;
}

/** The last text of each file of settings that had not changed for SETTLED_MS. */
const settled = new Map<string, string>();

/**
 * The text of files of settings among these that their owner has written: another program that runs may have written a file that changed
 * lately, and its own looks have not withheld it yet. For such a file, the last text that stood for a while. `now`: Unix milliseconds.
 */
export function gitSettingsIn(files: Iterable<string>, now: number): ReadonlyMap<string, string> {
  const settings = [...files].filter((file) => SETTINGS.has(path.basename(file)));
  for (const file of settings) {
    const changed = lstatSync(file, { throwIfNoEntry: false })?.ctimeMs ?? now;
    const text = textOf(file);
    if (text !== undefined && now - changed > SETTLED_MS && settled.size < MOST_SETTLED) settled.set(file, text);
  }
  return new Map(settings.map((file) => [file, settled.get(file) ?? '']));
}

/** True where rules close the settings of git to writes: only then is anything withheld. */
export function closesGitSettings({ hidden, fixed }: Confinement): boolean {
  return new PathTree({ hidden, fixed }, 'inside').start.descend('.git').descend('config').closure !== undefined;
}

/** What a look did, or what was found at the end of a program. */
export interface WithheldSettings {
  /** What was closed to the program and was not to the end. */
  readonly lost?: readonly string[];
  /** The names that what was renamed had. */
  readonly withheld: readonly string[];
  /** Code of the system, where something could not be looked at or renamed. */
  readonly failed?: string;
}

/**
 * Looks while a program runs, and once more when the function that it gives is called after the program's end. `over`
 * resolves when nothing of the program is left; that is waited for. `tell` hears of a look that renamed something or failed.
 */
export function watchRepositories(
  grounds: RepositoryScope,
  over: Promise<void>,
  tell: (look: WithheldSettings) => void,
): () => Promise<void> {
  const ended = new AbortController();
  const look = async (): Promise<number> => {
    const began = performance.now();
    const withheld: string[] = [];
    const failed = await withholdSettings(grounds, withheld).then(
      () => undefined,
      (thrown: NodeJS.ErrnoException) => thrown.code ?? 'unknown',
    );
    if (withheld.length > 0 || failed !== undefined) tell({ withheld, ...(failed !== undefined && { failed }) });
    return performance.now() - began;
  };
  const looking = (async () => {
    for (let wait = LOOK_MS; !ended.signal.aborted; ) {
      await sleep(wait, undefined, { ref: false, signal: ended.signal }).catch(() => undefined);
      if (!ended.signal.aborted) wait = Math.min(MOST_WAIT_MS, Math.max(LOOK_MS, LOOK_SHARE * (await look())));
    }
  })();
  return async () => {
    ended.abort();
    await looking;
    await Promise.race([over, sleep(END_MS, undefined, { ref: false })]);
    await look();
  };
}

/** Renames what git would run, and adds the names that it had to `withheld`. Throws what the system throws first, after it has looked everywhere. */
export async function withholdSettings(grounds: RepositoryScope, withheld: string[]): Promise<void> {
  await new Look(grounds, withheld).run();
}

/** A folder that is held open. */
interface Open {
  /** The path of its descriptor. */
  readonly at: string;
}

/** One look at all folders that a program may write. What fails in one place keeps nothing from being withheld in another. */
class Look {
  readonly #grounds: RepositoryScope;
  readonly #withheld: string[];
  readonly #pace = new TimeSlices();
  readonly #waiting: string[];
  #failed: { readonly thrown: unknown } | undefined;

  constructor(grounds: RepositoryScope, withheld: string[]) {
    this.#grounds = grounds;
    this.#withheld = withheld;
    this.#waiting = [...grounds.writable];
  }

  async run(): Promise<void> {
    for (let folder = this.#waiting.pop(); folder !== undefined; folder = this.#waiting.pop()) {
      if (this.#grounds.closed.get(folder) !== 'hidden') await this.#attempt(this.#lookAt(folder));
      if (this.#pace.isDue) await this.#pace.rest();
    }
    if (this.#failed !== undefined) throw this.#failed.thrown;
  }

  async #attempt(work: Promise<void>): Promise<void> {
    await work.catch((thrown: unknown) => void (this.#failed ??= { thrown }));
  }

  async #lookAt(folder: string): Promise<void> {
    const entries = await this.#listed(folder);
    const key = repositoryKey(folder, entries);
    if (key !== undefined) await this.#attempt(this.#withholdIn(folder, !this.#grounds.known.has(key)));
    const isOdd = (name: string): boolean =>
      name.includes('\ufffd') || Buffer.byteLength(path.join(folder, name)) > MOST_PATH_BYTES;
    for (const name of entries.folders) if (!isOdd(name)) this.#waiting.push(path.join(folder, name));
    if (entries.folders.some(isOdd)) await this.#attempt(this.#openOdd(folder));
  }

  /** A folder that is gone has no entries. */
  async #listed(folder: string): Promise<FolderEntries> {
    try {
      return await readFolderEntries(folder, this.#pace);
    } catch (thrown) {
      const { code = '' } = thrown as NodeJS.ErrnoException;
      if (['ENOENT', 'ENOTDIR'].includes(code)) return NO_FOLDER_ENTRIES;
      // git needs no right to list a folder in order to read settings in it.
      if (code !== 'EACCES' || !(await withFolder(folder, () => Promise.resolve()))) throw thrown;
      return readFolderEntries(folder, this.#pace);
    }
  }

  /**
   * Folders whose names are no text, or whose paths are longer than the system takes, move to the top, where the look reaches them.
   * With such folders no sandbox starts, so a program made them.
   */
  async #openOdd(folder: string): Promise<void> {
    const top = this.#grounds.writable.find((root) => isPathWithin(folder, root)) ?? folder;
    await withFolder(top, (above) =>
      withFolder(folder, async (inner) => {
        for await (const name of foldersIn(inner, this.#pace)) {
          const file = path.join(folder, name.toString());
          const isOdd = !isUtf8(name) || Buffer.byteLength(file) > MOST_PATH_BYTES;
          const to = isOdd ? withhold({ at: inner.at, name }, above.at) : undefined;
          if (to !== undefined) this.#withheld.push(file);
          // What only contains the sign for unreadable text is no odd name.
          if (to !== undefined || (!isOdd && file.includes('\ufffd')))
            this.#waiting.push(to === undefined ? file : path.join(top, to));
        }
      }),
    );
  }

  /** One repository, held open so that nobody can put another folder in its place meanwhile. */
  async #withholdIn(folder: string, isNew: boolean): Promise<void> {
    const { closed, since, lost, before } = this.#grounds;
    const covers = [...closed.keys()].filter(
      (at) => !lost.has(at) && (isPathWithin(at, folder) || isPathWithin(folder, at)),
    );
    // What was closed at the start is no less foreign in a folder that has become a repository since.
    const isOpen = (file: string, held: string): boolean =>
      isNew || (!covers.some((at) => isPathWithin(file, at)) && isChanged(held, since));
    const hooks = await this.#listed(path.join(folder, HOOKS)).catch(
      (thrown: unknown) => void (this.#failed ??= { thrown }),
    );
    const hasHooks =
      hooks === undefined || [...hooks.folders, ...hooks.files, ...hooks.links].some((hook) => !isKeptHook(hook));
    await withFolder(folder, async ({ at }) => {
      const repository = new Repository(at, folder, isNew ? new Map() : before);
      const isFault = (name: string): boolean =>
        name === HOOKS ? hasHooks || !lstatSync(path.join(at, name)).isDirectory() : repository.isFault(name, isNew);
      for (const name of RUN) {
        const [file, held] = [path.join(folder, name), path.join(at, name)];
        const isThere = lstatSync(held, { throwIfNoEntry: false }) !== undefined;
        if (isThere && isOpen(file, held) && isFault(name)) await this.#attempt(this.#withhold(file, at));
      }
    });
    if (lstatSync(path.join(folder, REBASE), { throwIfNoEntry: false })?.isDirectory() === true)
      await this.#attempt(this.#withholdTodo(path.join(folder, REBASE), isOpen));
    // A hook can be rewritten in a folder of hooks that was there before.
    if (!isNew && hooks !== undefined)
      await this.#withholdHooks(
        path.join(folder, HOOKS),
        [...hooks.files, ...hooks.links].filter((hook) => !isKeptHook(hook)),
        isOpen,
      );
  }

  /** `git rebase --continue` runs it. */
  async #withholdTodo(folder: string, isOpen: (file: string, held: string) => boolean): Promise<void> {
    await withFolder(folder, async ({ at }) => {
      const [file, held] = [path.join(folder, TODO), path.join(at, TODO)];
      const isThere = lstatSync(held, { throwIfNoEntry: false }) !== undefined;
      if (isThere && isOpen(file, held) && COMMAND.test(textOf(held) ?? 'exec'))
        await this.#attempt(this.#withhold(file, at));
    });
  }

  async #withholdHooks(
    folder: string,
    hooks: readonly string[],
    isOpen: (file: string, held: string) => boolean,
  ): Promise<void> {
    await withFolder(folder, async ({ at }) => {
      for (const hook of hooks) {
        const file = path.join(folder, hook);
        if (isOpen(file, path.join(at, hook))) await this.#attempt(this.#withhold(file, at));
        if (this.#pace.isDue) await this.#pace.rest();
      }
    });
  }

  async #withhold(file: string, at: string): Promise<void> {
    if (withhold({ at, name: path.basename(file) }) !== undefined) this.#withheld.push(file);
    return Promise.resolve();
  }
}

/** Does `work` on an open folder, with all rights of its owner; false when a link stands on the way by now. */
async function withFolder(folder: string, work: (open: Open) => Promise<unknown>): Promise<boolean> {
  const held = openPlainHandle(folder);
  try {
    if (held?.object === undefined) return false;
    const mode = Number(held.stat?.mode ?? 0n) & 0o7777;
    if ((mode & 0o700) !== 0o700) chmodSync(held.object, mode | 0o700);
    await work({ at: held.object });
    return true;
  } finally {
    held?.close();
  }
}

/** The folders in an open folder, with the bytes of their names. */
async function* foldersIn({ at }: Open, pace: TimeSlices): AsyncGenerator<Buffer> {
  // Node gives buffers, which its types do not say.
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

/** Samples are not run, nor what was renamed. */
function isKeptHook(name: string): boolean {
  return name.endsWith('.sample') || name.endsWith(WITHHELD);
}

/** By the time that nobody can set. */
function isChanged(file: string, since: number): boolean {
  const stat = lstatSync(file, { throwIfNoEntry: false });
  return stat !== undefined && stat.ctimeMs >= since - CLOCK_MS;
}

/** Tells what of a repository git would run. */
class Repository {
  readonly #at: string;
  readonly #folder: string;
  /** Where rules about `.git` hold. In any other folder, a later write could change the settings. */
  readonly #isOrdinary: boolean;
  readonly #before: RepositoryScope['before'];

  /** `at`: the folder `folder`, open. `before`: settings that were there at the start; who wrote them may keep them. */
  constructor(at: string, folder: string, before: RepositoryScope['before']) {
    this.#before = before;
    this.#at = at;
    this.#folder = folder;
    this.#isOrdinary = folder.split('/').includes('.git');
  }

  /** True for an entry that has to be withheld. */
  isFault(name: string, isNew: boolean): boolean {
    switch (name) {
      case 'commondir':
        return !this.#isHarmlessCommon(textOf(path.join(this.#at, name))?.trim());
      case 'HEAD':
        return isNew && !this.#isOrdinary;
      default:
        return !this.#isHarmless(name);
    }
  }

  /** A folder that is common to itself changes nothing: such a file holds the name in another sandbox. */
  #isHarmlessCommon(folder: string | undefined): boolean {
    return (
      folder === '.' ||
      (folder === '../..' && this.#isOrdinary && path.basename(path.dirname(this.#folder)) === 'worktrees')
    );
  }

  #isHarmless(name: string): boolean {
    const text = textOf(path.join(this.#at, name));
    if (text === undefined) return false;
    const faults = this.#faultsOf(text);
    if (faults.length === 0) return true;
    const before = this.#before.get(path.join(this.#folder, name)) ?? '';
    // A setting that goes on in the next line could be given another next line.
    return !/\\\r?(?:\n|$)/.test(before) && faults.join('\n') === this.#faultsOf(before).join('\n');
  }

  /** Lines that are not known to be harmless, each with the section that it stands in. */
  #faultsOf(text: string): readonly string[] {
    let section = '';
    let within = '';
    return text.split('\n').flatMap((line) => {
      if (/^\s*(?:[#;].*)?$/.test(line)) return [];
      const [, head, subsection] = SECTION.exec(line) ?? [];
      if (/^\s*\[/.test(line)) [within, section] = [line, ''];
      if (head !== undefined) section = head.toLowerCase() + (subsection === undefined ? '' : '.*');
      if (head !== undefined) return [];
      const [, key, value = ''] = SETTING.exec(line) ?? [];
      return key !== undefined && this.#isKnown(`${section}.${key.toLowerCase()}`, value.trim())
        ? []
        : [`${within}\n${line}`];
    });
  }

  #isKnown(setting: string, value: string): boolean {
    return setting === 'core.worktree'
      ? this.#staysWithin(value)
      : HARMLESS.has(setting) && !value.includes('::') && !value.startsWith('-');
  }

  /** The data of a submodule lies in the repository around it, and names the folder of its files there. */
  #staysWithin(worktree: string): boolean {
    const [outer, inner] = this.#folder.split('/.git/modules/');
    return (
      outer !== undefined &&
      inner !== undefined &&
      isPathWithin(path.resolve(this.#folder, worktree), outer) &&
      !worktree.includes('.git')
    );
  }
}

/** The text of a plain file with one name; undefined for everything else. */
function textOf(file: string): string | undefined {
  let descriptor: number | undefined;
  try {
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const stat = fstatSync(descriptor);
    return stat.isFile() && stat.nlink === 1 && stat.size <= MAX_CONFIG ? readFileSync(descriptor, 'utf8') : undefined;
  } catch {
    return undefined;
  } finally {
    if (descriptor !== undefined) closeSync(descriptor);
  }
}

/** Renames an entry of an open folder to a name that is free, in the folder `to`. Gives that name; undefined when the entry is gone. */
function withhold({ at, name }: { readonly at: string; readonly name: string | Buffer }, to = at): string | undefined {
  const short = name.toString().slice(0, MOST_KEPT);
  const isTaken = lstatSync(path.join(to, `${short}${WITHHELD}`), { throwIfNoEntry: false }) !== undefined;
  // Nobody can make all of these names beforehand.
  const free = `${short}${isTaken ? `.${randomBytes(6).toString('hex')}` : ''}${WITHHELD}`;
  try {
    renameSync(Buffer.concat([Buffer.from(`${at}/`), Buffer.from(name)]), path.join(to, free));
    return free;
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
    return undefined;
  }
}
