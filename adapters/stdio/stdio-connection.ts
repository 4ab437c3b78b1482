/** Runs one server process and reads its pipes. It uses no shell, and does not pass on the facade's environment. */
import type { ChildProcess, ChildProcessWithoutNullStreams } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import { LineReader, oneLine } from '../rpc/framing.ts';
import { MessageReader } from '../rpc/message-reader.ts';
import type { ServerSettings, StopGrace } from '../supervisor/server-settings.ts';
import { type LaunchedProcess, type LaunchHost, launch } from './launch.ts';
import { killMarked, MARK_VARIABLE, newProcessMark } from './orphans.ts';

/** Milliseconds that a program may take to end after its stdin closes, and after SIGTERM. */
export const DEFAULT_GRACE = { closeMs: 5000, termMs: 3000 };
/** Milliseconds in which the last output of a dead server is read, even if a grandchild keeps its stdout open. */
const DRAIN_MS = 250;
const POLL_MS = 10;
/** Milliseconds. After SIGKILL only the kernel is slow. A zombie that no one reaps must not block the stop. */
const KILL_WAIT_MS = 1000;
/** Completes "Server x …". Goes to the server's log too. */
const OUT_OF_LIMIT = 'was ended by the system: all its processes together needed more memory than limits.memoryMb';
/** Completes "Server x …", for a server that got no more memory and ended itself. */
const NO_MEMORY_LEFT = 'ended, because it was out of memory: raise limits.memoryMb, or what it allows itself';
/** Messages of Node.js, C++, Python, Rust, Go, the JVM and the system about refused memory. */
const NO_MEMORY = new RegExp(
  'heap out of memory|^# Fatal process out of memory|std::bad_alloc|^MemoryError\\b|' +
    'memory allocation of \\d+ bytes failed|runtime: out of memory|' +
    'java\\.lang\\.OutOfMemoryError|Cannot allocate memory',
);
const MEMORY_ERROR_MS = 5000;
const STDERR_LINE_BYTES = 8 * 1024;
const STDERR_LINES_PER_SECOND = 200;

/** What a connection over stdio needs from its host. */
export interface ProcessConnectionOptions {
  /** Services of the facade for a start. */
  readonly host: LaunchHost;
  /** Gets a line of the server's stderr, for its log only. At most 8 KiB per line and 200 lines per second. */
  readonly onStderr: (name: string, line: string) => void;
  /**
   * Returns why exactly these settings may not start. Called before the start, directly before the program runs, and
   * once after it runs, with the same object.
   */
  readonly consent?: (settings: ServerSettings) => Promise<TollgateError | undefined>;
  /**
   * Names the facade's process in the environment of direct servers, so that a later facade finds orphans. Without `/`.
   */
  readonly owner?: string;
  /** Default 5 s and 3 s. */
  readonly grace?: StopGrace;
}

/** A server as a child process in its own process group (MCP 2025-11-25, stdio). */
export class StdioConnection implements Connection {
  private readonly settings: ServerSettings;
  private readonly options: ProcessConnectionOptions;
  /** Marks this process and its descendants. Only without isolation: a sandbox ends with everything in it. */
  private readonly mark: string | undefined;
  private launched: LaunchedProcess | undefined;
  private launching: Promise<void> | undefined;
  private readonly outbox: string[] = [];
  private closing: Promise<void> | undefined;
  private ended = false;
  wrote = false;
  /** Monotonic milliseconds of its last message about refused memory. */
  private memoryErrorAt = Number.NEGATIVE_INFINITY;

  constructor(settings: ServerSettings, options: ProcessConnectionOptions) {
    this.settings = settings;
    this.options = options;
    this.mark = settings.isolation === 'direct' ? newProcessMark(options.owner ?? String(process.pid)) : undefined;
  }

  start(events: ConnectionEvents): Promise<void> {
    return (this.launching = this.launch(events));
  }

  /** Joins the messages of one turn of the event loop into one write, because a list of buffers costs more. */
  send(text: string): void {
    if (this.launched?.child.stdin.writable !== true) return;
    this.outbox.push(oneLine(text), '\n');
    if (this.outbox.length > 2) return;
    process.nextTick(() => {
      const lines = this.outbox.splice(0).join('');
      if (this.launched?.child.stdin.writable === true) this.launched.child.stdin.write(lines);
    });
  }

  isFull(): boolean {
    return this.launched?.isFull?.() === true;
  }

  backlog(): number {
    return this.launched?.child.stdin.writableLength ?? 0;
  }

  useProtocolVersion(): void {
    // Over stdio, only the handshake carries the version.
  }

  close(): Promise<void> {
    this.ended = true;
    return (this.closing ??= this.end());
  }

  killNow(): void {
    this.ended = true;
    if (this.launched !== undefined) this.endNow(this.launched);
  }

  private async launch(events: ConnectionEvents): Promise<void> {
    const { settings, mark } = this;
    const marked = mark === undefined ? settings : { ...settings, env: { ...settings.env, [MARK_VARIABLE]: mark } };
    const launched = await launch(marked, this.options.host, () => this.checkStart());
    this.launched = launched;
    this.watchEnd(launched, this.readOutput(launched.child, events), events);
    // The connection was closed while the sandbox was made.
    if (this.ended) return this.endNow(launched);
    try {
      await this.checkConsent();
    } catch (refusal) {
      // It runs already, but none of its output has been used.
      this.ended = true;
      this.endNow(launched);
      throw refusal;
    }
  }

  /** Runs directly before the program: the connection may have been closed meanwhile. */
  private async checkStart(): Promise<void> {
    await this.checkConsent();
    if (this.ended)
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${this.settings.name}" was stopped before it ran.`,
      });
  }

  /** The consent applies to the settings without our mark. */
  private async checkConsent(): Promise<void> {
    const refusal = await this.options.consent?.(this.settings);
    if (refusal !== undefined) throw refusal;
  }

  private async end(): Promise<void> {
    // A failed start cleans up after itself.
    await this.launching?.catch(() => undefined);
    if (this.launched === undefined) return;
    await stopInOrder(this.launched, this.options.grace ?? DEFAULT_GRACE);
    this.killOrphans();
  }

  private endNow(launched: LaunchedProcess): void {
    launched.kill();
    this.killOrphans();
    // A failure leaves only folders and sockets in our own folders.
    launched.release().catch(() => undefined);
  }

  /** A process that called setsid is in another group, and gets another parent when its own ends. */
  private killOrphans(): void {
    const { mark } = this;
    if (mark !== undefined) killMarked((found) => found === mark);
  }

  private readOutput(child: ChildProcessWithoutNullStreams, events: ConnectionEvents): MessageReader {
    const reader = new MessageReader(child.stdout, events);
    const log = limitRate((line) => {
      this.wrote = true;
      if (NO_MEMORY.test(line)) this.memoryErrorAt = performance.now();
      this.options.onStderr(this.settings.name, line);
    });
    const errors = new LineReader({
      maxBytes: STDERR_LINE_BYTES,
      onLine: (line) => log(line.toString('utf8')),
      onBad: (reason) => log(`(${reason})`),
    });
    child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
    child.stderr.on('end', () => errors.end());
    return reader;
  }

  /** Returns the reason if a failed server has just reported refused memory. */
  private memoryEnd(code: number | null): string | undefined {
    return code !== 0 && performance.now() - this.memoryErrorAt < MEMORY_ERROR_MS ? NO_MEMORY_LEFT : undefined;
  }

  /** A server has ended when it exits or closes one of its pipes: no call could complete then. */
  private watchEnd(launched: LaunchedProcess, reader: MessageReader, events: ConnectionEvents): void {
    const { child } = launched;
    const finish = (why: string, exit?: number | string): void => {
      if (this.ended) return;
      this.ended = true;
      this.endNow(launched);
      reader.flush();
      events.onClosed(why, exit, launched.refusal?.());
    };
    child.on('exit', (code, signal) => {
      const isOutOfLimit = !this.ended && launched.hasLackedMemory?.() === true;
      if (isOutOfLimit) this.options.onStderr(this.settings.name, `(${OUT_OF_LIMIT})`);
      // Its last output may arrive after its exit.
      const report = (): void => {
        const memory = isOutOfLimit ? OUT_OF_LIMIT : this.memoryEnd(code);
        finish(
          memory ?? (signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`),
          memory === undefined ? (signal ?? code ?? undefined) : 'memory',
        );
      };
      child.once('close', report);
      setTimeout(report, DRAIN_MS).unref();
    });
    child.stdout.on('end', () => setTimeout(() => finish('closed its output'), DRAIN_MS).unref());
    // EPIPE: the sent messages are lost, and `drain` never comes.
    child.stdin.on('error', () => setTimeout(() => finish('closed its input'), DRAIN_MS).unref());
    child.on('error', () => finish('could not be started'));
  }
}

/** Passes on a limited number of lines per second, and reports how many it dropped. */
function limitRate(onLine: (line: string) => void): (line: string) => void {
  let windowStart = 0;
  let lines = 0;
  return (line) => {
    const now = performance.now();
    if (now - windowStart >= 1000) {
      if (lines > STDERR_LINES_PER_SECOND) onLine(`(${lines - STDERR_LINES_PER_SECOND} lines were dropped)`);
      windowStart = now;
      lines = 0;
    }
    lines++;
    if (lines <= STDERR_LINES_PER_SECOND) onLine(line);
  };
}

/**
 * Stops a server in the order of MCP 2025-11-25 (lifecycle, stdio): closes stdin, waits, sends SIGTERM, waits, sends
 * SIGKILL. Then releases what was made for it.
 */
export async function stopInOrder(launched: LaunchedProcess, grace: StopGrace): Promise<void> {
  try {
    await stopProcess(launched, grace);
  } finally {
    await launched.release();
  }
}

async function stopProcess({ child, signal, kill }: LaunchedProcess, grace: StopGrace): Promise<void> {
  child.stdin.end();
  await waitUntil(() => hasExited(child), grace.closeMs);
  if (!signal('SIGTERM')) return;
  await waitUntil(() => !signal(0), grace.termMs);
  if (!signal(0)) return;
  kill();
  await waitUntil(() => !signal(0), KILL_WAIT_MS);
}

function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
}

async function waitUntil(isDone: () => boolean, ms: number): Promise<void> {
  const end = performance.now() + ms;
  while (!isDone() && performance.now() < end) await sleep(POLL_MS);
}
