/** Reads the files of Rego sources, and stages them in the folder where opa works. */
import { cp, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CAPABILITIES_FILE, readLibrarySources, SCHEMA_FOLDER } from '../engine/policy-library.ts';
import type { StagedFile } from './rego-facts.ts';

/** A folder or file of Rego. `shown` is its name in messages. */
export interface RegoSource {
  readonly path: string;
  readonly shown: string;
}

/** A file that was read: Rego or data. */
export interface SourceFile extends StagedFile {
  readonly bytes: Buffer;
}

/** The folder of the library within a staging folder. */
export const STAGED_LIBRARY = 'library';
/** The JSON Schema of the input. */
export const INPUT_SCHEMA = path.join(SCHEMA_FOLDER, 'input.json');

const REGO = /\.rego$/;
const TESTS = /_test\.rego$/;
const DATA = /^data\.(json|ya?ml)$/;

/** Whether a file is Rego, and whether it is a Rego test. */
export const isRego = ({ staged }: StagedFile): boolean => REGO.test(staged);
export const isTest = ({ staged }: StagedFile): boolean => TESTS.test(staged);

/** Reads Rego, data and tests of all sources. Throws POLICY_INVALID if a source has no Rego. */
export async function readRegoSources(sources: readonly RegoSource[]): Promise<readonly SourceFile[]> {
  return (await Promise.all(sources.map(readSource))).flat();
}

async function readSource(source: RegoSource, index: number): Promise<readonly SourceFile[]> {
  const top = await stat(source.path).catch(() => undefined);
  if (top === undefined)
    throw new TollgateError('POLICY_INVALID', { detail: `There is no policy at ${source.shown}.` });
  const names = top.isDirectory() ? await listFiles(source.path) : [path.basename(source.path)];
  const base = top.isDirectory() ? source.path : path.dirname(source.path);
  const wanted = names.filter((name) => REGO.test(name) || DATA.test(path.basename(name)));
  if (!wanted.some((name) => REGO.test(name) && !TESTS.test(name)))
    throw new TollgateError('POLICY_INVALID', { detail: `There is no Rego at ${source.shown}.` });
  return Promise.all(
    wanted.map(async (name) => ({
      staged: path.join('user', String(index), name),
      source: index,
      shown: top.isDirectory() ? path.join(source.shown, name) : source.shown,
      bytes: await readFile(path.join(base, name)),
    })),
  );
}

/**
 * Returns relative names, sorted, without hidden files. Links to files are followed. A link to a folder is refused,
 * because ignoring its content silently would be dangerous.
 */
async function listFiles(folder: string, below = ''): Promise<readonly string[]> {
  const entries = (await readdir(path.join(folder, below), { withFileTypes: true })).filter(
    ({ name }) => !name.startsWith('.'),
  );
  const nested = entries.map(async (entry) => {
    const name = path.join(below, entry.name);
    if (entry.isDirectory()) return listFiles(folder, name);
    if (entry.isSymbolicLink() && (await stat(path.join(folder, name))).isDirectory()) {
      throw new TollgateError('POLICY_INVALID', {
        detail: `${name} is a link to a folder. Name that folder as a source of its own.`,
      });
    }
    return [name];
  });
  return (await Promise.all(nested)).flat().sort();
}

/**
 * Writes the files to a folder of our own, so that opa compiles exactly the bytes that were hashed. Paths are relative.
 */
export async function stageFiles(files: readonly SourceFile[], staging: string): Promise<void> {
  await mkdir(path.join(staging, STAGED_LIBRARY), { recursive: true, mode: 0o700 });
  await Promise.all([
    cp(CAPABILITIES_FILE, path.join(staging, 'capabilities.json')),
    cp(INPUT_SCHEMA, path.join(staging, 'input.json')),
    ...[...readLibrarySources()].map(([name, bytes]) => writeFile(path.join(staging, STAGED_LIBRARY, name), bytes)),
    ...files.map(async ({ staged, bytes }) => {
      await mkdir(path.dirname(path.join(staging, staged)), { recursive: true });
      await writeFile(path.join(staging, staged), bytes);
    }),
  ]);
}

/** Returns the folders for `opa build`. The names of data files are relative to each of them. */
export function stagedRoots(files: readonly SourceFile[]): readonly string[] {
  return [...new Set(files.map(({ staged }) => staged.split(path.sep).slice(0, 2).join('/')))];
}

/** Returns the absolute paths of all files in a folder, without hidden files and node_modules. */
export async function listVisibleFiles(folder: string): Promise<readonly string[]> {
  const entries = (await readdir(folder, { withFileTypes: true })).filter(
    ({ name }) => !name.startsWith('.') && name !== 'node_modules',
  );
  const nested = entries.map(async (entry) => {
    const file = path.join(folder, entry.name);
    return entry.isDirectory() ? listVisibleFiles(file) : [file];
  });
  return (await Promise.all(nested)).flat();
}
