/** Owns one running command: its output, its stdin, its end; refuses input after its end. */
import type { ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { toolFailure } from '../workspace/file-text.ts';
import { OutputLog } from './output-log.ts';
import type { CommandEnd, RunningCommand, ShellCommand, StartCommand } from './shell-process.ts';

/** After the shell's end its last output is waited for this long; children that hold the pipe are then ended. */
const DRAIN_MS = 150;
/** Silence after which the output counts as complete for the moment. */
const QUIET_MS = 60;

/** A command from its start on. Times in milliseconds. */
export class ShellSession {
  readonly command: string;
  readonly log = new OutputLog();
  readonly startedAt = Date.now();
  readonly #running: RunningCommand;
  readonly #child: ChildProcess;
  readonly #listeners = new Set<() => void>();
  #end: CommandEnd | undefined;
  #lastOutput = Date.now();

  /** Throws TOOL_FAILED when the command cannot be started, and SANDBOX_UNAVAILABLE when it cannot be isolated. */
  static async start(command: ShellCommand, start: StartCommand): Promise<ShellSession> {
    const running = await start(command).catch((thrown: unknown) => {
      throw thrown instanceof TollgateError ? thrown : notStarted(thrown as NodeJS.ErrnoException);
    });
    return new ShellSession(command.command, running);
  }

  private constructor(command: string, running: RunningCommand) {
    const { child } = running;
    this.command = command;
    this.#running = running;
    this.#child = child;
    child.stdout?.on('data', (chunk: Buffer) => {
      this.log.push(chunk);
      this.#lastOutput = Date.now();
      this.#changed();
    });
    // A reader that is gone is no fault of ours: the exit code tells.
    child.stdin?.on('error', () => this.#changed());
    child.on('error', () => this.#changed());
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    child.once('exit', (code, signal) => void this.#finish({ code, signal }, closed));
  }

  get end(): CommandEnd | undefined {
    return this.#end;
  }

  get takesInput(): boolean {
    return this.#child.stdin?.writable === true;
  }

  /** Waits until the command has ended; false when `ms` are over or the caller gave up first. */
  async waitForEnd(ms: number, signal: AbortSignal): Promise<boolean> {
    await this.#wait(() => this.#end !== undefined, ms, signal);
    return this.#end !== undefined;
  }

  /** Waits for the end, or for output that is not shown yet and a moment of silence after it. */
  async waitForNews(ms: number, signal: AbortSignal): Promise<void> {
    const until = Date.now() + ms;
    await this.#wait(() => this.#end !== undefined || this.log.unread > 0, ms, signal);
    while (
      this.#end === undefined &&
      !signal.aborted &&
      Date.now() < until &&
      Date.now() - this.#lastOutput < QUIET_MS
    ) {
      await this.waitForEnd(Math.min(QUIET_MS, until - Date.now()), signal);
    }
  }

  /** Writes to stdin and, with `eof`, closes it. Waits at most `ms` for the command to take it. */
  async send(text: string, eof: boolean, ms: number): Promise<void> {
    const stdin = this.#child.stdin;
    if (this.#end !== undefined || stdin === null || !stdin.writable) {
      throw toolFailure(
        'This session takes no input: it has ended, its stdin is closed, or it began as action="run".',
        'Start a new one with action="start".',
      );
    }
    let taken = text === '';
    if (text !== '') stdin.write(text, () => ((taken = true), this.#changed()));
    if (eof) stdin.end();
    await this.#wait(() => taken || this.#end !== undefined, ms, new AbortController().signal);
  }

  /** Ends the command and every process of its group; true when it is certain that none is left. */
  async kill(): Promise<boolean> {
    if (this.#end !== undefined) return true;
    const gone = await this.#running.end();
    await this.waitForEnd(DRAIN_MS * 4, new AbortController().signal);
    return gone;
  }

  /** The last resort when this process itself ends. */
  killNow(): void {
    if (this.#end === undefined) this.#running.killNow();
  }

  async #finish(how: { code: number | null; signal: NodeJS.Signals | null }, closed: Promise<void>): Promise<void> {
    await Promise.race([closed, delay(DRAIN_MS)]);
    const leftovers = this.#running.lives();
    if (leftovers) await this.#running.end();
    await Promise.race([closed, delay(DRAIN_MS)]);
    this.#child.stdout?.destroy();
    const { withheld, lost } = (await this.#running.settle?.()) ?? { withheld: [], lost: [] };
    const code = how.code ?? 128 + (how.signal === null ? 0 : constants.signals[how.signal]);
    this.#end = {
      code,
      leftovers,
      lackedMemory: this.#running.hasLackedMemory?.() === true,
      withheld,
      lost,
      at: Date.now(),
      ...(how.signal === null ? {} : { signal: how.signal }),
    };
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #wait(done: () => boolean, ms: number, signal: AbortSignal): Promise<void> {
    if (done() || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', finish);
        this.#listeners.delete(look);
        resolve();
      };
      const look = (): void => (done() ? finish() : undefined);
      const timer = setTimeout(finish, ms);
      signal.addEventListener('abort', finish, { once: true });
      this.#listeners.add(look);
    });
  }
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function notStarted(error: NodeJS.ErrnoException): Error {
  if (error.code === 'E2BIG')
    return toolFailure('The command is too long to be started.', 'Write it to a file and run that.');
  return toolFailure(
    `The command could not be started (${error.code ?? 'unknown'}).`,
    'Try again; if it stays so, tell the user.',
  );
}
