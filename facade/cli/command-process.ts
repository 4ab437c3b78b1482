/** Makes the Io of a process from its streams, signals and user. facade/main.ts passes stdout in. */
import { realpathSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { VERSION } from '../serve/version.ts';
import { EXIT, type Io } from './command-io.ts';
import { commandLine } from './print.ts';
import type { WorkerLink } from './serving/worker-link.ts';
import { screenColumns, wrapMessage } from './terminal-rows.ts';

/** Commands whose stderr is a log. */
const LOGGING: ReadonlySet<string> = new Set(['run', 'serve']);

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** The parts of node:process that are used. */
export type CommandProcess = Pick<
  NodeJS.Process,
  'stdin' | 'stdout' | 'stderr' | 'env' | 'cwd' | 'argv' | 'execPath' | 'on' | 'exit' | 'exitCode'
>;

/** Returns the Io of a process. A failed output changes its exit code. `worker`: it is one of `serve --workers`. */
export function processIo(host: CommandProcess, worker?: WorkerLink): Io {
  const { stdin, stdout, stderr, env } = host;
  const signals = new Signals(host);
  watchOutput(host);
  return {
    stdout: (text) => void stdout.write(text),
    stderr: (text) => void stderr.write(messageFor(host, text)),
    isTTY: stdout.isTTY === true,
    env,
    stdin,
    out: stdout,
    home: homeOf(),
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
    canFork: true,
    ...(worker !== undefined && { worker }),
    onHangup: (listener) => {
      if (stdin.isTTY !== true) signals.onHangup = listener;
    },
  };
}

/**
 * Fits a message to stderr: broken at words, without colour if stderr is no terminal. `run` and `serve` write a log,
 * whose lines stay whole in a file.
 */
function messageFor({ stderr, argv, execPath }: CommandProcess, text: string): string {
  const isTTY = stderr.isTTY === true;
  const plain = isTTY ? text : stripVTControlCharacters(text);
  if (!isTTY && LOGGING.has(argv[2] ?? '')) return plain;
  return wrapMessage(plain, screenColumns(isTTY, stderr), ['tollgate', commandLine(selfOf({ argv, execPath }))]);
}

/** An empty or relative HOME would put the state below the current folder, where agents write. */
function homeOf(): string {
  const home = readOr(homedir, '');
  return path.isAbsolute(home) ? home : '/nonexistent';
}

/** In a checkout there is no `tollgate` on the PATH, so Node starts the file. */
function selfOf({ argv, execPath }: Pick<CommandProcess, 'argv' | 'execPath'>): readonly string[] {
  const file = argv[1];
  // npx removes what it has installed, so nothing may name a file in its folder.
  if (file?.split(path.sep).includes('_npx') === true) return ['npx', '-y', `tollgate@${VERSION}`];
  if (file === undefined || path.basename(file) === 'tollgate') return ['tollgate'];
  return [execPath, readOr(() => realpathSync(file), file)];
}

/**
 * In a container the user may have no name and no home, and the current folder may be gone. The code that needs them
 * reports it.
 */
function readOr(read: () => string, otherwise: string): string {
  try {
    return read();
  } catch {
    return otherwise;
  }
}

/**
 * A command that has something to close listens for the first signal. Otherwise a signal ends the process at once, and
 * so does a second one.
 */
class Signals {
  onHangup: (() => void) | undefined;
  /** The first use removes it. */
  onUrge: (() => void) | undefined;
  readonly #host: CommandProcess;
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
      // The reader of stdout has gone, so the command has nothing more to print.
      host.stdout.once('error', () => resolve());
    });
  }
}

/** A reader such as `head` may end first, which is no error. A full disk is an error. */
function watchOutput(host: CommandProcess): void {
  host.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    if (code === 'EPIPE' || code === 'ECONNRESET') return;
    host.stderr.write(`Cannot write the output (${code}), so it is incomplete.\n`);
    host.exitCode = EXIT.unexpected;
  });
  host.stderr.on('error', () => undefined);
}
