/** Owns which files a source of Rego has, and the folder that opa works in; refuses sources without Rego, and links to folders. */
import { cp, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { CAPABILITIES_FILE, readLibrarySources, SCHEMA_FOLDER } from '../engine/policy-library.ts';
import type { StagedFile } from './rego-facts.ts';

/** A folder or file of Rego. `shown` stands for it in messages. */
export interface RegoSource {
  readonly path: string;
  readonly shown: string;
}

/** A file that was read: Rego or data. */
export interface SourceFile extends StagedFile {
  readonly bytes: Buffer;
}

/** Where the library stands in a staging folder. */
export const STAGED_LIBRARY = 'library';
/** The schema of the input, for opa and for everybody else. */
export const INPUT_SCHEMA = path.join(SCHEMA_FOLDER, 'input.json');

const REGO = /\.rego$/;
const TESTS = /_test\.rego$/;
const DATA = /^data\.(json|ya?ml)$/;

/** Whether a file is Rego, whether it is a test. */
export const isRego = ({ staged }: StagedFile): boolean => REGO.test(staged);
export const isTest = ({ staged }: StagedFile): boolean => TESTS.test(staged);

/** Reads Rego and data of all sources, tests too. Throws POLICY_INVALID where there is nothing to build. */
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

/** Relative names, sorted; hidden ones are left out, links to files followed. A link to a folder is refused: what it holds would be left out unseen. */
async function listFiles(folder: string, below = ''): Promise<readonly string[]> {
  const entries = (await readdir(path.join(folder, below), { withFileTypes: true })).filter(
    ({ name }) => !name.startsWith('.'),
  );
  const nested = entries.map(async (entry) => {
    const name = path.join(below, entry.name);
    if (entry.isDirectory()) return listFiles(folder, name);
    if (entry.isSymbolicLink() && (await stat(path.join(folder, name))).isDirectory()) {
      throw new TollgateError('POLICY_INVALID', {
        detail: `${name} is a link to a folder; name that folder as a policy of its own.`,
      });
    }
    return [name];
  });
  return (await Promise.all(nested)).flat().sort();
}

/** Relative names in a folder of our own: what is compiled is what was hashed, and the bytes do not depend on where it lay. */
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

/** The folders that `opa build` is given: names of data count from each of them. */
export function stagedRoots(files: readonly SourceFile[]): readonly string[] {
  return [...new Set(files.map(({ staged }) => staged.split(path.sep).slice(0, 2).join('/')))];
}
