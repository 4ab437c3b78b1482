/**
 * Starts a program that reads files of agents in a sandbox: it sees one folder or file read-only, has limits and no
 * network.
 */
import type { ChildProcess } from 'node:child_process';
import { existsSync, readlinkSync } from 'node:fs';
import { Duplex } from 'node:stream';
import { HELPER_PATH } from '../../../catalogs/programs/helper-programs.ts';
import { isSystemFile } from '../program-files.ts';
import { chooseSandboxUser } from '../sandbox-spec.ts';
import { environmentOptions, isolationOptions, systemFolders } from './bubblewrap-arguments.ts';
import { spawnBubblewrap, stagePlan } from './mount-staging.ts';
import { findSandboxTools } from './sandbox-tools.ts';
import { compileSeccompFilter } from './seccomp-filter.ts';

/** The program to start, and what it reads. */
export interface ReaderStart {
  /** Absolute path. */
  readonly program: string;
  readonly args: readonly string[];
  /** The program runs as the owner of this folder. */
  readonly workspace: string;
  /** Descriptor of the folder that the program starts in, or of the file that becomes its stdin. */
  readonly fd: number;
  readonly isFolder: boolean;
}

/**
 * First line of stdout: the mounted folder is the one of the descriptor. Without this line, the program was not
 * started.
 */
export const READER_READY = 'ready';

const VIEW = '/view';
const [SECCOMP_FD, FOLDER_FD] = [3, 4] as const;
const LIMITS = ['--data=536870912', '--nproc=64', '--fsize=0', '--core=0', '--cpu=30'] as const;
/**
 * Detects a folder that was swapped before bubblewrap mounted it by name. Closes the descriptor, because it leads out
 * of the sandbox.
 */
const CHECK_FOLDER = `[ . -ef /proc/self/fd/${FOLDER_FD} ] || exit 1; exec ${FOLDER_FD}<&-; `;
const RUN = `echo ${READER_READY}; exec "$@"`;

/**
 * Starts the program as the leader of a process group. Its stdout begins with READER_READY. Throws SANDBOX_UNAVAILABLE.
 */
export function startReader({ program, args, workspace, fd, isFolder }: ReaderStart): ChildProcess {
  const tools = findSandboxTools(false);
  const identity = chooseSandboxUser(workspace);
  const folder = isFolder ? [{ from: readlinkSync(`/proc/self/fd/${fd}`), to: VIEW, writable: false }] : [];
  const plan = {
    program,
    cwd: isFolder ? VIEW : '/',
    mounts: [...folder, ...(isSystemFile(program) ? [] : [{ from: program, to: program, writable: false }])],
    masks: [],
    visible: [],
  };
  const staged = stagePlan(plan, identity);
  const options = [
    ...isolationOptions(identity, SECCOMP_FD),
    ...systemFolders(),
    ...(existsSync('/etc/ld.so.cache') ? ['--ro-bind', '/etc/ld.so.cache', '/etc/ld.so.cache'] : []),
    ...(staged?.plan ?? plan).mounts.flatMap(({ from, to }) => ['--ro-bind', from, to]),
    ...['--remount-ro', '/'],
    ...['--chdir', plan.cwd],
    ...environmentOptions({ PATH: HELPER_PATH, LC_ALL: 'C.UTF-8' }),
  ];
  const script = (isFolder ? CHECK_FOLDER : '') + RUN;
  const inside = ['/bin/sh', '-c', script, 'view', tools.prlimit, ...LIMITS, '--', program, ...args];
  const child = spawnBubblewrap([tools.bwrap, ...options, '--', ...inside], {
    identity,
    staged,
    stdio: [isFolder ? 'ignore' : fd, 'pipe', 'pipe', 'pipe', ...(isFolder ? [fd] : [])],
  });
  const filter = (child.stdio as readonly unknown[])[SECCOMP_FD];
  // EPIPE: bubblewrap ended before it read the filter. Then READER_READY does not appear.
  if (filter instanceof Duplex) filter.on('error', () => undefined).end(compileSeccompFilter({ counted: false }));
  return child;
}
