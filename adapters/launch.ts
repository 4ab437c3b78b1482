/** Owns the start of a server's process at the isolation that it asks for; refuses to start what cannot be isolated as asked. */
import { spawn } from 'node:child_process';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
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

/** What a program needs to run at all; everything else of our environment could be a secret of another server. */
const INHERITED = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TZ', 'TMPDIR', 'USER', 'LOGNAME'];

/** Starts a server. Throws SANDBOX_UNAVAILABLE when its isolation cannot be had; a program that is missing shows as `error` of the child. */
export async function launch(settings: ServerSettings): Promise<Launched> {
  const { command = '', args, cwd } = settings;
  const child = spawn(command, [...args], { cwd, env: { ...inherited(), ...settings.env }, detached: true, shell: false, stdio: 'pipe' });
  return { child, signal: (signal) => signalGroup(child, signal), kill: () => void signalGroup(child, 'SIGKILL'), release: () => Promise.resolve() };
}

function inherited(): Record<string, string> {
  return Object.fromEntries(INHERITED.flatMap((key) => (process.env[key] === undefined ? [] : [[key, process.env[key]]])));
}
