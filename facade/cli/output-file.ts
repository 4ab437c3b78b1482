/** Owns how a command writes a file that it was asked for: the folders above it, then the file; refuses with USAGE what the file system refuses. */
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { capturing } from '../config/reading/file-replacement.ts';
import { printable } from './print.ts';

/** A file to write. `shown` is its name as the user wrote it; `isNew`: what is there already is never replaced. */
export interface WrittenFile {
  readonly file: string;
  readonly shown: string;
  readonly content: string | Uint8Array;
  readonly isNew?: true;
  /** The folder must be there: one that is made by mistake hides a slip in a name. */
  readonly isBeside?: true;
}

/** Writes a file, and the folders that it lies in. False when it was to be new and something is there, a dangling link too. Throws USAGE. */
export function writeAsked({ file, shown, content, isNew, isBeside }: WrittenFile): boolean {
  let isMade = false;
  try {
    if (isBeside !== true) makeFolder(path.dirname(file));
    isMade = true;
    capturing(file, content.toString(), () => writeFileSync(file, content, { flag: isNew === true ? 'wx' : 'w' }));
    return true;
  } catch (cause) {
    if (isMade && isNew === true && (cause as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw new TollgateError('USAGE', {
      detail: `${printable(shown)} cannot be written: ${reasonOf(cause)}.`,
      next: 'Name another place.',
      cause,
    });
  }
}

/** One folder at a time: asked for all of them, Node never ends where a file system takes no folders, such as /proc. */
function makeFolder(folder: string): void {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return;
  if (path.dirname(folder) !== folder) makeFolder(path.dirname(folder));
  mkdirSync(folder);
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'it is not permitted',
  EPERM: 'it is not permitted',
  EROFS: 'the file system is read-only',
  ENOSPC: 'the disk is full',
  EEXIST: 'a file stands in the way',
  ENOTDIR: 'a file stands in the way',
  EISDIR: 'it is a folder',
  ENOENT: 'there is no such folder',
};

function reasonOf(cause: unknown): string {
  return REASONS[(cause as NodeJS.ErrnoException).code ?? ''] ?? 'the file system refuses';
}
