/** Finds the system programs that tests and the demo need, and installs them where it may. It throws without them. */
import { spawnSync } from 'node:child_process';
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  lchownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Programs, each with its package on Debian and Ubuntu. */
const PROGRAMS: readonly (readonly [program: string, pack: string])[] = [
  ['bwrap', 'bubblewrap'],
  ['socat', 'socat'],
  ['rg', 'ripgrep'],
  ['python3', 'python3-venv'],
];

/**
 * Installs with apt the programs that sandboxes and search need. Throws with the command to run if one is still
 * missing, because no test may pass without a sandbox.
 */
export function installSystem(say: (line: string) => void): void {
  installPrograms(PROGRAMS, say);
}

/**
 * Installs the missing programs with apt. It uses existing package lists first, which saves seconds. Throws as
 * `installSystem`.
 */
export function installPrograms(
  programs: readonly (readonly [program: string, pack: string])[],
  say: (line: string) => void,
): void {
  const missing = (): readonly string[] => programs.filter(([program]) => !isThere(program)).map(([, pack]) => pack);
  if (missing().length === 0) return;
  say(`installing ${missing().join(', ')} with apt`);
  const apt = (...words: readonly string[]): number | null =>
    spawnSync('apt-get', words, { stdio: 'ignore', env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' } }).status;
  // Another test run may be installing now.
  const install = ['install', '-y', '-qq', '--no-install-recommends', '-o', 'DPkg::Lock::Timeout=120', ...missing()];
  if (apt(...install) !== 0) {
    apt('update', '-qq');
    apt(...install);
  }
  const left = missing();
  if (left.length > 0)
    throw new Error(
      `${left.join(', ')} could not be installed; install by hand: sudo apt-get install ${left.join(' ')}`,
    );
}

/**
 * Returns the path of a program of a package that is unpacked in a folder for temporary files, and not installed,
 * because its installation starts a service. Throws with the command to run if it cannot be had.
 */
export function unpackProgram(program: string, pack: string): string {
  if (isThere(program)) return program;
  const folder = path.join(tmpdir(), 'tollgate-programs');
  const found = path.join(folder, 'usr', 'bin', program);
  if (existsSync(found)) return found;
  const own = mkdtempSync(path.join(tmpdir(), 'tollgate-unpack-'));
  const unpack = `apt-get download -qq ${pack} && dpkg-deb --fsys-tarfile ${pack}_*.deb | tar -x ./usr/bin/${program}`;
  const run = (command: string): boolean =>
    spawnSync('sh', ['-c', command], { cwd: own, stdio: 'ignore' }).status === 0;
  const done = run(unpack) || (run('apt-get update -qq') && run(unpack));
  // Another test run may have unpacked it meanwhile.
  if (done) mkdirSync(path.dirname(found), { recursive: true });
  if (done) renameSync(path.join(own, 'usr', 'bin', program), found);
  rmSync(own, { recursive: true, force: true });
  if (!done) throw new Error(`${program} could not be unpacked; install by hand: sudo apt-get install ${pack}`);
  return found;
}

function isThere(program: string): boolean {
  return [...(process.env.PATH ?? '').split(':'), '/usr/sbin'].some((folder) => isProgram(path.join(folder, program)));
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A user other than root, who owns files without another owner. */
const NOBODY = 65_534;

/**
 * Gives a folder that root made for a sandbox, with everything in it, to another user, because root cannot be isolated.
 * Links are not followed.
 */
export function giveAway(folder: string): void {
  if (process.getuid?.() !== 0) return;
  lchownSync(folder, NOBODY, NOBODY);
  chmodSync(folder, 0o755);
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true }))
    lchownSync(path.join(entry.parentPath, entry.name), NOBODY, NOBODY);
}
