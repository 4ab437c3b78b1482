/** Replaces a file of a project in one step, with the right owner and permissions. No half file is ever visible. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import {
  closeSync,
  existsSync,
  fchmodSync,
  fchownSync,
  fsyncSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';

/** A file that a command wrote; without `after` it was removed, without `before` it is new. */
export interface Replaced {
  readonly file: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

const captures = new AsyncLocalStorage<Replaced[]>();

/** Runs work, and returns which files of a project it wrote, in their order. */
export async function captureWrites<T>(
  work: () => Promise<T> | T,
): Promise<{ readonly result: T; readonly writes: readonly Replaced[] }> {
  const writes: Replaced[] = [];
  const result = await captures.run(writes, async () => work());
  return { result, writes };
}

/** Does a write that is captured, with the content from right before it. */
export function capturing<T>(file: string, after: string | undefined, write: () => T): T {
  const capture = captures.getStore();
  const before = capture === undefined ? undefined : textOf(file);
  const done = write();
  capture?.push({ file, before, after });
  return done;
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** The mode of new files: they may name things that other users should not read. */
const MODE = 0o600;

/**
 * Writes a file: a reader sees the old text or the new one. Its mode stays, unless another is given; only the owner can
 * read a new one. Started as root, it keeps the owner; a new file gets the owner of its folder. Throws what the system
 * throws, and then nothing has changed.
 */
export function replaceFile(file: string, text: string, mode?: number): void {
  capturing(file, text, () => putInPlace(file, text, mode));
}

function putInPlace(file: string, text: string, mode?: number): void {
  makeFolder(path.dirname(file));
  const before = lstatSync(file, { throwIfNoEntry: false });
  const aside = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    const opened = openSync(aside, 'wx', MODE);
    try {
      writeFileSync(opened, text);
      const owner = before ?? statSync(path.dirname(file));
      // Through the open file, because the owner of the folder could replace the name by a link meanwhile.
      if (process.getuid?.() === 0) fchownSync(opened, owner.uid, owner.gid);
      fchmodSync(opened, mode ?? (before === undefined ? MODE : before.mode & 0o777));
      fsyncSync(opened);
    } finally {
      closeSync(opened);
    }
    renameSync(aside, file);
  } catch (thrown) {
    rmSync(aside, { force: true });
    throw thrown;
  }
}

/** Returns the missing folders on the way to a file, the deepest first. */
export function missingFolders(file: string): readonly string[] {
  const folder = path.dirname(file);
  return existsSync(folder) ? [] : [folder, ...missingFolders(folder)];
}

/** Removes folders that were made without need. */
export function removeIfEmpty(folder: string): void {
  if (existsSync(folder) && readdirSync(folder).length === 0) rmdirSync(folder);
}

function makeFolder(folder: string): void {
  const made = missingFolders(path.join(folder, '-'));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const top = made.at(-1);
  if (top === undefined || process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(path.dirname(top));
  for (const each of made) lchownSync(each, uid, gid);
}
