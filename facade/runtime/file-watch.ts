/** Notices edits: files and folders whose content has changed. It waits until nothing is being written. */
import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** The settings of a watch, times in ms. */
export interface FileWatchOptions {
  /** Called once for each change, however many events it made. */
  readonly onChange: () => void;
  /** How long nothing may have been written; default 100. */
  readonly quietMs?: number;
  /** How often to check without an event, for what causes none (network drives, replaced links); default 2,000. */
  readonly pollMs?: number;
}

/** The look of a path: `stat` says that it may have changed, `hash` whether it did. */
interface Stamp {
  readonly stat: string;
  readonly hash: string;
}

/**
 * The most files of a folder that are checked, and the most folders that are listened to. The rest is left to `pollMs`,
 * or is no policy.
 */
const MAX_FILES = 10_000;
/** No load reads a larger file. */
const MAX_BYTES = 32 * 1024 * 1024;
const MAX_FOLDERS = 256;
/** After so many checks, a file that never stays the same is taken as it is. */
const MAX_LOOKS = 50;

/**
 * Watches paths, whether they exist or not. Events of the system only start a check, which compares content, because
 * some editors replace a file and others only touch it.
 */
export class FileWatch {
  readonly #options: Required<FileWatchOptions>;
  readonly #stamps = new Map<string, Stamp>();
  readonly #watchers = new Map<string, FSWatcher>();
  readonly #poll: NodeJS.Timeout;
  #quiet: NodeJS.Timeout | undefined;
  #looking = false;
  #closed = false;

  constructor(options: FileWatchOptions) {
    this.#options = { quietMs: 100, pollMs: 2000, ...options };
    this.#poll = setInterval(() => void this.#look(), this.#options.pollMs).unref();
  }

  /**
   * Watches these paths from now on. Paths that were watched before keep their state, so that no edit in between is
   * lost.
   */
  async target(paths: readonly string[]): Promise<void> {
    const wanted = new Set(paths);
    for (const known of this.#stamps.keys()) if (!wanted.has(known)) this.#stamps.delete(known);
    for (const one of wanted) if (!this.#stamps.has(one)) this.#stamps.set(one, await stampOf(one));
    await this.#listen();
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#poll);
    clearTimeout(this.#quiet);
    for (const watcher of this.#watchers.values()) watcher.close();
  }

  /** The folders of the watched files, because replacing a file is an event of its folder. */
  async #listen(): Promise<void> {
    const folders = new Set<string>();
    for (const one of this.#stamps.keys()) {
      folders.add(path.dirname(one));
      for (const { name, isFolder } of await entriesOf(one)) if (isFolder) folders.add(name);
    }
    for (const [folder, watcher] of this.#watchers) {
      if (folders.has(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    for (const folder of [...folders].slice(0, MAX_FOLDERS))
      if (!this.#closed && !this.#watchers.has(folder)) this.#open(folder);
  }

  #open(folder: string): void {
    const drop = (): void => {
      this.#watchers.get(folder)?.close();
      this.#watchers.delete(folder);
    };
    try {
      const watcher = watch(folder, { persistent: false }, () => {
        clearTimeout(this.#quiet);
        this.#quiet = setTimeout(() => void this.#look(), this.#options.quietMs).unref();
      });
      this.#watchers.set(folder, watcher.on('error', drop));
    } catch {
      // The folder does not exist yet, or the system has no more watches. Polling finds the change.
      drop();
    }
  }

  /** Never rejects. */
  async #look(): Promise<void> {
    if (this.#looking || this.#closed) return;
    this.#looking = true;
    try {
      if (await this.#settled()) this.#options.onChange();
    } finally {
      this.#looking = false;
    }
  }

  /** Returns whether anything changed, once it stays the same. */
  async #settled(): Promise<boolean> {
    let changed = false;
    for (let looks = 0; looks < MAX_LOOKS && (await this.#restamp()) && !this.#closed; looks += 1) {
      changed = true;
      await sleep(this.#options.quietMs, undefined, { ref: false });
    }
    if (changed) await this.#listen();
    return changed && !this.#closed;
  }

  async #restamp(): Promise<boolean> {
    let changed = false;
    for (const [one, before] of [...this.#stamps]) {
      const now = await stampOf(one, before);
      if (!this.#stamps.has(one)) continue;
      this.#stamps.set(one, now);
      changed ||= now.hash !== before.hash;
    }
    return changed;
  }
}

/**
 * Returns the state of a path. Content is read only if it may differ from `before`. An unreadable file is a state too.
 */
async function stampOf(one: string, before?: Stamp): Promise<Stamp> {
  const files = (await entriesOf(one)).filter(({ isFolder }) => !isFolder);
  const text = files.map(({ name, stat: seen }) => `${name}\0${seen}`).join('\n');
  if (text === before?.stat) return before;
  const hash = createHash('sha256');
  for (const { name, isPlain, stat: seen } of files) {
    // Opening a pipe could wait for ever, and an agent may have made one.
    const bytes = isPlain
      ? await readFile(name).catch((thrown: NodeJS.ErrnoException) => Buffer.from(`cannot be read: ${thrown.code}`))
      : Buffer.from(`not read: ${seen}`);
    hash.update(`${path.relative(one, name)}\0${bytes.byteLength}\0`).update(bytes);
  }
  return { stat: text, hash: hash.digest('hex') };
}

interface Entry {
  readonly name: string;
  readonly isFolder: boolean;
  /** Returns whether a load would read a file of this size. */
  readonly isPlain: boolean;
  readonly stat: string;
}

/**
 * Returns the path itself, or all files of a folder except hidden ones; nothing if it does not exist. Links to files
 * are followed; in a folder, links to folders are not.
 */
async function entriesOf(one: string): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  const visit = async (name: string, depth: number): Promise<void> => {
    const seen = await stat(name, { bigint: true }).catch(() => undefined);
    if (seen === undefined || found.length >= MAX_FILES || depth > 16) return;
    const isLink =
      depth > 0 && seen.isDirectory() && (await lstat(name).catch(() => undefined))?.isSymbolicLink() === true;
    found.push({
      name,
      isFolder: seen.isDirectory() && !isLink,
      isPlain: seen.isFile() && seen.size <= MAX_BYTES,
      stat: `${seen.ino}:${seen.size}:${seen.mtimeNs}:${seen.ctimeNs}`,
    });
    if (!seen.isDirectory() || isLink) return;
    for (const entry of (await readdir(name).catch(() => [])).sort())
      if (!entry.startsWith('.')) await visit(path.join(name, entry), depth + 1);
  };
  await visit(one, 0);
  return found;
}
