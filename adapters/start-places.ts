/** Finds what a start loads from places that agents may write, besides the files that its words name: its package, and modules on the way. */
import { createHash } from 'node:crypto';
import { existsSync, realpathSync } from 'node:fs';
import { lstat, readdir, readFile, readlink } from 'node:fs/promises';
import path from 'node:path';
import { writableRootOf } from '../catalogs/programs.ts';
import { findProgram } from './sandbox/programs.ts';
import type { ServerSettings } from './settings.ts';
import { filesNamed } from './start-words.ts';

/** Where a start loads code from, among the places that agents may write. Absolute and real. */
export interface StartPlaces {
  /** Folders of the program or script alone: agents need not write there. */
  readonly own: readonly string[];
  /** Modules and settings that are shared with the project, whether they exist or not. */
  readonly shared: readonly string[];
  /** A script that lies directly in a folder that agents may write: all that lies there could be loaded with it. */
  readonly exposed?: string;
}

/** A file or folder, and a digest of all that is in it; `absent` when there is nothing. */
export interface PlaceFact {
  readonly path: string;
  readonly sha256: string;
}

/** Read by node, npm, Python and others next to what they run. */
const SETTINGS = ['package.json', 'package-lock.json', 'npm-shrinkwrap.json', 'pnpm-lock.yaml', 'yarn.lock', '.npmrc', '.yarnrc', '.yarnrc.yml', 'node_modules'] as const;
const MARKS = ['package.json', 'pyproject.toml', 'pyvenv.cfg'] as const;
/** Files of languages that import what lies next to the file; others are bound by their own digest. */
const IMPORTS = /\.(?:[cm]?[jt]sx?|pyc?|pyw|rb|pl|lua|php)$/i;
const MAX_FILES = 20_000;
const MAX_BYTES = 512 * 1024 * 1024;

/** Looks at names only; `folder` is where a program starts whose settings name none. */
export function startPlaces({ command = '', args, cwd, isolation }: Pick<ServerSettings, 'command' | 'args' | 'cwd' | 'isolation'>, folder: string): StartPlaces {
  if (isolation === 'container') return { own: [], shared: [] };
  const place = realOf(cwd ?? folder);
  const program = findProgram(command, place);
  const { files, unbound } = filesNamed(command, args, place);
  const code = [...(program === undefined ? [] : [program]), ...files.filter(({ mayRun }) => mayRun).map(({ file }) => file)].map(realOf);
  const own = new Set<string>();
  const shared = new Set<string>();
  let exposed: string | undefined;
  for (const file of code) {
    const root = writableRootOf(file);
    if (root === undefined) continue;
    // What npm and others read from the folder that they start in is data of the project.
    const tree = SETTINGS.some((name) => name === path.basename(file)) ? undefined : treeOf(file, root);
    if (tree === root) exposed ??= IMPORTS.test(file) ? file : undefined;
    else if (tree !== undefined) own.add(tree);
    for (const one of above(path.dirname(tree ?? file), root)) shared.add(one);
  }
  const root = unbound === undefined ? undefined : writableRootOf(place);
  if (root !== undefined) for (const one of above(place, root)) shared.add(one);
  const isOwn = (file: string): boolean => [...own].some((tree) => file === tree || file.startsWith(`${tree}/`));
  return { own: [...own].sort(), shared: [...shared].filter((file) => !isOwn(file)).sort(), ...(exposed !== undefined && { exposed }) };
}

/** Digests of all places. Undefined: they hold more than is read at each start. Changes only when a name or a byte does. */
export async function placeFacts({ own, shared }: StartPlaces): Promise<readonly PlaceFact[] | undefined> {
  const left = { files: MAX_FILES, bytes: MAX_BYTES };
  const facts: PlaceFact[] = [];
  for (const place of [...own, ...shared]) {
    const hash = createHash('sha256');
    const waiting = [place];
    for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
      const found = await lstat(file).catch(() => undefined);
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
  if (!isLink) return readFile(file).catch(() => 'unreadable');
  return `link ${await readlink(file).catch(() => '')} ${realOf(file)}`;
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
