/** Owns the command line of docker or podman for a contained server; refuses to write a value of its environment into it. */
import { existsSync, realpathSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { TollgateError } from '../../catalogs/errors.ts';
import { pidNamespace } from '../../catalogs/pid-namespace.ts';
import type { Egress } from '../launch.ts';
import type { SandboxSettings } from '../settings.ts';
import { bridge, EGRESS_SOCKET } from './bubblewrap.ts';
import { isWithin, type Closed } from './closed.ts';
import { layOver, withFixed } from './covers.ts';
import type { Identity } from './jail.ts';
import { findProgram } from './programs.ts';

/** What a container is made of. Paths absolute. */
export interface Contained {
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
  readonly closed?: Closed;
  readonly hidden: readonly string[];
  readonly egress?: Egress;
  readonly identity: Identity;
}

/** Every container of ours bears it: where the number in its name is that of a process, which is a machine and a PID namespace of it. */
export function placeLabel(): string {
  return `tollgate.place=${hostname()}/${pidNamespace()}`;
}

const HOME = '/tmp';

/** The client program: docker, or podman, which takes the same words. Throws SANDBOX_UNAVAILABLE when there is neither. */
export function findClient(): string {
  const client = findProgram('docker', '/') ?? findProgram('podman', '/');
  if (client !== undefined) return client;
  throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'Neither docker nor podman is installed, which `isolation: container` needs.', next: 'Install one: sudo apt-get install podman' });
}

/**
 * The arguments of `docker run`. Environment goes by name only: the client takes the values from its own environment, so that
 * no process list shows one. Nothing of the client's other variables enters the container.
 */
export function containerArguments(contained: Contained): readonly string[] {
  const { image, command, args, cwd, sandbox, egress, identity } = contained;
  const { memoryMb, processes, fileMb, cpuSeconds } = sandbox.limits;
  const size = fileMb * 1024 * 1024;
  const program = [command, ...args];
  return [
    'run', '--name', contained.id, '--rm', '--interactive', '--init', '--pull', 'missing', '--log-driver', 'none', '--label', placeLabel(), '--label', `tollgate.server=${contained.server}`,
    '--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges', '--network', 'none', '--ipc', 'private', '--user', `${identity.uid}:${identity.gid}`, '--hostname', 'sandbox',
    '--memory', `${memoryMb}m`, '--memory-swap', `${memoryMb}m`, '--pids-limit', `${processes}`,
    '--ulimit', `fsize=${size}:${size}`, '--ulimit', 'core=0:0', ...(cpuSeconds === undefined ? [] : ['--ulimit', `cpu=${cpuSeconds}:${cpuSeconds}`]),
    '--tmpfs', `/tmp:rw,nosuid,nodev,size=${size},mode=1777`, '--shm-size', '64m',
    ...mountsOf(contained).flatMap((mount) => ['--mount', mount]),
    ...(cwd === undefined ? [] : ['--workdir', cwd]),
    ...namesOf(contained).flatMap((name) => ['--env', name]), '--env', `HOME=${HOME}`,
    ...(egress === undefined ? entry(program, image) : entry(['/bin/sh', '-c', `if command -v socat >/dev/null; then\n${bridge('socat')}fi; exec "$@"`, 'bridge', ...program], image)),
  ];
}

/** The image's own program is replaced: what runs is what the configuration shows. */
function entry([program = '', ...words]: readonly string[], image: string): readonly string[] {
  return ['--entrypoint', program, image, ...words];
}

/** Values for the names in `containerArguments`, to be added to the environment of the client. */
export function containerEnvironment({ env, egress }: Contained): Readonly<Record<string, string>> {
  return { ...env, ...egress?.env };
}

/** Throws SANDBOX_UNAVAILABLE for a variable that would steer the client itself: another daemon, other credentials. */
function namesOf(contained: Contained): readonly string[] {
  const names = Object.keys(containerEnvironment(contained));
  const steering = names.find((name) => /^(?:DOCKER_|CONTAINERS?_|XDG_|HOME$|PATH$)/.test(name));
  if (steering === undefined) return names;
  throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: `The variable ${steering} would steer the container client instead of the server.`, next: `Take ${steering} out of its env.` });
}

/** Binds of what is allowed; what is hidden in them is covered: a folder by an empty one, a file by /dev/null. */
function mountsOf({ sandbox: { filesystem }, hidden, egress, closed = new Map() }: Contained): readonly string[] {
  const bind = (from: string, to: string, writable: boolean): string => ['type=bind', field('source', from), field('target', to), ...(writable ? [] : ['readonly'])].join(',');
  const cover = (file: string): string => (statSync(file).isDirectory() ? ['type=tmpfs', field('target', file), 'tmpfs-size=4096', 'tmpfs-mode=0'].join(',') : bind('/dev/null', file, false));
  const seen = [...filesystem.allowWrite.map((file) => [file, true] as const), ...filesystem.allowRead.map((file) => [file, false] as const)].filter(([file]) => existsSync(file));
  const masks = [...filesystem.denyRead, ...hidden].filter((file) => existsSync(file)).map((file) => realpathSync(file)).filter((file) => seen.some(([folder]) => isWithin(file, folder)));
  const mounts = seen.map(([file, writable]) => ({ from: file, to: file, writable }));
  const layers = layOver({ mounts, masks }, withFixed(closed, (filesystem.denyWrite ?? []).filter((file) => existsSync(file)), mounts));
  const ways = egress === undefined ? [] : [bind(egress.socket, EGRESS_SOCKET, false), ...egress.mounts.map(({ from, to }) => bind(from, to, false))];
  return [...layers.mounts.map(({ from, to, writable }) => bind(from, to, writable)), ...layers.masks.map(cover), ...ways];
}

/** Mounts are read as a line of CSV: a comma in a path would begin another option. */
function field(name: string, file: string): string {
  if (/["\n\r]/.test(file)) throw new TollgateError('SANDBOX_UNAVAILABLE', { detail: 'A path with a quotation mark or a line break cannot be given to a container.', next: 'Rename the folder.' });
  return file.includes(',') ? `"${name}=${file}"` : `${name}=${file}`;
}
