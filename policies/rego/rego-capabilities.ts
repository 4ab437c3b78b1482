/** Makes the list of built-ins that Rego may use here: those that WebAssembly has, and those in builtins.ts. */

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { wordSet } from '../../catalogs/text/word-set.ts';
import { BUILTINS } from '../engine/wasm/builtins.ts';
import { type WasmExports, WasmHost } from '../engine/wasm/wasm-host.ts';
import { memoryPages } from '../engine/wasm/wasm-module.ts';
import { unpackBundle } from './bundles/bundle-format.ts';
import { type Opa, runOpa } from './opa-program.ts';
import { inTemporaryFolder } from './temporary-folder.ts';

/** Built-ins that do not exist at run time, and operators. They cannot be called by the probe, and need no host. */
const COMPILE_TIME = new Set(['assign', 'eq', 'print', 'rego.metadata.chain', 'rego.metadata.rule']);
/** OPA 1 reads Rego v1 only with this feature. OPA 0.70 ignores it. */
const REGO_V1 = 'rego_v1';
/** Built-ins that Rego v1 refuses. */
const DEPRECATED = wordSet(
  'all any cast_array cast_boolean cast_null cast_object cast_set cast_string net.cidr_overlap re_match set_diff',
);

interface Builtin {
  readonly name: string;
  readonly infix?: string;
  readonly decl: { readonly args?: readonly unknown[] };
}

interface Capabilities {
  readonly builtins: readonly Builtin[];
  readonly future_keywords: readonly string[];
  readonly features: readonly string[];
}

/**
 * Returns the text of capabilities.json. To make it, opa compiles a policy that calls every built-in; the module then
 * states which of them its host must supply. Throws Error if opa fails.
 */
export async function makeCapabilities(opa: Opa): Promise<string> {
  return inTemporaryFolder('capabilities', async (folder) => {
    const listed = await runOpa(opa, ['capabilities', '--current'], folder);
    const all = JSON.parse(listed.stdout) as Capabilities;
    const probed = all.builtins.filter(
      ({ name, infix }) =>
        infix === undefined && !name.startsWith('internal.') && !COMPILE_TIME.has(name) && !DEPRECATED.has(name),
    );
    const hosted = new Set(await findHosted(opa, folder, probed));
    const builtins = all.builtins.filter(
      ({ name }) => !DEPRECATED.has(name) && (!hosted.has(name) || BUILTINS.has(name)),
    );
    const features = [...new Set([...all.features, REGO_V1])];
    return `${JSON.stringify({ builtins, future_keywords: all.future_keywords, features }, null, 1)}\n`;
  });
}

/** Returns Rego that calls each of these built-ins with unknown arguments. */
export function callAll(builtins: readonly Builtin[]): string {
  const calls = builtins.map(({ name, decl }, index) => {
    const args = (decl.args ?? []).map((_, position) => `input.a${position}`).join(', ');
    return `called contains ${index} if {\n\tx := ${name}(${args})\n\tx != input.z\n}`;
  });
  return ['package probe', ...calls].join('\n\n');
}

async function findHosted(opa: Opa, folder: string, builtins: readonly Builtin[]): Promise<readonly string[]> {
  await mkdir(path.join(folder, 'probe'));
  await writeFile(path.join(folder, 'probe', 'probe.rego'), callAll(builtins));
  const built = await runOpa(
    opa,
    ['build', ...opa.flags, '-t', 'wasm', '-e', 'probe/called', '-o', 'probe.tar.gz', 'probe'],
    folder,
  );
  const wasm =
    built.code === 0 ? unpackBundle(await readFile(path.join(folder, 'probe.tar.gz'))).get('policy.wasm') : undefined;
  if (wasm === undefined) throw new Error(`opa could not compile the probe: ${built.stderr}`);
  const memory = new WebAssembly.Memory({ initial: memoryPages(wasm) });
  const host = new WasmHost(memory, () => ({ time: '' }));
  const instance = new WebAssembly.Instance(new WebAssembly.Module(wasm as Uint8Array<ArrayBuffer>), {
    env: host.imports,
  });
  return host.requiredBuiltins(instance.exports as unknown as WasmExports);
}
