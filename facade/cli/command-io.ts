/** Owns the meeting point of commands and the terminal: data to stdout, talk to stderr, and the exit codes. */
import type { WatchdogSettings } from '../runtime/watchdog.ts';

/** What a command may use of the world; tests give their own. */
export interface Io {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Whether stdout is a terminal; colour and prompts need one. */
  readonly isTTY: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  readonly cwd: string;
  readonly user: string;
  /** The words that start this program again, from any folder: for commands that people are told to type. */
  readonly self: readonly string[];
  readonly stdin: NodeJS.ReadableStream;
  readonly out: NodeJS.WritableStream;
  /** Resolves when the process is asked to stop (SIGINT, SIGTERM). */
  readonly stopped: Promise<void>;
  /** Gives the next signal after that another meaning than to end the process at once; the answer takes it back. */
  readonly onUrge?: (listener: () => void) => () => void;
  /** Starts the watchdog of this process (facade/runtime/watchdog.ts); absent where commands run in the process of others. */
  readonly watch?: (watched: WatchdogSettings) => Promise<void>;
  /** Gives SIGHUP another meaning than to stop, where the process has no terminal that could have gone. */
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
} as const;
