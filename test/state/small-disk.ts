/** Owns a disk of its own for a test, small enough to be filled to the last byte. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';

const FILLER = 'filler';

/** Mounts a disk of 1 MiB in memory at a folder. */
export function mountSmallDisk(folder: string): void {
  mkdirSync(folder, { recursive: true });
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m,mode=700', 'tmpfs', folder]);
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
