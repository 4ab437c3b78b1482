/**
 * Reads the files that a start of a server would run, and computes their digests: its program and every file that its
 * command names. It runs none of them, and does not read the image of a container.
 */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { isPathWithin, realOrAbsolute } from '../../catalogs/readers/path-location.ts';
import { outermostPaths } from '../sandbox/closed-paths/closure-mounts.ts';
import { findProgram, ownProgramFiles } from '../sandbox/program-files.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { type DigestStore, digestStartFile, type FileDigest } from './file-digests.ts';
import { openRegularFile } from './regular-file.ts';
import { digestPlaces, type PlaceDigest, startPlaces } from './start-places.ts';
import { findNamedFiles, hasCodeExtension, type NamedFile } from './start-words.ts';

/** The files behind a command. */
export interface StartFiles {
  /** Real path of its working folder. */
  readonly folder: string;
  /** Absent if the program does not exist here. */
  readonly program?: FileDigest;
  /** Files among the arguments, and files of its folder that tell the program what to run. */
  readonly scripts: readonly FileDigest[];
  /** Files among the arguments that the server itself writes. Their content is not part of the digest. */
  readonly data?: readonly string[];
  /** Folders that a sandbox lets it read without `allowRead`: its package, the package of its main script, `cwd`. */
  readonly given?: readonly string[];
  /** Name of a program that runs code from none of these files. */
  readonly unbound?: string;
  /** Further files and folders that it loads from places that agents may write. */
  readonly places?: readonly PlaceDigest[];
  /** Why an approval cannot cover everything that it loads. */
  readonly exposed?: string;
  /** The script of the command that does not exist, as the command names it. */
  readonly gone?: string;
}

/**
 * `folder` is the working folder if the settings name none. `store` keeps digests, so that unchanged large files are
 * not read again.
 */
export type StartInspector = (
  settings: Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'> &
    Partial<Pick<ServerSettings, 'env' | 'sandbox'>>,
  folder: string,
  store?: DigestStore,
) => Promise<StartFiles>;

/** Data files of a server. Any other file, a settings file above all, decides what the server does. */
const DATA = /\.(?:db|db3|sqlite|sqlite3|duckdb|log|jsonl|ndjson|pid|lock)$/i;
/** Bytes of a file among the arguments that are read. Programs are read completely. */
const LARGE = 64n * 1024n * 1024n;
const TOO_LARGE =
  'the packages that it loads from folders that agents may write are too large to be read at each start';

/** Reads the files that a start would run. Never throws for a missing file. */
export const inspectStart: StartInspector = async (settings, folder, store) => {
  const { command = '', args, cwd, isolation } = settings;
  const place = realOrAbsolute(cwd ?? folder);
  const found = isolation === 'container' ? undefined : findProgram(command, place);
  const program = found === undefined ? undefined : await digestStartFile(found, { store });
  const { files, unbound, gone } = findNamedFiles(command, args, place);
  const { scripts, data } = await sortFiles(
    settings,
    [...files, ...(await loadedBy(settings.env ?? {}, place))],
    store,
  );
  const own = found === undefined || isolation === 'direct' ? undefined : ownProgramFiles(found, args, place);
  const given = own === undefined ? [] : await foldersOf(cwd === undefined ? own : [place, ...own]);
  return {
    folder: place,
    ...(program !== undefined && { program }),
    scripts,
    ...(data.length > 0 && { data }),
    ...(given.length > 0 && { given }),
    ...(await inspectPlaces(settings, folder)),
    ...(isolation !== 'container' && unbound !== undefined && { unbound }),
    ...(isolation !== 'container' && gone !== undefined && { gone }),
  };
};

async function inspectPlaces(
  settings: Parameters<StartInspector>[0],
  folder: string,
): Promise<Pick<StartFiles, 'places' | 'exposed'>> {
  const found = startPlaces(settings, folder);
  const places = await digestPlaces(found);
  const exposed = found.exposed ?? (places === undefined ? TOO_LARGE : undefined);
  return {
    ...(places !== undefined && places.length > 0 && { places }),
    ...(exposed !== undefined && { exposed }),
  };
}

/** Divides the named files into those that a start may run, with digests, and the data that the server writes. */
async function sortFiles(
  { isolation, sandbox }: Parameters<StartInspector>[0],
  files: readonly NamedFile[],
  store: DigestStore | undefined,
): Promise<{ readonly scripts: readonly FileDigest[]; readonly data: readonly string[] }> {
  const writable = isolation === 'direct' ? [] : (sandbox?.filesystem.allowWrite ?? []).map(realOrAbsolute);
  const scripts = new Map<string, FileDigest>();
  const data = new Set<string>();
  for (const { file, mayRun } of files) {
    const real = realOrAbsolute(file);
    if (!mayRun && (await isData(real, writable))) data.add(real);
    else if (!scripts.has(real)) await noteDigest(scripts, real, store);
  }
  return { scripts: [...scripts.values()], data: [...data].filter((file) => !scripts.has(file)) };
}

async function noteDigest(digests: Map<string, FileDigest>, file: string, store?: DigestStore): Promise<void> {
  const digest = await digestStartFile(file, { maxBytes: LARGE, store });
  if (digest !== undefined) digests.set(file, digest);
}

async function foldersOf(files: readonly string[]): Promise<readonly string[]> {
  const stats = await Promise.all(files.map((file) => stat(file).catch(() => undefined)));
  return outermostPaths(files.filter((_, index) => stats[index]?.isDirectory() === true));
}

/** Finds code files that environment variables name, such as modules to preload. Other files there are data. */
async function loadedBy(env: Readonly<Record<string, string>>, folder: string): Promise<readonly NamedFile[]> {
  const files = Object.values(env)
    .flatMap(fileTextsIn)
    .map(filePathOf)
    .filter((file) => file !== undefined)
    .map((file) => path.resolve(folder, file));
  const code = await Promise.all(
    [...new Set(files)].map(async (file) => ((await isCode(file)) ? [{ file, mayRun: true }] : [])),
  );
  return code.flat();
}

/**
 * Returns true for a file in a writable folder of the sandbox, and for a database or a log anywhere, unless it looks
 * like code.
 */
async function isData(file: string, writable: readonly string[]): Promise<boolean> {
  const isOwn = DATA.test(file) || writable.some((folder) => isPathWithin(file, folder));
  return isOwn && !(await isCode(file));
}

async function isCode(file: string): Promise<boolean> {
  try {
    const found = await stat(file);
    return (
      found.isFile() && (hasCodeExtension(file) || (found.mode & 0o111) !== 0 || (await firstBytes(file)) === '#!')
    );
  } catch {
    return false;
  }
}

async function firstBytes(file: string): Promise<string> {
  const handle = await openRegularFile(file);
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(2), 0, 2, 0);
    return buffer.subarray(0, bytesRead).toString('latin1');
  } finally {
    await handle.close();
  }
}
