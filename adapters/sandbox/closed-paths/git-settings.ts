/** Decides which settings of a git repository are harmless. git runs programs that the other settings name. */
import { closeSync, constants, fstatSync, lstatSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Confinement } from '../../../catalogs/readers/confinement.ts';
import { PathTree } from '../../../catalogs/readers/path-globs.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';

/** Bytes. A larger file counts as unreadable. */
const MAX_CONFIG = 64 * 1024;
/** Milliseconds. Scans have checked a file many times when it has been unchanged for this long. */
const SETTLED_MS = 600_000;
const MAX_SETTLED = 10_000;
const SETTINGS: ReadonlySet<string> = new Set(['config', 'config.worktree']);

/** Settings that start no program and include no other file: `section.name`, or `section.*.name` with a subsection. */
const HARMLESS: ReadonlySet<string> = new Set([
  ...(
    'repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol ' +
    'safecrlf quotepath sparsecheckout sparsecheckoutcone'
  )
    .split(' ')
    .map((name) => `core.${name}`),
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

/** The last text of each settings file that had not changed for SETTLED_MS. */
const settled = new Map<string, string>();

/**
 * Returns the text of the settings files among `files`, as their owner wrote it. Another running program may have
 * changed a file lately, before a scan withheld it. Such a file counts with its last settled text. `now`: Unix
 * milliseconds.
 */
export function gitSettingsIn(files: Iterable<string>, now: number): ReadonlyMap<string, string> {
  const settings = [...files].filter((file) => SETTINGS.has(path.basename(file)));
  for (const file of settings) {
    const changed = lstatSync(file, { throwIfNoEntry: false })?.ctimeMs ?? now;
    const text = plainTextOf(file);
    if (text !== undefined && now - changed > SETTLED_MS && settled.size < MAX_SETTLED) settled.set(file, text);
  }
  return new Map(settings.map((file) => [file, settled.get(file) ?? '']));
}

/** Returns true if rules close the settings of git to writes. Tollgate withholds settings only then. */
export function closesGitSettings(confinement: Confinement): boolean {
  return new PathTree(confinement, 'inside').start().descend('.git').descend('config').closure !== undefined;
}

/** Finds the entries of a repository with which git could run a program. */
export class RepositorySettings {
  readonly #at: string;
  readonly #folder: string;
  /** The path contains `.git`, so rules about `.git` apply. Elsewhere a later write could change the settings. */
  readonly #isOrdinary: boolean;
  readonly #before: ReadonlyMap<string, string>;

  /** `at`: `folder` by its open descriptor. `before`: the settings at the start of the program, which may stay. */
  constructor(at: string, folder: string, before: ReadonlyMap<string, string>) {
    this.#before = before;
    this.#at = at;
    this.#folder = folder;
    this.#isOrdinary = folder.split('/').includes('.git');
  }

  /** Returns true if the entry must be withheld. */
  isFault(name: string, isNew: boolean): boolean {
    switch (name) {
      case 'commondir':
        return !this.#isHarmlessCommon(plainTextOf(path.join(this.#at, name))?.trim());
      case 'HEAD':
        return isNew && !this.#isOrdinary;
      default:
        return !this.#isHarmless(name);
    }
  }

  /** A `commondir` that names its own folder changes nothing. Tollgate writes such a file as a placeholder. */
  #isHarmlessCommon(folder: string | undefined): boolean {
    return (
      folder === '.' ||
      (folder === '../..' && this.#isOrdinary && path.basename(path.dirname(this.#folder)) === 'worktrees')
    );
  }

  #isHarmless(name: string): boolean {
    const text = plainTextOf(path.join(this.#at, name));
    if (text === undefined) return false;
    const faults = this.#faultsOf(text);
    if (faults.length === 0) return true;
    const before = this.#before.get(path.join(this.#folder, name)) ?? '';
    // A setting can continue on the next line, and a program could write another next line.
    return !/\\\r?(?:\n|$)/.test(before) && faults.join('\n') === this.#faultsOf(before).join('\n');
  }

  /** Returns the lines that are not known to be harmless, each with its section header. */
  #faultsOf(text: string): readonly string[] {
    let section = '';
    let header = '';
    const faults: string[] = [];
    for (const line of text.split('\n').filter((one) => !/^\s*(?:[#;].*)?$/.test(one))) {
      const head = SECTION.exec(line);
      if (/^\s*\[/.test(line)) [header, section] = [line, head === null ? '' : sectionName(head)];
      if (head === null && !this.#isKnownLine(section, line)) faults.push(`${header}\n${line}`);
    }
    return faults;
  }

  #isKnownLine(section: string, line: string): boolean {
    const [, key, value = ''] = SETTING.exec(line) ?? [];
    return key !== undefined && this.#isKnown(`${section}.${key.toLowerCase()}`, value.trim());
  }

  #isKnown(setting: string, value: string): boolean {
    return setting === 'core.worktree'
      ? this.#staysWithin(value)
      : HARMLESS.has(setting) && !value.includes('::') && !value.startsWith('-');
  }

  /**
   * The data of a submodule lies in the outer repository. Its `core.worktree` names the folder of the submodule's
   * files.
   */
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

function sectionName([, name = '', subsection]: RegExpExecArray): string {
  return name.toLowerCase() + (subsection === undefined ? '' : '.*');
}

/** Returns the text of a regular file with one name, undefined for everything else. */
export function plainTextOf(file: string): string | undefined {
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
