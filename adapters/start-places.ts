/** Finds what a start loads from places that agents may write, besides the files that its words name: its package, and modules on the way. */
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { writableRootOf } from '../catalogs/programs.ts';
import { openPlain } from './plain-file.ts';
import { findProgram } from './sandbox/programs.ts';
import type { ServerSettings } from './settings.ts';
import { importsOutside, runsItsFolder } from './start-imports.ts';
import { filesNamed } from './start-words.ts';

/** Where a start loads code from, among the places that agents may write. Absolute and real. */
export interface StartPlaces {
  /** Folders of the program or script alone: agents need not write there. */
  readonly own: readonly string[];
  /** Modules and settings that are shared with the project, whether they exist or not. */
  readonly shared: readonly string[];
  /** In words: code lies directly in a folder that agents may write, or is looked for there; all that lies there could be loaded with it. */
  readonly exposed?: string;
}

/** A file or folder, and a digest of all that is in it; `absent` when there is nothing. */
export interface PlaceFact {
  readonly path: string;
  readonly sha256: string;
}

/** Read by node, npm, Python and others next to what they run. */
const SETTINGS = [
  'package.json', 'package-lock.json', 'npm-shrinkwrap.json', 'pnpm-lock.yaml', 'pnpm-workspace.yaml', '.pnpmfile.cjs', 'yarn.lock', '.npmrc', '.yarnrc', '.yarnrc.yml', '.pnp.cjs',
  '.pnp.loader.mjs', 'bunfig.toml', 'uv.toml', 'tsconfig.json', 'node_modules',
] as const;
const MARKS = ['package.json', 'pyproject.toml', 'pyvenv.cfg'] as const;
/** Files of languages that import what lies next to the file; others are bound by their own digest. */
const IMPORTS = /\.(?:[cm]?[jt]sx?|pyc?|pyw|rb|pl|lua|php)$/i;
const MAX_FILES = 20_000;
const MAX_BYTES = 512 * 1024 * 1024;

type Start = Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'> & Partial<Pick<ServerSettings, 'sandbox'>>;

/** Looks at names, and at relative paths in the code itself; `folder` is where a program starts whose settings name none. */
export function startPlaces(start: Start, folder: string): StartPlaces {
  const { command = '', args, cwd, isolation } = start;
  const place = realOf(cwd ?? folder);
  // The program of a container, and all else that is not given to it, lies in its image.
  const isContained = isolation === 'container';
  const isSeen = isContained ? (file: string): boolean => isGiven(start, realOf(file)) : (): boolean => true;
  const program = isContained ? undefined : findProgram(command, place);
  const { files, unbound } = filesNamed(command, args, place);
  const isProject = runsItsFolder(command, args) && seesFolder(start, place);
  const found: Found = { own: new Set(), shared: new Set(), followed: new Set(), isProject };
  const named = files.filter(({ file, mayRun }) => mayRun && isSeen(file)).map(({ file }) => file);
  for (const file of [...(program === undefined ? [] : [program]), ...named].map(realOf)) noteCode(found, file, place);
  const root = (unbound === undefined && !isProject) || !isSeen(place) ? undefined : writableRootOf(place);
  if (root !== undefined) for (const one of above(place, root)) found.shared.add(one);
  if (root === place && isProject) found.exposed ??= `${path.basename(command)} runs code of the folder that it starts in, which agents may write`;
  else if (root !== undefined && isProject) {
    found.own.add(place);
    follow(found, place, place);
  }
  const { own, shared, exposed } = found;
  const isOwn = (file: string): boolean => [...own].some((tree) => file === tree || file.startsWith(`${tree}/`));
  return { own: [...own].sort(), shared: [...shared].filter((file) => !isOwn(file)).sort(), ...(exposed !== undefined && { exposed }) };
}

interface Found {
  readonly own: Set<string>;
  readonly shared: Set<string>;
  /** Trees and files of which relative paths have been followed. */
  readonly followed: Set<string>;
  readonly isProject: boolean;
  exposed?: string;
}

/** Notes the tree of a file of code, and those that it loads from. */
function noteCode(found: Found, file: string, place: string): void {
  const root = writableRootOf(file);
  if (root === undefined) return;
  // What npm and others read from the folder that they start in is data of the project, unless they run the project.
  const isSetting = isOfSettings(file);
  const tree = isSetting ? (found.isProject ? path.dirname(file) : undefined) : treeOf(file, root);
  for (const one of above(path.dirname(tree ?? file), root)) found.shared.add(one);
  if (tree === root && (IMPORTS.test(file) || found.isProject)) found.exposed ??= `${path.basename(file)} lies directly in a folder that agents may write`;
  if (tree !== undefined && tree !== root) found.own.add(tree);
  if (tree !== undefined) follow(found, tree === root ? file : tree, place);
}

function follow(found: Found, tree: string, place: string): void {
  if (found.followed.has(tree)) return;
  found.followed.add(tree);
  for (const file of importsOutside(tree, place)) if (!isOfSettings(file)) noteCode(found, file, place);
}

function isOfSettings(file: string): boolean {
  return SETTINGS.some((name) => name === path.basename(file));
}

/** Whether a program sees the folder that it starts in: isolation shows it only where the settings give it. */
function seesFolder(start: Start, place: string): boolean {
  return start.isolation === 'direct' || (start.isolation !== 'container' && start.cwd !== undefined) || isGiven(start, place);
}

/** Whether the settings give a file or folder to a program. */
function isGiven({ sandbox }: Start, place: string): boolean {
  const { allowRead = [], allowWrite = [] } = sandbox?.filesystem ?? {};
  return [...allowRead, ...allowWrite].map(realOf).some((given) => place === given || place.startsWith(`${given === '/' ? '' : given}/`));
}

/** Digests of all places. Undefined: they hold more than is read at each start. Changes only when a name or a byte does. */
export async function placeFacts({ own, shared }: StartPlaces): Promise<readonly PlaceFact[] | undefined> {
  const left = { files: MAX_FILES, bytes: MAX_BYTES };
  const facts: PlaceFact[] = [];
  for (const place of [...own, ...shared]) {
    const hash = createHash('sha256');
    const waiting = [place];
    const seen = new Set<string>();
    for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
      const found = await lstat(file).catch(() => undefined);
      // What a link leads to is loaded as if it lay here: a package of the same project, for one.
      const target = found?.isSymbolicLink() === true ? realOf(file) : undefined;
      if (target !== undefined && writableRootOf(target) !== undefined && !target.startsWith(`${place}/`) && !seen.has(target)) waiting.push(target);
      if (target !== undefined) seen.add(target);
      if ((left.files -= 1) < 0 || (left.bytes -= found?.isFile() === true ? found.size : 0) < 0) return undefined;
      hash.update(`${path.relative(place, file)}\0`);
      if (found?.isDirectory() === true) waiting.push(...(await readdir(file).catch(() => [])).sort().map((name) => path.join(file ?? '', name)));
      else hash.update(createHash('sha256').update(found === undefined ? 'absent' : await contentOf(file, found.isSymbolicLink())).digest());
    }
    facts.push({ path: place, sha256: hash.digest('hex') });
  }
  return facts;
}

async function contentOf(file: string, isLink: boolean): Promise<string | Buffer> {
  if (isLink) return `link ${await readlink(file).catch(() => '')} ${realOf(file)}`;
  const handle = await openPlain(file).catch(() => undefined);
  try {
    return (await handle?.readFile()) ?? 'unreadable';
  } catch {
    return 'unreadable';
  } finally {
    await handle?.close();
  }
}

/** The installed modules around a file, its package, or its folder; the root where that is all that there is. */
function treeOf(file: string, root: string): string {
  const names = path.relative(root, file).split('/');
  const installed = names.indexOf('node_modules');
  if (installed !== -1) return path.join(root, ...names.slice(0, installed + 1));
  const folders = names.slice(0, -1).map((_, index) => path.join(root, ...names.slice(0, index + 1))).reverse();
  return folders.find((folder) => MARKS.some((mark) => existsSync(path.join(folder, mark)))) ?? folders[0] ?? root;
}

/** What is looked for in a folder and in those above it that agents may write too. */
function above(folder: string, root: string): readonly string[] {
  const here = SETTINGS.map((name) => path.join(folder, name));
  return folder === root || !folder.startsWith(`${root}/`) ? here : [...here, ...above(path.dirname(folder), root)];
}

function realOf(file: string): string {
  try {
    return realpathSync(file);
  } catch {
    return path.resolve(file);
  }
}
