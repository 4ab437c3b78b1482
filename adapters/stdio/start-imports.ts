/**
 * Finds what the code of a server loads by relative paths from outside of its own folder, and who runs code that no
 * word names.
 */
import { lstatSync, readdirSync, realpathSync, type Stats } from 'node:fs';
import path from 'node:path';
import { isPathWithin } from '../../catalogs/readers/path-location.ts';
import { readRegularFileSync } from './regular-file.ts';
import { hasCodeExtension } from './start-words.ts';

/** A relative path, and before it what loads a module in JavaScript and its relatives. */
const RELATIVE = /(\b(?:from|import|require)\s{0,20}\(?\s{0,20}["'`])?(\.\.?\/[\w@+./-]{1,500})/g;
const ENDINGS = ['', '.js', '.mjs', '.cjs', '.ts', '.mts', '.cts', '.tsx', '.jsx', '.py', '.rb', '.sh'];
const SHELL = /^#!|\.(?:sh|bash)$/;
/** Bounds of one search; modules that are installed load nothing from outside by such a path. */
const MAX_FILES = 2_000;
const MAX_FILE_BYTES = 1024 * 1024;
const MAX_PATHS = 5_000;
const SKIPPED: ReadonlySet<string> = new Set(['node_modules', '.git', '.venv', '__pycache__']);

/** These look for modules in the folder that they start in, for code that stands in no file. */
const PYTHON = /^(?:python|pypy)[\d.]*$/;
/** These do not. */
const SAFE_PATH = /^-(?=\w*[IP])[bBdEIOPqsSuvx]+$/;
/** These run what the project in their folder says. */
const PROJECT =
  /^(?:npm|pnpm|yarn|make|gmake|just|task|rake|cargo|go|gradlew?|mvn|poetry|pdm|hatch|pipenv|bundle|composer|pm2|forever|nodemon|uv|(?:docker|podman)-compose)$/;
/** Options of Ruby, Perl, Java and Erlang. */
const FOLDERS = /^(?:-I|-cp|-classpath|--class-?path|--module-path|-p[az])$/;
/** With these first words a package is run, and not the project. */
const PACKAGE = /^(?:npm (?:x|exec|create|init)|pnpm (?:dlx|create)|yarn (?:dlx|create)|uv (?:tool|x)) $/;

/**
 * Code outside of a tree of code that the tree loads by relative paths. Absolute and real; `place` is where the program
 * starts.
 */
export function importsOutside(tree: string, place: string): readonly string[] {
  const named = codeIn(tree)
    .flatMap((file) => pathsIn(file, place))
    .filter(({ file }) => !isPathWithin(file, tree));
  const found = new Set<string>();
  for (const [file, isLoaded] of distinct(named)) {
    const real = existing(file);
    if (real !== undefined && (isLoaded || hasCodeExtension(real)) && !isPathWithin(real, tree)) found.add(real);
  }
  return [...found];
}

/** Each path once; loaded if it is anywhere. */
function distinct(
  named: readonly { readonly file: string; readonly isLoaded: boolean }[],
): ReadonlyMap<string, boolean> {
  const found = new Map<string, boolean>();
  for (const { file, isLoaded } of named)
    if (found.size < MAX_PATHS) found.set(file, isLoaded || found.get(file) === true);
  return found;
}

/**
 * Relative paths in a file, made absolute. `isLoaded`: a module is loaded from there; otherwise only the name of a file
 * of code counts.
 */
function pathsIn(file: string, place: string): readonly { readonly file: string; readonly isLoaded: boolean }[] {
  const text = quietly(() => readRegularFileSync(file, MAX_FILE_BYTES)) ?? '';
  const bases = SHELL.test(file) || SHELL.test(text) ? [path.dirname(file), place] : [path.dirname(file)];
  return [...text.matchAll(RELATIVE)].flatMap(([, loads, written = '']) =>
    bases.map((base) => ({ file: path.resolve(base, written), isLoaded: loads !== undefined })),
  );
}

/**
 * Whether a command runs code of the folder that it starts in, which no word names: modules of Python, what a project
 * says.
 */
export function runsWorkingFolder(command: string, args: readonly string[]): boolean {
  // A line for a shell is several words.
  const words = [
    command,
    ...args.flatMap((word, at) => (/^-[a-z]*c$/.test(args[at - 1] ?? '') ? word.split(/[\s;&|()]+/) : [word])),
  ];
  return words.some((word, at) => {
    const name = path.basename(word);
    const after = words.slice(at + 1);
    if (PYTHON.test(name)) return asksForModule(after);
    if (name === 'node') return after.some((one) => /^--run(?:=|$)/.test(one));
    const [first = '', second = ''] = after.filter((one) => !one.startsWith('-'));
    if (name === 'bun') return first !== 'x' && !hasCodeExtension(first === 'run' ? second : first);
    if (/^(?:docker|podman)$/.test(name)) return after.includes('compose');
    return PROJECT.test(name) && !PACKAGE.test(`${name} ${first} `);
  });
}

/** Folders in which a program is told to look for code. */
export function codeFolders(args: readonly string[], place: string): readonly string[] {
  const named = args.flatMap((word, at) =>
    FOLDERS.test(args[at - 1] ?? '')
      ? [word]
      : /^-I./.test(word)
        ? [word.slice(2)]
        : /^--(?:class|module)-?path=/.test(word)
          ? [word.replace(/^[^=]*=/, '')]
          : [],
  );
  return named
    .flatMap((list) => list.split(':'))
    .map((folder) => path.resolve(place, folder.replace(/\/\*$/, '')))
    .filter((folder) => lookAt(folder) !== undefined);
}

function asksForModule(options: readonly string[]): boolean {
  const at = options.findIndex((word) => /^-\w*[mc]/.test(word) || !word.startsWith('-'));
  return (
    /^-\w*[mc]/.test(options[at] ?? '') &&
    !options.slice(0, at + 1).some((word) => SAFE_PATH.test(word.replace(/[mc].*$/, '')))
  );
}

/** Files of code in a folder, or a file itself. What is a link is judged where it leads. */
function codeIn(tree: string): readonly string[] {
  const files: string[] = [];
  const waiting = [tree];
  for (let at = waiting.pop(); at !== undefined && files.length < MAX_FILES; at = waiting.pop()) {
    const found = lookAt(at);
    if (found?.isDirectory() === true)
      waiting.push(
        ...namesIn(at)
          .filter((name) => !SKIPPED.has(name))
          .map((name) => path.join(at ?? '', name)),
      );
    else if (
      found?.isFile() === true &&
      found.size <= MAX_FILE_BYTES &&
      (hasCodeExtension(at) || (found.mode & 0o111) !== 0)
    )
      files.push(at);
  }
  return files;
}

function lookAt(file: string): Stats | undefined {
  return quietly(() => lstatSync(file));
}

function namesIn(folder: string): readonly string[] {
  return quietly(() => readdirSync(folder)) ?? [];
}

function existing(file: string): string | undefined {
  return ENDINGS.map((ending) => quietly(() => realpathSync(file + ending))).find((one) => one !== undefined);
}

/** What cannot be read here cannot be loaded from here. */
function quietly<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
