/** Finds code that a server loads although no word of its command names it: imports by relative paths, and modules. */
import { lstatSync, readdirSync, realpathSync, type Stats } from 'node:fs';
import path from 'node:path';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { readRegularFileSync } from './regular-file.ts';
import { hasCodeExtension, namePattern } from './start-words.ts';

/** A relative path, with the keyword before it if JavaScript or a related language loads a module from there. */
const RELATIVE = /(\b(?:from|import|require)\s{0,20}\(?\s{0,20}["'`])?(\.\.?\/[\w@+./-]{1,500})/g;
const EXTENSIONS = ['', '.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.tsx', '.jsx', '.py', '.rb', '.sh'];
const SHELL = /^#!|\.(?:sh|bash)$/;
/** Limits of one search. Installed modules load nothing from outside by such a path. */
const MAX_FILES = 2_000;
const MAX_FILE_BYTES = 1024 * 1024;
const MAX_PATHS = 5_000;
const SKIPPED: ReadonlySet<string> = new Set(['node_modules', '.git', '.venv', '__pycache__']);

/** Interpreters that search their working folder for modules if the code does not come from a file. */
const PYTHON = /^(?:python|pypy)[\d.]*$/;
/** Python options that turn this search off. */
const SAFE_PATH = /^-(?=\w*[IP])[bBdEIOPqsSuvx]+$/;
/** Programs that run what the project in their working folder says. */
const PROJECT = namePattern(`
  npm pnpm yarn make gmake just task rake cargo go gradlew? mvn poetry pdm hatch pipenv bundle composer
  pm2 forever nodemon uv (?:docker|podman)-compose`);
/** Options of Ruby, Perl, Java and Erlang whose value is a folder to search for code. */
const FOLDERS = /^(?:-I|-cp|-classpath|--class-?path|--module-path|-p[az])$/;
/** Commands that run a package instead of the project. */
const PACKAGE = /^(?:npm (?:x|exec|create|init)|pnpm (?:dlx|create)|yarn (?:dlx|create)|uv (?:tool|x)) $/;

/**
 * Returns the files outside of a folder of code that its files load by relative paths. `folder` is the working folder
 * of the program. All paths are absolute and real.
 */
export function importsOutside(tree: string, folder: string): readonly string[] {
  const paths = codeIn(tree)
    .flatMap((file) => pathsIn(file, folder))
    .filter(({ file }) => !isPathWithin(file, tree));
  const found = new Set<string>();
  for (const [file, isLoaded] of distinct(paths)) {
    const real = existing(file);
    if (real !== undefined && (isLoaded || hasCodeExtension(real)) && !isPathWithin(real, tree)) found.add(real);
  }
  return [...found];
}

/** A path in a file. If no module is loaded from there, it counts only if it names a file of code. */
interface RelativePath {
  readonly file: string;
  readonly isLoaded: boolean;
}

/** Returns each path once, as loaded if any of them is. */
function distinct(paths: readonly RelativePath[]): ReadonlyMap<string, boolean> {
  const found = new Map<string, boolean>();
  for (const { file, isLoaded } of paths)
    if (found.size < MAX_PATHS) found.set(file, isLoaded || found.get(file) === true);
  return found;
}

/** Returns the relative paths in a file as absolute paths. In a shell script, they can start at the working folder. */
function pathsIn(file: string, folder: string): readonly RelativePath[] {
  const text = unlessUnreadable(() => readRegularFileSync(file, MAX_FILE_BYTES)) ?? '';
  const bases = SHELL.test(file) || SHELL.test(text) ? [path.dirname(file), folder] : [path.dirname(file)];
  return [...text.matchAll(RELATIVE)].flatMap(([, loads, written = '']) =>
    bases.map((base) => ({ file: path.resolve(base, written), isLoaded: loads !== undefined })),
  );
}

/** Returns true if a command runs code of its working folder that no word names: Python modules, or the project. */
export function runsWorkingFolder(command: string, args: readonly string[]): boolean {
  // The command line for a shell consists of several words.
  const words = [
    command,
    ...args.flatMap((word, index) => (/^-[a-z]*c$/.test(args[index - 1] ?? '') ? word.split(/[\s;&|()]+/) : [word])),
  ];
  return words.some((word, index) => {
    const name = path.basename(word);
    const after = words.slice(index + 1);
    if (PYTHON.test(name)) return searchesModules(after);
    if (name === 'node') return after.some((one) => /^--run(?:=|$)/.test(one));
    const [first = '', second = ''] = after.filter((one) => !one.startsWith('-'));
    if (name === 'bun') return first !== 'x' && !hasCodeExtension(first === 'run' ? second : first);
    if (/^(?:docker|podman)$/.test(name)) return after.includes('compose');
    return PROJECT.test(name) && !PACKAGE.test(`${name} ${first} `);
  });
}

/** Returns the existing folders in which the options tell a program to search for code. */
export function codeFolders(args: readonly string[], folder: string): readonly string[] {
  const values = args.flatMap((word, index) => {
    if (FOLDERS.test(args[index - 1] ?? '')) return [word];
    if (/^-I./.test(word)) return [word.slice(2)];
    return /^--(?:class|module)-?path=/.test(word) ? [word.replace(/^[^=]*=/, '')] : [];
  });
  return values
    .flatMap((list) => list.split(':'))
    .map((value) => path.resolve(folder, value.replace(/\/\*$/, '')))
    .filter((found) => statOf(found) !== undefined);
}

/** Returns true if Python runs a module (-m) or code (-c), and searches the working folder for modules. */
function searchesModules(options: readonly string[]): boolean {
  const end = options.findIndex((word) => /^-\w*[mc]/.test(word) || !word.startsWith('-'));
  return (
    /^-\w*[mc]/.test(options[end] ?? '') &&
    !options.slice(0, end + 1).some((word) => SAFE_PATH.test(word.replace(/[mc].*$/, '')))
  );
}

/** Returns the code files in a folder, or the file itself. Does not follow links. */
function codeIn(tree: string): readonly string[] {
  const files: string[] = [];
  const waiting = [tree];
  for (let file = waiting.pop(); file !== undefined && files.length < MAX_FILES; file = waiting.pop()) {
    const stat = statOf(file);
    if (stat?.isDirectory() === true) waiting.push(...searchedIn(file));
    else if (stat?.isFile() === true && stat.size <= MAX_FILE_BYTES && isCode(file, stat)) files.push(file);
  }
  return files;
}

function isCode(file: string, { mode }: Stats): boolean {
  return hasCodeExtension(file) || (mode & 0o111) !== 0;
}

function searchedIn(folder: string): readonly string[] {
  const names = unlessUnreadable(() => readdirSync(folder)) ?? [];
  return names.filter((name) => !SKIPPED.has(name)).map((name) => path.join(folder, name));
}

function statOf(file: string): Stats | undefined {
  return unlessUnreadable(() => lstatSync(file));
}

function existing(file: string): string | undefined {
  return EXTENSIONS.map((extension) => unlessUnreadable(() => realpathSync(file + extension))).find(
    (one) => one !== undefined,
  );
}
