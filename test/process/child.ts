/** Starts `tollgate` from dist/ as a process; reads its lines, its end, and the processes that remain. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Project } from '../config/project.ts';
import { acceptFor } from '../stories/accept-configuration.ts';

const ROOT = path.join(import.meta.dirname, '..', '..');
/** The built program. */
export const MAIN = path.join(ROOT, 'dist', 'facade', 'main.js');

/** A response of the protocol. */
export interface Reply {
  readonly id: number | string | null;
  readonly result?: {
    readonly isError?: boolean;
    readonly content?: readonly { readonly text?: string }[];
    readonly tools?: readonly { readonly name: string }[];
    readonly _meta?: Readonly<Record<string, unknown>>;
  };
  readonly error?: {
    readonly code: number;
    readonly message: string;
    readonly data?: { readonly code?: string; readonly executed?: boolean };
  };
}

/** How a process ended. */
export interface End {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** How to start the process. `shell`: commands of bash that set limits before it becomes Tollgate. */
export interface Start {
  readonly env?: Readonly<Record<string, string>>;
  readonly shell?: string;
  /** Do not accept the configuration first. */
  readonly asItIs?: true;
  /** The program and its first words; default: this Node with the built program. */
  readonly program?: readonly string[];
}

/** A `tollgate` process with a small environment and the home of the project. Its configuration is accepted first. */
export class Child {
  readonly process: ChildProcessWithoutNullStreams;
  readonly ended: Promise<End>;
  out = '';
  err = '';
  readonly #waiting = new Map<
    unknown,
    { readonly resolve: (reply: Reply) => void; readonly reject: (why: Error) => void }
  >();
  #lastId = 0;
  #read = 0;

  constructor(project: Project, argv: readonly string[], start: Start = {}) {
    const { env = {}, shell, asItIs, program = [process.execPath, MAIN] } = start;
    if (asItIs !== true) acceptFor(argv, { folder: project.folder, home: project.home, env });
    const words = [...program, ...argv];
    const [command = '', ...args] =
      shell === undefined ? words : ['bash', '-c', `${shell}; exec "$@"`, 'tollgate', ...words];
    this.process = spawn(command, args, {
      cwd: project.folder,
      env: { PATH: process.env.PATH ?? '', HOME: project.home, ...env },
      stdio: 'pipe',
    });
    this.process.stdout.setEncoding('utf8').on('data', (text: string) => this.#receive(text));
    this.process.stderr.setEncoding('utf8').on('data', (text: string) => void (this.err += text));
    // A process that no longer reads its input has ended, which `ended` reports.
    this.process.stdin.on('error', () => undefined);
    this.ended = new Promise((resolve) =>
      this.process.once('close', (code, signal) => {
        for (const { reject } of this.#waiting.values()) reject(new Error(`ended with ${code ?? signal}: ${this.err}`));
        resolve({ code, signal });
      }),
    );
  }

  /** All lines of stdout so far, parsed. Throws on a line that is not JSON. */
  get lines(): readonly Record<string, unknown>[] {
    return this.out
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  }

  ask(method: string, params: unknown = {}): Promise<Reply> {
    const id = (this.#lastId += 1);
    const reply = new Promise<Reply>((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    // A caller that awaits the promise sees its failure. For all others it is handled here.
    reply.catch(() => undefined);
    this.process.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return reply;
  }

  call(name: string, args: unknown): Promise<Reply> {
    return this.ask('tools/call', { name, arguments: args });
  }

  /** Does the handshake of a client. */
  async hello(): Promise<void> {
    await this.ask('initialize', {
      protocolVersion: '2025-06-18',
      capabilities: {},
      clientInfo: { name: 'test', version: '1' },
    });
  }

  /** Resolves to the first line of stdout. Rejects if the process ends without one. */
  firstLine(): Promise<string> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        if (this.out.includes('\n')) resolve(this.out.slice(0, this.out.indexOf('\n')));
      };
      this.process.stdout.on('data', look);
      void this.ended.then(() => reject(new Error(this.err)));
      look();
    });
  }

  async kill(signal: NodeJS.Signals): Promise<End> {
    this.process.kill(signal);
    return this.ended;
  }

  #receive(text: string): void {
    this.out += text;
    for (let end = this.out.indexOf('\n', this.#read); end >= 0; end = this.out.indexOf('\n', this.#read)) {
      const line = this.out.slice(this.#read, end);
      this.#read = end + 1;
      if (!line.startsWith('{')) continue;
      const reply = JSON.parse(line) as Reply;
      this.#waiting.get(reply.id)?.resolve(reply);
      this.#waiting.delete(reply.id);
    }
  }
}

/** Returns the pids that servers with `CHAOS_STARTS` wrote to this file. */
export function startedIn(file: string): readonly number[] {
  return existsSync(file)
    ? readFileSync(file, 'utf8')
        .split('\n')
        .filter((line) => line !== '')
        .map(Number)
    : [];
}

/** Returns true if a process exists and is not a zombie. */
export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return process.platform !== 'linux' || !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false;
  }
}
