/** Owns putting a file of a project in its place as one step, with the owner and the rights that it shall have; refuses to leave half of it. */
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

/** Runs work, and tells which files of a project it wrote, in their order. */
export async function captureWrites<T>(
  work: () => Promise<T> | T,
): Promise<{ readonly result: T; readonly writes: readonly Replaced[] }> {
  const writes: Replaced[] = [];
  const result = await captures.run(writes, async () => work());
  return { result, writes };
}

/** Does a write that is captured, with what lay there right before it. */
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

/** Of files that are new: they may name what a person would not tell everybody. */
const MODE = 0o600;

/**
 * Writes a file: whoever reads meanwhile meets the old text or the new one. Its mode stays, unless another is given; a new one is its
 * owner's alone. Started as root, it keeps its owner, and a new one gets that of its folder. Throws what the system throws, and then nothing has changed.
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
      // Through the open file: a name could be made a link meanwhile by whoever owns the folder.
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

/** The folders on the way to a file that are not there, the deepest first. */
export function missingFolders(file: string): readonly string[] {
  const folder = path.dirname(file);
  return existsSync(folder) ? [] : [folder, ...missingFolders(folder)];
}

/** Leaves no folder behind that was made for nothing. */
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
