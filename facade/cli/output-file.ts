/** Writes a file that the user asked for, and the folders above it. An error of the file system becomes USAGE. */
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { captureWrite } from '../config/reading/file-replacement.ts';
import { printable } from './print.ts';

/** A file to write. `shown`: its name as the user wrote it. `isNew`: never replace an existing file. */
export interface WrittenFile {
  readonly file: string;
  readonly shown: string;
  readonly content: string | Uint8Array;
  readonly isNew?: true;
  /** The folder must exist, because a new folder would hide a typing error in a name. */
  readonly isBeside?: true;
}

/**
 * Writes a file, and the folders above it. Returns false if `isNew` is set and something exists, even a dangling link.
 * Throws USAGE.
 */
export function writeAsked({ file, shown, content, isNew, isBeside }: WrittenFile): boolean {
  let isMade = false;
  try {
    if (isBeside !== true) makeFolder(path.dirname(file));
    isMade = true;
    captureWrite(file, content.toString(), () => writeFileSync(file, content, { flag: isNew === true ? 'wx' : 'w' }));
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

/**
 * Makes one folder at a time, because Node's recursive mkdir never ends in a file system that takes no folders, such as
 * /proc.
 */
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
  EEXIST: 'a file has this name already',
  ENOTDIR: 'a file has this name already',
  EISDIR: 'it is a folder',
  ENOENT: 'there is no such folder',
};

function reasonOf(cause: unknown): string {
  return REASONS[(cause as NodeJS.ErrnoException).code ?? ''] ?? 'the file system refuses it';
}
