/** Builds the user's Rego together with the library, and caches the builds. */
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { appendFile, mkdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { buildFlags, hashLibrary } from '../engine/policy-library.ts';
import { type PolicyProblem, refuseProblems } from '../rules/policy-problems.ts';
import { type Bundle, factsText, readBundle, unpackBundle } from './bundles/bundle-format.ts';
import { readOpaProblems } from './opa-errors.ts';
import { type Opa, runOpa } from './opa-program.ts';
import type { ParsedFile, RegoFacts } from './rego-facts.ts';
import {
  INPUT_SCHEMA,
  isRego,
  isTest,
  type RegoSource,
  readRegoSources,
  type SourceFile,
  STAGED_LIBRARY,
  stagedRoots,
  stageFiles,
} from './rego-files.ts';
import { type InspectedRego, inspectRego } from './rego-inspection.ts';
import { buildRuleCopies } from './rule-copies.ts';
import { parseModules } from './syntax-tree.ts';

export type { RegoSource } from './rego-files.ts';

/** The user's Rego after the build. */
export type CompiledRego = Bundle & { readonly facts: RegoFacts };

/** Part of the cache key. Increase it when a change in this folder builds the same sources differently. */
const FORM = '9';

/**
 * Builds all sources into one module with the library, or takes it from `cache` if nothing changed. Throws
 * POLICY_INVALID with every problem at its place, and OPA_MISSING if opa cannot be started.
 */
export async function compileRego(
  sources: readonly RegoSource[],
  options: { readonly opa: Opa; readonly cache: string },
): Promise<CompiledRego> {
  const files = (await readRegoSources(sources)).filter((file) => !isTest(file));
  const target = path.join(options.cache, hashFiles(files, options.opa));
  const cached = await readCached(target);
  if (cached !== undefined) return cached;
  const staging = path.join(options.cache, `staging-${process.pid}-${randomUUID()}`);
  try {
    await stageFiles(files, staging);
    await build(files, { opa: options.opa, staging });
    // Another process may have stored the same build in the meantime. readBundle below verifies what is there.
    await rm(target, { recursive: true, force: true });
    await rename(path.join(staging, 'out'), target).catch(() => undefined);
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  const built = await readBundle(target, 'of the cache');
  if (built.facts === undefined)
    throw new TollgateError('POLICY_INVALID', { detail: 'The built policy could not be stored in the cache folder.' });
  return { ...built, facts: built.facts };
}

function hashFiles(files: readonly SourceFile[], opa: Opa): string {
  const hash = createHash('sha256')
    .update(`${FORM}\n${opa.version}\n${hashLibrary()}\n`)
    .update(readFileSync(INPUT_SCHEMA));
  for (const { staged, shown, bytes } of files)
    hash.update(`${JSON.stringify([staged, shown, bytes.byteLength])}\n`).update(bytes);
  return hash.digest('hex');
}

/** The staging folder of a build, and the opa that works in it. */
interface RegoBuildJob {
  readonly opa: Opa;
  readonly staging: string;
}

/** The result of `checkRego`. */
interface CheckedRego extends InspectedRego {
  readonly files: readonly (ParsedFile & SourceFile)[];
}

/**
 * Lets opa check the staged files, and makes the checks that opa does not. Returns the faults of all files, each once.
 */
export async function checkRego(files: readonly SourceFile[], job: RegoBuildJob): Promise<CheckedRego> {
  const rego = files.filter((file) => isRego(file) && !isTest(file));
  const [refused, parsed] = await Promise.all([askOpa(files, job, ['user']), parseModules(job.opa, job.staging, rego)]);
  const inspected = inspectRego(parsed);
  // opa stops at files that do not parse. The other files are checked alone, so that their faults are reported too.
  const others = parsed.length > 0 && parsed.length < rego.length ? await askOpa(files, job, stagedNames(parsed)) : [];
  const more = others.filter(({ message }) => !message.startsWith('undefined function data.'));
  return { ...inspected, files: parsed, problems: mergeProblems([...refused, ...more], inspected.problems) };
}

function stagedNames(files: readonly ParsedFile[]): readonly string[] {
  return files.map(({ staged }) => staged);
}
async function askOpa(
  files: readonly SourceFile[],
  { opa, staging }: RegoBuildJob,
  names: readonly string[],
): Promise<readonly PolicyProblem[]> {
  const limits = ['-f', 'json', '-m', '100', '--capabilities', 'capabilities.json', '-s', 'input.json'];
  const { code, stderr } = await runOpa(opa, ['check', ...opa.flags, '--strict', ...limits, ...names], staging);
  return code === 0 ? [] : readOpaProblems(stderr, files);
}

/** Leaves out a second fault on a line that already has one. */
function mergeProblems(first: readonly PolicyProblem[], second: readonly PolicyProblem[]): readonly PolicyProblem[] {
  const reported = new Set(first.map(({ file, line }) => `${file}:${line}`));
  return [...first, ...second.filter(({ file, line }) => !reported.has(`${file}:${line}`))];
}

/** Staged Rego that can be evaluated. */
interface PreparedRego extends RegoFacts {
  /** Returns the row that the author wrote for a row of a staged file. Coverage and traces show the author's row. */
  readonly rowOf: (staged: string, row: number) => number;
}

/**
 * Checks staged files and prepares them for evaluation, in opa or in WebAssembly. Every rule of a set gets a copy that
 * contains its number, and the library reads these copies. Throws POLICY_INVALID.
 */
export async function prepareRego(files: readonly SourceFile[], job: RegoBuildJob): Promise<PreparedRego> {
  const { facts, rules, exposes, files: parsed, problems } = await checkRego(files, job);
  refuseProblems(problems);
  const { appended, sources } = buildRuleCopies(parsed, rules, exposes);
  for (const [staged, { text }] of appended) await appendFile(path.join(job.staging, staged), text);
  await writeFile(path.join(job.staging, STAGED_LIBRARY, 'sources.rego'), sources);
  return { ...facts, rowOf: (staged, row) => appended.get(staged)?.rowOf(row) ?? row };
}

async function build(files: readonly SourceFile[], job: RegoBuildJob): Promise<void> {
  const { opa, staging } = job;
  const { rowOf: _rowOf, ...facts } = await prepareRego(files, job);
  const built = await runOpa(
    opa,
    [
      ...buildFlags(opa),
      '--capabilities',
      'capabilities.json',
      '-o',
      'bundle.tar.gz',
      STAGED_LIBRARY,
      ...stagedRoots(files),
    ],
    staging,
  );
  if (built.code !== 0) refuseProblems(readOpaProblems(built.stderr + built.stdout, files));
  const unpacked = unpackBundle(await readFile(path.join(staging, 'bundle.tar.gz')));
  const wasm = unpacked.get('policy.wasm') ?? new Uint8Array();
  const out = path.join(staging, 'out');
  await mkdir(out);
  await writeFile(path.join(out, 'policy.wasm'), wasm);
  await writeFile(path.join(out, 'data.json'), unpacked.get('data.json') ?? '{}');
  await writeFile(path.join(out, 'tollgate.json'), factsText(wasm, { facts, library: hashLibrary() }));
}

/** Returns a cached build; undefined if it is missing or damaged. Then it is built again, and faults are reported. */
async function readCached(folder: string): Promise<CompiledRego | undefined> {
  if ((await stat(folder).catch(() => undefined)) === undefined) return undefined;
  const found = await readBundle(folder, 'of the cache').catch((thrown: unknown) => {
    if (thrown instanceof TollgateError) return undefined;
    throw thrown;
  });
  return found?.facts === undefined ? undefined : { ...found, facts: found.facts };
}
