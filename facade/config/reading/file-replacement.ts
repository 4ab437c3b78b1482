/** Replaces a file in one step, with the right owner and permissions. Readers never see a part of the new text. */
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

/** A file that a command wrote. Without `after` it was removed, without `before` it is new. */
export interface Replaced {
  readonly file: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

const captures = new AsyncLocalStorage<Replaced[]>();

/** Runs work, and returns its result and the files that it wrote, in order. */
export async function captureWrites<T>(
  work: () => Promise<T> | T,
): Promise<{ readonly result: T; readonly writes: readonly Replaced[] }> {
  const writes: Replaced[] = [];
  const result = await captures.run(writes, async () => work());
  return { result, writes };
}

/** Runs a write, and adds it with the content before it to a surrounding `captureWrites`. */
export function captureWrite<T>(file: string, after: string | undefined, write: () => T): T {
  const capture = captures.getStore();
  const before = capture === undefined ? undefined : textOf(file);
  const result = write();
  capture?.push({ file, before, after });
  return result;
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** The mode of new files, which may contain private settings. */
const MODE = 0o600;

/**
 * Writes a file in one step. The file keeps its mode unless `mode` is given; a new file is private. As root, the file
 * keeps its owner, and a new file gets the owner of its folder. Throws errors of the file system; then nothing has
 * changed.
 */
export function replaceFile(file: string, text: string, mode?: number): void {
  captureWrite(file, text, () => writeAndRename(file, text, mode));
}

function writeAndRename(file: string, text: string, mode?: number): void {
  createFolder(path.dirname(file));
  const before = lstatSync(file, { throwIfNoEntry: false });
  const draft = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    const opened = openSync(draft, 'wx', MODE);
    try {
      writeFileSync(opened, text);
      const owner = before ?? statSync(path.dirname(file));
      // Uses the open file, because the owner of the folder could replace the name by a link meanwhile.
      if (process.getuid?.() === 0) fchownSync(opened, owner.uid, owner.gid);
      fchmodSync(opened, mode ?? (before === undefined ? MODE : before.mode & 0o777));
      fsyncSync(opened);
    } finally {
      closeSync(opened);
    }
    renameSync(draft, file);
  } catch (thrown) {
    rmSync(draft, { force: true });
    throw thrown;
  }
}

/** Returns the missing folders on the way to a file, the deepest first. */
export function missingFolders(file: string): readonly string[] {
  const folder = path.dirname(file);
  return existsSync(folder) ? [] : [folder, ...missingFolders(folder)];
}

/** Removes a folder if it is empty. */
export function removeIfEmpty(folder: string): void {
  if (existsSync(folder) && readdirSync(folder).length === 0) rmdirSync(folder);
}

function createFolder(folder: string): void {
  const made = missingFolders(path.join(folder, '-'));
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const top = made.at(-1);
  if (top === undefined || process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(path.dirname(top));
  for (const each of made) lchownSync(each, uid, gid);
}
