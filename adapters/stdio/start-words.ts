/**
 * Finds the files that a command may run, from its words alone. Every file that a word could name counts, because the
 * meaning of each program's options is not known.
 */
import { type Stats, statSync } from 'node:fs';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { unlessUnreadable } from '../../catalogs/readers/missing-files.ts';
import { findProgram } from '../sandbox/program-files.ts';
import { readRegularFileSync } from './regular-file.ts';

/** A file that a command names. */
export interface NamedFile {
  readonly file: string;
  /** True if the start may run it. Otherwise it is an argument of the program or script, and may be data. */
  readonly mayRun: boolean;
}

/** The files that a command names. */
export interface NamedFiles {
  readonly files: readonly NamedFile[];
  /** The name of a program that runs code from none of these files. */
  readonly unbound?: string;
  /** The script of the command that does not exist, as the command names it. */
  readonly gone?: string;
}

/** Bytes. The main file of a larger package.json is not read. */
const MAX_MANIFEST = 1024 * 1024;
/** Programs that run a file, which must exist. */
const INTERPRETER = namePattern(String.raw`
  node nodejs bun deno tsx ts-node ts-node-esm vite-node jiti esno nodemon electron
  python[\d.]* pypy[\d.]* ruby[\d.]* jruby perl[\d.]* raku php[\d.]* lua[\d.]* luajit
  java groovy scala kotlin dotnet mono r?bash sh ash dash zsh fish ksh pwsh
  Rscript julia elixir mix escript erl guile racket tclsh expect [gm]?awk wasmtime wasmer
  make gmake just task rake`);
/** Programs that run what a package or a project file says. An approval covers that file, not the code behind it. */
const RUNNER = namePattern(`
  npm pnpm yarn npx pnpx bunx uv uvx pipx poetry pdm hatch pipenv bundle cargo go gradle gradlew mvn composer
  pm2 forever docker podman`);
/** Programs that run the program named after them. */
const WRAPPER = namePattern(`
  env timeout nice ionice nohup xvfb-run sudo doas stdbuf setsid chrt taskset unshare strace flock time chroot
  unbuffer dbus-run-session busybox watch xargs`);
/** Files in the working folder that tell a program what to run. */
const MANIFESTS: readonly (readonly [RegExp, readonly string[]])[] = [
  [/^(?:npm|pnpm|yarn|npx|bunx?|nodemon|pm2)$/, ['package.json']],
  [/^deno$/, ['deno.json', 'deno.jsonc']],
  [/^g?make$/, ['GNUmakefile', 'Makefile', 'makefile']],
  [/^just$/, ['justfile', 'Justfile', '.justfile']],
  [/^(?:uvx?|poetry|pdm|hatch)$/, ['pyproject.toml']],
  [/^rake$/, ['Rakefile', 'rakefile', 'Rakefile.rb']],
  [/^bundle$/, ['Gemfile']],
  [/^task$/, ['Taskfile.yml', 'Taskfile.yaml']],
  [/^cargo$/, ['Cargo.toml', 'build.rs']],
  [/^go$/, ['go.mod', 'main.go']],
  [/^mix$/, ['mix.exs']],
];
const EXTENSIONS = 'js mjs cjs ts mts cts tsx jsx py pyc pyz sh rb pl php lua jar class dll wasm node so exs'
  .split(' ')
  .map((extension) => `.${extension}`);
/** Files that a program loads if it is given their folder. */
const ENTRIES = ['package.json', '__main__.py', '__init__.py', 'deno.json', 'mod.ts'].concat(
  ['js', 'mjs', 'cjs', 'ts', 'mts', 'tsx'].map((extension) => `index.${extension}`),
);
/** Options whose value is loaded before the main file. */
const LOADS = namePattern(`
  -r --require --import --(?:experimental-)?loader --preload --env-file --rcfile --init-file -I -C -f
  -cp --class-?path -classpath -jar --config -c --tsconfig --project`);
/** Options with code as their value, or with an installed module: no file of it is known. */
const INLINE = /^(?:-e|-c|-lc|-p|-ec|-pe|--eval|--print|eval|-[a-z]*c)$/;
const MAX_FOLDERS = 16;

/** Returns a pattern for names, which are separated by white space and may contain regular expressions. */
export function namePattern(names: string): RegExp {
  return new RegExp(`^(?:${names.trim().replace(/\s+/g, '|')})$`);
}

/** Returns true if the extension of a file is that of code. */
export function hasCodeExtension(file: string): boolean {
  return EXTENSIONS.some((extension) => file.toLowerCase().endsWith(extension));
}

/** Finds all files that a command names, also by a folder or a module. `folder` is its working folder. */
export function findNamedFiles(command: string, args: readonly string[], folder: string): NamedFiles {
  const words = [command, ...args];
  const names = words.map((word) => path.basename(word));
  const start = names.findIndex((name) => INTERPRETER.test(name) || RUNNER.test(name));
  const entry = start === -1 ? 0 : entryIndex(words, start, folder);
  // The words up to the entry choose what runs. Those after it are its arguments.
  const early = words.slice(1, entry + 1);
  const bases = [folder, ...early.flatMap((word) => pathsOf(word, [folder])).filter(isFolder)].slice(0, MAX_FOLDERS);
  const manifests = MANIFESTS.filter(([program]) => names.some((name) => program.test(name)))
    .flatMap(([, files]) => bases.flatMap((base) => files.map((file) => path.join(base, file))))
    .filter(isFile);
  const filesByWord = early.map((word) => pathsOf(word, bases).flatMap(loadedFiles).filter(isFile));
  const rest = words.slice(entry + 1).flatMap((word) => candidates(word, folder).filter(isFile));
  // A module that is asked for by name but is not here is installed somewhere.
  const areModulesHere = filesByWord.every((files, index) => files.length > 0 || words[index] !== '-m');
  const isFileKnown =
    manifests.length > 0 ||
    filesByWord.some((files, index) => files.length > 0 && /^(?:[^-]|-m)/.test(words[index + 1] ?? ''));
  const unbound =
    start === -1 || (areModulesHere && isFileKnown && runsKnownFile(words, names, start))
      ? undefined
      : (names.slice(start).findLast((name) => INTERPRETER.test(name) || RUNNER.test(name)) ?? '');
  const gone = unbound === undefined ? undefined : missingScript(words, start, folder);
  return {
    files: [
      ...[...wrappedPrograms(words, names, start), ...manifests, ...filesByWord.flat()].map((file) => ({
        file,
        mayRun: true,
      })),
      ...rest.map((file) => ({ file, mayRun: false })),
    ],
    ...(gone !== undefined ? { gone } : unbound !== undefined && { unbound }),
  };
}

/** Returns the index of the word that certainly is the main file, otherwise the index of the last word. */
function entryIndex(words: readonly string[], start: number, folder: string): number {
  const found = words.findIndex((word, index) => {
    if (index <= start || word.startsWith('-')) return false;
    const before = words[index - 1] ?? '';
    if (before.startsWith('-') && (!hasCodeExtension(word) || LOADS.test(before))) return false;
    return candidates(word, folder).some(isFile);
  });
  return found === -1 ? words.length - 1 : found;
}

/** Returns the programs of all words before the interpreter or runner, otherwise the first program after a wrapper. */
function wrappedPrograms(words: readonly string[], names: readonly string[], start: number): readonly string[] {
  const last = start > 0 ? start : WRAPPER.test(names[0] ?? '') ? words.length - 1 : 0;
  const programs = words
    .slice(1, last + 1)
    .filter((word) => word !== '' && !word.startsWith('-') && !word.includes('/'))
    .map((word) => findProgram(word, '/'))
    .filter((file) => file !== undefined);
  return start > 0 ? programs : programs.slice(0, 1);
}

/**
 * Returns the script directly after an interpreter if it does not exist. A later word could be something else, and a
 * shell searches a bare name in other folders too.
 */
function missingScript(words: readonly string[], start: number, folder: string): string | undefined {
  const word = words[start + 1] ?? '';
  const program = path.basename(words[start] ?? '');
  const isScript =
    INTERPRETER.test(program) &&
    !word.startsWith('-') &&
    hasCodeExtension(word) &&
    (word.includes('/') || !program.endsWith('sh'));
  const exists = candidates(word, folder).some((file) => statOf(file) !== undefined);
  return isScript && !exists ? word : undefined;
}

/** Returns false if the words contain the code itself, or if only a runner chooses it. */
function runsKnownFile(words: readonly string[], names: readonly string[], start: number): boolean {
  const firstArgument = words.findIndex((word, index) => index > start && !word.startsWith('-'));
  const options = words.slice(start + 1, firstArgument === -1 ? undefined : firstArgument + 1);
  const programs = names.slice(start);
  const isOnlyRunner = programs.some((name) => RUNNER.test(name)) && !programs.some((name) => INTERPRETER.test(name));
  return !isOnlyRunner && !options.some((word) => INLINE.test(word));
}

/** Returns the paths that a word could name, in each of the folders. */
function pathsOf(word: string, folders: readonly string[]): readonly string[] {
  const texts = fileTextsIn(word)
    .map(filePathOf)
    .filter((text) => text !== undefined)
    .filter((text) => text === word || !text.startsWith('-'));
  return [...new Set(texts.flatMap((text) => folders.map((folder) => path.resolve(folder, text))))];
}

/** Returns the paths that a word could name in the working folder, also with an omitted extension. */
function candidates(word: string, folder: string): readonly string[] {
  return pathsOf(word, [folder]).flatMap((file) => [file, ...withExtensions(file)]);
}

/** Returns the files that may be loaded if a program is given this file, folder or module. */
function loadedFiles(file: string): readonly string[] {
  const main = mainOf(path.join(file, 'package.json'));
  const mainFile = main === undefined ? [] : [path.resolve(file, main)];
  return [
    file,
    ...withExtensions(file),
    ...ENTRIES.map((entry) => path.join(file, entry)),
    ...mainFile.flatMap((one) => [one, ...withExtensions(one), ...withExtensions(path.join(one, 'index'))]),
  ];
}

function mainOf(manifest: string): string | undefined {
  const main = unlessUnreadable(() => {
    const content = JSON.parse(readRegularFileSync(manifest, MAX_MANIFEST)) as { readonly main?: unknown };
    return content.main;
  });
  return typeof main === 'string' && !main.includes('\0') ? main : undefined;
}

function withExtensions(file: string): readonly string[] {
  return EXTENSIONS.map((extension) => file + extension);
}

function isFile(file: string): boolean {
  return statOf(file)?.isFile() === true;
}

function isFolder(file: string): boolean {
  return statOf(file)?.isDirectory() === true;
}

/** Undefined for most words: they are no path, too long, or below a file. */
function statOf(file: string): Stats | undefined {
  return unlessUnreadable(() => statSync(file));
}
