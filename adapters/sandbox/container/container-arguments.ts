/**
 * Builds the command line of Docker or Podman for a server in a container. It contains no value of an environment
 * variable.
 */
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { egressBridge } from '../bubblewrap/bubblewrap-arguments.ts';
import type { ClosedPaths } from '../closed-paths/closed-paths.ts';
import { overlayClosedPaths, withReadOnlyPaths } from '../closed-paths/closure-mounts.ts';
import { EGRESS_SOCKET, type Egress, type SandboxSettings, type SandboxUser } from '../sandbox-spec.ts';
import { type ContainerEngine, machineLabel } from './container-engine.ts';

/** The description of a container. All paths are absolute. */
export interface ContainerSpec {
  /** The unique name of the container. */
  readonly id: string;
  readonly server: string;
  readonly image: string;
  /** A program of the image. With `egress` the image needs `sh` and `socat` too. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string | undefined;
  readonly sandbox: SandboxSettings;
  /** The paths in these folders that rules close. Absent if there are none. */
  readonly closed?: ClosedPaths;
  readonly hidden: readonly string[];
  readonly egress?: Egress | undefined;
  readonly identity: SandboxUser;
}

const HOME = '/tmp';
/**
 * Names the system calls that `seccomp-filter.ts` refuses. The engine's own filter may allow namespaces. Docker's
 * client reads this file on this machine; Podman reads it where it runs.
 */
const FILTER = path.join(import.meta.dirname, 'seccomp.json');

/** The arguments depend on these facts. */
type EngineKind = Pick<ContainerEngine, 'isPodman' | 'isRootless' | 'isRemote'>;

/**
 * Returns the arguments of `docker run`. Environment variables go by name only: the client takes the values from its
 * own environment, so no process list shows them. No other variable of the client enters the container.
 */
export function containerArguments(contained: ContainerSpec, engine: EngineKind): readonly string[] {
  const { id, server, image, command, args, cwd, egress } = contained;
  const bridge = `if command -v socat >/dev/null; then\n${egressBridge('socat')}fi; exec "$@"`;
  return [
    'run',
    ...['--name', id, '--rm', '--interactive', '--init', '--pull', 'missing', '--log-driver', 'none'],
    ...['--label', machineLabel(), '--label', `tollgate.server=${server}`],
    ...isolationArguments(contained, engine),
    ...limitArguments(contained, engine),
    ...mountsOf(contained, engine).flatMap((mount) => ['--mount', mount]),
    ...(cwd === undefined ? [] : ['--workdir', cwd]),
    ...variableNames(contained).flatMap((name) => ['--env', name]),
    ...['--env', `HOME=${HOME}`],
    // Replaces the entry point of the image, so that the program of the configuration runs.
    ...(egress === undefined
      ? ['--entrypoint', command, image, ...args]
      : ['--entrypoint', '/bin/sh', image, '-c', bridge, 'bridge', command, ...args]),
  ];
}

function isolationArguments({ identity }: ContainerSpec, engine: EngineKind): readonly string[] {
  return [
    '--read-only',
    // By default, Podman gives a read-only container memory folders without a limit.
    ...(engine.isPodman ? ['--read-only-tmpfs=false'] : []),
    // Rootless Podman maps the owner of files to another user.
    ...(engine.isPodman && engine.isRootless ? ['--userns', 'keep-id'] : []),
    ...['--cap-drop', 'ALL', '--security-opt', 'no-new-privileges'],
    ...(engine.isRemote ? [] : ['--security-opt', `seccomp=${FILTER}`]),
    ...['--network', 'none', '--ipc', 'private'],
    ...['--user', `${identity.uid}:${identity.gid}`, '--hostname', 'sandbox'],
  ];
}

function limitArguments({ sandbox: { limits } }: ContainerSpec, { isPodman }: EngineKind): readonly string[] {
  const { memoryMb, processes, fileMb, cpuSeconds } = limits;
  const size = fileMb * 1024 * 1024;
  return [
    ...['--memory', `${memoryMb}m`, '--memory-swap', `${memoryMb}m`, '--pids-limit', `${processes}`],
    ...['--ulimit', `fsize=${size}:${size}`, '--ulimit', 'core=0:0', '--ulimit', 'msgqueue=0:0'],
    ...countLimits(memoryMb),
    ...(cpuSeconds === undefined ? [] : ['--ulimit', `cpu=${cpuSeconds}:${cpuSeconds}`]),
    ...['--tmpfs', `/tmp:rw,nosuid,nodev,size=${size},mode=1777${isPodman ? ',notmpcopyup' : ''}`],
    ...['--shm-size', '64m'],
  ];
}

/**
 * Limits open files as a sandbox does. The limit of processes counts all processes of the user, so it is high;
 * `--pids-limit` counts this container only. Both stay within our hard limits: an engine without CAP_SYS_RESOURCE
 * cannot raise limits, and fails at its own defaults.
 */
function countLimits(memoryMb: number): readonly string[] {
  const files = Math.min(Math.max(256, memoryMb * 4), hardLimit('open files') ?? Infinity);
  const processes = Math.min(32_768, hardLimit('processes') ?? Infinity);
  return ['--ulimit', `nofile=${files}:${files}`, '--ulimit', `nproc=${processes}:${processes}`];
}

/** Returns a hard limit of this process. Undefined if there is none, or if the engine runs on a virtual machine. */
function hardLimit(name: 'open files' | 'processes'): number | undefined {
  if (process.platform !== 'linux') return undefined;
  const hard = new RegExp(`^Max ${name} +\\S+ +(\\d+)`, 'm').exec(readFileSync('/proc/self/limits', 'latin1'))?.[1];
  return hard === undefined ? undefined : Number(hard);
}

/** Returns the values for the names in `containerArguments`. Add them to the environment of the client. */
export function containerEnvironment({ env, egress }: ContainerSpec): Readonly<Record<string, string>> {
  return { ...env, ...egress?.env };
}

/**
 * Throws SANDBOX_UNAVAILABLE for a variable that would configure the client itself: another daemon, other credentials.
 */
function variableNames(contained: ContainerSpec): readonly string[] {
  const names = Object.keys(containerEnvironment(contained));
  const reserved = names.find((name) => /^(?:DOCKER_|CONTAINERS?_|XDG_|HOME$|PATH$)/.test(name));
  if (reserved === undefined) return names;
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The variable ${reserved} would configure the container client instead of the server.`,
    next: `Remove ${reserved} from the env of the server.`,
  });
}

/**
 * Binds the allowed paths. An empty folder covers a hidden folder, and /dev/null covers a hidden file. Podman would
 * copy the covered files into the empty folder unless told not to.
 */
function mountsOf(
  { sandbox: { filesystem }, hidden, egress, closed = new Map() }: ContainerSpec,
  { isPodman }: EngineKind,
): readonly string[] {
  const bind = (from: string, to: string, writable: boolean): string =>
    ['type=bind', field('source', from), field('target', to), ...(writable ? [] : ['readonly'])].join(',');
  const cover = (file: string): string =>
    statSync(file).isDirectory()
      ? [
          'type=tmpfs',
          field('target', file),
          'tmpfs-size=4096',
          'tmpfs-mode=0',
          ...(isPodman ? ['notmpcopyup'] : []),
        ].join(',')
      : bind('/dev/null', file, false);
  const mounts = [
    ...filesystem.allowWrite.map((file) => ({ from: file, to: file, writable: true })),
    ...filesystem.allowRead.map((file) => ({ from: file, to: file, writable: false })),
  ].filter(({ from }) => existsSync(from));
  const masks = [...filesystem.denyRead, ...hidden]
    .filter((file) => existsSync(file))
    .map((file) => realpathSync(file))
    .filter((file) => mounts.some(({ to }) => isPathWithin(file, to)));
  const layers = overlayClosedPaths(
    { mounts, masks },
    withReadOnlyPaths(
      closed,
      (filesystem.denyWrite ?? []).filter((file) => existsSync(file)),
      mounts,
    ),
  );
  // Each target once: an engine refuses a second mount on it.
  const egressMounts =
    egress === undefined
      ? []
      : [...new Map([[EGRESS_SOCKET, egress.socket], ...egress.mounts.map(({ from, to }) => [to, from] as const)])].map(
          ([to, from]) => bind(from, to, false),
        );
  return [
    ...layers.mounts.map(({ from, to, writable }) => bind(from, to, writable)),
    ...layers.masks.map(cover),
    ...egressMounts,
  ];
}

/** The engine reads a mount as a line of CSV: a comma in a path would begin another option. */
function field(name: string, file: string): string {
  if (/["\n\r]/.test(file))
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: `A container cannot get the path ${JSON.stringify(file)}: it contains a quotation mark or a line break.`,
      next: 'Rename the folder.',
    });
  return file.includes(',') ? `"${name}=${file}"` : `${name}=${file}`;
}
