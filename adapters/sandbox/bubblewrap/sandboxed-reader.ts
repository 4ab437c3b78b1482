/** Starts a program that reads files of agents: in a sandbox of its own, with a read-only view of one folder, no network and bounds. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readlinkSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { HELPER_PATH } from '../../../catalogs/programs/helper-programs.ts';
import { withoutInheritedDescriptors } from '../inherited-descriptors.ts';
import { isSystemFile } from '../program-files.ts';
import { chooseSandboxUser } from '../sandbox-spec.ts';
import { isUnreaped, systemFolders } from './bubblewrap-arguments.ts';
import { stagePlan } from './mount-staging.ts';
import { findSandboxTools } from './sandbox-tools.ts';
import { compileSeccompFilter } from './seccomp-filter.ts';

/** What is started. */
export interface ReaderStart {
  /** Absolute. */
  readonly program: string;
  readonly args: readonly string[];
  /** Its owner is the user that the program runs as. */
  readonly workspace: string;
  /** Descriptor of what it reads: the folder that it starts in, or the file that becomes its stdin. */
  readonly fd: number;
  readonly isFolder: boolean;
}

/** First line of stdout, once the view is known to be that of the descriptor. Without it, nothing was started. */
export const READER_READY = 'ready';

const VIEW = '/view';
const [SECCOMP_FD, FOLDER_FD] = [3, 4] as const;
const LIMITS = ['--data=536870912', '--nproc=64', '--fsize=0', '--core=0', '--cpu=30'] as const;
/** The folder is mounted by its name, so whoever swaps it meanwhile is noticed here. The descriptor is closed: it leads out of the view. */
const SAME = `[ . -ef /proc/self/fd/${FOLDER_FD} ] || exit 1; exec ${FOLDER_FD}<&-; `;
const RUN = `echo ${READER_READY}; exec "$@"`;

/** Starts the program; its stdout begins with READY, and it leads a process group. Throws SANDBOX_UNAVAILABLE. */
export function startReader({ program, args, workspace, fd, isFolder }: ReaderStart): ChildProcess {
  const tools = findSandboxTools(false);
  const identity = chooseSandboxUser(workspace);
  const view = isFolder ? [{ from: readlinkSync(`/proc/self/fd/${fd}`), to: VIEW, writable: false }] : [];
  const plan = {
    program,
    cwd: isFolder ? VIEW : '/',
    mounts: [...view, ...(isSystemFile(program) ? [] : [{ from: program, to: program, writable: false }])],
    masks: [],
    visible: [],
  };
  const staged = stagePlan(plan, identity);
  const { mounts } = staged?.plan ?? plan;
  const options = [
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
    '--cap-drop',
    'ALL',
    '--new-session',
    '--die-with-parent',
    '--seccomp',
    `${SECCOMP_FD}`,
    ...systemFolders(),
    ...(existsSync('/etc/ld.so.cache') ? ['--ro-bind', '/etc/ld.so.cache', '/etc/ld.so.cache'] : []),
    '--proc',
    '/proc',
    '--ro-bind',
    '/proc/sys',
    '/proc/sys',
    ...mounts.flatMap(({ from, to }) => ['--ro-bind', from, to]),
    '--remount-ro',
    '/',
    '--chdir',
    plan.cwd,
    '--clearenv',
    '--setenv',
    'PATH',
    HELPER_PATH,
    '--setenv',
    'LC_ALL',
    'C.UTF-8',
  ];
  const inside = [
    '/bin/sh',
    '-c',
    (isFolder ? SAME : '') + RUN,
    'view',
    tools.prlimit,
    ...LIMITS,
    '--',
    program,
    ...args,
  ];
  const [command = '', ...words] = [...(staged?.commandPrefix ?? []), tools.bwrap, ...options, '--', ...inside];
  const child = withoutInheritedDescriptors(
    [isFolder ? 'ignore' : fd, 'pipe', 'pipe', 'pipe', ...(isFolder ? [fd] : [])],
    (stdio) =>
      spawn(command, words, {
        env: {},
        cwd: '/',
        detached: true,
        shell: false,
        stdio,
        ...(identity.drop && staged === undefined && { uid: identity.uid, gid: identity.gid }),
      }),
  );
  const filter = (child.stdio as readonly unknown[])[SECCOMP_FD];
  // EPIPE: bubblewrap ended before it read the filter; then READY does not come.
  if (filter instanceof Duplex) filter.on('error', () => undefined).end(compileSeccompFilter({ counted: false }));
  return child;
}
