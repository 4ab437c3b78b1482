/** Owns which files a program needs to run at all: itself, its package, its interpreter; refuses to give whole homes for it. */
import { existsSync, opendirSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { isProgram, searchFolders } from '../../catalogs/programs/helper-programs.ts';
import { isTooBroadFolder } from './visible-paths.ts';

/** Folders of the system that every sandbox sees, read-only. */
export const SYSTEM_FOLDERS = ['/usr', '/bin', '/sbin', '/lib', '/lib32', '/lib64', '/libx32'] as const;

const SHARED: ReadonlySet<string> = new Set([
  '/',
  '/root',
  '/tmp',
  '/var',
  '/var/tmp',
  '/opt',
  '/srv',
  '/etc',
  '/home',
]);

const SCRIPT = /\.(?:[cm]?[jt]s|py|pyz|rb|pl|sh|jar|wasm)$/;

/** True for an argument that names a file of code. */
export function isScript(argument: string): boolean {
  return SCRIPT.test(argument);
}

/** The program's file, as the PATH of this process finds it in folders that agents may not write; undefined when there is none. */
export function findProgram(command: string, from: string): string | undefined {
  const candidates = command.includes('/')
    ? [path.resolve(from, command)]
    : searchFolders().map((folder) => path.join(folder, command));
  return candidates.find(isProgram);
}

/** Files and folders beside the system's that a program needs: its own, and the Node that runs us, which scripts may name in their first line. */
export function programFiles(program: string, args: readonly string[], cwd: string): readonly string[] {
  return [...new Set([...ownProgramFiles(program, args, cwd), ...withPackage(process.execPath)])].filter(
    (file) => !isSystemFile(file),
  );
}

/**
 * A program's own files and folders beside the system's: itself (behind links too), its package with what is installed for it, the
 * same of its main script, and the other scripts among its arguments alone: to name a file of a project is not to be given the project.
 */
export function ownProgramFiles(program: string, args: readonly string[], cwd: string): readonly string[] {
  const place = (arg: string): string => path.resolve(cwd, arg);
  const isThere = (arg: string): boolean => isScript(arg) && existsSync(place(arg));
  const main = args.find((arg, index) => isThere(arg) && !PRELOAD.test(args[index - 1] ?? ''));
  const others = args
    .filter((arg) => arg !== main && isThere(arg))
    .map(place)
    .flatMap(bothNames);
  return [
    ...new Set([...withPackage(program), ...(main === undefined ? [] : withPackage(place(main))), ...others]),
  ].filter((file) => !isSystemFile(file));
}

/** Flags before a script that is loaded ahead of the main one. */
const PRELOAD = /^(?:-r|--require|--import|--loader|--experimental-loader)$/;

function withPackage(file: string): readonly string[] {
  return bothNames(file).flatMap((one) => [one, ...packageOf(one)]);
}

function bothNames(file: string): readonly string[] {
  return [file, realpathSync(file)];
}

/** True when the system folders hold it already. */
export function isSystemFile(file: string): boolean {
  return SYSTEM_FOLDERS.some((folder) => file === folder || file.startsWith(`${folder}/`));
}

/** The folder that a file was installed with: a Node, a Python environment, a package and the packages around it. */
function packageOf(file: string): readonly string[] {
  const folder = path.dirname(file);
  const prefix = path.dirname(folder);
  if (
    path.basename(folder) === 'bin' &&
    (existsSync(path.join(prefix, 'lib/node_modules')) || hasFile(path.join(prefix, 'pyvenv.cfg')))
  )
    return isTooBroadFolder(prefix) ? [] : [prefix];
  const parts = file.split('/');
  const installed = parts.indexOf('node_modules');
  if (installed > 0) return [parts.slice(0, installed + 1).join('/')];
  const own = ancestors(folder).find(
    (parent) => hasFile(path.join(parent, 'package.json')) || hasFile(path.join(parent, 'pyproject.toml')),
  );
  const around = ancestors(folder)
    .map((parent) => path.join(parent, 'node_modules'))
    .filter(isFilled);
  return own === undefined || isHome(own) ? around : [own, ...around];
}

/** True for a file. While a program runs, an empty folder may hold a closed name that does not exist. */
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

/** A stray package.json in a home, above it, or in a folder that many share does not make it a package. */
function isHome(folder: string): boolean {
  return isTooBroadFolder(folder) || path.dirname(folder) === '/home' || SHARED.has(folder);
}
