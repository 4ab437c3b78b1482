/** Real servers of Postgres and Redis on loopback, for tests. Each is ended by its own pid, with its folder. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { installPrograms } from '../servers/system.ts';

/** The password of both servers. */
export const STORE_PASSWORD = 'pass-of-the-store-0123';
/** How long a server may take to start, ms. */
const START_MS = 30_000;

/** A running server. */
export interface StoreServer {
  readonly kind: StoreAccess['kind'];
  readonly port: number;
  readonly folder: string;
  /** How a namespace of the server is reached. */
  access(namespace: string, change?: Partial<StoreAccess>): StoreAccess;
  /** Ends the process at once, as a crash does. */
  kill(): Promise<void>;
  /** Starts it again with the same data. */
  start(): Promise<void>;
  /** Stops the process without ending it, so that it does not answer; `SIGCONT` lets it go on. */
  signal(name: 'SIGSTOP' | 'SIGCONT'): void;
  /** Ends it, and removes its data. */
  remove(): Promise<void>;
}

/** How a server differs. `redis`: more arguments of it. `smallFolder`: a folder for Postgres on a disk of 4 MB. */
export interface StoreServerOptions {
  readonly redis?: readonly string[];
  readonly smallFolder?: string;
}

/** Starts a server with an empty folder. */
export async function startStoreServer(
  kind: StoreAccess['kind'],
  { redis = [], smallFolder }: StoreServerOptions = {},
): Promise<StoreServer> {
  installPrograms(
    [
      ['pg_ctlcluster', 'postgresql'],
      ['redis-server', 'redis-server'],
    ],
    (line) => process.stderr.write(`${line}\n`),
  );
  const folder = mkdtempSync(path.join(tmpdir(), `${kind}-`));
  const port = await freePort();
  const begin = kind === 'postgres' ? preparePostgres(folder, port, smallFolder) : prepareRedis(folder, port, redis);
  let child: ChildProcess | undefined;
  const start = async (): Promise<void> => {
    child = begin();
    await untilReady(kind, port, child);
  };
  const kill = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    // The processes of Postgres end with their parent; each has its own group.
    child.kill('SIGKILL');
    await ended;
    if (kind === 'postgres') await untilClosed(port);
  };
  await start();
  return {
    kind,
    port,
    folder,
    access: (namespace, change = {}) => ({
      kind,
      url: kind === 'postgres' ? `postgres://tollgate@127.0.0.1:${port}/postgres` : `redis://127.0.0.1:${port}`,
      password: STORE_PASSWORD,
      namespace,
      connections: 4,
      timeoutMs: 2000,
      ...change,
    }),
    kill,
    start,
    signal: (name) => {
      for (const pid of familyOf(child?.pid)) process.kill(pid, name);
    },
    remove: async () => {
      for (const pid of familyOf(child?.pid)) process.kill(pid, 'SIGCONT');
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function preparePostgres(folder: string, port: number, smallFolder: string | undefined): () => ChildProcess {
  const [version = ''] = readdirSync('/usr/lib/postgresql').sort((one, other) => Number(other) - Number(one));
  const programs = `/usr/lib/postgresql/${version}/bin`;
  const user = ownerOf('postgres');
  const data = path.join(folder, 'data');
  template ??= initialized(programs, user);
  execFileSync('cp', ['-a', template, data]);
  giveTo(user, folder);
  // Writes outlive a killed process without fsync. Only a crash of the machine would lose them.
  const settings = ['listen_addresses=127.0.0.1', `port=${port}`, 'unix_socket_directories=', 'max_connections=60'];
  settings.push('fsync=off');
  const small = ['--die-with-parent', '--dev-bind', '/', '/', '--size', '4194304', '--tmpfs', smallFolder ?? ''];
  const postgres = [path.join(programs, 'postgres'), '-D', data, ...settings.flatMap((setting) => ['-c', setting])];
  const [program = '', ...words] = smallFolder === undefined ? postgres : ['bwrap', ...small, ...postgres];
  return () => {
    rmSync(path.join(data, 'postmaster.pid'), { force: true });
    return spawn(program, words, { stdio: 'ignore', ...user });
  };
}

/** A new data folder of Postgres, which each server copies: making one takes two seconds of processor time. */
let template: string | undefined;

function initialized(programs: string, user: User): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'postgres-new-'));
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
  const passwords = path.join(folder, 'password');
  const data = path.join(folder, 'data');
  writeFileSync(passwords, STORE_PASSWORD);
  giveTo(user, folder, passwords);
  const options = ['-U', 'tollgate', '--auth=scram-sha-256', `--pwfile=${passwords}`, '--no-sync', '-E', 'UTF8'];
  // In any locale of the machine. Small segments are copied faster.
  const plain = ['--locale=C', '--wal-segsize=1'];
  execFileSync(path.join(programs, 'initdb'), ['-D', data, ...options, ...plain], { stdio: 'ignore', ...user });
  return data;
}

/** Gives a folder, which everyone may enter, and files to a user. */
function giveTo({ uid, gid = 0 }: User, folder: string, ...files: readonly string[]): void {
  chmodSync(folder, 0o755);
  for (const file of [folder, ...files]) if (uid !== undefined) chownSync(file, uid, gid);
}

function prepareRedis(folder: string, port: number, more: readonly string[]): () => ChildProcess {
  const settings = ['--bind', '127.0.0.1', '--port', String(port), '--dir', folder, '--save', ''];
  // What was written outlives a killed process. A slow disk must not look like a store that is away.
  const safe = ['--appendonly', 'yes', '--appendfsync', 'no', '--requirepass', STORE_PASSWORD];
  return () => spawn('redis-server', [...settings, ...safe, ...more], { stdio: 'ignore' });
}

/** The ids of a user; empty for the user of the tests. */
interface User {
  readonly uid?: number;
  readonly gid?: number;
}

/** Returns the ids of a user. Postgres refuses to run as root. */
function ownerOf(user: string): User {
  if (process.getuid?.() !== 0) return {};
  const id = (option: string): number => Number(execFileSync('id', [option, user], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** Returns a process and its children. */
function familyOf(pid: number | undefined): readonly number[] {
  if (pid === undefined) return [];
  const children = execFileSync('sh', ['-c', `cat /proc/${pid}/task/${pid}/children || true`], { encoding: 'utf8' });
  return [pid, ...children.split(' ').flatMap((text) => (text.trim() === '' ? [] : Number(text)))];
}

/** Returns a port of loopback that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

async function untilReady(kind: StoreAccess['kind'], port: number, child: ChildProcess): Promise<void> {
  for (const until = Date.now() + START_MS; Date.now() < until; await sleep(20)) {
    if (child.exitCode !== null) throw new Error(`the server of a test ended with ${child.exitCode}`);
    if ((await accepts(port)) && (await answers(kind, port))) return;
  }
  throw new Error('the server of a test does not start');
}

async function untilClosed(port: number): Promise<void> {
  for (const until = Date.now() + START_MS; Date.now() < until && (await accepts(port)); await sleep(20));
}

/** A server that reads its data accepts connections already. */
async function answers(kind: StoreAccess['kind'], port: number): Promise<boolean> {
  try {
    if (kind === 'redis') {
      const client = new Redis(port, { password: STORE_PASSWORD, retryStrategy: () => null, lazyConnect: true });
      client.on('error', () => undefined);
      await client.connect().finally(() => client.disconnect());
      return true;
    }
    const client = new pg.Client(`postgres://tollgate:${STORE_PASSWORD}@127.0.0.1:${port}/postgres`);
    client.on('error', () => undefined);
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}

/** Returns whether something accepts connections. */
export function accepts(port: number, host = '127.0.0.1'): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, host, () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
