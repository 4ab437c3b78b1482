/** Owns the command line of docker or podman for a contained server; refuses to write a value of its environment into it. */
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { egressBridge } from '../bubblewrap/bubblewrap-arguments.ts';
import { type ClosedPaths, isPathWithin } from '../closed-paths/closed-paths.ts';
import { overlayClosedPaths, withReadOnlyPaths } from '../closed-paths/closure-mounts.ts';
import { EGRESS_SOCKET, type Egress, type SandboxSettings, type SandboxUser } from '../sandbox-spec.ts';
import { type ContainerEngine, machineLabel } from './container-engine.ts';

/** What a container is made of. Paths absolute. */
export interface ContainerSpec {
  /** Its name, unique; see `nameContainer`. */
  readonly id: string;
  readonly server: string;
  readonly image: string;
  /** Of the image. With `egress` the image needs `sh` and `socat` too. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly sandbox: SandboxSettings;
  /** What rules close of that; absent: nothing. */
  readonly closed?: ClosedPaths;
  readonly hidden: readonly string[];
  readonly egress?: Egress;
  readonly identity: SandboxUser;
}

const HOME = '/tmp';
/** The calls that seccomp-filter.ts refuses in a sandbox, by name, for the engine to compile: its own filter lets programs make namespaces, or not, as it was built. docker's client reads it here, podman where it runs. */
const FILTER = path.join(import.meta.dirname, 'seccomp.json');

/** What the words depend on. */
type Kind = Pick<ContainerEngine, 'isPodman' | 'isRootless' | 'isRemote'>;

/**
 * The arguments of `docker run`. Environment goes by name only: the client takes the values from its own environment, so that
 * no process list shows one. Nothing of the client's other variables enters the container.
 */
export function containerArguments(contained: ContainerSpec, engine: Kind): readonly string[] {
  const { image, command, args, cwd, sandbox, egress, identity } = contained;
  const { memoryMb, processes, fileMb, cpuSeconds } = sandbox.limits;
  const size = fileMb * 1024 * 1024;
  const program = [command, ...args];
  return [
    'run',
    '--name',
    contained.id,
    '--rm',
    '--interactive',
    '--init',
    '--pull',
    'missing',
    '--log-driver',
    'none',
    '--label',
    machineLabel(),
    '--label',
    `tollgate.server=${contained.server}`,
    '--read-only',
    ...ownWords(engine),
    '--cap-drop',
    'ALL',
    '--security-opt',
    'no-new-privileges',
    ...(engine.isRemote ? [] : ['--security-opt', `seccomp=${FILTER}`]),
    '--network',
    'none',
    '--ipc',
    'private',
    '--user',
    `${identity.uid}:${identity.gid}`,
    '--hostname',
    'sandbox',
    '--memory',
    `${memoryMb}m`,
    '--memory-swap',
    `${memoryMb}m`,
    '--pids-limit',
    `${processes}`,
    '--ulimit',
    `fsize=${size}:${size}`,
    '--ulimit',
    'core=0:0',
    '--ulimit',
    'msgqueue=0:0',
    ...countLimits(memoryMb),
    ...(cpuSeconds === undefined ? [] : ['--ulimit', `cpu=${cpuSeconds}:${cpuSeconds}`]),
    '--tmpfs',
    `/tmp:rw,nosuid,nodev,size=${size},mode=1777${engine.isPodman ? ',notmpcopyup' : ''}`,
    '--shm-size',
    '64m',
    ...mountsOf(contained, engine).flatMap((mount) => ['--mount', mount]),
    ...(cwd === undefined ? [] : ['--workdir', cwd]),
    ...namesOf(contained).flatMap((name) => ['--env', name]),
    '--env',
    `HOME=${HOME}`,
    ...(egress === undefined
      ? entry(program, image)
      : entry(
          [
            '/bin/sh',
            '-c',
            `if command -v socat >/dev/null; then\n${egressBridge('socat')}fi; exec "$@"`,
            'bridge',
            ...program,
          ],
          image,
        )),
  ];
}

/** Podman gives a read-only container folders of memory without an end, and an ordinary user's podman another owner of his files. */
function ownWords({ isPodman, isRootless }: Kind): readonly string[] {
  if (!isPodman) return [];
  return ['--read-only-tmpfs=false', ...(isRootless ? ['--userns', 'keep-id'] : [])];
}

/**
 * Open files, as in a sandbox; and an end that no server meets to the processes of its user, which `--pids-limit` counts for this one
 * alone. An engine that may not raise limits (without CAP_SYS_RESOURCE, as in a container itself) fails at those that it would set by default.
 */
function countLimits(memoryMb: number): readonly string[] {
  const files = Math.min(Math.max(256, memoryMb * 4), hardLimit('open files') ?? Infinity);
  const processes = Math.min(32_768, hardLimit('processes') ?? Infinity);
  return ['--ulimit', `nofile=${files}:${files}`, '--ulimit', `nproc=${processes}:${processes}`];
}

/** Of our own process, which its children cannot raise; undefined where there is none, or the engine runs elsewhere. */
function hardLimit(name: 'open files' | 'processes'): number | undefined {
  if (process.platform !== 'linux') return undefined;
  const hard = new RegExp(`^Max ${name} +\\S+ +(\\d+)`, 'm').exec(readFileSync('/proc/self/limits', 'latin1'))?.[1];
  return hard === undefined ? undefined : Number(hard);
}

/** The image's own program is replaced: what runs is what the configuration shows. */
function entry([program = '', ...words]: readonly string[], image: string): readonly string[] {
  return ['--entrypoint', program, image, ...words];
}

/** Values for the names in `containerArguments`, to be added to the environment of the client. */
export function containerEnvironment({ env, egress }: ContainerSpec): Readonly<Record<string, string>> {
  return { ...env, ...egress?.env };
}

/** Throws SANDBOX_UNAVAILABLE for a variable that would steer the client itself: another daemon, other credentials. */
function namesOf(contained: ContainerSpec): readonly string[] {
  const names = Object.keys(containerEnvironment(contained));
  const steering = names.find((name) => /^(?:DOCKER_|CONTAINERS?_|XDG_|HOME$|PATH$)/.test(name));
  if (steering === undefined) return names;
  throw new TollgateError('SANDBOX_UNAVAILABLE', {
    detail: `The variable ${steering} would steer the container client instead of the server.`,
    next: `Take ${steering} out of its env.`,
  });
}

/** Binds of what is allowed; what is hidden in them is covered: a folder by an empty one, into which podman would copy what it covers; a file by /dev/null. */
function mountsOf(
  { sandbox: { filesystem }, hidden, egress, closed = new Map() }: ContainerSpec,
  { isPodman }: Kind,
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
  const seen = [
    ...filesystem.allowWrite.map((file) => [file, true] as const),
    ...filesystem.allowRead.map((file) => [file, false] as const),
  ].filter(([file]) => existsSync(file));
  const masks = [...filesystem.denyRead, ...hidden]
    .filter((file) => existsSync(file))
    .map((file) => realpathSync(file))
    .filter((file) => seen.some(([folder]) => isPathWithin(file, folder)));
  const mounts = seen.map(([file, writable]) => ({ from: file, to: file, writable }));
  const layers = overlayClosedPaths(
    { mounts, masks },
    withReadOnlyPaths(
      closed,
      (filesystem.denyWrite ?? []).filter((file) => existsSync(file)),
      mounts,
    ),
  );
  // Each place once: an engine refuses a second mount over one.
  const ways =
    egress === undefined
      ? []
      : [...new Map([[EGRESS_SOCKET, egress.socket], ...egress.mounts.map(({ from, to }) => [to, from] as const)])].map(
          ([to, from]) => bind(from, to, false),
        );
  return [
    ...layers.mounts.map(({ from, to, writable }) => bind(from, to, writable)),
    ...layers.masks.map(cover),
    ...ways,
  ];
}

/** Mounts are read as a line of CSV: a comma in a path would begin another option. */
function field(name: string, file: string): string {
  if (/["\n\r]/.test(file))
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'A path with a quotation mark or a line break cannot be given to a container.',
      next: 'Rename the folder.',
    });
  return file.includes(',') ? `"${name}=${file}"` : `${name}=${file}`;
}
