/** Owns what stands before any test runs: the real servers, the real `opa`, what sandboxes and search are made with, and one folder for all that tests write, which goes with them. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
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
    // The first look removes the control groups that killed facades left.
    await ownControlGroups();
  };
}

/** Gives all that runs from here on a folder for what is temporary; the answer removes it. Its name is short: sockets lie in it, and other users of tests write to it. */
function ownFolder(): () => void {
  const folder = mkdtempSync(path.join(tmpdir(), 'tg'));
  chmodSync(folder, 0o1777);
  process.env.TMPDIR = folder;
  findPython(path.join(folder, 'bin'));
  return () => rmSync(folder, { recursive: true, force: true });
}

/** Python first on the PATH as it is: servers of others ask for its version at every call, and a version manager's shim takes half a second to answer. */
function findPython(bin: string): void {
  const { status, stdout } = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' });
  if (status !== 0) return;
  mkdirSync(bin);
  symlinkSync(stdout.trim(), path.join(bin, 'python3'));
  process.env.PATH = `${bin}${path.delimiter}${process.env.PATH ?? ''}`;
}
