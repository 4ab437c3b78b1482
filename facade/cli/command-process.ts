/** Owns the process as commands see it: streams, signals, user; refuses to name stdout itself, which facade/main.ts hands in. */
import { realpathSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import path from 'node:path';
import { EXIT, type Io } from './command-io.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** What is used of node:process. */
export type CommandProcess = Pick<
  NodeJS.Process,
  'stdin' | 'stdout' | 'stderr' | 'env' | 'cwd' | 'argv' | 'execPath' | 'on' | 'exit' | 'exitCode'
>;

/** The Io of a process. Faults of its output end up in its exit code. */
export function processIo(host: CommandProcess): Io {
  const { stdin, stdout, stderr, env } = host;
  const signals = new Signals(host);
  watchOutput(host);
  return {
    stdout: (text) => void stdout.write(text),
    stderr: (text) => void stderr.write(text),
    isTTY: stdout.isTTY === true,
    env,
    stdin,
    out: stdout,
    home: readOr(homedir, '/nonexistent'),
    cwd: readOr(() => host.cwd(), '/'),
    user: readOr(() => userInfo().username, `uid-${process.getuid?.()}`),
    self: selfOf(host),
    get stopped() {
      return signals.stopped;
    },
    onUrge: (listener) => {
      signals.onUrge = listener;
      return () => (signals.onUrge = undefined);
    },
    watch: async (watched) =>
      (await import('../runtime/watchdog.ts')).startWatchdog(watched, (line) => void stderr.write(line)),
    onHangup: (listener) => {
      if (stdin.isTTY !== true) signals.onHangup = listener;
    },
  };
}

/** In a checkout no `tollgate` is on the PATH: what starts it is Node itself with the file. */
function selfOf({ argv, execPath }: Pick<CommandProcess, 'argv' | 'execPath'>): readonly string[] {
  const file = argv[1];
  if (file === undefined || path.basename(file) === 'tollgate') return ['tollgate'];
  return [execPath, readOr(() => realpathSync(file), file)];
}

/** In a container the user may have neither name nor home, and a current folder may be gone; what needs them says so itself. */
function readOr(read: () => string, otherwise: string): string {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/** A command with something to end asks for them; under others a signal ends the process at once, as one too many does here. */
class Signals {
  onHangup: (() => void) | undefined;
  readonly #host: CommandProcess;
  /** Taken away by its first use. */
  onUrge: (() => void) | undefined;
  #stopped: Promise<void> | undefined;

  constructor(host: CommandProcess) {
    this.#host = host;
  }

  get stopped(): Promise<void> {
    return (this.#stopped ??= this.#listen());
  }

  #urge(): void {
    const listener = this.onUrge;
    this.onUrge = undefined;
    if (listener === undefined) this.#host.exit(EXIT.unexpected);
    else listener();
  }

  #listen(): Promise<void> {
    const host = this.#host;
    return new Promise((resolve) => {
      let isStopping = false;
      const receive = (signal: NodeJS.Signals): void => {
        const other = signal === 'SIGHUP' && !isStopping ? this.onHangup : undefined;
        if (other !== undefined) return other();
        if (isStopping) return this.#urge();
        isStopping = true;
        resolve();
      };
      for (const signal of SIGNALS) host.on(signal, receive);
      // Nobody reads any more, so there is nothing left to say.
      host.stdout.once('error', () => resolve());
    });
  }
}

/** A reader such as `head` may go away first, which is no fault; output that a full disk did not take is one. */
function watchOutput(host: CommandProcess): void {
  host.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    if (code === 'EPIPE' || code === 'ECONNRESET') return;
    host.stderr.write(`The output could not be written (${code}).\n`);
    host.exitCode = EXIT.unexpected;
  });
  host.stderr.on('error', () => undefined);
}
