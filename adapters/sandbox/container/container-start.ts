/** Starts and ends servers in containers. It tells a failure of the engine from a failure of the server. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { lastLine } from '../bubblewrap/sandbox-start.ts';
import { withoutInheritedDescriptors } from '../inherited-descriptors.ts';
import { signalGroup, startTimeOf } from '../process-tree.ts';
import type { SandboxedProcess } from '../sandbox-spec.ts';
import { type ContainerSpec, containerArguments, containerEnvironment } from './container-arguments.ts';
import {
  type ContainerEngine,
  clientEnvironment,
  forgetContainerEngines,
  removalArguments,
} from './container-engine.ts';

/** Exit codes of a client if the engine failed or could not start the program. Its stderr then says why. */
const ENGINE_FAILED: ReadonlySet<number> = new Set([125, 126, 127]);
const CLIENT_ERROR = /^(?:Error|docker|podman): .*$/gm;
/** Errors of the container's first process. Its exit code can be any number then. */
const INIT_ERROR = /^(?:ERROR \(catatonit:\d+\): failed to exec|\[FATAL tini \(\d+\)\] exec) .*$/gm;
const IMAGE_ERROR = new RegExp(
  'no such image|manifest unknown|short-name|image not known|pull access denied|initializing source|' +
    'unable to find image',
  'i',
);
const TAIL_CHARS = 4096;
/** Milliseconds after which a client that has not ended gets SIGKILL. */
const CLIENT_MS = 10_000;

/** Starts a server in a container. Throws SANDBOX_UNAVAILABLE if the client of the engine cannot be started. */
export async function startContainer(
  contained: Omit<ContainerSpec, 'id'>,
  engine: ContainerEngine,
): Promise<SandboxedProcess> {
  const { client } = engine;
  const named = { ...contained, id: nameContainer() };
  const args = containerArguments(named, engine);
  const env = { ...clientEnvironment(), ...containerEnvironment(named) };
  const child = withoutInheritedDescriptors(['pipe', 'pipe', 'pipe'], (stdio) =>
    spawn(client, args, { env, cwd: '/', detached: true, shell: false, stdio }),
  ) as ChildProcessWithoutNullStreams;
  if (child.pid === undefined) throw await clientFailure(child, engine);
  // The client gets SIGTERM first. SIGKILL ends the client only, and during the making of a container it leaves half of
  // one, which cannot be removed.
  const kill = (): boolean => {
    const isThere = signalGroup(child, 'SIGTERM');
    remove(engine, named.id);
    // The client's process id may belong to another process by then.
    if (child.exitCode !== null || child.signalCode !== null) return isThere;
    const last = setTimeout(() => signalGroup(child, 'SIGKILL'), CLIENT_MS).unref();
    child.once('exit', () => {
      clearTimeout(last);
      remove(engine, named.id);
    });
    return isThere;
  };
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  return {
    child,
    ended,
    signal: (signal) => (signal === 'SIGKILL' ? kill() : signalGroup(child, signal)),
    kill: () => void kill(),
    refusal: watchStart(child, engine, named.image),
  };
}

/** The other engine may still work, so the next start asks all engines. */
async function clientFailure(
  child: ChildProcessWithoutNullStreams,
  { client }: ContainerEngine,
): Promise<TollgateError> {
  const [cause] = (await once(child, 'error')) as [NodeJS.ErrnoException];
  forgetContainerEngines();
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `${path.basename(client)} could not be started (${cause.code ?? 'unknown'}).`,
    next: 'Try again: the next start asks all engines again. `tollgate doctor` shows what they answer.',
    cause,
  });
}

/** The name contains the process that starts the container, so that a later one can tell if that process still runs. */
function nameContainer(): string {
  return `tollgate-${process.pid}-${startTimeOf(process.pid)}-${randomBytes(4).toString('hex')}`;
}

/** Listens until the server has written to stdout. From then on, the client's exit code is the server's. */
function watchStart(
  child: ChildProcessWithoutNullStreams,
  engine: ContainerEngine,
  image: string,
): () => TollgateError | undefined {
  let stderr = '';
  let hasAnswered = false;
  child.stdout.once('data', () => (hasAnswered = true));
  child.stderr.on('data', (chunk: Buffer) => {
    if (!hasAnswered) stderr = (stderr + chunk.toString('utf8')).slice(-TAIL_CHARS);
  });
  return () => {
    const why = (
      stderr.match(INIT_ERROR) ?? (ENGINE_FAILED.has(child.exitCode ?? 0) ? stderr.match(CLIENT_ERROR) : undefined)
    )?.at(-1);
    if (hasAnswered || why === undefined) return undefined;
    forgetContainerEngines();
    return refused({ why, stderr }, engine, image);
  };
}

/** Names the fix if the reason is known. */
function refused(
  { why, stderr }: { readonly why: string; readonly stderr: string },
  { client }: ContainerEngine,
  image: string,
): TollgateError {
  const name = path.basename(client);
  const fixes: readonly (readonly [RegExp, string])[] = [
    [/container-init|docker-init/, 'Install the first process of containers: sudo apt-get install catatonit'],
    [IMAGE_ERROR, `Make or fetch its image first: ${name} pull ${image}`],
    [/cannot connect|connection refused/i, `Start its daemon: sudo systemctl start ${name}`],
    [
      /executable file|failed to exec|tini|no such file or directory|exec format/i,
      'Correct the command of the server: it must be a program of the image, not of this machine.',
    ],
    [
      /hybrid mode/,
      'Let the engine use another runtime: sudo apt-get install runc, ' +
        'and runtime = "runc" under [engine] in /etc/containers/containers.conf',
    ],
  ];
  const next =
    fixes.find(([pattern]) => pattern.test(stderr))?.[1] ??
    `Fix the reported problem. ${name} info and \`tollgate doctor\` show the state of the engine.`;
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `${name} did not start the container: ${lastLine(why)}`,
    next,
    cause: new Error(stderr),
  });
}

/** The removal continues even if this process ends. */
function remove({ client, isPodman }: ContainerEngine, id: string): void {
  spawn(client, [...removalArguments(isPodman), id], { env: clientEnvironment(), detached: true, stdio: 'ignore' })
    .on('error', () => undefined)
    .unref();
}
