/** Owns the choice of the engine that containers run in, and the questions to it; refuses one that does not answer, or cannot hold limits. */
import { execFile } from 'node:child_process';
import { hostname } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findHelper, HELPER_PATH } from '../../../catalogs/programs/helper-programs.ts';
import { pidNamespace } from '../../../catalogs/programs/pid-namespace.ts';
import { lastLine } from '../bubblewrap/sandbox-start.ts';
import { isGone } from '../process-tree.ts';

const run = promisify(execFile);
const ANSWER_MS = 20_000;
/** In the order of their choice. */
const CLIENTS = ['docker', 'podman'] as const;
/** What the client itself needs: where its daemon is and who it is there. */
const INHERITED = /^(?:HOME|USER|LOGNAME|LANG|TMPDIR|XDG_.*|DOCKER_.*|CONTAINERS?_.*)$/;

/** An engine that answers. */
export interface ContainerEngine {
  /** Its client program, absolute. */
  readonly client: string;
  /** Podman has words of its own for two things; docker may be a name of podman. */
  readonly isPodman: boolean;
  /** Run by an ordinary user, whose number means another user inside unless it is kept. */
  readonly isRootless: boolean;
  /** On another machine, with the files of that one: `podman machine`. */
  readonly isRemote: boolean;
}

/** What a client said: the engine, or what it lacks and the command that mends it. */
export type ContainerEngineAnswer =
  | { readonly client: string; readonly engine: ContainerEngine }
  | { readonly client: string; readonly lack: string; readonly fix: string };

/** The engines that were chosen, by the clients to choose from: one process asks once. */
const chosen = new Map<string, Promise<ContainerEngine>>();

/**
 * The first engine that answers: docker, else podman. Asked once a process, and what an earlier process of ours left in any of them is
 * removed first. Throws SANDBOX_UNAVAILABLE when there is none; the next call asks again.
 */
export function findContainerEngine(): Promise<ContainerEngine> {
  const key = clientsHere().join(':');
  const engine = chosen.get(key) ?? choose();
  chosen.set(key, engine);
  engine.catch(() => chosen.get(key) === engine && chosen.delete(key));
  return engine;
}

/** To be called when the engine refused: the next start asks all of them again. */
export function forgetContainerEngines(): void {
  chosen.clear();
}

/** Asks every client that is here, docker first. Never throws. */
export function examineContainerEngines(): Promise<readonly ContainerEngineAnswer[]> {
  return Promise.all(clientsHere().map((client) => examine(client)));
}

/** Every container of ours bears it: where the number in its name is that of a process, which is a machine and a PID namespace of it. */
export function machineLabel(): string {
  return `tollgate.place=${hostname()}/${pidNamespace()}`;
}

/** What a client needs of our environment, and nothing else of it. */
export function clientEnvironment(): Record<string, string> {
  const own = Object.fromEntries(
    Object.entries(process.env).flatMap(([key, value]) =>
      value !== undefined && INHERITED.test(key) ? [[key, value]] : [],
    ),
  );
  return { ...own, PATH: HELPER_PATH };
}

function clientsHere(): readonly string[] {
  return CLIENTS.map((name) => findHelper(name)).filter((file) => file !== undefined);
}

async function choose(): Promise<ContainerEngine> {
  const answers = await examineContainerEngines();
  const engines = answers.flatMap((answer) => ('engine' in answer ? [answer.engine] : []));
  await Promise.all(engines.map(reap));
  const [engine] = engines;
  if (engine !== undefined) return engine;
  const lacks = answers.flatMap((answer) => ('lack' in answer ? [answer] : []));
  if (lacks.length === 0)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'Neither docker nor podman is installed, which `isolation: container` needs.',
      next: 'Install one: sudo apt-get install podman',
    });
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `No container engine can be used: ${lacks.map(({ client, lack }) => `${path.basename(client)} ${lack}`).join('; ')}.`,
    next: `Mend one: ${lacks.map(({ fix }) => fix).join('; or: ')}`,
  });
}

async function examine(client: string): Promise<ContainerEngineAnswer> {
  const name = path.basename(client);
  try {
    return judge(client, JSON.parse(await ask(client, ['info', '--format', '{{json .}}'])) as Info);
  } catch (thrown) {
    const { stderr = '' } = thrown as { readonly stderr?: string };
    return {
      client,
      lack: `does not answer${stderr.trim() === '' ? '' : ` (${lastLine(stderr.trim())})`}`,
      fix: name === 'docker' ? 'sudo systemctl start docker' : 'podman info',
    };
  }
}

/** What is read of `info`: docker's words, and those of podman, which has all of its own under `host`. */
interface Info {
  readonly MemoryLimit?: boolean;
  readonly PidsLimit?: boolean;
  readonly SecurityOptions?: readonly string[] | null;
  readonly host?: {
    readonly cgroupControllers?: readonly string[] | null;
    readonly cgroupManager?: string;
    readonly cgroupVersion?: string;
    readonly serviceIsRemote?: boolean;
    readonly security?: { readonly rootless?: boolean };
  };
}

/** Both engines take a limit that they cannot hold, warn, and start the container without it. */
function judge(client: string, { host, ...docker }: Info): ContainerEngineAnswer {
  if (host === undefined) {
    const isRootless = (docker.SecurityOptions ?? []).some((option) => option.includes('rootless'));
    if (docker.MemoryLimit === true && docker.PidsLimit === true)
      return { client, engine: { client, isPodman: false, isRootless, isRemote: false } };
    return {
      client,
      lack: 'cannot limit memory and processes here',
      fix: 'let it have the control groups memory and pids: docker info says what is missing',
    };
  }
  const isRootless = host.security?.rootless === true;
  const controllers = host.cgroupControllers ?? [];
  const holds =
    controllers.includes('memory') &&
    controllers.includes('pids') &&
    (!isRootless || (host.cgroupVersion === 'v2' && host.cgroupManager === 'systemd'));
  if (holds) return { client, engine: { client, isPodman: true, isRootless, isRemote: host.serviceIsRemote === true } };
  return {
    client,
    lack: 'cannot limit memory and processes here',
    fix: isRootless
      ? "an ordinary user's podman needs control groups v2 by systemd (loginctl enable-linger); or run Tollgate as root"
      : 'mount the control groups memory and pids',
  };
}

/** Removes the containers whose process is gone, of this machine and PID namespace alone: elsewhere its number means another one. */
async function reap({ client, isPodman }: ContainerEngine): Promise<void> {
  try {
    const left = await leftIn(client);
    if (left.length === 0) return;
    await ask(client, [...removalArguments(isPodman), ...left]).catch(async (thrown: unknown) => {
      // Another Tollgate that begins too may have been faster.
      if ((await leftIn(client)).length > 0) throw thrown;
    });
  } catch (cause) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `What a killed Tollgate left in ${path.basename(client)} could not be removed.`,
      next: `See what it is: ${path.basename(client)} ps --all --filter label=tollgate.place`,
      cause,
    });
  }
}

/** What comes before the names of containers that are to end now: podman would ask them first, and wait ten seconds. */
export function removalArguments(isPodman: boolean): readonly string[] {
  return ['rm', '--force', ...(isPodman ? ['--time', '0'] : [])];
}

async function leftIn(client: string): Promise<readonly string[]> {
  const listed = await ask(client, ['ps', '--all', '--filter', `label=${machineLabel()}`, '--format', '{{.Names}}']);
  return listed.split('\n').filter((name) => isLeft(name.trim()));
}

function isLeft(name: string): boolean {
  const [, pid, born] = /^tollgate-(\d+)-(\d+)-[\da-f]{8}$/.exec(name) ?? [];
  return pid !== undefined && isGone(Number(pid), Number(born));
}

async function ask(client: string, args: readonly string[]): Promise<string> {
  return (await run(client, args, { env: clientEnvironment(), timeout: ANSWER_MS })).stdout;
}
