/** Owns the words of an isolated start: what a program is given, and what was made of it. */
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { statSync } from 'node:fs';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import type { RepositoryScope } from './closed-paths/git-repositories.ts';

/** What a program is given in a sandbox; what is not named here does not exist for it. Paths absolute. */
export interface SandboxSpec {
  readonly command: string;
  readonly args: readonly string[];
  /** Whole; it never stands in an argument list. */
  readonly env: Readonly<Record<string, string>>;
  /** Where it starts, and what its relative paths begin at, real; an empty folder in that place when nothing of it is given. */
  readonly cwd: string;
  /** Its owner is the user that the program runs as. */
  readonly workspace: string;
  readonly read: readonly string[];
  readonly write: readonly string[];
  /** Taken out of everything else; those that do not exist are left out. */
  readonly hidden: readonly string[];
  /** Read-only where any of that is to be written. */
  readonly fixed?: readonly string[];
  /** What rules close of all that; found among the files at the start. */
  readonly confinement?: Confinement;
  readonly limits: SandboxLimits;
  readonly egress?: Egress;
  /** Without it, stdin is empty. */
  readonly input: boolean;
}

/** What an isolated server is given, in the words of VS Code; paths absolute. Nothing else is visible or reachable. */
export interface SandboxSettings {
  readonly filesystem: {
    /** Beside the programs of the system and the server's own folder. Default: none. */
    readonly allowRead: readonly string[];
    /** Default: none; the workspace for a server that serves primitives. */
    readonly allowWrite: readonly string[];
    /** Taken out of what the others allow. */
    readonly denyRead: readonly string[];
    /** Read-only, whatever allows to write there. */
    readonly denyWrite?: readonly string[];
  };
  readonly network: {
    /** Exact hosts, `*.example.org`, each with an optional port. Default: none. */
    readonly allowedDomains: readonly string[];
    /** Never reached, whatever allows it; without a port, on every port. */
    readonly deniedDomains?: readonly string[];
  };
  readonly limits: SandboxLimits;
  /** Image of a container. */
  readonly image?: string;
}

/** Limits of an isolated server. */
export interface SandboxLimits {
  /** Data of one process (sandbox), or of all together (container); default 256 (HE-07). */
  readonly memoryMb: number;
  /** Processes and threads together; default 64. */
  readonly processes: number;
  /** Largest file, and all that /tmp may hold; default 256. */
  readonly fileMb: number;
  /** Processor time of one process; absent: no limit. */
  readonly cpuSeconds?: number;
}

/** A way out of a sandbox: a proxy of the host on a unix socket, made for one server. */
export interface Egress {
  /** Path of the proxy's unix socket on the host; it and its folder can be reached by the user that the server runs as. */
  readonly socket: string;
  /** Proxy variables and the Node preload, as the server shall see them: the proxy stands at 127.0.0.1:EGRESS_PORT there. */
  readonly env: Readonly<Record<string, string>>;
  /** Files of the host that `env` names (the preload), bound read-only. Both absolute. */
  readonly mounts: readonly { readonly from: string; readonly to: string }[];
  close(): Promise<void>;
}

/** Port on the sandbox's own loopback at which a bridge hands connections to the proxy's socket. */
export const EGRESS_PORT = 3128;

/** Path of the proxy's socket in a sandbox or container. */
export const EGRESS_SOCKET = '/run/tollgate/egress.sock';

/** The user that a program runs as. `drop`: we are root, and become this user before anything else. */
export interface SandboxUser {
  readonly uid: number;
  readonly gid: number;
  readonly drop: boolean;
}

/** A started sandbox. */
export interface SandboxedProcess {
  readonly child: ChildProcessWithoutNullStreams;
  /** True when something of it was there when it was called. Signal 0 only asks; the others go to every process in the sandbox. */
  signal(signal: NodeJS.Signals | 0): boolean;
  kill(): void;
  /** Resolves when nothing of it runs and its names are free. */
  readonly ended: Promise<void>;
  /** Once it has ended: places that were closed to it and were not to the end, because something else replaced them. It was ended for that. */
  readonly lost?: ReadonlySet<string>;
  /** Once it has ended: whether it was ended because all its processes together had reached the limit of memory. Absent where nothing can tell. */
  hasLackedMemory?(): boolean;
  /** Whether its processes are as many as they may be, so that it can start none. Absent where nothing can tell. */
  isFull?(): boolean;
  /** What to look for while it runs and once it has ended; absent where rules close nothing of git. */
  readonly repositoryScope?: RepositoryScope;
  /** Once it has ended: why it never stood, where what isolates it can tell that only by then. */
  refusal?(): TollgateError | undefined;
}

/** Home of a program in a sandbox: empty, writable, gone with it. */
export const SANDBOX_HOME = '/tmp/home';

/** Group of a workspace that belongs to the group of root: the group then grants nothing. */
const NO_GROUP = 65_534;

/**
 * Started as an ordinary user: that user. Started as root: the owner of the workspace, so that files in it stay usable. As
 * host user 0, mapped or not, a program would escape the count of processes and own files of /proc and /etc (measured with
 * bubblewrap 0.8). Throws SANDBOX_UNAVAILABLE when root owns the workspace.
 */
export function chooseSandboxUser(workspace: string): SandboxUser {
  const uid = process.getuid?.();
  const gid = process.getgid?.();
  if (uid === undefined || gid === undefined)
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail: 'This system has no users as Linux knows them.',
      next: 'Run Tollgate inside WSL.',
    });
  if (uid !== 0) return { uid, gid, drop: false };
  const owner = statSync(workspace);
  if (owner.uid === 0) {
    throw new TollgateError('SANDBOX_UNAVAILABLE', {
      detail:
        'Tollgate runs as root and the workspace belongs to root: the rights of root cannot be taken from a program that runs as root.',
      next: 'Run Tollgate as an ordinary user, or give the workspace to one: `chown -R USER: WORKSPACE`; `tollgate doctor` prints the line with its paths.',
    });
  }
  return { uid: owner.uid, gid: owner.gid === 0 ? NO_GROUP : owner.gid, drop: true };
}
