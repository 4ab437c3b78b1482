/**
 * Finds the programs that Tollgate runs for itself: at a path that the owner named, or in folders that only the system
 * can change.
 */
import { accessSync, constants, lstatSync, readlinkSync, statSync } from 'node:fs';
import path from 'node:path';
import { unlessUnreadable } from '../readers/missing-files.ts';
import { isPathWithin, realOrAbsolute } from '../readers/path-location.ts';

/** Every program that `programs` in tollgate.yaml may name. */
export const HELPER_NAMES = [
  'bash',
  'bwrap',
  'docker',
  'git',
  'notify-send',
  'npm',
  'opa',
  'podman',
  'prlimit',
  'python3',
  'rg',
  'setpriv',
  'socat',
  'unshare',
  'xdg-open',
] as const;

export type HelperName = (typeof HELPER_NAMES)[number];

/** The owner's settings for helper programs. */
export interface HelperSettings {
  /** Absolute paths. A named helper is searched for nowhere else. */
  readonly programs: Readonly<Partial<Record<HelperName, string>>>;
  /** Folders that agents may write, absolute. Nothing in them is run. */
  readonly writable: readonly string[];
}

/** The path of a helper, or why the one that was found is not run. Empty if the helper was not found. */
export interface FoundHelper {
  readonly file?: string;
  readonly refused?: string;
}

const FOLDERS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'] as const;
/** The PATH of every helper, without folders that agents may write. */
export const HELPER_PATH = FOLDERS.join(':');
const MAX_LINKS = 40;
const OTHERS_WRITE = 0o022;

/** The settings in force, by tenant; those of the process itself under ''. */
const inForce = new Map<string, HelperSettings>();
let settings: HelperSettings = { programs: {}, writable: [] };
/** Helpers in system folders. Only the system could change them, so each is found once. */
const known = new Map<string, FoundHelper>();

/**
 * Sets the owner's settings for this process. Call it with each configuration that comes into force. A tenant names no
 * programs, and nothing that agents of any tenant may write is run.
 */
export function useHelpers(next: HelperSettings, tenant = ''): void {
  inForce.set(tenant, next);
  const writable = [...inForce.values()].flatMap((one) => one.writable);
  settings = {
    programs: inForce.get('')?.programs ?? {},
    writable: writable.flatMap((folder) => [folder, realOrAbsolute(folder)]),
  };
  known.clear();
}

/** Returns the absolute path of a helper that may be run; undefined if there is none. */
export function findHelper(name: HelperName): string | undefined {
  return locateHelper(name).file;
}

/** Returns true if the owner named its path. */
export function isHelperNamed(name: HelperName): boolean {
  return settings.programs[name] !== undefined;
}

/** As `findHelper`, with the reason why a program was refused. */
export function locateHelper(name: HelperName): FoundHelper {
  const named = settings.programs[name];
  if (named !== undefined) return checkNamedHelper(named);
  const before = known.get(name);
  if (before !== undefined) return before;
  const found = FOLDERS.map((folder) => path.join(folder, name))
    .filter(isProgram)
    .map(lookAtSystem);
  const best = found.find(({ file }) => file !== undefined) ?? found[0] ?? {};
  if (best.file !== undefined) known.set(name, best);
  return best;
}

/**
 * Checks a program that the owner named by its absolute path. Call it before each use, because a link may have been
 * changed since.
 */
export function checkNamedHelper(file: string): FoundHelper {
  if (!isProgram(file)) return { refused: `${file} is not a program` };
  return isAgentWritable(file) ? { refused: `${file} is in a folder that agents may write` } : { file };
}

/** Returns true for a path of which a folder or the end is in a folder that agents may write. */
export function isAgentWritable(file: string): boolean {
  return isWithinAny(file, settings.writable);
}

/** Returns the innermost folder that agents may write and that contains a real path; undefined if there is none. */
export function writableRootOf(file: string): string | undefined {
  return settings.writable
    .filter((root) => isPathWithin(file, root))
    .sort((one, other) => other.length - one.length)[0];
}

/** Returns true for a path of which a folder, a link or the end is in one of the folders. */
export function isWithinAny(file: string, folders: readonly string[]): boolean {
  const steps = [path.resolve(file), ...(stepsTo(file) ?? [file])];
  return steps.some((step) => folders.some((folder) => isPathWithin(step, folder)));
}

/** Returns the links on the way to a path, each with its real folder. */
export function linksTo(file: string): readonly string[] {
  return (stepsTo(file) ?? []).filter((step) => linkAt(step) !== undefined);
}

/** Returns the absolute folders of the PATH of this process in which agents may not write. */
export function searchFolders(): readonly string[] {
  return (process.env.PATH ?? '').split(':').filter((folder) => folder.startsWith('/') && !isAgentWritable(folder));
}

function lookAtSystem(file: string): FoundHelper {
  const steps = stepsTo(file);
  if (steps === undefined) return { refused: `${file} cannot be resolved` };
  const open = steps.find((step) => !isOfSystemAlone(step));
  // The real path, because its folder may be closed to the user that a sandbox runs as. A program that acts by its name
  // keeps the name.
  const real = steps.at(-1) ?? file;
  if (open === undefined) return { file: path.basename(real) === path.basename(file) ? real : file };
  return { refused: `${open} does not belong only to root` };
}

/** A link cannot be changed. It is as safe as its folder, which is checked too. */
function isOfSystemAlone(file: string): boolean {
  const found = lstatSync(file);
  return found.isSymbolicLink() || (found.uid === 0 && (found.mode & OTHERS_WRITE) === 0);
}

/**
 * Returns every folder and link on the way to a path, and last its target, which need not exist; undefined for a
 * circle.
 */
function stepsTo(file: string): readonly string[] | undefined {
  const steps = ['/'];
  let rest = path
    .resolve(file)
    .split('/')
    .filter((name) => name !== '');
  let at = '/';
  for (let links = 0; rest.length > 0; ) {
    const [name = '', ...after] = rest;
    const next = name === '..' ? path.dirname(at) : path.join(at, name);
    const target = linkAt(next);
    steps.push(next);
    rest = after;
    if (target === undefined) {
      at = next;
      continue;
    }
    if ((links += 1) > MAX_LINKS) return undefined;
    if (target.startsWith('/')) at = '/';
    rest = [...target.split('/').filter((part) => part !== '' && part !== '.'), ...after];
  }
  return steps;
}

function linkAt(file: string): string | undefined {
  return unlessUnreadable(() => readlinkSync(file));
}

/** Returns true for a file that this process may execute. Follows links; throws nothing. */
export function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
