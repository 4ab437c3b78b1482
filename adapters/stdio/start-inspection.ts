/** Owns the look at the files that a server would run: its program and every file that its words name, with digests; runs none of them, and refuses to guess at those of a container's image. */
import { realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { outermostPaths } from '../sandbox/closed-paths/closure-mounts.ts';
import { findProgram, ownProgramFiles } from '../sandbox/program-files.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { type DigestStore, digestStartFile, type FileDigest } from './file-digests.ts';
import { openRegularFile } from './regular-file.ts';
import { digestPlaces, type PlaceDigest, startPlaces } from './start-places.ts';
import { findNamedFiles, hasCodeExtension, type NamedFile } from './start-words.ts';

/** The files behind a command. */
export interface StartFiles {
  /** Real path of the folder it starts in. */
  readonly folder: string;
  /** Absent when there is no such program here. */
  readonly program?: FileDigest;
  /** Files among the arguments, and what the program reads from its folder to know what to run. */
  readonly scripts: readonly FileDigest[];
  /** Files among the arguments that the server itself writes: what is in them is none of it. */
  readonly data?: readonly string[];
  /** Folders that a sandbox gives it to read although `allowRead` does not name them: its package, that of its main script, `cwd`. */
  readonly given?: readonly string[];
  /** Name of a program that runs what no file above holds. */
  readonly unbound?: string;
  /** What it loads from places that agents may write, besides those files. */
  readonly places?: readonly PlaceDigest[];
  /** Why it cannot be bound to what it loads. */
  readonly exposed?: string;
  /** The script that it is told to run and that is not there, as it is written. */
  readonly gone?: string;
}

/** `folder` is where a program starts whose settings name none; `store` spares reading large files that have not changed. */
export type StartInspector = (
  settings: Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'> &
    Partial<Pick<ServerSettings, 'env' | 'sandbox'>>,
  folder: string,
  store?: DigestStore,
) => Promise<StartFiles>;

/** What a server keeps; anything else that it is given, settings above all, decides what it does. */
const DATA = /\.(?:db|db3|sqlite|sqlite3|duckdb|log|jsonl|ndjson|pid|lock)$/i;
/** Programs are read whole, whatever their size. */
const LARGE = 64n * 1024n * 1024n;

/** Reads what a start would run. Never throws for a file that is not there. */
export const inspectStart: StartInspector = async (
  { command = '', args, cwd, isolation, env = {}, sandbox },
  folder,
  store,
) => {
  const place = await realOf(cwd ?? folder);
  const found = isolation === 'container' ? undefined : findProgram(command, place);
  const program = found === undefined ? undefined : await digestStartFile(found, { store });
  const { files, unbound, gone } = findNamedFiles(command, args, place);
  const writable = isolation === 'direct' ? [] : await Promise.all((sandbox?.filesystem.allowWrite ?? []).map(realOf));
  const scripts = new Map<string, FileDigest>();
  const data = new Set<string>();
  for (const named of [...files, ...(await loadedBy(env, place))]) {
    const real = await realOf(named.file);
    if (!named.mayRun && (await isData(real, writable))) data.add(real);
    else if (!scripts.has(real)) await noteFact(scripts, real, store);
  }
  for (const file of scripts.keys()) data.delete(file);
  const places = startPlaces(
    {
      command,
      args,
      ...(cwd !== undefined && { cwd }),
      ...(isolation !== undefined && { isolation }),
      ...(sandbox !== undefined && { sandbox }),
    },
    folder,
  );
  const loaded = await digestPlaces(places);
  const exposed =
    places.exposed ??
    (loaded === undefined
      ? 'the packages that it loads from folders that agents may write are too large to be read at each start'
      : undefined);
  const given =
    found === undefined || isolation === 'direct'
      ? []
      : await foldersOf([...(cwd === undefined ? [] : [place]), ...ownProgramFiles(found, args, place)]);
  return {
    folder: place,
    ...(program !== undefined && { program }),
    scripts: [...scripts.values()],
    ...(data.size > 0 && { data: [...data] }),
    ...(given.length > 0 && { given }),
    ...(loaded !== undefined && loaded.length > 0 && { places: loaded }),
    ...(exposed !== undefined && { exposed }),
    ...(isolation !== 'container' && {
      ...(unbound !== undefined && { unbound }),
      ...(gone !== undefined && { gone }),
    }),
  };
};

async function foldersOf(files: readonly string[]): Promise<readonly string[]> {
  const isFolder = await Promise.all(
    files.map((file) =>
      stat(file).then(
        (found) => found.isDirectory(),
        () => false,
      ),
    ),
  );
  return outermostPaths(files.filter((_, index) => isFolder[index]));
}

async function noteFact(facts: Map<string, FileDigest>, file: string, store?: DigestStore): Promise<void> {
  const fact = await digestStartFile(file, { most: LARGE, store });
  if (fact !== undefined) facts.set(file, fact);
}

/** Code that variables name (a module to be loaded first); what else they name is data, or not there yet. */
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

/** A file in a folder that the sandbox lets it write, and a database or a log wherever it is; never one that looks like code. */
async function isData(file: string, writable: readonly string[]): Promise<boolean> {
  const isOwn = DATA.test(file) || writable.some((folder) => file === folder || file.startsWith(`${folder}/`));
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

async function realOf(folder: string): Promise<string> {
  return realpath(folder).catch(() => path.resolve(folder));
}
