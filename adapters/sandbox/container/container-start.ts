/** Owns the start and the end of contained servers; refuses to take a failure of the engine for one of the server. */

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
  findContainerEngine,
  forgetContainerEngines,
  removalArguments,
} from './container-engine.ts';

/** What a client ends with when the engine failed, or could not start the program; and then says why. */
const REFUSED: ReadonlySet<number> = new Set([125, 126, 127]);
const CLIENT_SAYS = /^(?:Error|docker|podman): .*$/gm;
/** So does the first process of the container, which then ends with whatever number it likes. */
const INIT_SAYS = /^(?:ERROR \(catatonit:\d+\): failed to exec|\[FATAL tini \(\d+\)\] exec) .*$/gm;
const TAIL_CHARS = 4096;
/** A client that has not ended by then never will. */
const CLIENT_MS = 10_000;

/** Starts a server in a container of an engine that has answered. Throws SANDBOX_UNAVAILABLE when its client cannot be started. */
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
  if (child.pid === undefined) throw await unstarted(child, engine);
  // SIGKILL would end the client alone, and one that is making a container would leave half of it, which nobody can remove. It ends with its container, or at SIGTERM once it has made it.
  const kill = (): boolean => {
    const isThere = signalGroup(child, 'SIGTERM');
    remove(engine, named.id);
    // Its number may be that of another by the time it would be killed.
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

/** Nothing says that the other engine is not there: the next start asks. */
async function unstarted(child: ChildProcessWithoutNullStreams, { client }: ContainerEngine): Promise<TollgateError> {
  const [cause] = (await once(child, 'error')) as [NodeJS.ErrnoException];
  forgetContainerEngines();
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `${path.basename(client)} could not be started (${cause.code ?? 'unknown'}).`,
    next: 'Try again: the next start asks all engines anew. `tollgate doctor` shows what they answer.',
    cause,
  });
}

/** Removes what killed processes left, for a start of ours that is about no container yet. Throws SANDBOX_UNAVAILABLE; the first container tries again. */
export async function removeOrphanContainers(): Promise<void> {
  await findContainerEngine();
}

/** Names the process that starts it, so that the next one can tell whether it still lives. */
function nameContainer(): string {
  return `tollgate-${process.pid}-${startTimeOf(process.pid)}-${randomBytes(4).toString('hex')}`;
}

/** Listens until the server has said a word: from then on, what the client ends with is the server's. */
function watchStart(
  child: ChildProcessWithoutNullStreams,
  engine: ContainerEngine,
  image: string,
): () => TollgateError | undefined {
  let said = '';
  let stands = false;
  child.stdout.once('data', () => (stands = true));
  child.stderr.on('data', (chunk: Buffer) => {
    if (!stands) said = (said + chunk.toString('utf8')).slice(-TAIL_CHARS);
  });
  return () => {
    const why = (said.match(INIT_SAYS) ?? (REFUSED.has(child.exitCode ?? 0) ? said.match(CLIENT_SAYS) : undefined))?.at(
      -1,
    );
    if (stands || why === undefined) return undefined;
    forgetContainerEngines();
    return refused({ why, said }, engine, image);
  };
}

/** The reasons that are known, each with what mends it. */
function refused(
  { why, said }: { readonly why: string; readonly said: string },
  { client }: ContainerEngine,
  image: string,
): TollgateError {
  const name = path.basename(client);
  const fixes: readonly (readonly [RegExp, string])[] = [
    [/container-init|docker-init/, 'Install the first process of containers: sudo apt-get install catatonit'],
    [
      /no such image|manifest unknown|short-name|image not known|pull access denied|initializing source|unable to find image/i,
      `Make or fetch its image first: ${name} pull ${image}`,
    ],
    [/cannot connect|connection refused/i, `Start its daemon: sudo systemctl start ${name}`],
    [
      /executable file|failed to exec|tini|no such file or directory|exec format/i,
      'Correct command in its entry: it is looked for in the image, not on this machine.',
    ],
    [
      /hybrid mode/,
      'Let the engine use another runtime: sudo apt-get install runc, and runtime = "runc" under [engine] in /etc/containers/containers.conf',
    ],
  ];
  const next =
    fixes.find(([pattern]) => pattern.test(said))?.[1] ??
    `Mend what it says; ${name} info and \`tollgate doctor\` show what the engine has.`;
  return new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `${name} did not start the container: ${lastLine(why)}`,
    next,
    cause: new Error(said),
  });
}

/** Goes on by itself when our own process is ending. */
function remove({ client, isPodman }: ContainerEngine, id: string): void {
  spawn(client, [...removalArguments(isPodman), id], { env: clientEnvironment(), detached: true, stdio: 'ignore' })
    .on('error', () => undefined)
    .unref();
}
