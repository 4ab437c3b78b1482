/** Pins images of containers by their digest, with Podman or Docker. */
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type InstallWorld, installFailure, runInstaller } from './installer.ts';
import type { PinnedPackage } from './pinned-package.ts';

/** What an engine tells about an image. */
interface ImageFacts {
  readonly Id?: string;
  readonly Digest?: string;
  readonly RepoDigests?: readonly string[] | null;
  readonly Config?: { readonly Entrypoint?: readonly string[] | null; readonly Cmd?: readonly string[] | null };
}

/**
 * Pulls an image unless it is here, and returns it by its digest with its program. An image that was built here has no
 * digest of a registry, so its own id counts. Throws INSTALL_FAILED, CANCELLED.
 */
export async function pinImage(image: string, world: InstallWorld): Promise<PinnedPackage> {
  const file = await world.containerClient();
  const program = path.basename(file) === 'podman' ? 'podman' : 'docker';
  const run = (args: readonly string[], what: string): Promise<string> =>
    runInstaller({ program, file, args, cwd: tmpdir(), what }, world);
  const refuse = (thrown: unknown): never => {
    if (!(thrown instanceof TollgateError) || !/unauthorized|denied/i.test(thrown.message)) throw thrown;
    const registry = /^[^/]*[.:][^/]*(?=\/)/.exec(image)?.[0] ?? '';
    throw installFailure(thrown.message, `Check the name, or log in: ${program} login ${registry}`.trim());
  };
  const here = await run(['image', 'inspect', image], `Looking up ${image}`).catch(() => undefined);
  if (here === undefined)
    await run(['pull', '--quiet', ...plainly(program, image), image], `Pulling ${image}`).catch(refuse);
  const [facts] = JSON.parse(here ?? (await run(['image', 'inspect', image], `Reading ${image}`))) as ImageFacts[];
  const { Id: id = '', RepoDigests: digests, Config: { Entrypoint: entry, Cmd: cmd } = {} } = facts ?? {};
  if ((entry ?? cmd ?? []).length === 0)
    throw installFailure(
      `The image ${image} names no program (ENTRYPOINT or CMD), so it is no server that can be started.`,
      'Take another image, or configure the server by hand: docs/sandbox.md.',
    );
  const [, bare = '', wanted = ''] = /^([^@]*)(@.*)?$/.exec(image) ?? [];
  const name = bare.replace(/:[^/:]*$/, '');
  // An image has several digests if a list of platforms names it. The one that its user gave is kept.
  const own = (digests ?? []).filter((one) => one.startsWith(`${name}@`));
  const pulled = own.find((one) => one.endsWith(wanted)) ?? own[0] ?? digests?.[0];
  const integrity = pulled?.replace(/^.*@/, '') ?? `sha256:${id.replace(/^sha256:/, '')}`;
  return {
    kind: 'oci',
    name: pulled === undefined ? integrity : `${pulled.replace(/@.*$/, '')}@${integrity}`,
    version: integrity.slice(7, 19),
    integrity,
    bin: '',
    image: { entry: entry ?? [], cmd: cmd ?? [] },
    notes: [],
  };
}

/** A registry of this machine may speak plain http: Docker permits it, and Podman needs to be told. */
function plainly(program: 'podman' | 'docker', image: string): readonly string[] {
  const isOwn = /^(?:localhost|127(?:\.\d{1,3}){3})(?::\d+)?\//.test(image);
  return program === 'podman' && isOwn ? ['--tls-verify=false'] : [];
}
