/** Owns `policy build`: which Rego becomes a bundle, where it is written, and with which key it is signed; no key ever stands on the command line. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { BuildRequest } from '../../../policies/authoring/authoring-port.ts';
import { EXIT, type Io } from '../command-io.ts';
import { writeAsked } from '../output-file.ts';
import { plural } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type PathOptions, partsOf } from './written-policy.ts';

interface BuildOptions extends PathOptions {
  readonly output: string;
  readonly revision?: string;
  readonly signingKey?: string;
  readonly signingAlg: 'RS256' | 'ES256' | 'HS256';
}

/** Writes the bundle whole or not at all. Throws USAGE where there is no Rego, no key, or no place for it, and what `Authoring.build` throws. */
export async function runPolicyBuild(
  options: BuildOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const parts = partsOf(options, io);
  const rego = parts.sources.filter(({ kind }) => kind === 'rego');
  if (rego.length === 0)
    throw new TollgateError('USAGE', {
      detail: 'There is no Rego to build: rules in YAML need no bundle.',
      next: 'Name files or folders of Rego, here or under `policies` of tollgate.yaml.',
    });
  const request: BuildRequest = {
    sources: rego.map(({ path: file }) => ({ path: file, shown: path.relative(parts.folder, file) || '.' })),
    cache: parts.cache,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
    ...(options.revision === undefined ? {} : { revision: options.revision }),
    ...(options.signingKey === undefined
      ? {}
      : { signing: { algorithm: options.signingAlg, key: readKey(options, io) } }),
  };
  const { bytes, ...built } = await authoring.build(request);
  writeAsked({ file: path.resolve(io.cwd, options.output), shown: options.output, content: bytes, isBeside: true });
  if (options.json === true)
    io.stdout(`${JSON.stringify({ file: options.output, bytes: bytes.byteLength, ...built })}\n`);
  else
    io.stdout(
      `${options.output}: ${plural(built.rules, 'rule')} of ${built.packages.map((name) => `policy.${name}`).join(', ') || 'no package'}, revision ${built.revision.slice(0, 12)}${built.signed ? ', signed' : ''}\n`,
    );
  return EXIT.ok;
}

function readKey({ signingKey = '', signingAlg }: BuildOptions, io: Io): string {
  try {
    const text = readFileSync(path.resolve(io.cwd, signingKey), 'utf8');
    return signingAlg === 'HS256' ? text.trimEnd() : text;
  } catch (cause) {
    throw new TollgateError('USAGE', {
      detail: 'The signing key cannot be read.',
      next: 'Name a file that holds the private key in PEM, or the secret of HS256.',
      cause,
    });
  }
}
