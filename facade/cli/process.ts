/** Owns the process as commands see it: streams, signals, user; refuses to name stdout itself, which facade/main.ts hands in. */
import { realpathSync } from 'node:fs';
import { homedir, userInfo } from 'node:os';
import path from 'node:path';
import { EXIT, type Io } from './io.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** What is used of node:process. */
export type Host = Pick<NodeJS.Process, 'stdin' | 'stdout' | 'stderr' | 'env' | 'cwd' | 'argv' | 'execPath' | 'on' | 'off' | 'exit' | 'exitCode'>;

/** The Io of a process. Faults of its output end up in its exit code. */
export function processIo(host: Host): Io {
  const { stdin, stdout, stderr, env } = host;
  let stopped: Promise<void> | undefined;
  let hangup: (() => void) | undefined;
  watchOutput(host);
  return {
    stdout: (text) => void stdout.write(text), stderr: (text) => void stderr.write(text), isTTY: stdout.isTTY === true,
    env, stdin, out: stdout,
    home: readOr(homedir, '/nonexistent'), cwd: readOr(() => host.cwd(), '/'), user: readOr(() => userInfo().username, `uid-${process.getuid?.()}`),
    self: selfOf(host),
    get stopped() {
      return (stopped ??= untilStopped(host, () => hangup));
    },
    watch: async (watched) => (await import('../watchdog/watchdog.ts')).startWatchdog(watched, (line) => void stderr.write(line)),
    onHangup: (listener) => {
      if (stdin.isTTY !== true) hangup = listener;
    },
  };
}

/** In a checkout no `tollgate` is on the PATH: what starts it is Node itself with the file. */
function selfOf({ argv, execPath }: Pick<Host, 'argv' | 'execPath'>): readonly string[] {
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

/** A command with something to end asks for this; under others a signal ends the process at once, as a second one does here. */
function untilStopped(host: Host, hangup: () => (() => void) | undefined): Promise<void> {
  return new Promise((resolve) => {
    const stop = (signal: NodeJS.Signals): void => {
      const other = signal === 'SIGHUP' ? hangup() : undefined;
      if (other !== undefined) return other();
      for (const each of SIGNALS) host.off(each, stop).on(each, () => host.exit(EXIT.unexpected));
      resolve();
    };
    for (const signal of SIGNALS) host.on(signal, stop);
    // Nobody reads any more, so there is nothing left to say.
    host.stdout.once('error', () => resolve());
  });
}

/** A reader such as `head` may go away first, which is no fault; output that a full disk did not take is one. */
function watchOutput(host: Host): void {
  host.stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
    if (code === 'EPIPE' || code === 'ECONNRESET') return;
    host.stderr.write(`The output could not be written (${code}).\n`);
    host.exitCode = EXIT.unexpected;
  });
  host.stderr.on('error', () => undefined);
}
