/**
 * Builds the arguments of bubblewrap. The environment of the program never appears in an argument list, where a process
 * list shows it.
 */
import { existsSync, lstatSync, readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { searchFolders } from '../../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../../../catalogs/readers/path-location.ts';
import { findProgram, isSystemFile, programFiles, SYSTEM_FOLDERS } from '../program-files.ts';
import { EGRESS_PORT, EGRESS_SOCKET, SANDBOX_HOME, type SandboxSpec, type SandboxUser } from '../sandbox-spec.ts';
import { unmovedPaths } from '../visible-paths.ts';
import type { SandboxTools } from './sandbox-tools.ts';

/** Descriptors that bubblewrap gets after stdin, stdout and stderr of the program. */
export const SANDBOX_FDS = {
  gate: 3,
  args: 4,
  seccomp: 5,
  status: 6,
  passwd: 7,
  group: 8,
  hosts: 9,
  nsswitch: 10,
  block: 11,
} as const;

/** The parts of /etc that libraries read. They contain no account, no key and no setting of a service. */
const ETC = (
  'alternatives crypto-policies fonts ld.so.cache localtime pki/ca-trust pki/tls/certs services ' +
  'ssl/certs ssl/openssl.cnf'
).split(' ');

/** Files of /proc that describe the host, or let their owner control it. */
const PROC = (
  'cmdline config.gz kallsyms kcore key-users keys kmsg sched_debug sysrq-trigger timer_list ' + 'vmallocinfo'
).split(' ');

/** /dev/full also reads as zeros. Memory mapped from the real /dev/zero is shared memory, which no limit counts. */
const ZERO = ['--dev-bind', '/dev/full', '/dev/zero'];
/**
 * Limits open sockets: each can use up to 256 KiB of kernel memory at default settings, which no memory limit counts.
 */
const FILES_PER_MB = 4;
const MIN_FILES = 256;

const MEGABYTE = 1024 * 1024;
const SHM_BYTES = 64 * MEGABYTE;
const RUN_BYTES = MEGABYTE;

/** A folder or file of the host, mounted in the sandbox. */
export interface SandboxMount {
  readonly from: string;
  readonly to: string;
  readonly writable: boolean;
  /** If `from` may be a link: where it led when the plan was made. */
  readonly real?: string;
}

/** How a sandbox is set up on this machine. */
export interface SandboxPlan {
  /** Absolute path. */
  readonly program: string;
  readonly cwd: string;
  /** Outermost first. */
  readonly mounts: readonly SandboxMount[];
  /** Hidden paths, applied after all mounts. None lies inside another. */
  readonly masks: readonly string[];
  /** Mounts that contain files of the user, not only files that the program needs to run. */
  readonly visible: readonly string[];
}

/**
 * Plans a sandbox from the files of this machine. Undefined if the program was not found. Throws SANDBOX_UNAVAILABLE
 * for a moved path.
 */
export function planSandbox(spec: SandboxSpec): SandboxPlan | undefined {
  const program = findProgram(spec.command, spec.cwd);
  if (program === undefined) return undefined;
  const files = programFiles(program, spec.args, spec.cwd).map(readOnlyMount);
  const mountsOf = (list: readonly string[], writable: boolean): readonly SandboxMount[] =>
    unmovedPaths(list, spec.workspace).map((file) => ({ from: file, to: file, writable }));
  const [read, write] = [mountsOf(spec.read, false), mountsOf(spec.write, true)];
  const egress =
    spec.egress === undefined ? [] : [{ from: spec.egress.socket, to: EGRESS_SOCKET }, ...spec.egress.mounts];
  const mounts = mergeMounts([
    ...files,
    ...read,
    ...write,
    ...egress.map(({ from, to }) => ({ ...readOnlyMount(from), to })),
  ]);
  const programInWorkspace = files
    .map(({ to }) => to)
    .filter((file) => isPathWithin(file, spec.workspace) || isPathWithin(spec.workspace, file));
  const hidden = [...new Set(spec.hidden.filter((file) => existsSync(file)).map((file) => realpathSync(file)))];
  return {
    program,
    cwd: spec.cwd,
    mounts,
    masks: hidden.filter((file) => isSystemFile(file) || mounts.some(({ to }) => isPathWithin(file, to))),
    visible: [...programInWorkspace, ...read.map(({ to }) => to), ...write.map(({ to }) => to)],
  };
}

/** Mounts a file of the host at its own path. The file may be a link. */
export function readOnlyMount(file: string): SandboxMount {
  return { from: file, to: file, writable: false, real: realpathSync(file) };
}

/** Keeps one mount for each path, the last one. Outer folders come first, so that mounts inside them stay visible. */
export function mergeMounts(mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  return [...new Map(mounts.map((mount) => [mount.to, mount])).values()].sort(
    (one, other) => one.to.split('/').length - other.to.split('/').length,
  );
}

/** Returns the options for `--args`. They contain the environment, so they must never be part of an argument list. */
export function bubblewrapOptions(spec: SandboxSpec, plan: SandboxPlan, identity: SandboxUser): readonly string[] {
  return [
    ...isolationOptions(identity, SANDBOX_FDS.seccomp),
    ...['--hostname', 'sandbox'],
    ...['--json-status-fd', `${SANDBOX_FDS.status}`],
    ...['--block-fd', `${SANDBOX_FDS.block}`],
    ...systemOptions(),
    ...memoryOptions(spec.limits.fileMb * MEGABYTE),
    // Empty if none of its files are visible. In another folder, a relative path would name another file than the one
    // that was checked.
    ...['--dir', plan.cwd],
    ...plan.mounts.flatMap(({ from, to, writable }) => [writable ? '--bind' : '--ro-bind', from, to]),
    ...plan.masks.flatMap(maskOptions),
    // The root and /dev are memory that the program owns. If they were writable, it could fill the machine's memory.
    ...['--remount-ro', '/dev', '--remount-ro', '/'],
    ...['--chdir', plan.cwd],
    ...environmentOptions(environmentOf(spec, plan)),
  ];
}

/** Returns the namespaces, user, capabilities and system call filter of a sandbox. */
export function isolationOptions({ uid, gid }: SandboxUser, seccompFd: number): readonly string[] {
  return [
    ...['--unshare-user', '--uid', `${uid}`, '--gid', `${gid}`],
    ...['--unshare-net', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup-try'],
    ...(isUnreaped() ? ['--as-pid-1'] : []),
    ...['--cap-drop', 'ALL', '--new-session', '--die-with-parent'],
    ...['--seccomp', `${seccompFd}`],
  ];
}

/** Returns options that replace the whole environment. */
export function environmentOptions(environment: Readonly<Record<string, string>>): readonly string[] {
  return ['--clearenv', ...Object.entries(environment).flatMap(([name, value]) => ['--setenv', name, value])];
}

/** Returns the mounts of the system's programs, and /proc with read-only settings of the kernel. */
export function systemFolders(): readonly string[] {
  return [
    ...SYSTEM_FOLDERS.filter((folder) => existsSync(folder)).flatMap((folder) =>
      lstatSync(folder).isSymbolicLink() ? ['--symlink', readlinkSync(folder), folder] : ['--ro-bind', folder, folder],
    ),
    ...['--proc', '/proc', '--ro-bind', '/proc/sys', '/proc/sys'],
  ];
}

function systemOptions(): readonly string[] {
  const existing = (folder: string, names: readonly string[]): readonly string[] =>
    names.map((name) => `${folder}/${name}`).filter((file) => existsSync(file));
  const generated = [
    ['passwd', SANDBOX_FDS.passwd],
    ['group', SANDBOX_FDS.group],
    ['hosts', SANDBOX_FDS.hosts],
    ['nsswitch.conf', SANDBOX_FDS.nsswitch],
  ] as const;
  return [
    ...systemFolders(),
    ...existing('/etc', ETC).flatMap((file) => ['--ro-bind', realpathSync(file), file]),
    ...generated.flatMap(([name, fd]) => ['--perms', '0444', '--file', `${fd}`, `/etc/${name}`]),
    ...existing('/proc', PROC).flatMap((file) => ['--ro-bind', '/dev/null', file]),
    ...['--dev', '/dev'],
    ...ZERO,
  ];
}

/** Limits the size of every writable folder in memory. */
function memoryOptions(bytes: number): readonly string[] {
  return [
    ...['--size', `${SHM_BYTES}`, '--tmpfs', '/dev/shm'],
    ...['--size', `${bytes}`, '--tmpfs', '/tmp'],
    ...['--dir', SANDBOX_HOME],
    ...['--size', `${RUN_BYTES}`, '--tmpfs', '/run'],
  ];
}

function maskOptions(file: string): readonly string[] {
  return statSync(file).isDirectory()
    ? ['--perms', '0000', '--size', '4096', '--tmpfs', file, '--remount-ro', file]
    : ['--ro-bind', '/dev/null', file];
}

/** Contains only what a program needs to run, and what its settings name. */
function environmentOf(spec: SandboxSpec, { mounts }: SandboxPlan): Readonly<Record<string, string>> {
  const search = searchFolders().filter(
    (folder) => isSystemFile(folder) || mounts.some(({ to }) => isPathWithin(folder, to)),
  );
  return {
    PATH: search.length > 0 ? search.join(':') : '/usr/bin:/bin',
    HOME: SANDBOX_HOME,
    TMPDIR: '/tmp',
    USER: 'user',
    LOGNAME: 'user',
    ...spec.env,
    ...spec.egress?.env,
  };
}

/**
 * Returns the generated files of /etc by descriptor: accounts with this one user only, and names that resolve without a
 * network.
 */
export function generatedFiles({ uid, gid }: SandboxUser): ReadonlyMap<number, string> {
  return new Map([
    [SANDBOX_FDS.passwd, `user:x:${uid}:${gid}::${SANDBOX_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n`],
    [SANDBOX_FDS.group, `user:x:${gid}:\nnogroup:x:65534:\n`],
    [SANDBOX_FDS.hosts, '127.0.0.1 localhost sandbox\n'],
    [SANDBOX_FDS.nsswitch, 'passwd: files\ngroup: files\nhosts: files\n'],
  ]);
}

/**
 * Returns shell lines that start the bridge to the proxy and wait until it listens. In /proc/net/tcp, 0C38 is port 3128
 * and 0A means listening.
 */
export const egressBridge = (
  socat: string,
): string => `${socat} TCP-LISTEN:${EGRESS_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:${EGRESS_SOCKET} 3>&- & n=0
while [ $n -lt 500 ]; do
while read -r a b c d e; do case $b$d in *:0C380A) break 2;; esac; done </proc/net/tcp
n=$((n+1)); sleep 0.01
done
`;

/**
 * Reports that the sandbox is set up, and waits for permission to start the program. Without it, the end of a short
 * program could be missed.
 */
const GATE = 'echo ready >&3; read -r go <&3; ';
const EXEC_PROGRAM = 'exec "$@" 3>&-';
/**
 * Stays as the first process and reaps the program's orphans. It closes the program's descriptors, so that readers of
 * its pipes see their end.
 */
const WAIT_FOR_PROGRAM = 'exec 4<&0; "$@" <&4 3>&- 4<&- & exec </dev/null >/dev/null 2>&1 3>&- 4<&-; wait $!';

/**
 * Returns true if process 1 reaps no orphans, because it is Tollgate or a Node.js that started it. Usually bubblewrap
 * adds its own first process, ends before it, and leaves it to process 1. Then each sandbox would leave a zombie, so a
 * shell becomes the first process. It is not used everywhere, because the shell has the program's environment and
 * bubblewrap's first process has none.
 */
export function isUnreaped(comm: string = readFileSync('/proc/1/comm', 'latin1')): boolean {
  return process.pid === 1 || /^(?:node|npm|npx|MainThread)\b/.test(comm);
}

/** What the command of a sandbox depends on besides its spec. */
interface SandboxCommandParts {
  readonly plan: SandboxPlan;
  readonly tools: SandboxTools;
  /** A control group counts all memory of the sandbox. */
  readonly counted: boolean;
}

/**
 * Returns the command that runs in the sandbox. It sets the limits inside, where processes of other sandboxes do not
 * count, then starts the program. Where a control group counts memory, the data of a process has no limit of its own:
 * Node.js 24 reserves 512 MB of it for each thread with JavaScript, and uses little of that.
 */
export function sandboxCommand(spec: SandboxSpec, { plan, tools, counted }: SandboxCommandParts): readonly string[] {
  const { memoryMb, processes, fileMb, cpuSeconds } = spec.limits;
  const limits = [
    `--nproc=${processes}`,
    ...(counted ? [] : [`--data=${memoryMb * MEGABYTE}`]),
    `--fsize=${fileMb * MEGABYTE}`,
    '--core=0',
    ...(cpuSeconds === undefined ? [] : [`--cpu=${cpuSeconds}`]),
  ];
  // The shell sets this limit, because it continues on a machine that allows fewer files.
  const openFiles = `ulimit -n ${Math.max(MIN_FILES, memoryMb * FILES_PER_MB)} 2>/dev/null\n`;
  const bridge = spec.egress === undefined ? '' : egressBridge(tools.socat ?? 'socat');
  const script = openFiles + bridge + GATE + (isUnreaped() ? WAIT_FOR_PROGRAM : EXEC_PROGRAM);
  return ['/bin/sh', '-c', script, 'sandbox', tools.prlimit, ...limits, '--', plan.program, ...spec.args];
}

/**
 * Replaces read-only mounts that are links inside another mount, such as a linked `node_modules`. The link is visible
 * there already, so its target is mounted at the target's own path. Writable mounts stay: they were checked as they
 * are.
 */
export function resolveMountLinks(mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  return mounts.map((mount) => {
    const { from, to, writable } = mount;
    const outer = mounts.find((other) => other.to !== to && isPathWithin(to, other.to));
    if (writable || from !== to || outer === undefined) return mount;
    const real = realpathSync(from);
    return real === path.join(realpathSync(outer.from), path.relative(outer.to, to))
      ? mount
      : { from: real, to: real, writable };
  });
}
