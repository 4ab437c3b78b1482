/** Describes an isolated start: what a program gets in a sandbox, and the process that results. */
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { statSync } from 'node:fs';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import type { RepositoryScope } from './closed-paths/git-repositories.ts';

/** What a program gets in a sandbox. The program sees nothing else. All paths are absolute. */
export interface SandboxSpec {
  readonly command: string;
  readonly args: readonly string[];
  /** The complete environment. It never appears in an argument list. */
  readonly env: Readonly<Record<string, string>>;
  /** Real path of the working folder. It is an empty folder if no file in it is visible. */
  readonly cwd: string;
  /** The program runs as the owner of this folder. */
  readonly workspace: string;
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Removed from everything else. Paths that do not exist are ignored. */
  readonly hidden: readonly string[];
  /** Read-only, also inside a writable folder. */
  readonly fixed?: readonly string[];
  /** What rules close of these paths. The start searches the files for it. */
  readonly confinement?: Confinement | undefined;
  readonly limits: SandboxLimits;
  readonly egress?: Egress | undefined;
  /** If false, stdin is empty. */
  readonly input: boolean;
}

/**
 * What an isolated server gets. The names are those of VS Code; paths are absolute. Nothing else is visible or
 * reachable.
 */
export interface SandboxSettings {
  readonly filesystem: {
    /** In addition to the system's programs and the server's own folder. Default: none. */
    readonly allowRead: readonly string[];
    /** Default: none; the workspace for a server that serves primitives. */
    readonly allowWrite: readonly string[];
    /** Removed from what the other lists allow. */
    readonly denyRead: readonly string[];
    /** Read-only, also inside a writable folder. */
    readonly denyWrite?: readonly string[];
  };
  readonly network: {
    /** Exact hosts or `*.example.org`, each with an optional port. Default: none. */
    readonly allowedDomains: readonly string[];
    /** Never reachable, even if allowed. Without a port, this means every port. */
    readonly deniedDomains?: readonly string[];
  };
  readonly limits: SandboxLimits;
  /** Image of a container. */
  readonly image?: string;
}

/** Limits of an isolated server. */
export interface SandboxLimits {
  /** Data of one process (sandbox), or of all processes together (container); default 256 (HE-07). */
  readonly memoryMb: number;
  /** Processes and threads together; default 64. */
  readonly processes: number;
  /** Size of the largest file, and total size of /tmp; default 256. */
  readonly fileMb: number;
  /** Processor time of one process; absent: no limit. */
  readonly cpuSeconds?: number;
}

/** The way from a sandbox to the network: a proxy of the host on a unix socket, made for one server. */
export interface Egress {
  /** Path of the proxy's socket on the host. The user that the server runs as can reach it. */
  readonly socket: string;
  /**
   * Proxy variables and the Node preload, as the server sees them. In the sandbox, the proxy listens at
   * 127.0.0.1:EGRESS_PORT.
   */
  readonly env: Readonly<Record<string, string>>;
  /** Files of the host that `env` names (the preload). They are mounted read-only. Paths are absolute. */
  readonly mounts: readonly { readonly from: string; readonly to: string }[];
  close(): Promise<void>;
}

/** Port on the loopback of a sandbox. A bridge passes its connections to the proxy's socket. */
export const EGRESS_PORT = 3128;

/** Path of the proxy's socket in a sandbox or container. */
export const EGRESS_SOCKET = '/run/tollgate/egress.sock';

/** The user that a program runs as. With `drop`, Tollgate is root and must change to this user first. */
export interface SandboxUser {
  readonly uid: number;
  readonly gid: number;
  readonly drop: boolean;
}

/** A started sandbox. */
export interface SandboxedProcess {
  readonly child: ChildProcessWithoutNullStreams;
  /** Sends a signal to every process in the sandbox; 0 sends none. Returns false if no process was left. */
  signal(signal: NodeJS.Signals | 0): boolean;
  kill(): void;
  /** Resolves when none of its processes runs and its names are free. */
  readonly ended: Promise<void>;
  /**
   * Closed paths that something replaced while the sandbox ran. The sandbox was killed for this. Complete after the
   * end.
   */
  readonly lost?: ReadonlySet<string>;
  /** After the end: true if the sandbox ended because it reached its memory limit. Absent if this cannot be known. */
  hasLackedMemory?(): boolean;
  /** True if the sandbox reached its limit of processes. Absent if this cannot be known. */
  isFull?(): boolean;
  /** The repositories to check during the run and after the end. Absent if no rule closes settings of git. */
  readonly repositoryScope?: RepositoryScope | undefined;
  /** After the end: why the isolation failed at the start, for an engine that reports it only then. */
  refusal?(): TollgateError | undefined;
}

/** Home of a program in a sandbox: empty, writable, removed with the sandbox. */
export const SANDBOX_HOME = '/tmp/home';

/** Used if a workspace belongs to the group of root, so that the program gets no rights from its group. */
const NO_GROUP = 65_534;

/**
 * Returns the user that programs of this workspace run as. This is the current user; if that is root, it is the owner
 * of the workspace. As uid 0 of the host, a program would escape the limit of processes and own files in /proc and /etc
 * (measured with bubblewrap 0.8). Throws SANDBOX_UNAVAILABLE if root owns the workspace.
 */
export function chooseSandboxUser(workspace: string): SandboxUser {
  const uid = process.getuid?.();
  const gid = process.getgid?.();
  if (uid === undefined || gid === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'This system has no Linux users.',
      next: 'Run Tollgate inside WSL.',
    });
  if (uid !== 0) return { uid, gid, drop: false };
  const owner = statSync(workspace);
  if (owner.uid === 0)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail:
        'Tollgate runs as root and the workspace belongs to root. A program that runs as root cannot be isolated.',
      next:
        'Run Tollgate as an ordinary user, or give the workspace to one: `chown -R USER: WORKSPACE`. ' +
        '`tollgate doctor` prints the command with its paths.',
    });
  return { uid: owner.uid, gid: owner.gid === 0 ? NO_GROUP : owner.gid, drop: true };
}
