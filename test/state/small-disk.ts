/** Owns a disk of its own for a test, small enough to be filled to the last byte. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';

const FILLER = 'filler';

/** Mounts a disk in memory at a folder; 1 MiB is less than the log of a database that is used for long. */
export function mountSmallDisk(folder: string, mebibytes = 1): void {
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m,mode=700`, 'tmpfs', folder]);
}

/** Lets a disk on which no file is open be read only, or be written to again. */
export function remount(folder: string, how: 'ro' | 'rw'): void {
  execFileSync('mount', ['-o', `remount,${how}`, folder]);
}

/** Lazily: a database that is closed gives its memory back when it is collected. */
export function unmount(folder: string): void {
  execFileSync('umount', ['-l', folder]);
}

/** Until not one byte goes in any more. */
export function fill(folder: string): void {
  for (const size of [65_536, 4096, 512, 1]) while (append(path.join(folder, FILLER), size));
}

/** Makes the room again. */
export function empty(folder: string): void {
  rmSync(path.join(folder, FILLER));
}

function append(file: string, size: number): boolean {
  try {
    appendFileSync(file, Buffer.alloc(size));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    return false;
  }
}
