/**
 * Prepares a test run: real servers, `opa`, programs for sandboxes and search, and one folder that is removed at the
 * end.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import { ownControlGroups } from '../adapters/sandbox/bubblewrap/control-group.ts';
import { installEngine } from './servers/engine.ts';
import { installServers } from './servers/install.ts';
import { installSystem } from './servers/system.ts';

export default async function setup(): Promise<() => Promise<void>> {
  const say = (line: string): boolean => process.stderr.write(`${line}\n`);
  await installServers(say);
  installSystem(say);
  installEngine(say);
  const removeFolder = ownFolder();
  return async () => {
    removeFolder();
    // The first check removes the control groups of killed facades.
    await ownControlGroups();
  };
}

/**
 * Sets the folder for temporary files of everything that runs from now on. The returned function removes it. Its name
 * is short because sockets are in it, and other users of the tests can write to it.
 */
function ownFolder(): () => void {
  const folder = mkdtempSync(path.join(tmpdir(), 'tg'));
  removeOldMounts();
  keepInMemory(folder);
  chmodSync(folder, 0o1777);
  process.env.TMPDIR = folder;
  findPython(path.join(folder, 'bin'));
  return () => {
    // Fails if nothing is mounted. Lazily, because a process that ends later may have a file open.
    spawnSync('umount', ['-l', folder], { stdio: 'ignore' });
    rmSync(folder, { recursive: true, force: true });
  };
}

/** Machines with less memory keep temporary files on the disk, bytes. */
const LEAST_MEMORY = 6 * 1_073_741_824;
/** The name of a mount, followed by the pid of its test run. */
const MOUNT = 'tollgate-tests-';

/**
 * Mounts a file system in memory at a folder if it may. The tests make thousands of logs and databases, and each syncs
 * its files: on a disk, most of their time is waiting for it.
 */
function keepInMemory(folder: string): void {
  if (process.platform !== 'linux' || totalmem() < LEAST_MEMORY) return;
  spawnSync('mount', ['-t', 'tmpfs', '-o', 'mode=1777', `${MOUNT}${process.pid}`, folder], { stdio: 'ignore' });
}

/** Unmounts what test runs left that were killed, because it keeps its memory. */
function removeOldMounts(): void {
  if (process.platform !== 'linux') return;
  for (const line of readFileSync('/proc/mounts', 'utf8').split('\n')) {
    const [name = '', folder = ''] = line.split(' ');
    if (!name.startsWith(MOUNT) || existsSync(`/proc/${name.slice(MOUNT.length)}`)) continue;
    spawnSync('umount', ['-l', folder], { stdio: 'ignore' });
  }
}

/**
 * Puts the real Python first on the PATH. Some servers ask for its version at every call, and the shim of a version
 * manager takes half a second.
 */
function findPython(bin: string): void {
  const { status, stdout } = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' });
  if (status !== 0) return;
  mkdirSync(bin);
  symlinkSync(stdout.trim(), path.join(bin, 'python3'));
  process.env.PATH = `${bin}${path.delimiter}${process.env.PATH ?? ''}`;
}
