/**
 * Prepares a test run: what its files ask for (real servers with `opa`, a container engine), programs for sandboxes and
 * search, and one folder for temporary files. A process of its own cleans up when the run ends, however it ends.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, mkdtempSync, symlinkSync } from 'node:fs';
import { tmpdir, totalmem } from 'node:os';
import path from 'node:path';
import type { TestProject } from 'vitest/node';
import { ownControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { installEngine } from '../servers/engine.ts';
import { installServers } from '../servers/install.ts';
import { installSystem } from '../servers/system.ts';
import { namesOneOf } from './test-imports.ts';

/** Who names these asks for the real servers, or for `opa`, which is installed with them. */
const SERVERS = /node_modules|\bopa\b|rego|Rego|python/;
const ENGINE = /podman|TOLLGATE_TEST_IMAGE|isolation: ?container/;

const say = (line: string): boolean => process.stderr.write(`${line}\n`);

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const files = project.vitest.state.getPaths();
  try {
    installSystem(say);
    const wantsServers = namesOneOf(files, SERVERS);
    if (wantsServers) await installServers(say);
    if (namesOneOf(files, ENGINE)) prepareEngine();
    const folder = ownFolder();
    if (wantsServers) findPython(path.join(folder, 'bin'));
    const cleanUp = startCleaner(folder);
    return async () => {
      // The first check removes the control groups of killed facades.
      await ownControlGroups();
      await cleanUp();
    };
  } catch (thrown) {
    // Vitest would print the stack of a fault of the machine.
    say(`The tests cannot start: ${(thrown as Error).message}`);
    process.exit(2);
  }
}

/** Without an engine, tests in containers are skipped with that reason: they find no name of an image. */
function prepareEngine(): void {
  try {
    installEngine(say);
  } catch (thrown) {
    process.env.TOLLGATE_TEST_IMAGE = '';
    say(`There is no container engine: ${(thrown as Error).message.trim().split('\n')[0]}`);
  }
}

/** Machines with less memory keep temporary files on the disk, bytes. */
const LEAST_MEMORY = 6 * 1_073_741_824;

/**
 * Makes the folder for temporary files of everything that runs from now on. Its name is short because sockets are in it,
 * and other users of the tests can write to it. It is in memory if it may: the tests make thousands of logs and
 * databases, and each syncs its files. On a disk, most of their time is waiting for it.
 */
function ownFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'tg'));
  if (process.platform === 'linux' && totalmem() >= LEAST_MEMORY)
    spawnSync('mount', ['-t', 'tmpfs', '-o', 'mode=1777', 'tollgate-tests', folder], { stdio: 'ignore' });
  chmodSync(folder, 0o1777);
  mkdirSync(path.join(folder, 'bin'));
  process.env.PATH = `${path.join(folder, 'bin')}${path.delimiter}${process.env.PATH ?? ''}`;
  process.env.TMPDIR = folder;
  return folder;
}

/**
 * Puts the real Python first on the PATH. Some servers ask for its version at every call, and the shim of a version
 * manager takes half a second.
 */
function findPython(bin: string): void {
  const { status, stdout } = spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' });
  if (status === 0) symlinkSync(stdout.trim(), path.join(bin, 'python3'));
}

/**
 * Starts the process that removes the folder, and ends what still runs with it in its environment, when this process
 * ends or the returned function is called. Its output names the processes that it had to end.
 */
function startCleaner(folder: string): () => Promise<void> {
  const cleaner = spawn(process.execPath, [path.join(import.meta.dirname, 'cleaner.mjs'), folder], {
    stdio: ['pipe', 'inherit', 'inherit'],
    detached: true,
    cwd: '/',
  });
  return async () => {
    const ended = once(cleaner, 'exit');
    cleaner.stdin?.end();
    await ended;
  };
}
