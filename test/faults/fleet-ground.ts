/** A fleet for fault tests: replicas behind HAProxy, one store, one server that notes what it runs, a network. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import type { StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { Project } from '../config/project.ts';
import { roundsOf } from '../harness/slices.ts';
import { MAIN } from '../process/child.ts';
import { installPrograms } from '../servers/system.ts';
import { freePort, STORE_PASSWORD, type StoreServer, startStoreServer } from '../state/store-servers.ts';
import { NetworkNamespace } from './network-namespace.ts';

/** The tokens of the principals p0 to p3. */
export const TOKENS = [0, 1, 2, 3].map((number) => `token-of-p${number}-0123456789abcdef`);
const READY_MS = 120_000;
/** The pause of a loop after a successful call, ms. */
const PAUSE_MS = roundsOf(5, 60);
/** How long a test waits for the end of a call. */
const END_MS = 20_000;

/** An MCP server over HTTP without sessions. It notes the token of each call that it runs. */
export class NotingServer {
  readonly ran: string[] = [];
  #server: HttpServer | undefined;
  port = 0;

  async start(): Promise<void> {
    const server = createHttpServer((request, response) => {
      let text = '';
      request.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      request.on('end', () => {
        if (request.method !== 'POST') return void response.writeHead(405).end();
        const message = JSON.parse(text) as { id?: number; method: string; params?: Params };
        if (message.id === undefined) return void response.writeHead(202).end();
        const answer = JSON.stringify({ jsonrpc: '2.0', id: message.id, result: this.#resultOf(message) });
        const pauseMs = message.params?.arguments?.ms ?? 0;
        setTimeout(() => response.writeHead(200, { 'content-type': 'application/json' }).end(answer), pauseMs);
      });
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#server = server;
    this.port = (server.address() as { port: number }).port;
  }

  stop(): void {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }

  #resultOf({ method, params }: { method: string; params?: Params }): object {
    if (method === 'initialize')
      return {
        protocolVersion: '2025-06-18',
        capabilities: { tools: {} },
        serverInfo: { name: 'noting', version: '1' },
      };
    if (method === 'tools/list') return { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] };
    if (params?.arguments?.token !== undefined) this.ran.push(params.arguments.token);
    return { content: [{ type: 'text', text: params?.arguments?.token ?? '' }] };
  }
}

interface Params {
  readonly arguments?: { readonly token?: string; readonly ms?: number };
}

/** The way from the replicas to the store, which can be cut and slowed. It leads through a namespace, as root. */
export class StoreNetwork {
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  readonly #target: number;
  readonly #namespace = process.getuid?.() === 0 ? new NetworkNamespace() : undefined;
  #isCut = false;
  #delayMs = 0;
  readonly host = this.#namespace?.far ?? '127.0.0.1';
  port = 0;

  constructor(target: number) {
    this.#target = target;
    this.#server = createServer((client) => this.#join(client));
  }

  async open(write: (text: string) => string): Promise<void> {
    this.#namespace?.open();
    this.#server.listen(0, this.#namespace?.near ?? '127.0.0.1');
    await once(this.#server, 'listening');
    this.port = (this.#server.address() as { port: number }).port;
    await this.#namespace?.forward(this.port, write);
  }

  /** Packets are lost without a word, as where a cable is cut: no connection ends. */
  cut(): void {
    if (this.#namespace !== undefined) return this.#namespace.cut();
    this.#isCut = true;
    for (const socket of this.#sockets) socket.pause();
  }

  heal(): void {
    if (this.#namespace !== undefined) return this.#namespace.heal();
    this.#isCut = false;
    for (const socket of this.#sockets) socket.resume();
  }

  /** Delays each packet in both directions, ms. */
  slow(ms: number): void {
    this.#delayMs = ms;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await this.#namespace?.close();
  }

  #join(client: Socket): void {
    const store = connect(this.#target, '127.0.0.1');
    for (const [from, to] of [
      [client, store],
      [store, client],
    ] as const) {
      this.#sockets.add(from);
      if (this.#isCut) from.pause();
      // A later chunk with less delay must not overtake an earlier one.
      let before = Promise.resolve();
      from.on('data', (chunk) => {
        const due = this.#delayMs === 0 ? undefined : sleep(this.#delayMs);
        before = before.then(() => due).then(() => void (to.writable && to.write(chunk)));
      });
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }
}

/** One `tollgate serve` of a fleet. */
export class FleetReplica {
  readonly port: number;
  readonly state: string;
  readonly #file: string;
  readonly #project: Project;
  #child: ChildProcess | undefined;
  #said = '';

  constructor(project: Project, { port, file, state }: { port: number; file: string; state: string }) {
    this.#project = project;
    this.port = port;
    this.state = state;
    this.#file = file;
  }

  /** `env`: more variables of the process. */
  async start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    this.#said = '';
    this.#spawn(env);
    for (const until = Date.now() + READY_MS; Date.now() < until; await sleep(50)) {
      if (this.#child?.exitCode === null) {
        if (await isReady(this.port)) return;
        continue;
      }
      // On a busy machine, a store may answer too late. A replica then ends, and is started again.
      if (!/^STATE_AWAY: /m.test(this.#said)) break;
      this.#said = '';
      this.#spawn(env);
    }
    throw new Error(`a replica does not start: ${this.account()}`);
  }

  #spawn(env: Readonly<Record<string, string>>): void {
    const words = [MAIN, 'serve', '--config', this.#file, '--port', String(this.port)];
    this.#child = spawn(process.execPath, words, {
      cwd: this.#project.folder,
      env: { PATH: process.env.PATH ?? '', HOME: this.#project.home, STORE_OF_TEST: STORE_PASSWORD, ...env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.#said += text));
  }

  /** Returns how the process ended, if it has, and the last words of its log. */
  account(): string {
    return `${this.#child?.exitCode} ${this.#child?.signalCode} ${this.#said.slice(-600)}`;
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }
}

async function isReady(port: number): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/readyz`)).status === 200;
  } catch {
    return false;
  }
}

/** The whole fleet. */
export class FleetGround {
  readonly project = new Project();
  readonly server = new NotingServer();
  readonly replicas: FleetReplica[] = [];
  /** How many replicas there are. */
  count = 3;
  /** What HAProxy asks to learn whether a replica gets requests. */
  probe: '/livez' | '/readyz' = '/livez';
  /** Changes the configuration of one replica. */
  change: (yaml: string, replica: number) => string = (yaml) => yaml;
  /** More variables of each replica. */
  env: (replica: number) => Readonly<Record<string, string>> = () => ({});
  store!: StoreServer;
  network!: StoreNetwork;
  /** The port of HAProxy. */
  port = 0;
  #balancer: ChildProcess | undefined;

  /** `few`: the limit of the small budget of each principal on server b. */
  async start(kind: StoreAccess['kind'], few: number): Promise<void> {
    installPrograms([['haproxy', 'haproxy']], (line) => process.stderr.write(`${line}\n`));
    process.env.STORE_OF_TEST = STORE_PASSWORD;
    this.store = await startStoreServer(kind);
    this.network = new StoreNetwork(this.store.port);
    const writeForward = (text: string): string => this.project.write('forward.cfg', text);
    await Promise.all([this.server.start(), this.network.open(writeForward)]);
    const namespace = `t${randomBytes(6).toString('hex')}`;
    const store = this.store.access(namespace);
    const opened = kind === 'postgres' ? openPostgresStore(store) : openRedisStore(store);
    await opened.migrate();
    await opened.close();
    const url = store.url.replace(`127.0.0.1:${this.store.port}`, `${this.network.host}:${this.network.port}`);
    this.project.write('workspace/x', '');
    for (let number = 0; number < this.count; number += 1) {
      const state = path.join(this.project.folder, `s${number}`);
      const file = `tollgate-${number}.yaml`;
      this.project.write(file, this.change(await this.#configuration({ url, namespace, state, few }), number));
      this.replicas.push(new FleetReplica(this.project, { port: await freePort(), file, state }));
    }
    await this.project.approve({ file: 'tollgate-0.yaml', env: { STORE_OF_TEST: STORE_PASSWORD } });
    for (const [number, replica] of this.replicas.entries()) await replica.start(this.env(number));
    await this.#balance();
  }

  /** Returns what a failed test needs to know of some calls. */
  account(calls: readonly string[]): string {
    const { exitCode, signalCode } = this.#balancer ?? {};
    const replicas = this.replicas.map((replica) => replica.account());
    return [[...new Set(calls)].join(), `balancer ${exitCode} ${signalCode}`, ...replicas].join('\n');
  }

  async remove(): Promise<void> {
    this.#balancer?.kill('SIGKILL');
    await Promise.all(this.replicas.map((replica) => replica.end('SIGKILL')));
    this.server.stop();
    try {
      await this.network.close();
    } finally {
      await this.store.remove();
      this.project.remove();
    }
  }

  async #configuration({
    url,
    namespace,
    state,
    few,
  }: Readonly<Record<'url' | 'namespace' | 'state', string>> & { few: number }): Promise<string> {
    const hashOf = (token: string): string => `sha256:${createHash('sha256').update(token).digest('hex')}`;
    const principals = TOKENS.map(
      (token, number) => `  - {id: p${number}, role: agent, token: '${hashOf(token)}'}\n`,
    ).join('');
    return `version: 1
workspace: ./workspace
state: {folder: '${state}', store: '${url}', password: secret:store, namespace: ${namespace}}
secrets: {store: {env: STORE_OF_TEST}}
principals:
${principals}servers:
  a: {url: 'http://127.0.0.1:${this.server.port}/a', trust: external}
  b: {url: 'http://127.0.0.1:${this.server.port}/b', trust: external}
profiles: {default: {servers: [a, b], expose: {tools: ["a.*", "b.*"]}}}
budgets:
  - {id: many, scope: principal, calls: 1000000, window: 1h}
  - {id: few, scope: principal, calls: ${few}, when: {server: b, tool: echo}}
rules: [{id: all, outcome: allow, when: {}}]
listen: {hosts: [tollgate.example], replicaPort: ${await freePort()}, maxSessions: 900, maxSessionsPerPrincipal: 400, maxConnections: 2000}
`;
  }

  async #balance(): Promise<void> {
    this.port = await freePort();
    const servers = this.replicas.map(({ port }, at) => `  server r${at} 127.0.0.1:${port} check inter 200 fall 1\n`);
    const file = this.project.write(
      'haproxy.cfg',
      `defaults
  mode http
  timeout connect 1s
  timeout client 60s
  timeout server 60s
  timeout check 2s
  timeout queue 5s
  retries 3
  option redispatch 1
  retry-on conn-failure
frontend f
  bind 127.0.0.1:${this.port}
  default_backend b
backend b
  balance roundrobin
  http-request set-header Host tollgate.example
  option httpchk GET ${this.probe}
${servers.join('')}`,
    );
    this.#balancer = spawn('haproxy', ['-f', file, '-q'], {
      stdio: 'ignore',
      env: { PATH: `${process.env.PATH}:/usr/sbin` },
    });
    for (const until = Date.now() + READY_MS; Date.now() < until; await sleep(50)) if (await isReady(this.port)) return;
    throw new Error('HAProxy does not start');
  }
}

/** One call of a load. Times by `performance.now()`. */
export interface FleetCall {
  readonly token: string;
  readonly began: number;
  ended: number;
  /** `ok`, a code, or what happened to the connection. */
  code: string;
  decision?: string;
}

/** Sessions, and loops that call tools in random ones of them. */
export class FleetLoad {
  readonly calls: FleetCall[] = [];
  readonly #port: number;
  readonly #chance: () => number;
  readonly #sessions: { readonly id: string; readonly who: number }[] = [];
  #loops: Promise<void>[] = [];
  #isOver = false;

  constructor(port: number, chance: () => number) {
    this.#port = port;
    this.#chance = chance;
  }

  async open(count: number): Promise<void> {
    for (let number = 0; number < count; number += 10)
      await Promise.all(Array.from({ length: 10 }, (_, at) => this.#openSession((number + at) % TOKENS.length)));
  }

  start(inFlight: number): void {
    this.#loops = Array.from({ length: inFlight }, () => this.#callRepeatedly());
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#loops);
  }

  /** Returns the calls that began between two moments, after all of them ended. One that does not end stays `lost`. */
  async between(from: number, to: number): Promise<readonly FleetCall[]> {
    const found = this.calls.filter(({ began }) => began >= from && began < to);
    const until = performance.now() + END_MS;
    while (performance.now() < until && found.some(({ ended }) => ended === Number.POSITIVE_INFINITY)) await sleep(20);
    return found;
  }

  async #openSession(who: number): Promise<void> {
    const hello = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'load', version: '1' } };
    const response = await this.#send(who, undefined, { id: 1, method: 'initialize', params: hello });
    const id = response.headers.get('mcp-session-id');
    await response.text();
    if (id === null) throw new Error(`no session: ${response.status}`);
    await (await this.#send(who, id, { method: 'notifications/initialized' })).text();
    this.#sessions.push({ id, who });
  }

  #send(who: number, session: string | undefined, message: object): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.#port}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${TOKENS[who]}`,
        ...(session !== undefined && { 'mcp-session-id': session }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    });
  }

  async #callRepeatedly(): Promise<void> {
    while (!this.#isOver) {
      const { id, who } = this.#sessions[Math.floor(this.#chance() * this.#sessions.length)]!;
      const server = this.#chance() < 0.7 ? 'a' : 'b';
      const call: FleetCall = {
        token: `p${who}-${server}-${this.calls.length}`,
        began: performance.now(),
        ended: Number.POSITIVE_INFINITY,
        code: 'lost',
      };
      this.calls.push(call);
      await this.#call(call, { id, who, server, ms: this.#chance() < 0.2 ? 40 : 0 });
      call.ended = performance.now();
      await sleep(call.code === 'ok' ? PAUSE_MS : 40);
    }
  }

  async #call(
    call: FleetCall,
    { id, who, server, ms }: { id: string; who: number; server: string; ms: number },
  ): Promise<void> {
    try {
      const params = { name: `${server}_echo`, arguments: { token: call.token, ms } };
      const response = await this.#send(who, id, { id: this.calls.length, method: 'tools/call', params });
      const text = await response.text();
      const found = text.startsWith('{') ? text : (/^data: (\{.*)$/m.exec(text)?.[1] ?? '');
      if (found === '') call.code = `http ${response.status}`;
      else readReply(call, JSON.parse(found) as ReplyMessage);
    } catch {
      call.code = 'connection';
    }
  }
}

interface ReplyMessage {
  readonly result?: { readonly _meta?: Readonly<Record<string, unknown>> };
  readonly error?: { readonly code: number; readonly data?: { readonly code?: string } };
}

function readReply(call: FleetCall, { result, error }: ReplyMessage): void {
  const code = error?.data?.code ?? (result?._meta?.['tollgate/code'] as string | undefined);
  call.code = code ?? (error === undefined ? 'ok' : String(error.code));
  const decision =
    (result?._meta?.['tollgate/provenance'] as { readonly decision?: string } | undefined)?.decision ??
    (result?._meta?.['tollgate/decision'] as string | undefined);
  if (decision !== undefined) call.decision = decision;
}
