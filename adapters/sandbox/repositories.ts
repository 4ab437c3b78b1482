/** Withholds what git would run on the host: settings and hooks of repositories that a program in a sandbox made or changed. */
import { randomBytes } from 'node:crypto';
import { chmodSync, closeSync, constants, fstatSync, lstatSync, openSync, readFileSync, renameSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Confinement } from '../../catalogs/confinement.ts';
import { hold } from '../../catalogs/held.ts';
import { PathTree } from '../../catalogs/path-globs.ts';
import { Pace } from '../../catalogs/pace.ts';
import { isWithin, type Closed } from './closed.ts';
import { entriesOf, NO_ENTRIES, repositoryKey, type Entries } from './entries.ts';

/** Milliseconds between two looks while the program runs, and how many times the cost of the last look it is at least. */
const LOOK_MS = 3000;
const LOOK_SHARE = 50;
/** The clock of a file system is behind that of the process by up to this many milliseconds. */
const CLOCK_MS = 100;
const MAX_CONFIG = 64 * 1024;
const END_MS = 2000;
const WITHHELD = '.withheld';
const HOOKS = 'hooks';
/** Entries of a repository that start programs, or say where such entries are. */
const RUN = ['config', 'config.worktree', 'commondir', HOOKS, 'HEAD'] as const;

/** Settings that start no program and lead to no other settings, as `section.name`, or `section.*.name` where a subsection stands. */
const HARMLESS: ReadonlySet<string> = new Set([
  ...['repositoryformatversion', 'filemode', 'bare', 'logallrefupdates', 'ignorecase', 'precomposeunicode', 'symlinks', 'autocrlf', 'eol', 'safecrlf', 'quotepath', 'sparsecheckout', 'sparsecheckoutcone'].map((name) => `core.${name}`),
  ...['objectformat', 'refstorage', 'partialclone', 'worktreeconfig'].map((name) => `extensions.${name}`),
  ...['url', 'pushurl', 'fetch', 'push', 'tagopt', 'prune', 'promisor', 'partialclonefilter'].map((name) => `remote.*.${name}`),
  ...['remote', 'merge', 'rebase', 'pushremote', 'description'].map((name) => `branch.*.${name}`),
  ...['url', 'active', 'branch'].map((name) => `submodule.*.${name}`),
  'submodule.active', 'user.name', 'user.email', 'init.defaultbranch', 'pull.rebase', 'pull.ff', 'push.default', 'push.autosetupremote', 'fetch.prune', 'gc.auto', 'merge.conflictstyle',
]);
const SECTION = /^\[([A-Za-z][A-Za-z0-9-]*)(?: "([^"\\]*)")?\]$/;
const SETTING = /^\s*([A-Za-z][A-Za-z0-9-]*)(?:\s*=\s*([^"\\#;\r\0]*))?$/;

/** Where to look, and what needs no look. All paths absolute and real. */
export interface Grounds {
  /** Folders that the program may write. */
  readonly writable: readonly string[];
  /** What was covered at the start: the program cannot have changed it. */
  readonly closed: Closed;
  /** The repositories that were there at the start, as `repositoryKey` names them. */
  readonly known: ReadonlySet<string>;
  /** Unix milliseconds. */
  readonly since: number;
}

/** True where rules close the settings of git to writes: only then is anything withheld. */
export function closesGit({ hidden, fixed }: Confinement): boolean {
  return new PathTree({ hidden, fixed }, 'inside').start.descend('.git').descend('config').closure !== undefined;
}

/** What a look did. */
export interface Withholding {
  /** The names that what was renamed had. */
  readonly withheld: readonly string[];
  /** Code of the system, where something could not be looked at or renamed. */
  readonly failed?: string;
}

/**
 * Looks while a program runs, and once more when the function that it gives is called after the program's end. `lives`: whether
 * something of the program is left; that is waited for. `tell` hears of a look that renamed something or failed.
 */
export function watchRepositories(grounds: Grounds, lives: () => boolean, tell: (look: Withholding) => void): () => Promise<void> {
  const ended = new AbortController();
  const look = async (): Promise<number> => {
    const began = performance.now();
    const withheld: string[] = [];
    const failed = await withholdSettings(grounds, withheld).then(() => undefined, (thrown: NodeJS.ErrnoException) => thrown.code ?? 'unknown');
    if (withheld.length > 0 || failed !== undefined) tell({ withheld, ...(failed !== undefined && { failed }) });
    return performance.now() - began;
  };
  const looking = (async () => {
    for (let wait = LOOK_MS; !ended.signal.aborted; ) {
      await sleep(wait, undefined, { ref: false, signal: ended.signal }).catch(() => undefined);
      if (!ended.signal.aborted) wait = Math.max(LOOK_MS, LOOK_SHARE * (await look()));
    }
  })();
  return async () => {
    ended.abort();
    await looking;
    for (let waited = 0; lives() && waited < END_MS; waited += 25) await sleep(25);
    await look();
  };
}

/** Renames what git would run, and adds the names that it had to `withheld`. Throws what the system throws. */
export async function withholdSettings(grounds: Grounds, withheld: string[]): Promise<void> {
  const pace = new Pace();
  const waiting = [...grounds.writable];
  for (let folder = waiting.pop(); folder !== undefined; folder = waiting.pop()) {
    if (grounds.closed.get(folder) === 'hidden') continue;
    const entries = await listed(folder, pace);
    const key = repositoryKey(folder, entries);
    if (key !== undefined) await withholdIn(folder, { grounds, isNew: !grounds.known.has(key), withheld }, pace);
    for (const name of entries.folders) waiting.push(path.join(folder, name));
    if (pace.isDue) await pace.rest();
  }
}

/** A folder that is gone has no entries. */
async function listed(folder: string, pace: Pace): Promise<Entries> {
  try {
    return await entriesOf(folder, pace);
  } catch (thrown) {
    const { code = '' } = thrown as NodeJS.ErrnoException;
    if (['ENOENT', 'ENOTDIR'].includes(code)) return NO_ENTRIES;
    // git needs no right to list a folder in order to read settings in it.
    if (code !== 'EACCES' || withFolder(folder, () => true) === undefined) throw thrown;
    return entriesOf(folder, pace);
  }
}

/** Does `work` on an open folder, with all rights of its owner; undefined when the name leads elsewhere by now. */
function withFolder<T>(folder: string, work: (at: string) => T): T | undefined {
  const held = hold([folder], folder);
  try {
    if (held.object === undefined || held.location.absolute !== folder) return undefined;
    const mode = Number(held.stat?.mode ?? 0n) & 0o7777;
    if ((mode & 0o700) !== 0o700) chmodSync(held.object, mode | 0o700);
    return work(held.object);
  } finally {
    held.close();
  }
}

interface Judged {
  readonly grounds: Grounds;
  readonly isNew: boolean;
  readonly withheld: string[];
}

/** One repository, held open so that nobody can put another folder in its place meanwhile. */
async function withholdIn(folder: string, { grounds, isNew, withheld }: Judged, pace: Pace): Promise<void> {
  const covers = [...grounds.closed.keys()].filter((at) => isWithin(at, folder) || isWithin(folder, at));
  const isOpen = (file: string): boolean => !covers.some((at) => isWithin(file, at)) && (isNew || isChanged(file, grounds.since));
  const hooks = await listed(path.join(folder, HOOKS), pace);
  const hasHooks = [...hooks.folders, ...hooks.files, ...hooks.links].some((hook) => !isKeptHook(hook));
  withFolder(folder, (at) => {
    const repository = new Repository(at, folder);
    const isFault = (name: string): boolean => (name === HOOKS ? hasHooks || !lstatSync(path.join(at, name)).isDirectory() : repository.isFault(name, isNew));
    for (const name of RUN) {
      const file = path.join(folder, name);
      const isThere = lstatSync(path.join(at, name), { throwIfNoEntry: false }) !== undefined;
      if (isThere && isOpen(file) && isFault(name)) withhold(at, name, () => withheld.push(file));
    }
  });
  if (isNew) return;
  // A hook can be rewritten in a folder of hooks that was there before.
  for (const hook of [...hooks.files, ...hooks.links]) {
    const file = path.join(folder, HOOKS, hook);
    if (isKeptHook(hook) || !isOpen(file)) continue;
    withFolder(path.dirname(file), (at) => withhold(at, hook, () => withheld.push(file)));
    if (pace.isDue) await pace.rest();
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

  /** `at`: the folder `folder`, open. */
  constructor(at: string, folder: string) {
    this.#at = at;
    this.#folder = folder;
    this.#isOrdinary = folder.split('/').includes('.git');
  }

  /** True for an entry that has to be withheld. */
  isFault(name: string, isNew: boolean): boolean {
    switch (name) {
      case 'commondir':
        return !(this.#isOrdinary && path.basename(path.dirname(this.#folder)) === 'worktrees' && this.#read(name)?.trim() === '../..');
      case 'HEAD':
        return isNew && !this.#isOrdinary;
      default:
        return !this.#isHarmless(name);
    }
  }

  #isHarmless(name: string): boolean {
    let section = '';
    return this.#read(name)?.split('\n').every((line) => {
      if (/^\s*(?:[#;].*)?$/.test(line)) return true;
      const [, head, subsection] = SECTION.exec(line) ?? [];
      if (head !== undefined) section = head.toLowerCase() + (subsection === undefined ? '' : '.*');
      if (head !== undefined) return true;
      const [, key, value = ''] = SETTING.exec(line) ?? [];
      if (key === undefined) return false;
      const setting = `${section}.${key.toLowerCase()}`;
      return setting === 'core.worktree' ? this.#staysWithin(value.trim()) : HARMLESS.has(setting) && !value.includes('::') && !value.startsWith('-');
    }) ?? false;
  }

  /** The data of a submodule lies in the repository around it, and names the folder of its files there. */
  #staysWithin(worktree: string): boolean {
    const [outer, inner] = this.#folder.split('/.git/modules/');
    return outer !== undefined && inner !== undefined && isWithin(path.resolve(this.#folder, worktree), outer) && !worktree.includes('.git');
  }

  /** The text of a plain file with one name; undefined for everything else. */
  #read(name: string): string | undefined {
    let descriptor: number | undefined;
    try {
      descriptor = openSync(path.join(this.#at, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      const stat = fstatSync(descriptor);
      return stat.isFile() && stat.nlink === 1 && stat.size <= MAX_CONFIG ? readFileSync(descriptor, 'utf8') : undefined;
    } catch {
      return undefined;
    } finally {
      if (descriptor !== undefined) closeSync(descriptor);
    }
  }
}

/** Renames an entry of an open folder to a name that is free. Nothing to do when it is gone. */
function withhold(at: string, name: string, done: () => void): void {
  const isTaken = lstatSync(path.join(at, `${name}${WITHHELD}`), { throwIfNoEntry: false }) !== undefined;
  const to = `${name}${isTaken ? `.${randomBytes(4).toString('hex')}` : ''}${WITHHELD}`;
  try {
    renameSync(path.join(at, name), path.join(at, to));
    done();
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'ENOENT') throw thrown;
  }
}
