/**
 * Finds the files and folders that a start loads from places that agents may write: its package, and modules around it.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { linksTo, writableRootOf } from '../../catalogs/programs/helper-programs.ts';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';
import { isPathWithin, realOrAbsolute } from '../../catalogs/readers/path-location.ts';
import { findProgram, hasFile } from '../sandbox/program-files.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { openRegularFile } from './regular-file.ts';
import { codeFolders, importsOutside, runsWorkingFolder } from './start-imports.ts';
import { findNamedFiles } from './start-words.ts';

/** The places that agents may write and from which a start loads code. All paths are absolute and real. */
export interface StartPlaces {
  /** Folders of the program or script only. Agents do not need to write there. */
  readonly own: readonly string[];
  /** Modules and settings that the server shares with the project. They may not exist. */
  readonly shared: readonly string[];
  /** Those of `shared` that running code still reads: a change after the start would act without an approval. */
  readonly running: readonly string[];
  /**
   * A sentence: code lies directly in a folder that agents may write, or is searched there. Any file there could be
   * loaded.
   */
  readonly exposed?: string;
}

/** A file or folder, and a digest of all its content. A missing one has the digest of `absent`. */
export interface PlaceDigest {
  readonly path: string;
  readonly sha256: string;
}

/** Files that node, npm, Python and others read next to the code that they run. */
const SETTINGS = (
  'package.json package-lock.json npm-shrinkwrap.json pnpm-lock.yaml pnpm-workspace.yaml .pnpmfile.cjs ' +
  'yarn.lock .npmrc .yarnrc .yarnrc.yml .pnp.cjs .pnp.loader.mjs bunfig.toml uv.toml tsconfig.json ' +
  'node_modules'
).split(' ');
/** Modules are loaded at their first use, and package.json resolves their names. */
const RUNNING: ReadonlySet<string> = new Set(['node_modules', 'package.json']);
const MARKS = ['package.json', 'pyproject.toml', 'pyvenv.cfg'] as const;
/** Files of languages that import files next to them. For other files, their own digest is enough. */
const IMPORTS = /\.(?:[cm]?[jt]sx?|pyc?|pyw|rb|pl|lua|php)$/i;
const MAX_FILES = 20_000;
/** Folders that are searched for links. */
const MAX_LINK_FOLDERS = 2_000;
const MAX_BYTES = 512 * 1024 * 1024;

type Start = Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'> & Partial<Pick<ServerSettings, 'sandbox'>>;

/**
 * Finds places by the names in the command, and by relative paths in the code. `folder` is the default working folder.
 */
export function startPlaces(start: Start, folder: string): StartPlaces {
  const { command = '', args, cwd, isolation } = start;
  const place = realOrAbsolute(cwd ?? folder);
  // The program of a container lies in its image, like all files that the settings do not mount.
  const isContained = isolation === 'container';
  const isSeen = isContained ? (file: string): boolean => isGiven(start, realOrAbsolute(file)) : (): boolean => true;
  const program = isContained ? undefined : findProgram(command, place);
  const { files, unbound } = findNamedFiles(command, args, place);
  const isProject = runsWorkingFolder(command, args) && seesFolder(start, place);
  const found: Found = { own: new Set(), shared: new Set(), running: new Set(), followed: new Set(), isProject };
  const named = files.filter(({ file, mayRun }) => mayRun && isSeen(file)).map(({ file }) => file);
  const written = program === undefined ? named : [program, ...named];
  for (const link of written.flatMap(linksTo)) noteLink(found, link, place);
  for (const file of written.map(realOrAbsolute)) noteCode(found, file, place);
  for (const folder of codeFolders(args, place).filter(isSeen).map(realOrAbsolute)) noteFolder(found, folder);
  const root = (unbound === undefined && !isProject) || !isSeen(place) ? undefined : writableRootOf(place);
  if (root !== undefined) noteWorkingFolder(found, { start, place, root });
  for (const one of [...found.own, ...found.running]) noteLinked(found, one);
  const { own, shared, running, exposed } = found;
  const isOwn = (file: string): boolean => [...own].some((tree) => isPathWithin(file, tree));
  const outside = (files: ReadonlySet<string>): readonly string[] => [...files].filter((file) => !isOwn(file)).sort();
  // A refused server does not run, so no path is closed for it.
  return {
    own: [...own].sort(),
    shared: outside(shared),
    running: exposed === undefined ? outside(running) : [],
    ...(exposed !== undefined && { exposed }),
  };
}

function noteWorkingFolder(
  found: Found,
  { start, place, root }: { readonly start: Start; readonly place: string; readonly root: string },
): void {
  const around = above(place, root);
  for (const one of around) found.shared.add(one);
  if (seesFolder(start, place) && start.args.some((word) => isInstalled(word, around))) noteRunning(found, around);
  if (!found.isProject) return;
  if (root === place)
    found.exposed ??= `${path.basename(start.command ?? '')} runs code of its working folder, which agents may write`;
  else {
    found.own.add(place);
    follow(found, place, place);
  }
}

interface Found {
  readonly own: Set<string>;
  readonly shared: Set<string>;
  readonly running: Set<string>;
  /** Folders and files whose relative paths have been followed. */
  readonly followed: Set<string>;
  readonly isProject: boolean;
  exposed?: string;
}

/** Notes the folder of a code file, and the places from which it loads other files. */
function noteCode(found: Found, file: string, place: string): void {
  const root = writableRootOf(file);
  if (root === undefined) return;
  // Settings that npm and others read from their working folder are data of the project, unless they run the project.
  const isSetting = isOfSettings(file);
  const tree = isSetting ? (found.isProject ? path.dirname(file) : undefined) : treeOf(file, root);
  const around = above(path.dirname(tree ?? file), root);
  for (const one of around) found.shared.add(one);
  if (tree === undefined) return;
  if (loadsModules(file, tree))
    noteRunning(
      found,
      around.filter((one) => path.basename(one) !== 'package.json' || !isPackage(tree)),
    );
  if (tree === root) {
    if (IMPORTS.test(file) || found.isProject)
      found.exposed ??= `${path.basename(file)} lies directly in a folder that agents may write`;
    found.running.add(file);
  } else found.own.add(tree);
  follow(found, tree === root ? file : tree, place);
}

/** Notes a folder in which a program searches for modules. */
function noteFolder(found: Found, folder: string): void {
  const root = writableRootOf(folder);
  if (root === folder) found.exposed ??= 'its code is searched in a folder that agents may write';
  else if (root !== undefined) found.own.add(folder);
}

/** A program that changes a link chooses the code that runs. The Python of a virtual environment is such a link. */
function noteLink(found: Found, link: string, place: string): void {
  const root = writableRootOf(link);
  if (root === undefined) return;
  if (path.dirname(link) === root)
    found.exposed ??= `${path.basename(link)} is a link directly in a folder that agents may write`;
  else noteCode(found, link, place);
}

/** Returns true if code may run in Node.js: other languages do not use node_modules. */
function loadsModules(file: string, tree: string): boolean {
  return !/\.(?:pyc?|pyw|rb|pl|lua|php)$/i.test(file) && !hasFile(path.join(tree, 'pyvenv.cfg'));
}

function noteRunning(found: Found, around: readonly string[]): void {
  for (const one of around) if (RUNNING.has(path.basename(one))) found.running.add(one);
}

/**
 * Notes the targets of links in code, where agents may write them. In node_modules, it searches the packages' folders
 * only.
 */
function noteLinked(found: Found, tree: string): void {
  const waiting = [tree];
  for (
    let count = 0, at = waiting.pop();
    at !== undefined && count < MAX_LINK_FOLDERS;
    count += 1, at = waiting.pop()
  ) {
    for (const entry of unlessUnreadable(() => readdirSync(at, { withFileTypes: true })) ?? []) {
      const file = path.join(at, entry.name);
      const target = entry.isSymbolicLink() ? realOrAbsolute(file) : undefined;
      if (target !== undefined && isWritableElsewhere(target, tree)) found.running.add(target);
      if (entry.isDirectory() && isSearched(entry.name, at, tree)) waiting.push(file);
    }
  }
}

function isSearched(name: string, at: string, tree: string): boolean {
  return name !== '.git' && (path.basename(tree) !== 'node_modules' || (at === tree && name.startsWith('@')));
}

/** Returns true if agents may write the target of a link, and it neither lies in the tree nor contains it. */
function isWritableElsewhere(target: string, tree: string): boolean {
  const root = writableRootOf(target);
  return root !== undefined && root !== target && !isPathWithin(target, tree) && !isPathWithin(tree, target);
}

/** Code in these folders has its own package.json, and reads none above. */
function isPackage(tree: string): boolean {
  return path.basename(tree) === 'node_modules' || hasFile(path.join(tree, 'package.json'));
}

/**
 * Returns true if a package for a runner such as npx is installed around the working folder. The runner does not fetch
 * it then.
 */
function isInstalled(word: string, around: readonly string[]): boolean {
  const name = word.replace(/(?<=.)@[^/]*$/, '');
  return (
    /^[@\w]/.test(name) &&
    around.some(
      (one) =>
        path.basename(one) === 'node_modules' &&
        [name, `.bin/${name}`].some((inside) => existsSync(path.join(one, inside))),
    )
  );
}

function follow(found: Found, tree: string, place: string): void {
  if (found.followed.has(tree)) return;
  found.followed.add(tree);
  for (const file of importsOutside(tree, place)) if (!isOfSettings(file)) noteCode(found, file, place);
}

function isOfSettings(file: string): boolean {
  return SETTINGS.some((name) => name === path.basename(file));
}

/** Returns true if a program sees its working folder. With isolation, the settings must allow it. */
function seesFolder(start: Start, place: string): boolean {
  return (
    start.isolation === 'direct' ||
    (start.isolation !== 'container' && start.cwd !== undefined) ||
    isGiven(start, place)
  );
}

/** Returns true if the settings allow a program to read or write a file or folder. */
function isGiven({ sandbox }: Start, place: string): boolean {
  const { allowRead = [], allowWrite = [] } = sandbox?.filesystem ?? {};
  return [...allowRead, ...allowWrite].map(realOrAbsolute).some((given) => isPathWithin(place, given));
}

/**
 * Returns the digests of all places. They change only with a name or a byte. Undefined if there is too much to read at
 * each start.
 */
export async function digestPlaces({ own, shared }: StartPlaces): Promise<readonly PlaceDigest[] | undefined> {
  const left = { files: MAX_FILES, bytes: MAX_BYTES };
  const digests: PlaceDigest[] = [];
  for (const place of [...own, ...shared]) {
    const sha256 = await digestPlace(place, left);
    if (sha256 === undefined) return undefined;
    digests.push({ path: place, sha256 });
  }
  return digests;
}

async function digestPlace(place: string, left: { files: number; bytes: number }): Promise<string | undefined> {
  const hash = createHash('sha256');
  const waiting = [place];
  const seen = new Set<string>();
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    const { exists, target, bytes, names } = await entryAt(file);
    if (target !== undefined) waiting.push(...followOnce(target, place, seen));
    left.files -= 1;
    left.bytes -= bytes;
    if (left.files < 0 || left.bytes < 0) return undefined;
    hash.update(`${path.relative(place, file)}\0`);
    // An empty folder is a placeholder, which keeps a command from creating the name.
    const isAbsent = !exists || (file === place && names?.length === 0);
    if (names !== undefined && !isAbsent) waiting.push(...childrenOf(file, names));
    else hash.update(digestOf(isAbsent ? 'absent' : await contentOf(file, target !== undefined)));
  }
  return hash.digest('hex');
}

/** What lies at a path. `target`: of a link; `names`: in a folder; `bytes`: of a file. */
interface Entry {
  readonly exists: boolean;
  readonly target?: string;
  readonly names?: readonly string[];
  readonly bytes: number;
}

async function entryAt(file: string): Promise<Entry> {
  const found = await lstat(file).catch(() => undefined);
  if (found?.isSymbolicLink() === true) return { exists: true, target: realOrAbsolute(file), bytes: 0 };
  if (found?.isDirectory() === true) return { exists: true, names: await readdir(file).catch(() => []), bytes: 0 };
  return { exists: found !== undefined, bytes: found?.isFile() === true ? found.size : 0 };
}

/** The target of a link is loaded like a file of this place. It may be a package of the same project, for example. */
function followOnce(target: string, place: string, seen: Set<string>): readonly string[] {
  const isFollowed = writableRootOf(target) !== undefined && !target.startsWith(`${place}/`) && !seen.has(target);
  seen.add(target);
  return isFollowed ? [target] : [];
}

function childrenOf(folder: string, names: readonly string[]): readonly string[] {
  return [...names].sort().map((name) => path.join(folder, name));
}

function digestOf(content: string | Buffer): Buffer {
  return createHash('sha256').update(content).digest();
}

async function contentOf(file: string, isLink: boolean): Promise<string | Buffer> {
  if (isLink) return `link ${await readlink(file).catch(() => '')} ${realOrAbsolute(file)}`;
  const handle = await openRegularFile(file).catch(() => undefined);
  try {
    return (await handle?.readFile()) ?? 'unreadable';
  } catch {
    return 'unreadable';
  } finally {
    await handle?.close();
  }
}

/** Returns the node_modules around a file, else its package, else its top folder, else the root. */
function treeOf(file: string, root: string): string {
  const names = path.relative(root, file).split('/');
  const installed = names.indexOf('node_modules');
  if (installed !== -1) return path.join(root, ...names.slice(0, installed + 1));
  const folders = names
    .slice(0, -1)
    .map((_, index) => path.join(root, ...names.slice(0, index + 1)))
    .reverse();
  return folders.find((folder) => MARKS.some((mark) => hasFile(path.join(folder, mark)))) ?? folders[0] ?? root;
}

/** Returns the paths of settings and modules in a folder and in the folders above it, up to the root. */
function above(folder: string, root: string): readonly string[] {
  const here = SETTINGS.map((name) => path.join(folder, name));
  return folder === root || !isPathWithin(folder, root) ? here : [...here, ...above(path.dirname(folder), root)];
}
