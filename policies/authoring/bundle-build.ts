/** Makes a bundle from user Rego: OPA's format with the facts of Tollgate. Equal input gives equal bytes. */
import { createHash } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { hashLibrary } from '../engine/policy-library.ts';
import { WasmPolicy } from '../engine/wasm/wasm-policy.ts';
import { BUNDLE_FILES, factsText, packBundle, sha256Hex } from '../rego/bundles/bundle-format.ts';
import { ALGORITHMS, type SigningKey, signFiles } from '../rego/bundles/bundle-signatures.ts';
import { findOpa } from '../rego/opa-program.ts';
import { compileRego } from '../rego/rego-build.ts';
import type { RegoSource } from '../rego/rego-files.ts';

/** The content and signature of a bundle. */
export interface BuildRequest {
  readonly sources: readonly RegoSource[];
  /** Folder for built Rego, absolute. */
  readonly cache: string;
  /** Value of --opa on the command line. */
  readonly opa?: string;
  /** Name of this version. Default: a hash of the content. */
  readonly revision?: string;
  readonly signing?: SigningKey;
}

/** A built bundle. */
export interface BuiltBundle {
  readonly bytes: Uint8Array;
  readonly revision: string;
  /** Hash of `bytes`. */
  readonly sha256: string;
  /** Packages below `policy`. */
  readonly packages: readonly string[];
  readonly rules: number;
  readonly entrypoints: readonly string[];
  readonly signed: boolean;
}

/** Builds a bundle. Throws POLICY_INVALID with every problem, OPA_MISSING, and USAGE for a key that cannot sign. */
export async function buildBundle(request: BuildRequest): Promise<BuiltBundle> {
  const { wasm, data, facts } = await compileRego(request.sources, {
    opa: await findOpa(request.opa),
    cache: request.cache,
  });
  const dataText = JSON.stringify(data);
  const factsJson = factsText(wasm, { facts, library: hashLibrary() });
  const revision =
    request.revision ?? createHash('sha256').update(wasm).update(dataText).update(factsJson).digest('hex');
  const { entrypoints } = new WasmPolicy(wasm, '{}', { entrypoints: [] });
  const manifest = {
    revision,
    roots: ['policy', 'tollgate', ...Object.keys(data).sort()],
    wasm: entrypoints.map((entrypoint) => ({ entrypoint, module: `/${BUNDLE_FILES.wasm}` })),
    rego_version: 1,
    metadata: { tollgate: { library: hashLibrary() } },
  };
  const files = new Map<string, Uint8Array>(
    [
      [BUNDLE_FILES.manifest, `${JSON.stringify(manifest)}\n`],
      [BUNDLE_FILES.data, dataText],
      [BUNDLE_FILES.facts, factsJson],
    ].map(([name = '', text]) => [name, new TextEncoder().encode(text)]),
  );
  files.set(BUNDLE_FILES.wasm, wasm);
  if (request.signing !== undefined) files.set(BUNDLE_FILES.signatures, await sign(files, request.signing));
  const bytes = packBundle(files);
  return {
    bytes,
    revision,
    entrypoints,
    sha256: sha256Hex(bytes),
    packages: [...new Set(facts.packages.map(({ name }) => name))].sort(),
    rules: facts.rules.length,
    signed: request.signing !== undefined,
  };
}

async function sign(files: ReadonlyMap<string, Uint8Array>, key: SigningKey): Promise<Uint8Array> {
  try {
    return new TextEncoder().encode(await signFiles(files, key));
  } catch (cause) {
    throw new TollgateError('USAGE', {
      detail: `The key cannot sign with ${key.algorithm}.`,
      next:
        'Name a private key in PEM that fits the algorithm, or choose another of ' +
        `${ALGORITHMS.join(', ')} with --signing-alg.`,
      cause,
    });
  }
}
