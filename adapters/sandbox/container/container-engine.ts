/** Chooses the container engine, Docker or Podman. It must answer and be able to enforce limits. */
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
const CANNOT_LIMIT = 'cannot limit memory and processes here';
const ANSWER_MS = 20_000;
/** In order of preference. */
const CLIENTS = ['docker', 'podman'] as const;
/** Variables that the client needs: the place of its daemon and the credentials for it. */
const INHERITED = /^(?:HOME|USER|LOGNAME|LANG|TMPDIR|XDG_.*|DOCKER_.*|CONTAINERS?_.*)$/;

/** An engine that answers. */
export interface ContainerEngine {
  /** Its client program, absolute. */
  readonly client: string;
  /** Podman needs other options for some things. The program `docker` may be Podman too. */
  readonly isPodman: boolean;
  /** Runs as an ordinary user. Inside, the user's id then means another user unless the engine keeps it. */
  readonly isRootless: boolean;
  /** Runs on another machine (`podman machine`), so paths of this machine may not exist there. */
  readonly isRemote: boolean;
}

/** The answer of a client: the engine, or what it lacks and the command that fixes it. */
export type ContainerEngineAnswer =
  | { readonly client: string; readonly engine: ContainerEngine }
  | { readonly client: string; readonly lack: string; readonly fix: string };

/** The chosen engines, by the installed clients: one process asks once. */
const chosen = new Map<string, Promise<ContainerEngine>>();

/**
 * Returns the first engine that answers: Docker, else Podman. A process asks once. It first removes the containers that
 * killed Tollgate processes left in any engine. Throws SANDBOX_UNAVAILABLE if no engine answers; the next call asks
 * again.
 */
export function findContainerEngine(): Promise<ContainerEngine> {
  const key = clientsHere().join(':');
  const engine = chosen.get(key) ?? choose();
  chosen.set(key, engine);
  engine.catch(() => chosen.get(key) === engine && chosen.delete(key));
  return engine;
}

/** Forgets the chosen engine, so that the next start asks all engines again. Call it when an engine failed. */
export function forgetContainerEngines(): void {
  chosen.clear();
}

/** Asks every installed client, Docker first. Never throws. */
export function examineContainerEngines(): Promise<readonly ContainerEngineAnswer[]> {
  return Promise.all(clientsHere().map((client) => examine(client)));
}

/**
 * Returns the label of all our containers. It names the machine and the PID namespace of the process id in the
 * container's name.
 */
export function machineLabel(): string {
  return `tollgate.place=${hostname()}/${pidNamespace()}`;
}

/** Returns the variables of our environment that a client needs. */
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
  await Promise.all(engines.map(removeOrphans));
  const [engine] = engines;
  if (engine !== undefined) return engine;
  const lacks = answers.flatMap((answer) => ('lack' in answer ? [answer] : []));
  if (lacks.length === 0)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'Neither docker nor podman is installed, and `isolation: container` needs one of them.',
      next: 'Install one: sudo apt-get install podman',
    });
  const problems = lacks.map(({ client, lack }) => `${path.basename(client)} ${lack}`);
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `No container engine can be used: ${problems.join('; ')}.`,
    next: `Fix one: ${lacks.map(({ fix }) => fix).join('; or: ')}`,
  });
}

async function examine(client: string): Promise<ContainerEngineAnswer> {
  const name = path.basename(client);
  try {
    return checkLimits(client, JSON.parse(await ask(client, ['info', '--format', '{{json .}}'])) as Info);
  } catch (thrown) {
    const { stderr = '' } = thrown as { readonly stderr?: string };
    return {
      client,
      lack: `does not answer${stderr.trim() === '' ? '' : ` (${lastLine(stderr.trim())})`}`,
      fix: name === 'docker' ? 'sudo systemctl start docker' : 'podman info',
    };
  }
}

/** The parts of `info` that are read. Podman has its own under `host`. */
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

/** Checks limits beforehand: if an engine cannot enforce one, it only warns, and starts the container without it. */
function checkLimits(client: string, { host, ...docker }: Info): ContainerEngineAnswer {
  if (host === undefined) {
    const isRootless = (docker.SecurityOptions ?? []).some((option) => option.includes('rootless'));
    if (docker.MemoryLimit === true && docker.PidsLimit === true)
      return { client, engine: { client, isPodman: false, isRootless, isRemote: false } };
    return {
      client,
      lack: CANNOT_LIMIT,
      fix: 'give it the control groups memory and pids: docker info says what is missing',
    };
  }
  const isRootless = host.security?.rootless === true;
  const controllers = host.cgroupControllers ?? [];
  const canLimit =
    controllers.includes('memory') &&
    controllers.includes('pids') &&
    (!isRootless || (host.cgroupVersion === 'v2' && host.cgroupManager === 'systemd'));
  if (canLimit)
    return { client, engine: { client, isPodman: true, isRootless, isRemote: host.serviceIsRemote === true } };
  return {
    client,
    lack: CANNOT_LIMIT,
    fix: isRootless
      ? "an ordinary user's podman needs control groups v2 by systemd (loginctl enable-linger); or run Tollgate as root"
      : 'mount the control groups memory and pids',
  };
}

/**
 * Removes containers whose process is gone, of this machine and PID namespace only: elsewhere the id means another
 * process.
 */
async function removeOrphans({ client, isPodman }: ContainerEngine): Promise<void> {
  try {
    const orphans = await orphansIn(client);
    if (orphans.length === 0) return;
    await ask(client, [...removalArguments(isPodman), ...orphans]).catch(async (thrown: unknown) => {
      // Another Tollgate that starts at the same time may have removed them.
      if ((await orphansIn(client)).length > 0) throw thrown;
    });
  } catch (cause) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `Containers that a killed Tollgate left in ${path.basename(client)} could not be removed.`,
      next: `List them: ${path.basename(client)} ps --all --filter label=tollgate.place`,
      cause,
    });
  }
}

/** Returns the arguments before the names of containers to remove. Podman would wait ten seconds for them to end. */
export function removalArguments(isPodman: boolean): readonly string[] {
  return ['rm', '--force', ...(isPodman ? ['--time', '0'] : [])];
}

async function orphansIn(client: string): Promise<readonly string[]> {
  const listed = await ask(client, ['ps', '--all', '--filter', `label=${machineLabel()}`, '--format', '{{.Names}}']);
  return listed.split('\n').filter((name) => isOrphan(name.trim()));
}

function isOrphan(name: string): boolean {
  const [, pid, born] = /^tollgate-(\d+)-(\d+)-[\da-f]{8}$/.exec(name) ?? [];
  return pid !== undefined && isGone(Number(pid), Number(born));
}

async function ask(client: string, args: readonly string[]): Promise<string> {
  return (await run(client, args, { env: clientEnvironment(), timeout: ANSWER_MS })).stdout;
}
