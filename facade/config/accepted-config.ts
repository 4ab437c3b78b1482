/**
 * Stores the configuration that an owner accepted: a copy of each file that a load reads and that an agent could
 * change.
 */
import { createHash } from 'node:crypto';
import {
  closeSync,
  constants,
  type Dirent,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import type { Config } from './config.ts';
import { isExposed } from './reading/control-files.ts';
import { replaceFile } from './reading/file-replacement.ts';
import { realPath } from './reading/text-files.ts';
import { defaultState, type World } from './work-folders.ts';

/** Files of a folder that a load reads. Other files there may change freely. */
const LOADED_FILES = /\.(?:rego|ya?ml|json|toml)$/;
const MAX_FILES = 2000;
const MAX_DEPTH = 16;
const MAX_FILE_BYTES = 32 * 1024 * 1024;
const MAX_BYTES = 64 * 1024 * 1024;

/** What is accepted: the named files and folders, and the content of each file in them by absolute path. */
export interface Contents {
  readonly places: readonly string[];
  readonly files: ReadonlyMap<string, Buffer>;
}

/** The files on the disk. `skipped`: files that are not plain, cannot be read, or exceed the limits. */
export interface OnDisk extends Contents {
  readonly skipped: readonly string[];
}

/** A copy that is loaded instead of the files on the disk. */
export interface Accepted extends Contents {
  /** SHA-256 over all paths and contents, hex. */
  readonly hash: string;
  /** Returns where a load reads a file: the copy, or the file itself if no agent can change it. */
  readonly at: (file: string) => string;
}

interface Manifest {
  readonly version: 1;
  readonly hash: string;
  readonly places: readonly string[];
  readonly files: readonly string[];
  readonly by: string;
  readonly time: string;
}

/**
 * Returns the folder of the accepted copy of a configuration file. It depends on nothing in the file, because an edited
 * `state` could name a folder with a forged copy.
 */
export function acceptedFolder(file: string, world: Pick<World, 'env' | 'home'>): string {
  const folder = realPath(path.dirname(path.resolve(file)));
  const key = createHash('sha256').update(path.basename(file)).digest('hex').slice(0, 12);
  return path.join(realPath(defaultState({ ...world, folder })), 'accepted', key);
}

/** Returns the file that names the copy in force. It changes when an owner accepts another copy. */
export function acceptedMarker(folder: string): string {
  return path.join(folder, 'accepted.json');
}

/** Reads the accepted copy; undefined if there is none. Throws CONFIG_NOT_ACCEPTED if it is damaged. */
export function readAccepted(folder: string): Accepted | undefined {
  const marker = acceptedMarker(folder);
  if (!existsSync(marker)) return undefined;
  try {
    const { version, hash, places, files } = JSON.parse(readFileSync(marker, 'utf8')) as Manifest;
    if (version !== 1 || !/^[\da-f]{64}$/.test(hash)) throw new Error('unknown format');
    const copy = copyFolder(folder, hash);
    const contents = { places, files: new Map(files.map((file) => [file, readFileSync(path.join(copy, file))])) };
    if (hashOf(contents) !== hash) throw new Error('the files do not match the hash');
    return withLocation(contents, copy);
  } catch (cause) {
    throw new TollgateError('CONFIG_NOT_ACCEPTED', {
      detail: 'The accepted copy of the configuration in the state folder is damaged.',
      next: 'Review the configuration, and accept it again with: tollgate reload',
      cause,
    });
  }
}

/** Writes a copy without putting it in force, so that it can be loaded and checked first. */
export function stageAccepted(folder: string, contents: Contents): Accepted {
  const hash = hashOf(contents);
  const copy = copyFolder(folder, hash);
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(copy, { recursive: true, mode: 0o700 });
  for (const place of contents.places)
    mkdirSync(path.join(copy, path.dirname(place)), { recursive: true, mode: 0o700 });
  for (const [file, bytes] of contents.files) {
    mkdirSync(path.join(copy, path.dirname(file)), { recursive: true, mode: 0o700 });
    writeFileSync(path.join(copy, file), bytes, { mode: 0o600 });
  }
  return withLocation(contents, copy);
}

/** Puts a staged copy in force, and removes older ones except the last, because a start may still be reading it. */
export function acceptStaged(folder: string, { hash, places, files }: Accepted, by: string): void {
  const marker = acceptedMarker(folder);
  const previous = readMarker(folder);
  const manifest: Manifest = { version: 1, hash, places, files: [...files.keys()], by, time: new Date().toISOString() };
  replaceFile(marker, `${JSON.stringify(manifest)}\n`);
  const kept = new Set([path.basename(marker), hash, previous]);
  for (const name of readdirSync(folder))
    if (!kept.has(name)) rmSync(path.join(folder, name), { recursive: true, force: true });
}

/** Removes a staged copy that was not accepted. */
export function dropStaged(folder: string, { hash }: Accepted): void {
  if (readMarker(folder) !== hash) rmSync(copyFolder(folder, hash), { recursive: true, force: true });
}

/** Removes all accepted copies. Use it if no agent can change any file of the configuration. */
export function forgetAccepted(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
}

/**
 * Returns the files of a load that an agent could change: in the workspace, or in a folder that a sandbox may write.
 */
export function exposedReads({
  reads,
  workspace,
  bash,
  servers,
}: Pick<Config, 'reads' | 'workspace' | 'bash' | 'servers'>): readonly string[] {
  const writable = [bash, ...servers.values()].flatMap(({ sandbox }) => sandbox?.filesystem.allowWrite ?? []);
  const roots = [...new Set([workspace, ...writable.map(realPath)])];
  return reads.filter((file) => isExposed(file, roots));
}

/** Reads the files at these places. Never throws. */
export function readPlaces(places: readonly string[]): OnDisk {
  const files = new Map<string, Buffer>();
  const skipped: string[] = [];
  let bytes = 0;
  for (const file of new Set(places.flatMap((place) => filesAt(place)))) {
    const content = files.size < MAX_FILES && bytes <= MAX_BYTES ? contentOf(file) : undefined;
    bytes += content?.length ?? 0;
    if (content === undefined) skipped.push(file);
    else files.set(file, content);
  }
  return { places, files, skipped };
}

/** Returns which files differ between two contents, absolute and sorted. */
export function changedFiles(before: Contents, after: Contents): readonly string[] {
  const names = new Set([...before.files.keys(), ...after.files.keys()]);
  const isSame = (one: Buffer | undefined, other: Buffer | undefined): boolean =>
    one !== undefined && other !== undefined && one.equals(other);
  return [...names].filter((name) => !isSame(before.files.get(name), after.files.get(name))).sort();
}

function withLocation(contents: Contents, copy: string): Accepted {
  const at = (file: string): string =>
    contents.places.some((place) => isPathWithin(file, place)) ? path.join(copy, file) : file;
  return { ...contents, hash: path.basename(copy), at };
}

function copyFolder(folder: string, hash: string): string {
  return path.join(folder, hash);
}

function readMarker(folder: string): string | undefined {
  const marker = acceptedMarker(folder);
  return existsSync(marker) ? (JSON.parse(readFileSync(marker, 'utf8')) as Partial<Manifest>).hash : undefined;
}

function hashOf({ places, files }: Contents): string {
  const digest = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
  const parts = [[...places].sort(), [...files].map(([file, bytes]) => [file, digest(bytes)]).sort()];
  return createHash('sha256')
    .update(`tollgate-accepted\0${JSON.stringify(parts)}`)
    .digest('hex');
}

/** Returns the file itself, or the files of a folder that a load could read. Links are listed and not followed. */
function filesAt(place: string, depth = 0): readonly string[] {
  const found = statSync(place, { throwIfNoEntry: false });
  if (found === undefined) return [];
  if (!found.isDirectory()) return [place];
  if (depth > MAX_DEPTH) return [place];
  return entriesIn(place).flatMap((entry) => {
    const file = path.join(place, entry.name);
    if (entry.isDirectory()) return filesAt(file, depth + 1);
    return LOADED_FILES.test(entry.name) || entry.isSymbolicLink() ? [file] : [];
  });
}

function entriesIn(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith('.'));
  } catch {
    // A load cannot list such a folder either.
    return [];
  }
}

/** Returns the content; undefined if the file is not plain or is too large for a load. Never blocks on a pipe. */
function contentOf(file: string): Buffer | undefined {
  let opened: number | undefined;
  try {
    opened = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
    const status = fstatSync(opened);
    return status.isFile() && status.size <= MAX_FILE_BYTES ? readFileSync(opened) : undefined;
  } catch {
    // The file was removed meanwhile, or may not be read. A load could not read it either.
    return undefined;
  } finally {
    if (opened !== undefined) closeSync(opened);
  }
}
