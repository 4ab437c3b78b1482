/**
 * Owns which files a command may run, by its words alone: everything that could be named is; refuses to guess which
 * option of which program counts.
 */
import { type Stats, statSync } from 'node:fs';
import path from 'node:path';
import { filePathOf, fileTextsIn } from '../../catalogs/programs/command-words.ts';
import { findProgram } from '../sandbox/program-files.ts';
import { readRegularFileSync } from './regular-file.ts';

/** A file that a command names. */
export interface NamedFile {
  readonly file: string;
  /** It may be what runs; otherwise it is an argument of what runs, which may be data. */
  readonly mayRun: boolean;
}

/** All that a command names. */
export interface NamedFiles {
  readonly files: readonly NamedFile[];
  /** The program that runs something of which no file is known. */
  readonly unbound?: string;
  /** The file of code that it is told to run, as it is written, where none is there. */
  readonly gone?: string;
}

/** Bytes of a package.json; a larger one names no main file. */
const MAX_MANIFEST = 1024 * 1024;
/** Run files that they are told of: one of those must be there. */
const INTERPRETER =
  /^(?:node|nodejs|bun|deno|tsx|ts-node|ts-node-esm|vite-node|jiti|esno|nodemon|electron|python[\d.]*|pypy[\d.]*|ruby[\d.]*|jruby|perl[\d.]*|raku|php[\d.]*|lua[\d.]*|luajit|java|groovy|scala|kotlin|dotnet|mono|r?bash|sh|ash|dash|zsh|fish|ksh|pwsh|Rscript|julia|elixir|mix|escript|erl|guile|racket|tclsh|expect|[gm]?awk|wasmtime|wasmer|make|gmake|just|task|rake)$/;
/** Run what a package, or a file of the project, says: that file is bound, and what it leads to is not. */
const RUNNER =
  /^(?:npm|pnpm|yarn|npx|pnpx|bunx|uv|uvx|pipx|poetry|pdm|hatch|pipenv|bundle|cargo|go|gradle|gradlew|mvn|composer|pm2|forever|docker|podman)$/;
/** Run the program that is named after them. */
const WRAPPER =
  /^(?:env|timeout|nice|ionice|nohup|xvfb-run|sudo|doas|stdbuf|setsid|chrt|taskset|unshare|strace|flock|time|chroot|unbuffer|dbus-run-session|busybox|watch|xargs)$/;
/** What programs read in their folder to know what to run. */
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
const ENDINGS = [
  'js',
  'mjs',
  'cjs',
  'ts',
  'mts',
  'cts',
  'tsx',
  'jsx',
  'py',
  'pyc',
  'pyz',
  'sh',
  'rb',
  'pl',
  'php',
  'lua',
  'jar',
  'class',
  'dll',
  'wasm',
  'node',
  'so',
  'exs',
].map((ending) => `.${ending}`);
const CODE = new RegExp(`(?:${ENDINGS.map((ending) => ending.replace('.', '\\.')).join('|')})$`, 'i');
/** What stands for a folder. */
const ENTRIES = [
  'package.json',
  '__main__.py',
  '__init__.py',
  'deno.json',
  'mod.ts',
  ...['js', 'mjs', 'cjs', 'ts', 'mts', 'tsx'].map((ending) => `index.${ending}`),
];
/** Options with a value that is run before the file that everything is about. */
const LOADS =
  /^(?:-r|--require|--import|--(?:experimental-)?loader|--preload|--env-file|--rcfile|--init-file|-I|-C|-f|-cp|--class-?path|-classpath|-jar|--config|-c|--tsconfig|--project)$/;
/** The code stands in the words, or is a module that is installed: no file of it is known. */
const INLINE = /^(?:-e|-c|-lc|-p|-ec|-pe|--eval|--print|eval|-[a-z]*c)$/;
const MAX_FOLDERS = 16;

/** True for the name of a file of code. */
export function hasCodeExtension(file: string): boolean {
  return CODE.test(file);
}

/**
 * All files that a command names, and what stands for the folders and modules among its words. `folder` is where it
 * starts.
 */
export function findNamedFiles(command: string, args: readonly string[], folder: string): NamedFiles {
  const words = [command, ...args];
  const names = words.map((word) => path.basename(word));
  const start = names.findIndex((name) => INTERPRETER.test(name) || RUNNER.test(name));
  const entry = start === -1 ? 0 : entryOf(words, start, folder);
  const early = start === -1 ? [] : words.slice(1, entry + 1);
  const bases = [folder, ...early.flatMap((word) => placesOf(word, [folder])).filter(isFolder)].slice(0, MAX_FOLDERS);
  const own = MANIFESTS.flatMap(([program, files]) =>
    names.some((name) => program.test(name)) ? bases.flatMap((base) => files.map((file) => path.join(base, file))) : [],
  );
  const run = early.map((word) => placesOf(word, bases).flatMap(behind).filter(isFile));
  const given = words
    .slice(entry + 1)
    .flatMap((word) => placesOf(word, [folder]).flatMap((file) => [file, ...withEndings(file)]))
    .filter(isFile);
  const unbound =
    start === -1
      ? undefined
      : unboundIn({
          words,
          names,
          start,
          isTold:
            modulesAreHere(run, words) &&
            (own.some(isFile) ||
              run.some((files, index) => files.length > 0 && /^(?:[^-]|-m)/.test(words[index + 1] ?? ''))),
        });
  const gone = unbound === undefined ? undefined : goneIn(words, start, folder);
  return {
    files: [...wrapped(words, names, start), ...own.filter(isFile), ...run.flat()]
      .map((file) => ({ file, mayRun: true }))
      .concat(given.map((file) => ({ file, mayRun: false }))),
    ...(gone !== undefined ? { gone } : unbound !== undefined && { unbound }),
  };
}

/**
 * Index of the word that surely is what runs: what follows it are its own arguments. The last one where that cannot be
 * told.
 */
function entryOf(words: readonly string[], start: number, folder: string): number {
  const found = words.findIndex((word, index) => {
    if (index <= start || word.startsWith('-')) return false;
    const before = words[index - 1] ?? '';
    if (before.startsWith('-') && (!CODE.test(word) || LOADS.test(before))) return false;
    return placesOf(word, [folder])
      .flatMap((file) => [file, ...withEndings(file)])
      .some(isFile);
  });
  return found === -1 ? words.length - 1 : found;
}

/**
 * Programs behind a wrapper: every name up to the one that is known to run others, or else the first that is a program.
 */
function wrapped(words: readonly string[], names: readonly string[], start: number): readonly string[] {
  const last = start > 0 ? start : WRAPPER.test(names[0] ?? '') ? words.length - 1 : 0;
  const programs = words
    .slice(1, last + 1)
    .flatMap((word) => (word.startsWith('-') || word.includes('/') || word === '' ? [] : [findProgram(word, '/')]))
    .filter((file) => file !== undefined);
  return start > 0 ? programs : programs.slice(0, 1);
}

/** A module that is asked for by name and is not here is installed somewhere. */
function modulesAreHere(run: readonly (readonly string[])[], words: readonly string[]): boolean {
  return run.every((files, index) => files.length > 0 || words[index] !== '-m');
}

/**
 * Only the word that directly follows an interpreter is surely what it runs; a shell looks for a bare name elsewhere
 * too.
 */
function goneIn(words: readonly string[], start: number, folder: string): string | undefined {
  const word = words[start + 1] ?? '';
  const isThere = placesOf(word, [folder])
    .flatMap((file) => [file, ...withEndings(file)])
    .some((file) => kindOf(file) !== undefined);
  const program = path.basename(words[start] ?? '');
  const isMeant =
    INTERPRETER.test(program) &&
    !word.startsWith('-') &&
    CODE.test(word) &&
    (word.includes('/') || !program.endsWith('sh'));
  return isMeant && !isThere ? word : undefined;
}

function unboundIn({
  words,
  names,
  start,
  isTold,
}: {
  readonly words: readonly string[];
  readonly names: readonly string[];
  readonly start: number;
  readonly isTold: boolean;
}): string | undefined {
  const name = names.slice(start).findLast((one) => INTERPRETER.test(one) || RUNNER.test(one)) ?? names[start] ?? '';
  const options = words.slice(start + 1);
  const isInline = options.some(
    (word, index) => INLINE.test(word) && options.slice(0, index).every((one) => one.startsWith('-')),
  );
  const isRunner =
    names.slice(start).some((one) => RUNNER.test(one)) && !names.slice(start).some((one) => INTERPRETER.test(one));
  return isTold && !isInline && !isRunner ? undefined : name;
}

function placesOf(word: string, bases: readonly string[]): readonly string[] {
  const pieces = fileTextsIn(word)
    .map(filePathOf)
    .filter((piece) => piece !== undefined && (piece === word || !piece.startsWith('-'))) as readonly string[];
  return [...new Set(pieces.flatMap((piece) => bases.map((base) => path.resolve(base, piece))))];
}

function behind(file: string): readonly string[] {
  const entries = ENTRIES.map((entry) => path.join(file, entry));
  const main = mainOf(path.join(file, 'package.json'));
  const mains =
    main === undefined
      ? []
      : [path.resolve(file, main)].flatMap((one) => [
          one,
          ...withEndings(one),
          ...withEndings(path.join(one, 'index')),
        ]);
  return [file, ...withEndings(file), ...entries, ...mains];
}

function mainOf(manifest: string): string | undefined {
  try {
    const { main } = JSON.parse(readRegularFileSync(manifest, MAX_MANIFEST)) as { readonly main?: unknown };
    return typeof main === 'string' && !main.includes('\0') ? main : undefined;
  } catch {
    return undefined;
  }
}

function withEndings(file: string): readonly string[] {
  return ENDINGS.map((ending) => file + ending);
}

function isFile(file: string): boolean {
  return kindOf(file)?.isFile() === true;
}

function isFolder(file: string): boolean {
  return kindOf(file)?.isDirectory() === true;
}

/** Words are no paths for the most part: too long, or below a file. */
function kindOf(file: string): Stats | undefined {
  try {
    return statSync(file);
  } catch {
    return undefined;
  }
}
