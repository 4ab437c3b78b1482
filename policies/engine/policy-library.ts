/** The shipped library: its sources, the WebAssembly built from them, and the hash that connects the two. */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { unpackBundle } from '../rego/bundles/bundle-format.ts';
import { findOpa, type Opa, packageRoot, runOpa } from '../rego/opa-program.ts';
import { makeCapabilities } from '../rego/rego-capabilities.ts';
import { inTemporaryFolder } from '../rego/temporary-folder.ts';

/**
 * The entry points of the module: decide a call, the same with what the decision depends on, find the rules that a call
 * matches, decide a list, check patterns, explain conditions.
 */
export const ENTRYPOINTS = {
  call: 'tollgate/call/decision',
  read: 'tollgate/fired/decision',
  fired: 'tollgate/fired/answer',
  list: 'tollgate/list/decisions',
  patterns: 'tollgate/patterns/check',
  why: 'tollgate/why/explain',
} as const;

/** This folder, in the sources or in dist/. */
const POLICIES = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
/** Files of the policies folder. */
export const CAPABILITIES_FILE = path.join(POLICIES, 'rego', 'capabilities.json');
export const SCHEMA_FOLDER = path.join(POLICIES, 'schemas');

/** The shipped WebAssembly and its origin. */
interface PolicyLibrary {
  readonly wasm: Uint8Array;
  readonly sourceHash: string;
  /** Version of the opa that built it. */
  readonly opa: string;
}

/** Returns the flags of `opa build`. Without the last two, tests would become entry points. */
export function buildFlags(opa: Opa): readonly string[] {
  const entries = [ENTRYPOINTS.call, ENTRYPOINTS.list, ENTRYPOINTS.patterns].flatMap((entry) => ['-e', entry]);
  return ['build', ...opa.flags, '-t', 'wasm', ...entries, '--prune-unused', '--ignore', '*_test.rego'];
}

/** Returns the sources of the library by file name, sorted, without tests. */
export function readLibrarySources(): ReadonlyMap<string, Buffer> {
  const names = readdirSync(path.join(POLICIES, 'lib'))
    .filter((name) => name.endsWith('.rego') && !name.endsWith('_test.rego'))
    .sort();
  return new Map(names.map((name) => [name, readFileSync(path.join(POLICIES, 'lib', name))]));
}

/** Returns the SHA-256 of capabilities.json and of the names and bytes of the sources. */
export function hashLibrary(): string {
  const hash = createHash('sha256').update(readFileSync(CAPABILITIES_FILE));
  for (const [name, bytes] of readLibrarySources()) hash.update(`\n${name}\n${bytes.byteLength}\n`).update(bytes);
  return hash.digest('hex');
}

/** Reads the built library that ships with this file. */
export function readLibrary(): PolicyLibrary {
  const { sourceHash, opa } = JSON.parse(readFileSync(path.join(POLICIES, 'lib', 'policy.json'), 'utf8')) as Omit<
    PolicyLibrary,
    'wasm'
  >;
  return { wasm: readFileSync(path.join(POLICIES, 'lib', 'policy.wasm')), sourceHash, opa };
}

/**
 * Builds the library from the source tree. The same opa gives the same bytes: it runs at the root, with relative paths.
 */
export async function buildLibrary(opa: Opa): Promise<Uint8Array> {
  return inTemporaryFolder('library', async (folder) => {
    const out = path.join(folder, 'library.tar.gz');
    const capabilities = path.join('policies', 'rego', 'capabilities.json');
    const own = [ENTRYPOINTS.read, ENTRYPOINTS.fired, ENTRYPOINTS.why].flatMap((entry) => ['-e', entry]);
    const flags = [...buildFlags(opa), ...own, '--capabilities', capabilities, '-o', out];
    const { code, stderr } = await runOpa(opa, [...flags, path.join('policies', 'lib')], packageRoot());
    const wasm = code === 0 ? unpackBundle(await readFile(out)).get('policy.wasm') : undefined;
    if (wasm === undefined) throw new Error(`opa cannot build the library:\n${stderr}`);
    return wasm;
  });
}

/** Writes capabilities.json, policy.wasm and policy.json into the source tree. */
async function rebuild(): Promise<void> {
  const opa = await findOpa();
  const target = path.join(packageRoot(), 'policies');
  const capabilities = await makeCapabilities(opa);
  await writeFile(CAPABILITIES_FILE, capabilities);
  const wasm = await buildLibrary(opa);
  await writeFile(path.join(target, 'lib', 'policy.wasm'), wasm);
  await writeFile(
    path.join(target, 'lib', 'policy.json'),
    `${JSON.stringify({ sourceHash: hashLibrary(), opa: opa.version })}\n`,
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) void rebuild();
