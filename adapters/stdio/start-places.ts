/** Finds what a start loads from places that agents may write, besides the files that its words name: its package, and modules on the way. */
import { createHash } from 'node:crypto';
import { type Dirent, existsSync, readdirSync, realpathSync } from 'node:fs';
import { lstat, readdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { linksTo, writableRootOf } from '../../catalogs/programs/helper-programs.ts';
import { findProgram, hasFile } from '../sandbox/program-files.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { openRegularFile } from './regular-file.ts';
import { codeFolders, importsOutside, runsWorkingFolder } from './start-imports.ts';
import { findNamedFiles } from './start-words.ts';

/** Where a start loads code from, among the places that agents may write. Absolute and real. */
export interface StartPlaces {
  /** Folders of the program or script alone: agents need not write there. */
  readonly own: readonly string[];
  /** Modules and settings that are shared with the project, whether they exist or not. */
  readonly shared: readonly string[];
  /** Those of `shared` that code still reads while it runs: a change after the start would act without an approval. */
  readonly running: readonly string[];
  /** In words: code lies directly in a folder that agents may write, or is looked for there; all that lies there could be loaded with it. */
  readonly exposed?: string;
}

/** A file or folder, and a digest of all that is in it; `absent` when there is nothing. */
export interface PlaceDigest {
  readonly path: string;
  readonly sha256: string;
}

/** Read by node, npm, Python and others next to what they run. */
const SETTINGS = [
  'package.json',
  'package-lock.json',
  'npm-shrinkwrap.json',
  'pnpm-lock.yaml',
  'pnpm-workspace.yaml',
  '.pnpmfile.cjs',
  'yarn.lock',
  '.npmrc',
  '.yarnrc',
  '.yarnrc.yml',
  '.pnp.cjs',
  '.pnp.loader.mjs',
  'bunfig.toml',
  'uv.toml',
  'tsconfig.json',
  'node_modules',
] as const;
/** Modules are loaded at their first use, and package.json says where a name leads, to the package of the code itself too. */
const RUNNING: ReadonlySet<string> = new Set(['node_modules', 'package.json']);
const MARKS = ['package.json', 'pyproject.toml', 'pyvenv.cfg'] as const;
/** Files of languages that import what lies next to the file; others are bound by their own digest. */
const IMPORTS = /\.(?:[cm]?[jt]sx?|pyc?|pyw|rb|pl|lua|php)$/i;
const MAX_FILES = 20_000;
/** Folders that are looked through for links. */
const MAX_LOOKS = 2_000;
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
  const { files, unbound } = findNamedFiles(command, args, place);
  const isProject = runsWorkingFolder(command, args) && seesFolder(start, place);
  const found: Found = { own: new Set(), shared: new Set(), running: new Set(), followed: new Set(), isProject };
  const named = files.filter(({ file, mayRun }) => mayRun && isSeen(file)).map(({ file }) => file);
  const written = [...(program === undefined ? [] : [program]), ...named];
  for (const link of written.flatMap(linksTo)) noteLink(found, link, place);
  for (const file of written.map(realOf)) noteCode(found, file, place);
  for (const folder of codeFolders(args, place).filter(isSeen).map(realOf)) noteFolder(found, folder);
  const root = (unbound === undefined && !isProject) || !isSeen(place) ? undefined : writableRootOf(place);
  const around = root === undefined ? [] : above(place, root);
  for (const one of around) found.shared.add(one);
  if (seesFolder(start, place) && args.some((word) => isInstalled(word, around))) noteRunning(found, around);
  if (root === place && isProject)
    found.exposed ??= `${path.basename(command)} runs code of the folder that it starts in, which agents may write`;
  else if (root !== undefined && isProject) {
    found.own.add(place);
    follow(found, place, place);
  }
  for (const one of [...found.own, ...found.running]) noteLinked(found, one);
  const { own, shared, running, exposed } = found;
  const isOwn = (file: string): boolean => [...own].some((tree) => file === tree || file.startsWith(`${tree}/`));
  const outside = (files: ReadonlySet<string>): readonly string[] => [...files].filter((file) => !isOwn(file)).sort();
  // What is refused does not run, so nothing is closed for it.
  return {
    own: [...own].sort(),
    shared: outside(shared),
    running: exposed === undefined ? outside(running) : [],
    ...(exposed !== undefined && { exposed }),
  };
}

interface Found {
  readonly own: Set<string>;
  readonly shared: Set<string>;
  readonly running: Set<string>;
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
  const around = above(path.dirname(tree ?? file), root);
  for (const one of around) found.shared.add(one);
  if (tree !== undefined && loadsModules(file, tree))
    noteRunning(
      found,
      around.filter((one) => path.basename(one) !== 'package.json' || !isPackage(tree)),
    );
  if (tree === root && (IMPORTS.test(file) || found.isProject))
    found.exposed ??= `${path.basename(file)} lies directly in a folder that agents may write`;
  if (tree === root) found.running.add(file);
  if (tree !== undefined && tree !== root) found.own.add(tree);
  if (tree !== undefined) follow(found, tree === root ? file : tree, place);
}

/** Modules are looked for in it. */
function noteFolder(found: Found, folder: string): void {
  const root = writableRootOf(folder);
  if (root === folder) found.exposed ??= 'its code is looked for in a folder that agents may write';
  else if (root !== undefined) found.own.add(folder);
}

/** Whoever turns a link chooses what runs. A Python of an environment is one, and finds its modules by it. */
function noteLink(found: Found, link: string, place: string): void {
  const root = writableRootOf(link);
  if (root === undefined) return;
  if (path.dirname(link) === root)
    found.exposed ??= `${path.basename(link)} is a link directly in a folder that agents may write`;
  else noteCode(found, link, place);
}

/** Whether code is of Node.js, as far as can be told: others look for no node_modules. */
function loadsModules(file: string, tree: string): boolean {
  return !/\.(?:pyc?|pyw|rb|pl|lua|php)$/i.test(file) && !hasFile(path.join(tree, 'pyvenv.cfg'));
}

function noteRunning(found: Found, around: readonly string[]): void {
  for (const one of around) if (RUNNING.has(path.basename(one))) found.running.add(one);
}

/** What links in code lead to, where agents may write, is code as well; of installed modules the packages are looked at. */
function noteLinked(found: Found, tree: string): void {
  const waiting = [tree];
  for (let seen = 0, at = waiting.pop(); at !== undefined && seen < MAX_LOOKS; seen += 1, at = waiting.pop()) {
    for (const entry of entriesOf(at)) {
      const file = path.join(at, entry.name);
      const real = entry.isSymbolicLink() ? realOf(file) : undefined;
      if (
        real !== undefined &&
        real !== writableRootOf(real) &&
        writableRootOf(real) !== undefined &&
        real !== tree &&
        !real.startsWith(`${tree}/`) &&
        !tree.startsWith(`${real}/`)
      )
        found.running.add(real);
      if (
        entry.isDirectory() &&
        (path.basename(tree) !== 'node_modules' || (at === tree && entry.name.startsWith('@'))) &&
        entry.name !== '.git'
      )
        waiting.push(file);
    }
  }
}

function entriesOf(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch {
    return [];
  }
}

/** Code in these folders has a package.json of its own, and asks none above. */
function isPackage(tree: string): boolean {
  return path.basename(tree) === 'node_modules' || hasFile(path.join(tree, 'package.json'));
}

/** Whether a package that a runner such as npx is told to run is installed in a folder around it: then it is not fetched. */
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

/** Whether a program sees the folder that it starts in: isolation shows it only where the settings give it. */
function seesFolder(start: Start, place: string): boolean {
  return (
    start.isolation === 'direct' ||
    (start.isolation !== 'container' && start.cwd !== undefined) ||
    isGiven(start, place)
  );
}

/** Whether the settings give a file or folder to a program. */
function isGiven({ sandbox }: Start, place: string): boolean {
  const { allowRead = [], allowWrite = [] } = sandbox?.filesystem ?? {};
  return [...allowRead, ...allowWrite]
    .map(realOf)
    .some((given) => place === given || place.startsWith(`${given === '/' ? '' : given}/`));
}

/** Digests of all places. Undefined: they hold more than is read at each start. Changes only when a name or a byte does. */
export async function digestPlaces({ own, shared }: StartPlaces): Promise<readonly PlaceDigest[] | undefined> {
  const left = { files: MAX_FILES, bytes: MAX_BYTES };
  const facts: PlaceDigest[] = [];
  for (const place of [...own, ...shared]) {
    const hash = createHash('sha256');
    const waiting = [place];
    const seen = new Set<string>();
    for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
      const found = await lstat(file).catch(() => undefined);
      // What a link leads to is loaded as if it lay here: a package of the same project, for one.
      const target = found?.isSymbolicLink() === true ? realOf(file) : undefined;
      if (
        target !== undefined &&
        writableRootOf(target) !== undefined &&
        !target.startsWith(`${place}/`) &&
        !seen.has(target)
      )
        waiting.push(target);
      if (target !== undefined) seen.add(target);
      if ((left.files -= 1) < 0 || (left.bytes -= found?.isFile() === true ? found.size : 0) < 0) return undefined;
      hash.update(`${path.relative(place, file)}\0`);
      const names = found?.isDirectory() === true ? await readdir(file).catch(() => []) : [];
      // An empty folder is what keeps a closed name from being created while a command runs.
      const isAbsent = found === undefined || (file === place && found.isDirectory() && names.length === 0);
      if (found?.isDirectory() === true && !isAbsent)
        waiting.push(...names.sort().map((name) => path.join(file ?? '', name)));
      else
        hash.update(
          createHash('sha256')
            .update(isAbsent ? 'absent' : await contentOf(file, found.isSymbolicLink()))
            .digest(),
        );
    }
    facts.push({ path: place, sha256: hash.digest('hex') });
  }
  return facts;
}

async function contentOf(file: string, isLink: boolean): Promise<string | Buffer> {
  if (isLink) return `link ${await readlink(file).catch(() => '')} ${realOf(file)}`;
  const handle = await openRegularFile(file).catch(() => undefined);
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
  const folders = names
    .slice(0, -1)
    .map((_, index) => path.join(root, ...names.slice(0, index + 1)))
    .reverse();
  return folders.find((folder) => MARKS.some((mark) => hasFile(path.join(folder, mark)))) ?? folders[0] ?? root;
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
