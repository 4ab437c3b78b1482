/** Starts fleets for the benchmark: a store, replicas of Tollgate, and HAProxy in front of them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { loadConfig } from '../../facade/config/load-config.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import type { SharedStore, StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { approveAll } from '../consent/approve-servers.ts';
import { installPrograms } from '../servers/system.ts';
import { freePort, STORE_PASSWORD, type StoreServer, startStoreServer } from '../state/store-servers.ts';
import { listening, openSession, programOf, ROOT, startCpu, type Target } from './client.ts';

/** What a fleet is started with. `workers`: of each replica, by `--workers`. */
export interface FleetShape {
  readonly kind: StoreAccess['kind'] | 'sqlite';
  readonly replicas: number;
  readonly workers?: number;
}

/**
 * How requests reach replicas: the first ones, in turn, through HAProxy. `isSticky`: it sends each request where its
 * session was opened. `isDirect`: without HAProxy, with one connection for each session.
 */
export interface Way {
  readonly replicas: number;
  readonly isSticky?: boolean;
  readonly isDirect?: boolean;
}

const TOKEN = 'token-of-the-benchmark-0123456789';
const NAMESPACE = 'bench';
const START_MS = 60_000;
/** Sessions of a lane. Their calls take turns. */
const SESSIONS = 12;
/** Postgres reports the transactions of a connection at the latest after 10 s without one, ms. */
const REPORT_MS = 11_000;

/** A running fleet. */
export class BenchFleet {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'tollgate-fleet-'));
  readonly replicas: ChildProcess[] = [];
  readonly #shape: FleetShape;
  readonly #ports: number[] = [];
  readonly #closing: (() => unknown)[] = [];
  #server: StoreServer | undefined;

  private constructor(shape: FleetShape) {
    this.#shape = shape;
  }

  /** Starts a fleet until each replica is ready. */
  static async start(shape: FleetShape): Promise<BenchFleet> {
    const fleet = new BenchFleet(shape);
    try {
      await fleet.#start();
      return fleet;
    } catch (thrown) {
      await fleet.close();
      throw thrown;
    }
  }

  /** Opens sessions of one principal. */
  async open(name: string, way: Way): Promise<Target> {
    const ports = this.#ports.slice(0, way.replicas);
    const isDirect = way.isDirect === true;
    const port = isDirect ? ports[0]! : await balance(this.folder, { ports, ...way }, this.#closing);
    const address = { url: `http://127.0.0.1:${port}/mcp`, token: TOKEN, ...(isDirect && { sockets: 1 }) };
    const sessions: Awaited<ReturnType<typeof openSession>>[] = [];
    for (let number = 0; number < SESSIONS; number += 1) sessions.push(await openSession(name, address));
    const [child, ...more] = this.replicas.slice(0, way.replicas) as [ChildProcess, ...ChildProcess[]];
    this.#closing.unshift(() => sessions.map((session) => session.close()));
    let next = 0;
    const ask: Target['ask'] = (method, params) => sessions[(next += 1) % SESSIONS]!.ask(method, params);
    return { name, child, more, ask, close: async () => undefined };
  }

  /** Opens sessions at the first replica, without a balancer. */
  async openSessions(count: number): Promise<void> {
    const address = { url: `http://127.0.0.1:${this.#ports[0]}/mcp`, token: TOKEN };
    for (let number = 0; number < count; number += 1) (await openSession('sessions', address)).close();
  }

  /** Returns what the replicas have sent to the store so far: calls of the script of Redis, transactions of Postgres. */
  async statements(): Promise<number> {
    const { port } = this.#server!;
    if (this.#shape.kind === 'redis') {
      const client = new Redis(port, '127.0.0.1', { password: STORE_PASSWORD });
      const text = await client.info('commandstats');
      client.disconnect();
      return Number(/cmdstat_evalsha:calls=(\d+)/.exec(text)?.[1]);
    }
    await sleep(REPORT_MS);
    const client = new pg.Client({
      host: '127.0.0.1',
      port,
      user: 'tollgate',
      database: 'postgres',
      password: STORE_PASSWORD,
    });
    await client.connect();
    const { rows } = await client.query(
      'SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()',
    );
    await client.end();
    return Number(rows[0].n);
  }

  /** Opens the store itself, in another namespace. */
  async openStore(): Promise<SharedStore> {
    return openStore(this.#server!.access('other'));
  }

  /** Returns a function that returns the processor time of one replica since then, ns. */
  startCpu(replica: number): () => number {
    return startCpu({ child: this.replicas[replica]! });
  }

  async close(): Promise<void> {
    for (const close of this.#closing) await close();
    await Promise.all(this.replicas.map(end));
    await this.#server?.remove();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #start(): Promise<void> {
    const { kind, replicas, workers } = this.#shape;
    process.env.STORE_OF_BENCH = STORE_PASSWORD;
    mkdirSync(path.join(this.folder, 'work'));
    if (kind !== 'sqlite') {
      this.#server = await startStoreServer(kind);
      await (await openStore(this.#server.access(NAMESPACE))).close();
    }
    const more = workers === undefined ? [] : ['--workers', String(workers)];
    for (let number = 0; number < replicas; number += 1) {
      const file = path.join(this.folder, `tollgate-${number}.yaml`);
      const port = await freePort();
      writeFileSync(file, configText({ state: this.#stateOf(number), replicaPort: await freePort() }));
      if (number === 0) await approveAll(loadConfig(file, { env: process.env, home: this.folder }));
      const main = path.join(ROOT, 'dist', 'facade', 'main.js');
      const child = spawn(process.execPath, [main, 'serve', '--config', file, '--port', String(port), ...more], {
        cwd: path.join(this.folder, 'work'),
        env: { PATH: process.env.PATH, HOME: this.folder, STORE_OF_BENCH: STORE_PASSWORD },
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      this.replicas.push(child);
      this.#ports.push(port);
      await untilReady(child, () => isReady(port));
    }
  }

  #stateOf(replica: number): string {
    const folder = path.join(this.folder, `state-${replica}`);
    if (this.#server === undefined) return `'${folder}'`;
    const { url } = this.#server.access(NAMESPACE);
    return `{folder: '${folder}', store: '${url}', password: secret:store, namespace: ${NAMESPACE}}`;
  }
}

/** Starts the server of the benchmark without Tollgate, and once more behind HAProxy alone. */
export async function openAlone(): Promise<{ readonly targets: readonly Target[]; close(): Promise<void> }> {
  const folder = mkdtempSync(path.join(tmpdir(), 'tollgate-fleet-'));
  const child = spawn(process.execPath, [programOf('backend.mjs'), '10', 'http'], {
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  const closing: (() => unknown)[] = [];
  const { url } = await listening(child);
  const port = await balance(folder, { ports: [Number(new URL(url).port)] }, closing);
  const direct = await openSession('direct', { url, token: '' });
  const balanced = await openSession('balancer', { url: `http://127.0.0.1:${port}/mcp`, token: '' });
  const target = (name: string, { ask }: Pick<Target, 'ask'>): Target => ({
    name,
    child,
    ask,
    close: async () => undefined,
  });
  const close = async (): Promise<void> => {
    for (const session of [direct, balanced]) session.close();
    for (const one of closing) await one();
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  return { targets: [target('direct', direct), target('balancer', balanced)], close };
}

async function openStore(access: StoreAccess): Promise<SharedStore> {
  const store = access.kind === 'postgres' ? openPostgresStore(access) : openRedisStore(access);
  await store.migrate();
  return store;
}

function configText({ state, replicaPort }: { readonly state: string; readonly replicaPort: number }): string {
  const token = `sha256:${createHash('sha256').update(TOKEN).digest('hex')}`;
  const others = Array.from(
    { length: 18 },
    (_, index) => `  - {id: other-${index}, outcome: deny, when: {tools: [bench.tool-${index + 6}]}}\n`,
  );
  return `version: 1
workspace: ./work
state: ${state}
secrets: {store: {env: STORE_OF_BENCH}}
principals: [{id: bench, role: agent, token: '${token}'}]
servers:
  bench: {command: ${process.execPath}, args: [${programOf('backend.mjs')}, "30"], isolation: direct, semantics: {echo: read, "tool-*": read}}
profiles: {default: {servers: [bench], expose: {tools: [{tool: bench.echo, name: echo}, "bench.*"]}}}
rules:
  - {id: all, outcome: allow, when: {servers: [bench]}}
  - {id: drops, outcome: deny, when: {tools: [bench.echo], args: {text: {prefix: drop-}}}}
${others.join('')}budgets: [{id: many, scope: principal, calls: 100000000, window: 1h}]
caps: {concurrent: 256}
listen: {hosts: [tollgate.example], replicaPort: ${replicaPort}, maxSessions: 5000, maxSessionsPerPrincipal: 5000}
`;
}

/** Starts HAProxy in front of ports. Returns its port. `closing` gets what ends it. */
async function balance(
  folder: string,
  { ports, isSticky = false }: { readonly ports: readonly number[]; readonly isSticky?: boolean },
  closing: (() => unknown)[],
): Promise<number> {
  installPrograms([['haproxy', 'haproxy']], (line) => process.stderr.write(`${line}\n`));
  const port = await freePort();
  const file = path.join(folder, `haproxy-${port}.cfg`);
  const stick = `  stick-table type string len 64 size 100k
  stick match req.hdr(mcp-session-id)
  stick store-response res.hdr(mcp-session-id)
`;
  writeFileSync(
    file,
    `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen f
  bind 127.0.0.1:${port}
  balance roundrobin
  http-request set-header Host tollgate.example
${isSticky ? stick : ''}${ports.map((one) => `  server s${one} 127.0.0.1:${one}\n`).join('')}`,
  );
  const env = { PATH: `${process.env.PATH}:/usr/sbin` };
  const child = spawn('haproxy', ['-f', file, '-q'], { stdio: ['ignore', 'ignore', 'pipe'], env });
  closing.push(() => end(child));
  await untilReady(child, () => accepts(port));
  return port;
}

async function untilReady(child: ChildProcess, isReady: () => Promise<boolean>): Promise<void> {
  let said = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (said += text));
  for (const until = Date.now() + START_MS; Date.now() < until; await sleep(50)) {
    if (child.exitCode !== null) throw new Error(`a program of the fleet ended: ${said}`);
    if (await isReady()) return;
  }
  throw new Error(`a program of the fleet does not start: ${said}`);
}

function isReady(port: number): Promise<boolean> {
  return fetch(`http://127.0.0.1:${port}/readyz`).then(
    ({ status }) => status === 200,
    () => false,
  );
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => resolve((socket.destroy(), true)));
    socket.once('error', () => resolve(false));
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 10_000);
  await ended;
  clearTimeout(timer);
}
