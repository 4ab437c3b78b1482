/** What a command uses of the terminal: data to stdout, messages to stderr, and the exit codes. */
import type { WatchdogSettings } from '../runtime/watchdog.ts';
import type { WorkerLink } from './serving/worker-link.ts';

/** What a command may use of its environment. Tests pass their own. */
export interface Io {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Whether stdout is a terminal; colour and prompts need one. */
  readonly isTTY: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly user: string;
  /** The arguments that start this program again from any folder, for commands that people are told to run. */
  readonly self: readonly string[];
  readonly stdin: NodeJS.ReadableStream;
  readonly out: NodeJS.WritableStream;
  /** Resolves when the process is asked to stop (SIGINT, SIGTERM). */
  readonly stopped: Promise<void>;
  /**
   * Lets `listener` receive the next signal, which otherwise ends the process at once. The returned function undoes
   * that.
   */
  readonly onUrge?: (listener: () => void) => () => void;
  /**
   * Starts the watchdog of this process (facade/runtime/watchdog.ts). Absent if commands run inside another program.
   */
  readonly watch?: (watched: WatchdogSettings) => Promise<void>;
  /** This process is one of the workers of `serve --workers`. */
  readonly worker?: WorkerLink;
  /** Whether this program can start itself as workers. */
  readonly canFork?: boolean;
  /** Lets `listener` receive SIGHUP, which otherwise stops the process. Absent if the process has a terminal. */
  readonly onHangup?: (listener: () => void) => void;
}

/** Stable exit codes, documented in docs/cli.md. */
export const EXIT = {
  ok: 0,
  unexpected: 1,
  usage: 2,
  refused: 3,
  auth: 4,
  server: 5,
  toolError: 6,
  approval: 7,
  unproven: 8,
} as const;
