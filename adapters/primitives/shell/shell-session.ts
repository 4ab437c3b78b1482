/** One command: its output, its stdin and its end. */
import type { ChildProcess } from 'node:child_process';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { toolFailure } from '../workspace/file-text.ts';
import { OutputLog } from './output-log.ts';
import type { CommandEnd, RunningCommand, ShellCommand, StartCommand } from './shell-process.ts';

/** How long to wait for the last output after the shell ended. Then children that hold the pipe are ended. */
const DRAIN_MS = 150;
/** Time without output after which the output counts as complete for now. */
const QUIET_MS = 60;

/** A command that was started. Times in milliseconds. */
export class ShellSession {
  readonly command: string;
  readonly log = new OutputLog();
  readonly startedAt = Date.now();
  readonly #running: RunningCommand;
  readonly #child: ChildProcess;
  readonly #listeners = new Set<() => void>();
  #end: CommandEnd | undefined;
  #lastOutput = Date.now();

  /** Starts a command. Throws TOOL_FAILED if it cannot be started, and SANDBOX_UNAVAILABLE if there is no sandbox. */
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
      this.#notify();
    });
    // The command closed its stdin. Its exit code shows whether that is an error.
    child.stdin?.on('error', () => this.#notify());
    child.on('error', () => this.#notify());
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    child.once('exit', (code, signal) => void this.#finish({ code, signal }, closed));
  }

  get end(): CommandEnd | undefined {
    return this.#end;
  }

  /** Waits until the command has ended. Returns false if `ms` passed or the signal was aborted first. */
  async waitForEnd(ms: number, signal: AbortSignal): Promise<boolean> {
    await this.#wait(() => this.#end !== undefined, ms, signal);
    return this.#end !== undefined;
  }

  /** Waits for the end of the command, or for unread output followed by a short time without output. */
  async waitForOutput(ms: number, signal: AbortSignal): Promise<void> {
    const deadline = Date.now() + ms;
    await this.#wait(() => this.#end !== undefined || this.log.unread > 0, ms, signal);
    while (
      this.#end === undefined &&
      !signal.aborted &&
      Date.now() < deadline &&
      Date.now() - this.#lastOutput < QUIET_MS
    ) {
      await this.waitForEnd(Math.min(QUIET_MS, deadline - Date.now()), signal);
    }
  }

  /** Writes to stdin and, with `eof`, closes it. Waits at most `ms` milliseconds until the data is written. */
  async send(text: string, eof: boolean, ms: number): Promise<void> {
    const stdin = this.#child.stdin;
    if (this.#end !== undefined || stdin === null || !stdin.writable) {
      throw toolFailure(
        'This session accepts no input: it has ended, its stdin is closed, or it was started by action="run".',
        'Start a new one with action="start".',
      );
    }
    let isWritten = text === '';
    if (text !== '') stdin.write(text, () => ((isWritten = true), this.#notify()));
    if (eof) stdin.end();
    await this.#wait(() => isWritten || this.#end !== undefined, ms, new AbortController().signal);
  }

  /** Ends the command and all its processes. Returns true if certainly none is left. */
  async kill(): Promise<boolean> {
    if (this.#end !== undefined) return true;
    const isGone = await this.#running.end();
    await this.waitForEnd(DRAIN_MS * 4, new AbortController().signal);
    return isGone;
  }

  /** Kills the command synchronously, for the exit of this process. */
  killNow(): void {
    if (this.#end === undefined) this.#running.killNow();
  }

  async #finish(exit: { code: number | null; signal: NodeJS.Signals | null }, closed: Promise<void>): Promise<void> {
    await Promise.race([closed, sleep(DRAIN_MS)]);
    const leftovers = this.#running.isRunning();
    if (leftovers) await this.#running.end();
    await Promise.race([closed, sleep(DRAIN_MS)]);
    this.#child.stdout?.destroy();
    const { withheld, lost } = (await this.#running.settle?.()) ?? { withheld: [], lost: [] };
    const code = exit.code ?? 128 + (exit.signal === null ? 0 : constants.signals[exit.signal]);
    this.#end = {
      code,
      leftovers,
      outOfMemory: this.#running.ranOutOfMemory?.() === true,
      withheld,
      lost,
      at: Date.now(),
      ...(exit.signal === null ? {} : { signal: exit.signal }),
    };
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #wait(done: () => boolean, ms: number, signal: AbortSignal): Promise<void> {
    if (done() || signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const finish = (): void => {
        clearTimeout(timer);
        signal.removeEventListener('abort', finish);
        this.#listeners.delete(check);
        resolve();
      };
      const check = (): void => (done() ? finish() : undefined);
      const timer = setTimeout(finish, ms);
      signal.addEventListener('abort', finish, { once: true });
      this.#listeners.add(check);
    });
  }
}

function notStarted(error: NodeJS.ErrnoException): Error {
  if (error.code === 'E2BIG')
    return toolFailure('The command is too long to be started.', 'Write it to a file and run this file.');
  return toolFailure(
    `The command could not be started (${error.code ?? 'unknown'}).`,
    'Try again. If it fails again, tell the user.',
  );
}
