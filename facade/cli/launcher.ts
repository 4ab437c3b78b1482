#!/usr/bin/env node
/**
 * The file that Node starts, built as dist/facade/main.js. It runs the bundle with the code that V8 compiled in an
 * earlier run, because compiling takes a third of a start. It prints the version itself, without the bundle.
 */
import { mkdirSync, readFileSync, renameSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type vm from 'node:vm';
import { VERSION } from '../serve/version.ts';

/** The file name of the bundle. It contains a hash of the code. Set by esbuild.config.mjs. */
declare const BUNDLE: string;

/** What the bundle exports: facade/main.ts. */
interface Bundle {
  readonly runCommandLine?: () => Promise<void>;
}

const DIST = path.join(import.meta.dirname, '..');
const STDOUT = 1;
const HASH_BYTES = 32;
/** After this time V8 has compiled what a start needs. Later it drops code that has not run for some time. */
const START_MS = 3_000;
/** Between two full collections, the heap of a process that serves may grow by this share, not by up to 300 %. */
const HEAP_GROWTH = '--heap-growing-percent=60';

/** Built-in modules are loaded when they are needed, so that the version costs no more than Node itself. */
const require = createRequire(import.meta.url);

/** Returns false if the command line is not about the version alone, or if the output failed: the bundle reports it. */
function hasPrintedVersion(argv: readonly string[]): boolean {
  if (argv.length !== 1 || !['version', '--version', '-V'].includes(argv[0] ?? '')) return false;
  try {
    writeSync(STDOUT, `tollgate ${VERSION}\n`);
    return true;
  } catch {
    return false;
  }
}

/**
 * Returns the file for the compiled code. It is in the folder of the code, where only a user who can change the code
 * can write. Serving and the other commands use different functions, so each has a file. V8's tag stands for its
 * version, flags and the processor, so the flags are set first. Two releases of Node can have the same tag, and one
 * ends with a segmentation fault in code of the other: the name has the release, and the size and time of the program.
 */
function cacheFile(command: string | undefined): string {
  const { cachedDataVersionTag, setFlagsFromString } = require('node:v8') as typeof import('node:v8');
  const isServing = command === 'run' || command === 'serve';
  if (isServing) setFlagsFromString(HEAP_GROWTH);
  const { size, mtimeMs } = statSync(process.execPath);
  const node = `${process.version}-${size}-${Math.floor(mtimeMs)}-${cachedDataVersionTag()}`;
  return path.join(DIST, '.compiled', `${BUNDLE}-${node}-${isServing ? 'serve' : 'command'}`);
}

function hashOf(code: Uint8Array): Buffer {
  const { createHash } = require('node:crypto') as typeof import('node:crypto');
  return createHash('sha256').update(code).digest();
}

/** Returns undefined if there is no code or if it is damaged. V8 itself does not check all of it. */
function readCode(file: string): Buffer | undefined {
  try {
    const bytes = readFileSync(file);
    const code = bytes.subarray(HASH_BYTES);
    return hashOf(code).equals(bytes.subarray(0, HASH_BYTES)) ? code : undefined;
  } catch {
    return undefined;
  }
}

function once(work: () => void): () => void {
  let isDone = false;
  return () => {
    if (!isDone) work();
    isDone = true;
  };
}

/** If the folder is read-only, nothing is kept. */
function keepCode(file: string, code: Buffer): void {
  try {
    mkdirSync(path.dirname(file), { recursive: true, mode: 0o755 });
    const written = `${file}.${process.pid}`;
    writeFileSync(written, Buffer.concat([hashOf(code), code]), { mode: 0o644 });
    renameSync(written, file);
  } catch {
    // The next start compiles again.
  }
}

/** Evaluates the bundle as Node evaluates a CommonJS module. Node reads source maps of modules alone. */
function loadBundle(command: string | undefined): Bundle {
  const file = path.join(DIST, 'code', BUNDLE);
  if (process.sourceMapsEnabled) return require(file) as Bundle;
  const { constants, Script } = require('node:vm') as typeof vm;
  const kept = cacheFile(command);
  const cachedData = readCode(kept);
  // esbuild writes ASCII only, and V8 stores Latin-1 in half the memory.
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(file, 'latin1')}\n})`;
  const script = new Script(source, {
    filename: file,
    ...(cachedData !== undefined && { cachedData }),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  if (cachedData === undefined || script.cachedDataRejected === true) {
    const keep = once(() => keepCode(kept, script.createCachedData()));
    process.once('exit', keep);
    setTimeout(keep, START_MS).unref();
  }
  const module: { readonly exports: Bundle } = { exports: {} };
  script.runInThisContext()(module.exports, createRequire(file), module, file, path.dirname(file));
  return module.exports;
}

const argv = process.argv.slice(2);
if (!hasPrintedVersion(argv)) await loadBundle(argv[0]).runCommandLine?.();
