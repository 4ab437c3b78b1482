/** Owns the noticing of edits: content of files and folders that has become another; refuses to speak while something is still being written. */
import { createHash } from 'node:crypto';
import { type FSWatcher, watch } from 'node:fs';
import { lstat, readdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** How a watch works, times in ms. */
export interface FileWatchOptions {
  /** Called once for each change, however many events it made. */
  readonly onChange: () => void;
  /** Nothing may have been written for so long; default 100. */
  readonly quietMs?: number;
  /** Looks by itself so often, for what tells nothing (network drives, links that are swapped); default 2,000. */
  readonly pollMs?: number;
}

/** What a path looked like: `stat` tells that it may have changed, `hash` whether it did. */
interface Stamp {
  readonly stat: string;
  readonly hash: string;
}

/** Files of a folder that are looked at, and folders that are listened to: what is more is left to `pollMs`, or not a policy. */
const MAX_FILES = 10_000;
/** No load reads a file that is larger. */
const MAX_BYTES = 32 * 1024 * 1024;
const MAX_FOLDERS = 256;
/** Looks at something that never stays the same before it is taken as it is. */
const MAX_LOOKS = 50;

/**
 * Watches paths, whether they exist or not. Events of the system only make it look sooner: it looks at content, so that
 * editors that replace a file, and those that touch it, are told apart.
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

  /** Watches these paths from now on. What was watched before keeps its stamp, so that no edit in between is lost. */
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

  /** The folders of what is watched: a file that is replaced is an event of its folder. */
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
      // There is no such folder yet, or the system has no more watches: looking by ourselves finds it.
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

  /** Whether anything changed, once it stays as it is. */
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

/** The stamp of a path; content is read only where it may differ from `before`. Something that cannot be read is a content too. */
async function stampOf(one: string, before?: Stamp): Promise<Stamp> {
  const files = (await entriesOf(one)).filter(({ isFolder }) => !isFolder);
  const text = files.map(({ name, stat: seen }) => `${name}\0${seen}`).join('\n');
  if (text === before?.stat) return before;
  const hash = createHash('sha256');
  for (const { name, isPlain, stat: seen } of files) {
    // A pipe would keep us waiting for ever, and an agent may have made one.
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
  /** A file of a size that a load would read. */
  readonly isPlain: boolean;
  readonly stat: string;
}

/** The path itself, or all that a folder holds, hidden names excepted; nothing where nothing is. Links are followed to files, and in a folder not to folders. */
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
