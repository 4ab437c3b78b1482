/** Detects changes of the content of files and folders, and reports them when writing has stopped. */
import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { realOrAbsolute } from '../../catalogs/readers/path-location.ts';

/** The settings of a watch, times in ms. */
export interface FileWatchOptions {
  /** Called once for each change, however many events it made. */
  readonly onChange: () => void;
  /** How long nothing may have been written; default 100. */
  readonly quietMs?: number;
  /** How often to check without an event, for what causes none (network drives, replaced links); default 2,000. */
  readonly pollMs?: number;
}

/** The state of a path. If `stat` differs, the content may have changed; if `hash` differs, it has. */
interface Stamp {
  readonly stat: string;
  readonly hash: string;
}

/** The most files of a folder that are checked. A folder with more is not a policy. */
const MAX_FILES = 10_000;
/** No load reads a larger file. */
const MAX_BYTES = 32 * 1024 * 1024;
/** The most folders with a watcher. Changes in others are found by polling. */
const MAX_FOLDERS = 256;
/** After this many checks, a change is reported even if the file still changes. */
const MAX_CHECKS = 50;

/**
 * Watches paths, which need not exist. Events of the system only start a check, which compares content, because some
 * editors replace a file and others only touch it.
 */
export class FileWatch {
  readonly #options: Required<FileWatchOptions>;
  readonly #stamps = new Map<string, Stamp>();
  readonly #watchers = new Map<string, FSWatcher>();
  readonly #poll: NodeJS.Timeout;
  #quiet: NodeJS.Timeout | undefined;
  #isChecking = false;
  #closed = false;

  constructor(options: FileWatchOptions) {
    this.#options = { quietMs: 100, pollMs: 2000, ...options };
    this.#poll = setInterval(() => void this.#check(), this.#options.pollMs).unref();
  }

  /** Watches these paths from now on. Paths that were watched before keep their state, so no edit is missed. */
  async target(paths: readonly string[]): Promise<void> {
    const wanted = new Set(paths);
    for (const known of this.#stamps.keys()) if (!wanted.has(known)) this.#stamps.delete(known);
    for (const watched of wanted) if (!this.#stamps.has(watched)) this.#stamps.set(watched, await stampOf(watched));
    await this.#watchFolders();
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#poll);
    clearTimeout(this.#quiet);
    for (const watcher of this.#watchers.values()) watcher.close();
  }

  /** Watches the folders of the files, by their names and real paths: replacing a file is an event of its folder. */
  async #watchFolders(): Promise<void> {
    const folders = new Set<string>();
    for (const watched of this.#stamps.keys()) {
      folders.add(path.dirname(watched)).add(path.dirname(realOrAbsolute(watched)));
      for (const { name, isFolder } of await entriesOf(watched)) if (isFolder) folders.add(name);
    }
    for (const [folder, watcher] of this.#watchers) {
      if (folders.has(folder)) continue;
      watcher.close();
      this.#watchers.delete(folder);
    }
    for (const folder of [...folders].slice(0, MAX_FOLDERS))
      if (!this.#closed && !this.#watchers.has(folder)) this.#watchFolder(folder);
  }

  #watchFolder(folder: string): void {
    const unwatch = (): void => {
      this.#watchers.get(folder)?.close();
      this.#watchers.delete(folder);
    };
    try {
      const watcher = watch(folder, { persistent: false }, () => {
        clearTimeout(this.#quiet);
        this.#quiet = setTimeout(() => void this.#check(), this.#options.quietMs).unref();
      });
      this.#watchers.set(folder, watcher.on('error', unwatch));
    } catch {
      // The folder does not exist yet, or the system has no more watches. Polling finds the change.
      unwatch();
    }
  }

  /** Never rejects. */
  async #check(): Promise<void> {
    if (this.#isChecking || this.#closed) return;
    this.#isChecking = true;
    try {
      if (await this.#waitUntilStable()) this.#options.onChange();
    } finally {
      this.#isChecking = false;
    }
  }

  /** Waits until nothing changes any more. Returns whether anything has changed. */
  async #waitUntilStable(): Promise<boolean> {
    let changed = false;
    for (let checks = 0; checks < MAX_CHECKS && (await this.#readStamps()) && !this.#closed; checks += 1) {
      changed = true;
      await sleep(this.#options.quietMs, undefined, { ref: false });
    }
    if (changed) await this.#watchFolders();
    return changed && !this.#closed;
  }

  async #readStamps(): Promise<boolean> {
    let changed = false;
    for (const [watched, before] of [...this.#stamps]) {
      const now = await stampOf(watched, before);
      if (!this.#stamps.has(watched)) continue;
      this.#stamps.set(watched, now);
      changed ||= now.hash !== before.hash;
    }
    return changed;
  }
}

/**
 * Returns the state of a path. Content is read only if it may differ from `before`. An unreadable file is a state too.
 */
async function stampOf(watched: string, before?: Stamp): Promise<Stamp> {
  const files = (await entriesOf(watched)).filter(({ isFolder }) => !isFolder);
  const text = files.map(({ name, stat: status }) => `${name}\0${status}`).join('\n');
  if (text === before?.stat) return before;
  const hash = createHash('sha256');
  for (const { name, isPlain, stat: status } of files) {
    // Opening a pipe could wait forever, and an agent may have made one.
    const bytes = isPlain
      ? await readFile(name).catch((thrown: NodeJS.ErrnoException) => Buffer.from(`cannot be read: ${thrown.code}`))
      : Buffer.from(`not read: ${status}`);
    hash.update(`${path.relative(watched, name)}\0${bytes.byteLength}\0`).update(bytes);
  }
  return { stat: text, hash: hash.digest('hex') };
}

interface Entry {
  readonly name: string;
  readonly isFolder: boolean;
  /** True for a plain file that is small enough for a load. */
  readonly isPlain: boolean;
  readonly stat: string;
}

/**
 * Returns the path itself, or all files of a folder except hidden ones; nothing if it does not exist. Links to files
 * are followed; in a folder, links to folders are not.
 */
async function entriesOf(watched: string): Promise<readonly Entry[]> {
  const found: Entry[] = [];
  const visit = async (name: string, depth: number): Promise<void> => {
    const status = await stat(name, { bigint: true }).catch(() => undefined);
    if (status === undefined || found.length >= MAX_FILES || depth > 16) return;
    const isLink =
      depth > 0 && status.isDirectory() && (await lstat(name).catch(() => undefined))?.isSymbolicLink() === true;
    found.push({
      name,
      isFolder: status.isDirectory() && !isLink,
      isPlain: status.isFile() && status.size <= MAX_BYTES,
      stat: `${status.ino}:${status.size}:${status.mtimeNs}:${status.ctimeNs}`,
    });
    if (!status.isDirectory() || isLink) return;
    for (const entry of (await readdir(name).catch(() => [])).sort())
      if (!entry.startsWith('.')) await visit(path.join(name, entry), depth + 1);
  };
  await visit(watched, 0);
  return found;
}
