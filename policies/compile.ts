/** Owns the build of user Rego together with the library, and the cache of what was built; refuses Rego with faults, each at its place. */
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { cp, mkdir, readFile, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../catalogs/errors.ts';
import { readBundle, unpack, type Bundle } from './bundle.ts';
import { buildFlags, CAPABILITIES, hashLibrary, readLibrarySources, SCHEMAS } from './library.ts';
import { runOpa, type Opa } from './opa.ts';
import { refuseProblems, type Problem } from './problems.ts';
import { inspectRego, type RegoFacts, type StagedFile } from './rego.ts';

/** A folder or file of Rego. `shown` stands for it in messages. */
export interface RegoSource {
  readonly path: string;
  readonly shown: string;
}

/** User Rego, built. */
export interface CompiledRego extends Bundle {
  readonly facts: RegoFacts;
}

interface SourceFile extends StagedFile {
  readonly bytes: Buffer;
}

const INPUT_SCHEMA = path.join(SCHEMAS, 'input.json');
const LIBRARY = 'library';
const REGO = /\.rego$/;
const TESTS = /_test\.rego$/;
const DATA = /^data\.(json|ya?ml)$/;

/**
 * Builds all sources into one module with the library, or takes it from `cache` when nothing changed. Throws POLICY_INVALID
 * with every problem at its place, OPA_MISSING when opa cannot be started.
 */
export async function compileRego(sources: readonly RegoSource[], options: { readonly opa: Opa; readonly cache: string }): Promise<CompiledRego> {
  const files = (await Promise.all(sources.map(readSource))).flat();
  const target = path.join(options.cache, hashFiles(files, options.opa));
  const cached = await readCached(target);
  if (cached !== undefined) return cached;
  const staging = path.join(options.cache, `staging-${process.pid}-${randomUUID()}`);
  try {
    await stage(files, staging);
    const facts = await check(files, { opa: options.opa, staging });
    await build(files, { opa: options.opa, staging, facts });
    // Another process may have stored the same build meanwhile; what lies there is judged below.
    await rm(target, { recursive: true, force: true });
    await rename(path.join(staging, 'out'), target).catch(() => undefined);
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  const built = await readCached(target);
  if (built === undefined) throw new TollgateError('POLICY_INVALID', { detail: 'The built policy could not be stored in the cache folder.' });
  return built;
}

async function readSource(source: RegoSource, index: number): Promise<readonly SourceFile[]> {
  const top = await stat(source.path).catch(() => undefined);
  if (top === undefined) throw new TollgateError('POLICY_INVALID', { detail: `There is no policy at ${source.shown}.` });
  const names = top.isDirectory() ? await listFiles(source.path) : [path.basename(source.path)];
  const base = top.isDirectory() ? source.path : path.dirname(source.path);
  const wanted = names.filter((name) => (REGO.test(name) && !TESTS.test(name)) || DATA.test(path.basename(name)));
  if (!wanted.some((name) => REGO.test(name))) throw new TollgateError('POLICY_INVALID', { detail: `There is no Rego at ${source.shown}.` });
  return Promise.all(wanted.map(async (name) => ({
    staged: path.join('user', String(index), name),
    source: index,
    shown: top.isDirectory() ? path.join(source.shown, name) : source.shown,
    bytes: await readFile(path.join(base, name)),
  })));
}

/** Relative names, sorted; hidden ones are left out, links to files followed. A link to a folder is refused: what it holds would be left out unseen. */
async function listFiles(folder: string, below = ''): Promise<readonly string[]> {
  const entries = (await readdir(path.join(folder, below), { withFileTypes: true })).filter(({ name }) => !name.startsWith('.'));
  const nested = entries.map(async (entry) => {
    const name = path.join(below, entry.name);
    if (entry.isDirectory()) return listFiles(folder, name);
    if (entry.isSymbolicLink() && (await stat(path.join(folder, name))).isDirectory()) {
      throw new TollgateError('POLICY_INVALID', { detail: `${name} is a link to a folder; name that folder as a policy of its own.` });
    }
    return [name];
  });
  return (await Promise.all(nested)).flat().sort();
}

function hashFiles(files: readonly SourceFile[], opa: Opa): string {
  const hash = createHash('sha256').update(`${opa.version}\n${hashLibrary()}\n`).update(readFileSync(INPUT_SCHEMA));
  for (const { staged, shown, bytes } of files) hash.update(`${JSON.stringify([staged, shown, bytes.byteLength])}\n`).update(bytes);
  return hash.digest('hex');
}

/** Relative names in a folder of our own: what is compiled is what was hashed, and the bytes do not depend on where it lay. */
async function stage(files: readonly SourceFile[], staging: string): Promise<void> {
  await mkdir(path.join(staging, 'library'), { recursive: true, mode: 0o700 });
  await mkdir(path.join(staging, 'out'));
  await cp(CAPABILITIES, path.join(staging, 'capabilities.json'));
  await cp(INPUT_SCHEMA, path.join(staging, 'input.json'));
  for (const [name, bytes] of readLibrarySources()) await writeFile(path.join(staging, 'library', name), bytes);
  for (const { staged, bytes } of files) {
    await mkdir(path.dirname(path.join(staging, staged)), { recursive: true });
    await writeFile(path.join(staging, staged), bytes);
  }
}

interface Job {
  readonly opa: Opa;
  readonly staging: string;
}

async function check(files: readonly SourceFile[], { opa, staging }: Job): Promise<RegoFacts> {
  const args = ['check', ...opa.flags, '--strict', '-f', 'json', '--capabilities', 'capabilities.json', '-s', 'input.json', 'user'];
  const checked = await runOpa(opa, args, staging);
  if (checked.code !== 0) refuse(checked.stderr, files);
  const { facts, problems } = await inspectRego(opa, staging, files.filter(({ staged }) => REGO.test(staged)));
  refuseProblems(problems);
  return facts;
}

async function build(files: readonly SourceFile[], { opa, staging, facts }: Job & { readonly facts: RegoFacts }): Promise<void> {
  const roots = [...new Set(files.map(({ staged }) => staged.split(path.sep).slice(0, 2).join('/')))];
  const built = await runOpa(opa, [...buildFlags(opa), '--capabilities', 'capabilities.json', '-o', 'bundle.tar.gz', 'library', ...roots], staging);
  if (built.code !== 0) refuse(built.stderr + built.stdout, files);
  const unpacked = unpack(await readFile(path.join(staging, 'bundle.tar.gz')));
  const wasm = unpacked.get('policy.wasm') ?? new Uint8Array();
  await writeFile(path.join(staging, 'out', 'policy.wasm'), wasm);
  await writeFile(path.join(staging, 'out', 'data.json'), unpacked.get('data.json') ?? '{}');
  await writeFile(path.join(staging, 'out', 'facts.json'), JSON.stringify({ wasm: createHash('sha256').update(wasm).digest('hex'), facts }));
}

/** What stands in the cache, or undefined when it is missing or damaged. */
async function readCached(folder: string): Promise<CompiledRego | undefined> {
  const text = await readFile(path.join(folder, 'facts.json'), 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const { wasm, facts } = JSON.parse(text) as { wasm: string; facts: RegoFacts };
  const bundle = await readBundle(folder, 'of the cache');
  return createHash('sha256').update(bundle.wasm).digest('hex') === wasm ? { ...bundle, facts } : undefined;
}

interface OpaError {
  readonly message: string;
  readonly location?: { readonly file: string; readonly row: number; readonly col: number };
  readonly details?: { readonly oneOf?: readonly string[] | null };
}

/** Turns the errors of opa, with names of the staging folder, into problems of the user's files. */
function refuse(output: string, files: readonly SourceFile[]): never {
  const shown = new Map(files.map((file) => [file.staged, file.shown]));
  const problems = readErrors(output).map(({ message, location, details }): Problem => ({
    file: shown.get(location?.file ?? '') ?? LIBRARY,
    line: location?.row ?? 1,
    column: location?.col ?? 1,
    message: Array.isArray(details?.oneOf) ? `${message}; known here: ${details.oneOf.join(', ')}` : message,
  }));
  // A fault of the user's file shows again in every file of the library that depends on it.
  refuseProblems(problems.some(({ file }) => file !== LIBRARY) ? problems.filter(({ file }) => file !== LIBRARY) : problems);
  throw new TollgateError('POLICY_INVALID', { detail: 'opa refuses the policy without saying why.', cause: output });
}

/** `opa check` answers JSON; `opa build` lines of `file:row: message`. */
function readErrors(output: string): readonly OpaError[] {
  try {
    return (JSON.parse(output) as { errors?: readonly OpaError[] }).errors ?? [];
  } catch {
    return [...output.matchAll(/([^\s:]+\.rego):(\d+): (.*)$/gm)].map(([, file = '', row, message = '']) => ({ message, location: { file, row: Number(row), col: 1 } }));
  }
}
