/**
 * Cleans up after a test run: `node cleaner.mjs FOLDER` waits for the end of its input, which also comes if the run is
 * killed. Then it ends the processes of the run, which have the folder in their environment, and removes the folder.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';

const folder = process.argv[2] ?? '';

/** Processes that end by themselves get this time, ms. */
const PATIENCE_MS = 2_000;

/** Returns the processes of the run, by pid, with their command lines. */
function processesOfRun() {
  const found = new Map();
  if (!existsSync('/proc')) return found;
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    try {
      if (!readFileSync(`/proc/${name}/environ`, 'latin1').includes(folder)) continue;
      found.set(Number(name), readFileSync(`/proc/${name}/cmdline`, 'latin1').replaceAll('\0', ' ').trim());
    } catch {
      // It has ended, or it belongs to another user.
    }
  }
  return found;
}

function cleanUp() {
  for (const [pid, command] of processesOfRun()) {
    // A zombie has no command line.
    if (command === '') continue;
    process.stderr.write(`A process outlived the tests and is ended: ${pid} ${command.slice(0, 200)}\n`);
    try {
      process.kill(pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  }
  // Fails if nothing is mounted. Lazily, because a process that ends later may have a file open.
  spawnSync('umount', ['-l', folder], { stdio: 'ignore' });
  rmSync(folder, { recursive: true, force: true });
}

process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);
process.stdin.resume();
process.stdin.on('end', () => {
  const until = Date.now() + PATIENCE_MS;
  const look = () => {
    if (processesOfRun().size > 0 && Date.now() < until) setTimeout(look, 50);
    else cleanUp();
  };
  look();
});
