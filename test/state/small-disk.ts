/** A small disk for a test, which can be filled completely. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';

const FILLER = 'filler';

/** Mounts a disk in memory at a folder. 1 MiB is less than the log of a database after long use. */
export function mountSmallDisk(folder: string, mebibytes = 1): void {
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m,mode=700`, 'tmpfs', folder]);
}

/** Makes a disk without open files read-only, or writable again. */
export function remount(folder: string, how: 'ro' | 'rw'): void {
  execFileSync('mount', ['-o', `remount,${how}`, folder]);
}

/** Unmounts lazily, because a closed database frees its memory when it is collected. */
export function unmount(folder: string): void {
  execFileSync('umount', ['-l', folder]);
}

/** Fills the disk to the last byte. */
export function fill(folder: string): void {
  for (const size of [65_536, 4096, 512, 1]) while (append(path.join(folder, FILLER), size));
}

/** Frees the space again. */
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
