/** Finds the files that a program needs to run: itself, its package and its interpreter. Never returns a whole home. */
import { existsSync, opendirSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { isProgram, searchFolders } from '../../catalogs/programs/helper-programs.ts';
import { isTooBroadFolder } from './visible-paths.ts';

/** Folders of the system that every sandbox sees, read-only. */
export const SYSTEM_FOLDERS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'] as const;

/** Folders that many programs and users share. */
const SHARED = new Set(['/', '/root', '/tmp', '/var', '/var/tmp', '/opt', '/srv', '/etc', '/home']);

/** Options before a script that is loaded ahead of the main script. */
const PRELOAD = /^(?:-r|--require|--import|--loader|--experimental-loader)$/;

/** Returns true for an argument that names a file of code. */
export function isScript(argument: string): boolean {
  return /\.(?:[cm]?[jt]s|py|pyz|rb|pl|sh|jar|wasm)$/.test(argument);
}

/** Returns the program's file, or undefined. Searches only those folders of PATH that agents may not write. */
export function findProgram(command: string, from: string): string | undefined {
  const candidates = command.includes('/')
    ? [path.resolve(from, command)]
    : searchFolders().map((folder) => path.join(folder, command));
  return candidates.find(isProgram);
}

/**
 * Returns what a program needs outside of the system's folders, and the Node that runs Tollgate: scripts can name it in
 * their first line.
 */
export function programFiles(program: string, args: readonly string[], cwd: string): readonly string[] {
  return outsideSystem([...ownProgramFiles(program, args, cwd), ...withPackage(process.execPath)]);
}

/**
 * Returns a program's own files and folders outside of the system's folders: the program, its main script, the packages
 * of both, and the other scripts among its arguments. The other scripts come without their packages: naming a file must
 * not make its project visible.
 */
export function ownProgramFiles(program: string, args: readonly string[], cwd: string): readonly string[] {
  const absolute = (arg: string): string => path.resolve(cwd, arg);
  const isExistingScript = (arg: string): boolean => isScript(arg) && existsSync(absolute(arg));
  const main = args.find((arg, index) => isExistingScript(arg) && !PRELOAD.test(args[index - 1] ?? ''));
  const others = args.filter((arg) => arg !== main && isExistingScript(arg)).flatMap((arg) => bothNames(absolute(arg)));
  return outsideSystem([
    ...withPackage(program),
    ...(main === undefined ? [] : withPackage(absolute(main))),
    ...others,
  ]);
}

function outsideSystem(files: readonly string[]): readonly string[] {
  return [...new Set(files)].filter((file) => !isSystemFile(file));
}

function withPackage(file: string): readonly string[] {
  return bothNames(file).flatMap((one) => [one, ...packageOf(one)]);
}

/** The name, and the file behind a link. */
function bothNames(file: string): readonly string[] {
  return [file, realpathSync(file)];
}

/** Returns true if the file lies in a folder of the system. */
export function isSystemFile(file: string): boolean {
  return SYSTEM_FOLDERS.some((folder) => file === folder || file.startsWith(`${folder}/`));
}

/**
 * Returns the folders that a file was installed with: a Node, a Python environment, or a package and the packages
 * around it.
 */
function packageOf(file: string): readonly string[] {
  const folder = path.dirname(file);
  const prefix = path.dirname(folder);
  const isEnvironment = existsSync(path.join(prefix, 'lib/node_modules')) || hasFile(path.join(prefix, 'pyvenv.cfg'));
  if (path.basename(folder) === 'bin' && isEnvironment) return isTooBroadFolder(prefix) ? [] : [prefix];
  const parts = file.split('/');
  const installed = parts.indexOf('node_modules');
  if (installed > 0) return [parts.slice(0, installed + 1).join('/')];
  const own = ancestors(folder).find((parent) =>
    ['package.json', 'pyproject.toml'].some((name) => hasFile(path.join(parent, name))),
  );
  const around = ancestors(folder)
    .map((parent) => path.join(parent, 'node_modules'))
    .filter(isFilled);
  return own === undefined || isHome(own) ? around : [own, ...around];
}

/**
 * Returns true for a file. While a sandbox runs, an empty folder can stand in the place of a closed file that does not
 * exist.
 */
export function hasFile(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isFile() === true;
}

function isFilled(folder: string): boolean {
  try {
    const opened = opendirSync(folder);
    const isEmpty = opened.readSync() === null;
    opened.closeSync();
    return !isEmpty;
  } catch {
    return false;
  }
}

function ancestors(folder: string): readonly string[] {
  const parent = path.dirname(folder);
  return parent === folder ? [] : [folder, ...ancestors(parent)];
}

/** Returns true for a folder that is no package, even if a package.json lies in it. */
function isHome(folder: string): boolean {
  return isTooBroadFolder(folder) || path.dirname(folder) === '/home' || SHARED.has(folder);
}
