/** The load of the fault tests: gateways on one state folder, endless calls, and servers that log their calls. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type Libsql from 'libsql';
import { server } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { Child, isRunning, MAIN, type Reply, startedIn } from '../process/child.ts';

/** The two servers of a ground. */
export const SERVERS = ['a', 'b'] as const;
export type ServerName = (typeof SERVERS)[number];

/** A project with two servers that log each call that they run. */
export class Ground {
  readonly project = new Project();
  readonly state: string;
  readonly #gateways: Gateway[] = [];

  /** `more`: further lines of the configuration. `expose`: further members. `settings`: more of each server. */
  constructor({
    more = '',
    rules = '[{id: all, outcome: allow, when: {}}]',
    expose = '',
    settings = { a: '', b: '' },
  }: {
    readonly more?: string;
    readonly rules?: string;
    readonly expose?: string;
    readonly settings?: Readonly<Record<ServerName, string>>;
  } = {}) {
    this.state = path.join(this.project.folder, 'state');
    const servers = SERVERS.map((name) => {
      const env = `{CHAOS_LOG: ${this.#file(`ran-${name}`)}, CHAOS_STARTS: ${this.#file('starts')}}`;
      return `  ${name}: ${server(['chaos.mjs'], `env: ${env}${settings[name]}`)}\n`;
    }).join('');
    this.project.write('workspace/x', '');
    this.project.write(
      'tollgate.yaml',
      `version: 1
workspace: ./workspace
state: ./state
servers:
${servers}profiles: {default: {servers: [a, b], expose: {tools: ["a.*", "b.*"]${expose}}}}
rules: ${rules}
${more}`,
    );
  }

  /** Returns the tokens of the calls that a server ran, in order. */
  ran(name: ServerName): readonly string[] {
    const file = this.#file(`ran-${name}`);
    return existsSync(file)
      ? readFileSync(file, 'utf8')
          .split('\n')
          .filter((line) => line !== '')
      : [];
  }

  /** Returns the processes of servers that are still running. */
  running(): readonly number[] {
    return startedIn(this.#file('starts')).filter(isRunning);
  }

  /** Returns a connection to the database of state. The caller closes it. */
  openState(): Libsql.Database {
    const Database = createRequire(import.meta.url)('libsql') as typeof Libsql;
    return new Database(path.join(this.state, 'state.db'));
  }

  async gateway(): Promise<Gateway> {
    const gateway = new Gateway(this.project);
    this.#gateways.push(gateway);
    await gateway.ready;
    return gateway;
  }

  /** Runs a command in its own process. */
  type(argv: readonly string[]): Promise<{ readonly code: number | null; readonly output: string }> {
    const { folder, home } = this.project;
    const child = spawn(process.execPath, [MAIN, ...argv], {
      cwd: folder,
      env: { PATH: process.env.PATH ?? '', HOME: home },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => void (output += text));
    return new Promise((resolve) => child.once('close', (code) => resolve({ code, output })));
  }

  async remove(): Promise<void> {
    await Promise.all(this.#gateways.map((gateway) => gateway.kill()));
    this.project.remove();
  }

  #file(name: string): string {
    return path.join(this.project.folder, name);
  }
}

/** A `tollgate run` that can be killed and started again. */
export class Gateway {
  readonly #project: Project;
  #child: Child | undefined;
  /** The process that accepts calls. */
  ready: Promise<Child>;

  constructor(project: Project) {
    this.#project = project;
    this.ready = this.#start();
  }

  /** Kills the process at once, and starts the next one. */
  async restart(): Promise<void> {
    const ended = this.#child?.kill('SIGKILL');
    this.ready = Promise.resolve(ended).then(() => this.#start());
    await this.ready;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.process.kill(signal);
  }

  async kill(): Promise<void> {
    await this.#child?.kill('SIGKILL');
  }

  /** Ends it as a client does. */
  async end(): Promise<void> {
    this.#child?.process.stdin.end();
    await this.#child?.ended;
  }

  async #start(): Promise<Child> {
    const child = new Child(this.#project, ['run']);
    this.#child = child;
    await child.hello();
    await child.ask('tools/list');
    return child;
  }
}

/** One call of a load. `reply` is absent while it runs, and stays absent if its gateway was killed. */
export interface Sent {
  readonly token: string;
  readonly server: ServerName;
  readonly done: Promise<void>;
  reply?: Reply;
}

/** Calls a tool with a token that the server logs and that all records of the call contain. */
export async function callOnce(
  gateway: Gateway,
  call: { readonly tool: string; readonly token: string; readonly args?: object },
): Promise<Reply> {
  const child = await gateway.ready;
  return child.ask('tools/call', {
    name: call.tool,
    arguments: { token: call.token, ...call.args },
    _meta: { 'tollgate/correlation': call.token },
  });
}

/** Endless calls to random servers and tools, `inFlight` at a time for each gateway, with a pause after each. */
export class Load {
  readonly sent: Sent[] = [];
  #isOver = false;
  readonly #pauseMs: number;
  readonly #loops: readonly Promise<void>[];

  constructor(
    gateways: readonly Gateway[],
    {
      chance,
      inFlight = 6,
      pauseMs = 0,
    }: { readonly chance: () => number; readonly inFlight?: number; readonly pauseMs?: number },
  ) {
    this.#pauseMs = pauseMs;
    this.#loops = gateways.flatMap((gateway) =>
      Array.from({ length: inFlight }, () => this.#callRepeatedly(gateway, chance)),
    );
  }

  /** Waits for all running calls. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }

  async #callRepeatedly(gateway: Gateway, chance: () => number): Promise<void> {
    while (!this.#isOver) {
      const server = SERVERS[chance() < 0.5 ? 0 : 1];
      const call =
        chance() < 0.7
          ? { tool: `${server}_echo` }
          : { tool: `${server}_slow`, args: { ms: Math.floor(chance() * 120) } };
      await gateway.ready;
      const token = `t${this.sent.length}`;
      const reply = callOnce(gateway, { ...call, token });
      const sent: Sent = {
        token,
        server,
        done: reply.then(
          (one) => void (sent.reply = one),
          () => undefined,
        ),
      };
      this.sent.push(sent);
      await sent.done;
      // Refusals come at once, and must not use up the processor time of the tested processes.
      if (codeOf(sent.reply) !== 'ok') await sleep(10);
      else if (this.#pauseMs > 0) await sleep(this.#pauseMs);
    }
  }
}

/** Returns the code of a refusal, `ok`, or `lost` if no reply came. */
export function codeOf(reply: Reply | undefined): string {
  if (reply === undefined) return 'lost';
  return String(
    reply.error?.data?.code ??
      reply.result?._meta?.['tollgate/code'] ??
      (reply.error === undefined ? 'ok' : reply.error.code),
  );
}

/** Returns the decision id of a reply, which its records contain. */
export function decisionOf({ result, error }: Reply): string | undefined {
  const decision =
    result?._meta?.['tollgate/decision'] ??
    (result?._meta?.['tollgate/provenance'] as { readonly decision?: string } | undefined)?.decision;
  return (decision ?? (error?.data as { readonly decision?: string } | undefined)?.decision) as string | undefined;
}
