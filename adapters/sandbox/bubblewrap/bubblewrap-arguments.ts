/** Owns the arguments of bubblewrap for a jail; refuses to put anything of the jail's environment where a process list shows it. */
import { existsSync, lstatSync, readFileSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import path from 'node:path';
import { searchFolders } from '../../../catalogs/programs/helper-programs.ts';
import { isPathWithin } from '../closed-paths/closed-paths.ts';
import { findProgram, isSystemFile, programFiles, SYSTEM_FOLDERS } from '../program-files.ts';
import { EGRESS_PORT, EGRESS_SOCKET, SANDBOX_HOME, type SandboxSpec, type SandboxUser } from '../sandbox-spec.ts';
import { unmovedPaths } from '../visible-paths.ts';
import type { SandboxTools } from './sandbox-tools.ts';

/** Descriptors that bubblewrap is started with, beside the three of the program. */
export const SANDBOX_FDS = {
  gate: 3,
  args: 4,
  seccomp: 5,
  status: 6,
  passwd: 7,
  group: 8,
  hosts: 9,
  names: 10,
  block: 11,
} as const;

/** Pieces of /etc that libraries read; no account, no key, no setting of a service. */
const ETC = [
  'alternatives',
  'crypto-policies',
  'fonts',
  'ld.so.cache',
  'localtime',
  'pki/ca-trust',
  'pki/tls/certs',
  'services',
  'ssl/certs',
  'ssl/openssl.cnf',
];

/** Files of /proc that tell of the host or, to its owner, command it. */
const PROC = [
  'cmdline',
  'config.gz',
  'kallsyms',
  'kcore',
  'key-users',
  'keys',
  'kmsg',
  'sched_debug',
  'sysrq-trigger',
  'timer_list',
  'vmallocinfo',
];

/** Zeros to read as well, but nothing to map: shared memory made of /dev/zero counts in no limit. */
const ZERO = ['--dev-bind', '/dev/full', '/dev/zero'];
/** Each open socket holds up to a quarter of a megabyte of the kernel's memory at its usual settings, which no limit of memory counts. */
const FILES_PER_MB = 4;
const MIN_FILES = 256;

const SHM_BYTES = 64 * 1024 * 1024;
const RUN_BYTES = 1024 * 1024;

/** A folder or file of the host at its own path in the sandbox. */
export interface SandboxMount {
  readonly from: string;
  readonly to: string;
  readonly writable: boolean;
  /** Where `from` led when the plan was made, if it may be a link. */
  readonly real?: string;
}

/** What a jail comes to on this machine: `program` is absolute. */
export interface SandboxPlan {
  readonly program: string;
  readonly cwd: string;
  /** Outermost first. */
  readonly mounts: readonly SandboxMount[];
  /** Hidden, after all mounts; none lies in another. */
  readonly masks: readonly string[];
  /** Mounts that hold files of the user, not only those that the program needs to run. */
  readonly visible: readonly string[];
}

/** Looks at the files of this machine; undefined when the program is not there. Throws SANDBOX_UNAVAILABLE for a place that was moved. */
export function planSandbox(jail: SandboxSpec): SandboxPlan | undefined {
  const program = findProgram(jail.command, jail.cwd);
  if (program === undefined) return undefined;
  const files = programFiles(program, jail.args, jail.cwd).map((file) => ({
    from: file,
    to: file,
    writable: false,
    real: realpathSync(file),
  }));
  const [read, write] = (
    [
      [jail.read, false],
      [jail.write, true],
    ] as const
  ).map(([list, writable]) =>
    unmovedPaths(list, jail.workspace).map((file) => ({ from: file, to: file, writable })),
  ) as [SandboxMount[], SandboxMount[]];
  const ways =
    jail.egress === undefined
      ? []
      : [{ from: jail.egress.socket, to: EGRESS_SOCKET }, ...jail.egress.mounts].map((mount) => ({
          ...mount,
          writable: false,
          real: realpathSync(mount.from),
        }));
  const mounts = mergeMounts([...files, ...read, ...write, ...ways]);
  const own = files
    .map(({ to }) => to)
    .filter((file) => isPathWithin(file, jail.workspace) || isPathWithin(jail.workspace, file));
  const hidden = [...new Set(jail.hidden.filter((file) => existsSync(file)).map((file) => realpathSync(file)))];
  return {
    program,
    cwd: jail.cwd,
    mounts,
    masks: hidden.filter((file) => isSystemFile(file) || mounts.some(({ to }) => isPathWithin(file, to))),
    visible: [...own, ...read.map(({ to }) => to), ...write.map(({ to }) => to)],
  };
}

/** One mount for each place, the last word counts; outer folders come first, so that what lies in them shows. */
export function mergeMounts(mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  return [...new Map(mounts.map((mount) => [mount.to, mount])).values()].sort(
    (one, other) => one.to.split('/').length - other.to.split('/').length,
  );
}

/** The options, for `--args`: they hold the environment, so they must never stand in an argument list. */
export function bubblewrapOptions(jail: SandboxSpec, plan: SandboxPlan, identity: SandboxUser): readonly string[] {
  return [
    '--unshare-user',
    '--uid',
    `${identity.uid}`,
    '--gid',
    `${identity.gid}`,
    '--unshare-net',
    '--unshare-pid',
    ...(isUnreaped() ? ['--as-pid-1'] : []),
    '--unshare-ipc',
    '--unshare-uts',
    '--unshare-cgroup-try',
    '--hostname',
    'sandbox',
    '--cap-drop',
    'ALL',
    '--new-session',
    '--die-with-parent',
    '--seccomp',
    `${SANDBOX_FDS.seccomp}`,
    '--json-status-fd',
    `${SANDBOX_FDS.status}`,
    '--block-fd',
    `${SANDBOX_FDS.block}`,
    ...systemOptions(),
    ...memoryOptions(jail.limits.fileMb * 1024 * 1024),
    // Empty where nothing of it is given: in another folder, a relative path would name another file than the one that was looked at.
    '--dir',
    plan.cwd,
    ...plan.mounts.flatMap(({ from, to, writable }) => [writable ? '--bind' : '--ro-bind', from, to]),
    ...plan.masks.flatMap(maskOptions),
    // The root and /dev are memory that the program would own: without this it could fill the machine's.
    '--remount-ro',
    '/dev',
    '--remount-ro',
    '/',
    '--chdir',
    plan.cwd,
    '--clearenv',
    ...Object.entries(environmentOf(jail, plan)).flatMap(([name, value]) => ['--setenv', name, value]),
  ];
}

/** The folders of the system's programs, read-only. */
export function systemFolders(): readonly string[] {
  return SYSTEM_FOLDERS.filter((folder) => existsSync(folder)).flatMap((folder) =>
    lstatSync(folder).isSymbolicLink() ? ['--symlink', readlinkSync(folder), folder] : ['--ro-bind', folder, folder],
  );
}

function systemOptions(): readonly string[] {
  const etc = ETC.map((name) => `/etc/${name}`)
    .filter((file) => existsSync(file))
    .flatMap((file) => ['--ro-bind', realpathSync(file), file]);
  const made = [
    ['passwd', SANDBOX_FDS.passwd],
    ['group', SANDBOX_FDS.group],
    ['hosts', SANDBOX_FDS.hosts],
    ['nsswitch.conf', SANDBOX_FDS.names],
  ] as const;
  const proc = PROC.map((name) => `/proc/${name}`)
    .filter((file) => existsSync(file))
    .flatMap((file) => ['--ro-bind', '/dev/null', file]);
  return [
    ...systemFolders(),
    ...etc,
    ...made.flatMap(([name, fd]) => ['--perms', '0444', '--file', `${fd}`, `/etc/${name}`]),
    '--proc',
    '/proc',
    '--ro-bind',
    '/proc/sys',
    '/proc/sys',
    ...proc,
    '--dev',
    '/dev',
    ...ZERO,
  ];
}

/** Every place that takes files without a folder of the host behind it, with an end to it. */
function memoryOptions(bytes: number): readonly string[] {
  return [
    '--size',
    `${SHM_BYTES}`,
    '--tmpfs',
    '/dev/shm',
    '--size',
    `${bytes}`,
    '--tmpfs',
    '/tmp',
    '--dir',
    SANDBOX_HOME,
    '--size',
    `${RUN_BYTES}`,
    '--tmpfs',
    '/run',
  ];
}

function maskOptions(file: string): readonly string[] {
  return statSync(file).isDirectory()
    ? ['--perms', '0000', '--size', '4096', '--tmpfs', file, '--remount-ro', file]
    : ['--ro-bind', '/dev/null', file];
}

/** Only what a program needs to run, and what its settings name. */
function environmentOf(jail: SandboxSpec, { mounts }: SandboxPlan): Readonly<Record<string, string>> {
  const search = searchFolders().filter(
    (folder) => isSystemFile(folder) || mounts.some(({ to }) => isPathWithin(folder, to)),
  );
  return {
    PATH: search.length > 0 ? search.join(':') : '/usr/bin:/bin',
    HOME: SANDBOX_HOME,
    TMPDIR: '/tmp',
    USER: 'user',
    LOGNAME: 'user',
    ...jail.env,
    ...jail.egress?.env,
  };
}

/** What stands in the descriptors after `seccomp`: accounts that name this one user, and names that resolve without a network. */
export function generatedFiles({ uid, gid }: SandboxUser): ReadonlyMap<number, string> {
  return new Map([
    [SANDBOX_FDS.passwd, `user:x:${uid}:${gid}::${SANDBOX_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n`],
    [SANDBOX_FDS.group, `user:x:${gid}:\nnogroup:x:65534:\n`],
    [SANDBOX_FDS.hosts, '127.0.0.1 localhost sandbox\n'],
    [SANDBOX_FDS.names, 'passwd: files\ngroup: files\nhosts: files\n'],
  ]);
}

/** Starts the way out and waits until it listens: 0C38 is its port, 3128, and 0A is listening. */
export const egressBridge = (
  socat: string,
): string => `${socat} TCP-LISTEN:${EGRESS_PORT},bind=127.0.0.1,fork,reuseaddr UNIX-CONNECT:${EGRESS_SOCKET} 3>&- & n=0
while [ $n -lt 500 ]; do while read -r a b c d e; do case $b$d in *:0C380A) break 2;; esac; done </proc/net/tcp; n=$((n+1)); sleep 0.01; done
`;

/** Says that all stands, and waits to be let go, so that nobody can miss the end of a short program. */
const GATE = 'echo ready >&3; read -r go <&3; ';
const BECOME = 'exec "$@" 3>&-';
/** Stays as the first process, and reaps what the program leaves. It holds no descriptor of the program: the end of a pipe would not be seen else. */
const WAIT = 'exec 4<&0; "$@" <&4 3>&- 4<&- & exec </dev/null >/dev/null 2>&1 3>&- 4<&-; wait $!';

/**
 * True where process 1 reaps nothing: it is Tollgate, or a Node.js that started it. Bubblewrap with a first process of its own ends before that
 * process does, and leaves it to process 1, so that each sandbox would leave a zombie. There a shell is the first process. It is not so
 * everywhere, because the shell has the program's environment and the first process of bubblewrap has none.
 */
export function isUnreaped(comm: string = readFileSync('/proc/1/comm', 'latin1')): boolean {
  return process.pid === 1 || /^(?:node|npm|npx|MainThread)\b/.test(comm);
}

/** What runs in the sandbox: the limits are set inside, where processes of others do not count, and then the program. */
export function sandboxCommand(jail: SandboxSpec, { program }: SandboxPlan, tools: SandboxTools): readonly string[] {
  const { memoryMb, processes, fileMb, cpuSeconds } = jail.limits;
  const megabyte = 1024 * 1024;
  const limits = [
    `--nproc=${processes}`,
    `--data=${memoryMb * megabyte}`,
    `--fsize=${fileMb * megabyte}`,
    '--core=0',
    ...(cpuSeconds === undefined ? [] : [`--cpu=${cpuSeconds}`]),
  ];
  // By the shell: a machine that allows fewer keeps its own number.
  const files = `ulimit -n ${Math.max(MIN_FILES, memoryMb * FILES_PER_MB)} 2>/dev/null\n`;
  const way = jail.egress === undefined ? '' : egressBridge(tools.socat ?? 'socat');
  return [
    '/bin/sh',
    '-c',
    files + way + GATE + (isUnreaped() ? WAIT : BECOME),
    'sandbox',
    tools.prlimit,
    ...limits,
    '--',
    program,
    ...jail.args,
  ];
}

/**
 * Where a link stands in a folder that is mounted itself, as a `node_modules` that was linked: the link is there already, so what it
 * leads to is mounted under its own name. Writable mounts stay: they were judged as they are.
 */
export function resolveMountLinks(mounts: readonly SandboxMount[]): readonly SandboxMount[] {
  return mounts.map((mount) => {
    const { from, to, writable } = mount;
    const holder = mounts.find((other) => other.to !== to && isPathWithin(to, other.to));
    if (writable || from !== to || holder === undefined) return mount;
    const real = realpathSync(from);
    return real === path.join(realpathSync(holder.from), path.relative(holder.to, to))
      ? mount
      : { from: real, to: real, writable };
  });
}
