/** A small disk for a test, which can be filled completely. */
import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, rmdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const FILLER = 'filler';
/** Why a test with a small disk is skipped. */
export const NO_DISKS = 'Small disks cannot be mounted here.';

let areDisksMounted: boolean | undefined;

/** Returns whether this user may mount disks on this machine. */
export function canMountDisks(): boolean {
  if (areDisksMounted !== undefined) return areDisksMounted;
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-mount-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', 'tmpfs', folder], { stdio: 'ignore' });
    unmount(folder);
    areDisksMounted = true;
  } catch {
    areDisksMounted = false;
  }
  rmdirSync(folder);
  return areDisksMounted;
}

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
  if (areDisksMounted === false) return;
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
