/** Owns the start of a server's process at the isolation that it asks for; refuses to start what cannot be isolated as asked. */
import { spawn } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { TollgateError } from '../catalogs/errors.ts';
import { signalGroup } from './process-group.ts';
import type { ServerSettings } from './settings.ts';

/** A process that was started, with all that was made for it. */
export interface Launched {
  /** Its pipes; leads a process group of its own. */
  readonly child: ChildProcessWithoutNullStreams;
  /** Sends a signal to the server itself and what it started: in a sandbox to the process inside of it. False when nothing is left. */
  signal(signal: NodeJS.Signals | 0): boolean;
  /** Ends everything at once, synchronously. */
  kill(): void;
  /** Gives back what was made for it (proxy, sockets, folders); call it when the process has ended. Idempotent. */
  release(): Promise<void>;
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

/** What a start needs to know of the facade around it. Paths absolute and real. */
export interface LaunchHost {
  readonly workspace: string;
  /** State folder, vault, configuration: never visible, whatever the settings say. */
  readonly hidden: readonly string[];
  /** The value of `${secret:name}`; its errors stop the start. */
  readonly secrets: (name: string) => Promise<string>;
  /** Opens the proxy of a server that has allowed domains. Without it, such a server does not start. */
  readonly openEgress?: (settings: ServerSettings) => Promise<Egress>;
}

/** What a program needs to run at all; everything else of our environment could be a secret of another server. */
const INHERITED = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR', 'USER', 'LOGNAME'];

/**
 * Starts a server and resolves once its process exists: nobody has to wait for `spawn` or `error` of the child any more.
 * Throws INIT_FAILED when its program or folder is missing, and SANDBOX_UNAVAILABLE when its isolation cannot be had.
 */
export async function launch(settings: ServerSettings, host: LaunchHost): Promise<Launched> {
  void host;
  const { command = '', args, cwd } = settings;
  const child = spawn(command, [...args], { cwd, env: { ...inherited(), ...settings.env }, detached: true, shell: false, stdio: 'pipe' });
  await started(child, settings.name);
  return { child, signal: (signal) => signalGroup(child, signal), kill: () => void signalGroup(child, 'SIGKILL'), release: () => Promise.resolve() };
}

function started(child: ChildProcessWithoutNullStreams, name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (cause: NodeJS.ErrnoException) => {
      const why = cause.code === 'ENOENT' ? 'its command or its folder was not found' : `it could not be started (${cause.code ?? 'unknown'})`;
      reject(new TollgateError('INIT_FAILED', { detail: `Server "${name}" did not start: ${why}.`, cause }));
    });
  });
}

function inherited(): Record<string, string> {
  return Object.fromEntries(INHERITED.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])));
}
