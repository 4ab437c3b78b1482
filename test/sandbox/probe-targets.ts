/** Plants what the escape probes look for: files, processes, sockets and memory that only a sandbox can hide. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { createSocket, type Socket } from 'node:dgram';
import {
  chmodSync,
  chownSync,
  closeSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** The user that sandboxes run as here. As root, any other number: no account needs to have it. */
export const OWNER = process.getuid?.() === 0 ? 12_345 : (process.getuid?.() ?? 0);

/** Creates a workspace in the temporary folder. All users may enter it, and its owner may write. */
export function openWorkspace(): string {
  const workspace = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-sandbox-')));
  chmodSync(workspace, 0o755);
  own(workspace);
  return workspace;
}

/** Makes OWNER the owner of a file. */
export function own(file: string): void {
  if (process.getuid?.() === 0) chownSync(file, OWNER, OWNER);
}

/** The targets, which escape-probes.mjs reads as JSON. */
export interface Plant {
  readonly workspace: string;
  readonly file: string;
  readonly state: string;
  readonly vault: string;
  readonly shm: string;
  readonly docker: string;
  readonly mountpoint: string;
  readonly victim: { readonly pid: number; readonly name: string; readonly secret: string };
  readonly facade: number;
  /** A value in the environment of the probing server itself. */
  readonly own: string;
  readonly port: number;
  readonly socket: string;
  readonly abstract: string;
  readonly dns: number;
  readonly echo: number;
  readonly shmKey: number;
  /** Name of this run of the probes, for the files that it makes. */
  readonly pass?: string;
  /** The probes to run. Absent: all. */
  readonly only?: readonly string[];
}

/** The planted targets. `close` removes them. */
export interface Planted {
  readonly plant: Plant;
  readonly outside: string;
  close(): void;
}

/** Plants all targets. */
export async function plantAll(): Promise<Planted> {
  const [workspace, outside] = [openWorkspace(), openWorkspace()];
  const at = (name: string): string => path.join(outside, name);
  const shm = `/dev/shm/tollgate-probe-${process.pid}`;
  for (const file of [at('file'), at('state'), at('vault'), at('docker.sock'), shm])
    writeFileSync(file, 'planted', { mode: 0o666 });
  mkdirSync(at('mountpoint'));
  fillWorkspace(workspace, at);
  const victim = startVictim();
  const abstract = `tollgate-probe-${randomBytes(6).toString('hex')}`;
  const servers = [
    await listen({ port: 0, host: '127.0.0.1' }),
    await listen({ path: at('socket') }),
    await listen({ path: `\0${abstract}` }),
  ] as const;
  chmodSync(at('socket'), 0o777);
  const datagrams = [await answer((message) => addressOf(message)), await answer((message) => message)] as const;
  const shmKey = 0x70_6c_00_00 + (process.pid & 0xffff);
  const made = spawnSync('perl', ['-e', `print defined shmget(${shmKey}, 64, 0666 | 512) ? 1 : 0`], {
    encoding: 'utf8',
  }).stdout;
  if (made !== '1') throw new Error('shared memory could not be planted; perl is needed for it');
  const plant: Plant = {
    workspace,
    shm,
    abstract,
    shmKey,
    file: at('file'),
    state: at('state'),
    vault: at('vault'),
    docker: at('docker.sock'),
    mountpoint: at('mountpoint'),
    socket: at('socket'),
    victim: { pid: victim.child.pid ?? 0, name: victim.name, secret: victim.secret },
    facade: process.pid,
    own: 'own-secret-of-the-prober',
    port: (servers[0].address() as AddressInfo).port,
    dns: datagrams[0].address().port,
    echo: datagrams[1].address().port,
  };
  return {
    plant,
    outside,
    close: () => {
      victim.child.kill('SIGKILL');
      for (const server of servers) server.close();
      for (const socket of datagrams) socket.close();
      spawnSync('perl', ['-e', `my $id = shmget(${shmKey}, 0, 0); shmctl($id, 0, 0) if defined $id`]);
      for (const file of [workspace, outside, shm]) rmSync(file, { recursive: true, force: true });
    },
  };
}

function fillWorkspace(workspace: string, at: (name: string) => string): void {
  const inside = (name: string): string => path.join(workspace, name);
  for (const name of ['tollgate.yaml', 'notes.txt']) writeFileSync(inside(name), 'version: 1\n', { mode: 0o666 });
  mkdirSync(inside('keys'));
  writeFileSync(inside('keys/one'), 'planted');
  for (const name of ['tollgate.yaml', 'notes.txt', 'keys', 'keys/one']) own(inside(name));
  symlinkSync(at('file'), inside('link'));
  symlinkSync(at('.'), inside('linked'));
  copyFileSync('/usr/bin/id', inside('set-uid'));
  chmodSync(inside('set-uid'), 0o4755);
}

/** Starts a process of OWNER with a secret in its environment, like another server. */
function startVictim(): { readonly child: ChildProcess; readonly name: string; readonly secret: string } {
  const [name, secret] = [`tollgate-victim-${randomBytes(6).toString('hex')}`, randomBytes(12).toString('hex')];
  const drop = process.getuid?.() === 0 ? { uid: OWNER, gid: OWNER } : {};
  const child = spawn('perl', ['-e', 'sleep 600', name], {
    env: { VICTIM: secret },
    stdio: 'ignore',
    cwd: '/',
    ...drop,
  });
  return { child, name, secret };
}

/** Opens a file that a child can inherit, like one that Tollgate's own parent left open. */
export function leak(file: string): { readonly fd: number; close(): void } {
  const fd = openSync(file, 'r');
  return { fd, close: () => closeSync(fd) };
}

function listen(to: { port: number; host: string } | { path: string }): Promise<Server> {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.on('error', () => undefined).end());
    server.once('error', reject).listen(to, () => resolve(server));
  });
}

function answer(reply: (message: Buffer) => Buffer): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createSocket('udp4');
    socket.on('message', (message, from) => socket.send(reply(message), from.port, from.address));
    socket.once('error', reject).bind(0, '127.0.0.1', () => resolve(socket));
  });
}

/** Returns a DNS response with one answer, 192.0.2.1. A pointer in it names the question (RFC 1035). */
function addressOf(query: Buffer): Buffer {
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(0x8180, 2);
  header.writeUInt16BE(1, 6);
  header.writeUInt32BE(0, 8);
  const end = query.indexOf(0, 12) + 5;
  return Buffer.concat([
    header,
    query.subarray(12, end),
    Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]),
  ]);
}
