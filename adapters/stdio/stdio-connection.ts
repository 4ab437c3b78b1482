/** Owns one server process and its pipes; refuses a shell, the facade's own environment and more than one line's limit of memory. */
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import { LineReader, oneLine } from '../rpc/framing.ts';
import { MessageReader } from '../rpc/message-reader.ts';
import type { ServerSettings, StopGrace } from '../supervisor/server-settings.ts';
import { type LaunchedProcess, type LaunchHost, launch } from './launch.ts';
import { killMarked, MARK_VARIABLE, newProcessMark } from './orphans.ts';
import { stopInOrder } from './process-group.ts';

/** How long a program may take to end with its input, and after SIGTERM. Milliseconds. */
export const DEFAULT_GRACE = { closeMs: 5000, termMs: 3000 };
/** What a dead server had written is read for this long, even if a grandchild still holds its stdout open. */
const DRAIN_MS = 250;
/** Completes "Server x …", and stands in its log. */
const LACKED = 'was ended by the system: all its processes together needed more memory than limits.memoryMb';
/** Completes "Server x …": it was refused memory, and ended itself. */
const NO_MEMORY_LEFT = 'ended, because it was out of memory: raise limits.memoryMb, or what it allows itself';
/** What Node.js, C++, Python, Rust, Go, the JVM and the system write to stderr when memory is refused. */
const NO_MEMORY =
  /heap out of memory|std::bad_alloc|^MemoryError\b|memory allocation of \d+ bytes failed|runtime: out of memory|java\.lang\.OutOfMemoryError|Cannot allocate memory/;
const LAST_WORDS_MS = 5000;
const STDERR_LINE_BYTES = 8 * 1024;
const STDERR_LINES_PER_SECOND = 200;

/** What a connection over stdio needs from its host. */
export interface ProcessConnectionOptions {
  /** What a start needs of the facade around it. */
  readonly host: LaunchHost;
  /** One line of a server's stderr, for its log only: it may hold anything. At most 8 KiB a line and 200 lines a second. */
  readonly onStderr: (name: string, line: string) => void;
  /** Why exactly these settings may not start: asked before anything is done for a start, directly before its program runs, and once more when it does, with the very object that is started. */
  readonly consent?: (settings: ServerSettings) => Promise<TollgateError | undefined>;
  /** Names the facade's process in the environment of direct servers, so that a later one finds what it left behind. No `/`. */
  readonly owner?: string;
  /** Default 5 s and 3 s. */
  readonly grace?: StopGrace;
}

/** A server as a child process in a group of its own (MCP 2025-11-25, stdio). */
export class StdioConnection implements Connection {
  private readonly settings: ServerSettings;
  private readonly options: ProcessConnectionOptions;
  /** What this process and all that it starts can be known by; only without isolation, which ends with everything in it. */
  private readonly mark: string | undefined;
  private launched: LaunchedProcess | undefined;
  private launching: Promise<void> | undefined;
  private readonly outbox: string[] = [];
  private closing: Promise<void> | undefined;
  private ended = false;
  wrote = false;
  /** When it last wrote that it had no memory, monotonic milliseconds. */
  private complainedAt = Number.NEGATIVE_INFINITY;

  constructor(settings: ServerSettings, options: ProcessConnectionOptions) {
    this.settings = settings;
    this.options = options;
    this.mark = settings.isolation === 'direct' ? newProcessMark(options.owner ?? String(process.pid)) : undefined;
  }

  start(events: ConnectionEvents): Promise<void> {
    return (this.launching = this.launch(events));
  }

  /** Messages of one turn of the event loop leave in one write, as one text: a list of buffers would cost more than joining. */
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
    // Stdio carries the revision in the handshake only.
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
    // It was given up while its isolation was made.
    if (this.ended) return this.endNow(launched);
    try {
      await this.checkConsent();
    } catch (refusal) {
      // It runs already, but nobody has heard a word of it yet.
      this.ended = true;
      this.endNow(launched);
      throw refusal;
    }
  }

  /** Directly before it starts: who has given it up meanwhile wants nothing of it to run. */
  private async checkStart(): Promise<void> {
    await this.checkConsent();
    if (this.ended)
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `Server "${this.settings.name}" was stopped before it ran.`,
      });
  }

  /** What is marked is ours; the consent is to the settings. */
  private async checkConsent(): Promise<void> {
    const refusal = await this.options.consent?.(this.settings);
    if (refusal !== undefined) throw refusal;
  }

  private async end(): Promise<void> {
    // A start that fails has left nothing behind.
    await this.launching?.catch(() => undefined);
    if (this.launched === undefined) return;
    await stopInOrder(this.launched, this.options.grace ?? DEFAULT_GRACE);
    this.killStrays();
  }

  private endNow(launched: LaunchedProcess): void {
    launched.kill();
    this.killStrays();
    // What is left of it is folders and sockets in places of our own.
    launched.release().catch(() => undefined);
  }

  /** What called setsid is in another group, and has another parent once its own has ended. */
  private killStrays(): void {
    const { mark } = this;
    if (mark !== undefined) killMarked((found) => found === mark);
  }

  private readOutput(child: ChildProcessWithoutNullStreams, events: ConnectionEvents): MessageReader {
    const reader = new MessageReader(child.stdout, events);
    const log = limitRate((line) => {
      this.wrote = true;
      if (NO_MEMORY.test(line)) this.complainedAt = performance.now();
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

  /** A server is gone when it exits, and also when it closes one of its pipes: no call could end then. */
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
      const lacked = !this.ended && launched.hasLackedMemory?.() === true;
      if (lacked) this.options.onStderr(this.settings.name, `(${LACKED})`);
      // Its last words may be read after its end.
      const tell = (): void => {
        const memory = lacked
          ? LACKED
          : code !== 0 && performance.now() - this.complainedAt < LAST_WORDS_MS
            ? NO_MEMORY_LEFT
            : undefined;
        finish(
          memory ?? (signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`),
          memory === undefined ? (signal ?? code ?? undefined) : 'memory',
        );
      };
      child.once('close', tell);
      setTimeout(tell, DRAIN_MS).unref();
    });
    child.stdout.on('end', () => setTimeout(() => finish('closed its output'), DRAIN_MS).unref());
    // EPIPE: what was sent is lost, and drain never comes.
    child.stdin.on('error', () => setTimeout(() => finish('closed its input'), DRAIN_MS).unref());
    child.on('error', () => finish('could not be started'));
  }
}

/** Passes at most so many lines a second on, and says how many it dropped. */
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
