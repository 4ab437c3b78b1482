/** Runs `policy build`: builds a bundle of Rego, and signs it if a key is named. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { EXIT, type Io } from '../command-io.ts';
import { writeAsked } from '../output-file.ts';
import { plural } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { type PathOptions, partsOf } from './written-policy.ts';

interface BuildOptions extends PathOptions {
  readonly output: string;
  readonly revision?: string;
  /** A file: a key on the command line would be visible to other users. */
  readonly signingKey?: string;
  readonly signingAlg: 'RS256' | 'ES256' | 'HS256';
}

/**
 * Writes the complete bundle, or nothing. Throws USAGE without Rego or key, or for a file that cannot be written, and
 * what `Authoring.build` throws.
 */
export async function runPolicyBuild(
  options: BuildOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const { output, opa, revision, signingAlg, signingKey } = options;
  const parts = partsOf(options, io);
  const rego = parts.sources.filter(({ kind }) => kind === 'rego');
  if (rego.length === 0)
    throw new TollgateError('USAGE', {
      detail: 'There is no Rego to build. Rules in YAML need no bundle.',
      next: 'Name files or folders of Rego, here or under `policies` in tollgate.yaml.',
    });
  const signing = signingKey === undefined ? undefined : { algorithm: signingAlg, key: readKey(options, io) };
  const { bytes, ...built } = await authoring.build({
    sources: rego.map(({ path: file }) => ({ path: file, shown: path.relative(parts.folder, file) || '.' })),
    cache: parts.cache,
    ...(opa !== undefined && { opa }),
    ...(revision !== undefined && { revision }),
    ...(signing !== undefined && { signing }),
  });
  writeAsked({ file: path.resolve(io.cwd, output), shown: output, content: bytes, isBeside: true });
  if (options.json === true) {
    io.stdout(`${JSON.stringify({ file: output, bytes: bytes.byteLength, ...built })}\n`);
    return EXIT.ok;
  }
  const packages = built.packages.map((name) => `policy.${name}`).join(', ') || 'no package';
  const revised = `revision ${built.revision.slice(0, 12)}${built.signed ? ', signed' : ''}`;
  io.stdout(`${output}: ${plural(built.rules, 'rule')} of ${packages}, ${revised}\n`);
  return EXIT.ok;
}

function readKey({ signingKey = '', signingAlg }: BuildOptions, io: Io): string {
  try {
    const text = readFileSync(path.resolve(io.cwd, signingKey), 'utf8');
    return signingAlg === 'HS256' ? text.trimEnd() : text;
  } catch (cause) {
    throw new TollgateError('USAGE', {
      detail: 'The signing key cannot be read.',
      next: 'Name a file that contains the private key in PEM, or the secret of HS256.',
      cause,
    });
  }
}
