/** Owns the start and the end of contained servers, and of what an earlier process of ours left; refuses to start without an answering daemon. */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { promisify } from 'node:util';
import { TollgateError } from '../../catalogs/errors.ts';
import { signalGroup } from '../process-group.ts';
import { containerArguments, containerEnvironment, findClient, placeLabel } from './container.ts';
import type { Contained } from './container.ts';
import { withoutForeign } from './descriptors.ts';
import type { Jailed } from './jail.ts';
import { bornAt, signalOne } from './tree.ts';

const run = promisify(execFile);
const ANSWER_MS = 20_000;
/** What the client itself needs: where its daemon is and who it is there. */
const INHERITED = /^(?:PATH|HOME|USER|LOGNAME|LANG|TMPDIR|XDG_.*|DOCKER_.*|CONTAINERS?_.*)$/;

/** Containers of processes that were killed are removed once, at our start or before the first of ours starts. */
let reaped: Promise<readonly string[]> | undefined;

/** Starts a server in a container. Throws SANDBOX_UNAVAILABLE when there is no client, or no daemon answers it. */
export async function startContained(contained: Omit<Contained, 'id'>): Promise<Jailed> {
  const client = findClient();
  const named = { ...contained, id: nameContainer() };
  const args = containerArguments(named);
  await reapOnce(client);
  const env = { ...inherited(), ...containerEnvironment(named) };
  const child = withoutForeign(['pipe', 'pipe', 'pipe'], (stdio) => spawn(client, args, { env, cwd: '/', detached: true, shell: false, stdio })) as ChildProcessWithoutNullStreams;
  child.once('error', () => undefined);
  return {
    child,
    // The client passes signals on to the program in the container, but SIGKILL would end the client alone.
    signal: (signal) => (signal === 'SIGKILL' ? (remove(client, named.id), signalGroup(child, signal)) : signalGroup(child, signal)),
    kill: () => {
      remove(client, named.id);
      signalGroup(child, 'SIGKILL');
    },
  };
}

/** Removes what killed processes left, for a start of ours that is about no container yet. Throws SANDBOX_UNAVAILABLE; the first container tries again. */
export async function reapLeft(): Promise<void> {
  await reapOnce(findClient());
}

async function reapOnce(client: string): Promise<void> {
  reaped ??= reapContainers(client);
  await reaped.catch((thrown: unknown) => {
    reaped = undefined;
    throw thrown;
  });
}

/** Names the process that starts it, so that the next one can tell whether it still lives. */
function nameContainer(): string {
  return `tollgate-${process.pid}-${bornAt(process.pid)}-${randomBytes(4).toString('hex')}`;
}

/** Removes the containers whose process is gone, of this machine and PID namespace alone: elsewhere its number means another one. Answers their names. */
async function reapContainers(client: string): Promise<readonly string[]> {
  const listed = await ask(client, ['ps', '--all', '--filter', `label=${placeLabel()}`, '--format', '{{.Names}}']);
  const left = listed.split('\n').filter((name) => isLeft(name.trim()));
  if (left.length > 0) await ask(client, ['rm', '--force', ...left]);
  return left;
}

function isLeft(name: string): boolean {
  const [, pid, born] = /^tollgate-(\d+)-(\d+)-[\da-f]{8}$/.exec(name) ?? [];
  if (pid === undefined || born === undefined) return false;
  if (!signalOne(Number(pid), 0)) return true;
  // Whose birth cannot be read, now or then, lives.
  const now = bornAt(Number(pid));
  return now !== 0 && Number(born) !== 0 && now !== Number(born);
}

async function ask(client: string, args: readonly string[]): Promise<string> {
  try {
    return (await run(client, args, { env: inherited(), timeout: ANSWER_MS })).stdout;
  } catch (cause) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'The container client got no answer from its daemon.', next: 'Start it, for example: sudo systemctl start docker', cause });
  }
}

/** Goes on by itself when our own process is ending. */
function remove(client: string, id: string): void {
  spawn(client, ['rm', '--force', id], { env: inherited(), detached: true, stdio: 'ignore' }).on('error', () => undefined).unref();
}

function inherited(): Record<string, string> {
  return Object.fromEntries(Object.entries(process.env).flatMap(([key, value]) => (value !== undefined && INHERITED.test(key) ? [[key, value]] : [])));
}
