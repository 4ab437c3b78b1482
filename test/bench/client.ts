/** The clients of the benchmark: fast hand-written JSON-RPC over stdio and HTTP. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';

/** How the benchmark talks to a target. */
export type Transport = 'stdio' | 'http';

/** A running target. */
export interface Target {
  readonly name: string;
  readonly child: ChildProcess;
  /** Its other processes: the replicas of a fleet. */
  readonly more?: readonly ChildProcess[];
  /** Sends one request; resolves to the bytes of the reply. Rejects if the target ends or refuses the request. */
  ask(method: string, params: unknown): Promise<Buffer>;
  close(): Promise<void>;
}

/** The circumstances of a process. `counted`: with the counters of counters.mjs. */
export interface Place {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly detached?: boolean;
  readonly counted?: boolean;
}

const here = path.join(import.meta.dirname, '..', '..', import.meta.filename.endsWith('.js') ? '..' : '.');

/** The root of the checkout, also for the built benchmark. */
export const ROOT = path.resolve(here);

/** Returns the path of a program of the benchmark that is not compiled. */
export function programOf(name: string): string {
  return path.join(ROOT, 'test', 'bench', name);
}

const HELLO = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } };
const READY = '{"jsonrpc":"2.0","method":"notifications/initialized"}';

function start(args: readonly string[], place: Place, output: 'pipe' | 'ignore'): ChildProcess {
  const { counted = false, ...rest } = place;
  const errors = output === 'pipe' ? 'ignore' : 'pipe';
  const before = counted ? ['--import', programOf('counters.mjs')] : [];
  return spawn(process.execPath, [...before, ...args], {
    stdio: ['pipe', output, errors, ...(counted ? ['ipc' as const] : [])],
    ...rest,
  });
}

/** Starts a target over stdio, and makes its handshake. */
export async function openStdio(name: string, args: readonly string[], place: Place = {}): Promise<Target> {
  const child = start(args, place, 'pipe');
  const waiting = new Map<number, { resolve: (line: Buffer) => void; reject: (error: Error) => void }>();
  let parts: Buffer[] = [];
  child.stdout?.on('data', (chunk: Buffer) => {
    let from = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, from)) {
      const rest = chunk.subarray(from, end);
      const line = parts.length === 0 ? rest : Buffer.concat([...parts, rest]);
      parts = [];
      from = end + 1;
      const id = idOf(line);
      waiting.get(id)?.resolve(line);
      waiting.delete(id);
    }
    if (from < chunk.length) parts.push(chunk.subarray(from));
  });
  child.once('exit', () => {
    for (const { reject } of waiting.values()) reject(new Error(`${name} ended`));
  });
  let id = 0;
  const ask: Target['ask'] = (method, params) =>
    new Promise((resolve, reject) => {
      id += 1;
      waiting.set(id, { resolve, reject });
      child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  await ask('initialize', HELLO);
  child.stdin?.write(`${READY}\n`);
  return { name, child, ask, close: () => ended(child) };
}

/** Returns the id of a reply. It is the first or the last member, never inside the result. */
function idOf(line: Buffer): number {
  const edge =
    line.length < 200
      ? line.toString('latin1')
      : line.toString('latin1', 0, 100) + line.toString('latin1', line.length - 60);
  const found = /"jsonrpc":"2.0","id":(\d+)/.exec(edge) ?? /"id":(\d+)\}?$/.exec(edge) ?? /"id":(\d+)/.exec(edge);
  return Number(found?.[1]);
}

/** Starts a target that prints `listening URL` (and `token …`) on stderr, and makes its handshake over HTTP. */
export async function openHttp(name: string, args: readonly string[], place: Place = {}): Promise<Target> {
  const child = start(args, place, 'ignore');
  const session = await openSession(name, await listening(child));
  return { name, child, ask: session.ask, close: async () => (session.close(), ended(child)) };
}

/** Makes the handshake of a session over HTTP. An empty token is not sent. `sockets`: the most connections. */
export async function openSession(
  name: string,
  { url, token, sockets = 256 }: { readonly url: string; readonly token: string; readonly sockets?: number },
): Promise<{ readonly ask: Target['ask']; close(): void }> {
  const agent = new http.Agent({ keepAlive: true, maxSockets: sockets });
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
  };
  const post = (body: string): Promise<Buffer> =>
    new Promise((resolve, reject) => {
      const request = http.request(
        url,
        { method: 'POST', agent, headers: { ...headers, 'content-length': Buffer.byteLength(body) } },
        (response) => {
          const session = response.headers['mcp-session-id'];
          if (typeof session === 'string') headers['mcp-session-id'] = session;
          const parts: Buffer[] = [];
          response.on('data', (chunk: Buffer) => parts.push(chunk));
          response.on('error', reject);
          response.on('end', () =>
            (response.statusCode ?? 500) < 300
              ? resolve(parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts))
              : reject(new Error(`${name}: HTTP ${response.statusCode} ${Buffer.concat(parts).toString()}`)),
          );
        },
      );
      request.on('error', reject).end(body);
    });
  let id = 0;
  const ask: Target['ask'] = (method, params) =>
    post(JSON.stringify({ jsonrpc: '2.0', id: (id += 1), method, params }));
  await ask('initialize', HELLO);
  headers['mcp-protocol-version'] = HELLO.protocolVersion;
  await post(READY);
  return { ask, close: () => agent.destroy() };
}

/** Resolves to what a target prints on stderr: its address, and its access token, if it has one. */
export function listening(child: ChildProcess): Promise<{ url: string; token: string }> {
  return new Promise((resolve, reject) => {
    let words = '';
    child.on('exit', () => reject(new Error(`the target ended:\n${words}`)));
    child.stderr?.on('data', (chunk: Buffer) => {
      words += chunk.toString('utf8');
      const url = /(?:listening|Listening)\D*(http:\/\/127\.0\.0\.1:\d+\/mcp)/.exec(words)?.[1];
      const ready = url !== undefined && (!words.includes('ollgate') || /token\s+\S+\n/.test(words));
      if (ready && url !== undefined) resolve({ url, token: /token\s+(\S+)\n/.exec(words)?.[1] ?? '' });
    });
  });
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    child.on('exit', () => resolve());
    if (child.exitCode !== null || child.signalCode !== null) resolve();
    child.stdin?.end();
    setTimeout(() => child.kill('SIGTERM'), 500).unref();
    setTimeout(() => child.kill('SIGKILL'), 8000).unref();
  });
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Returns the process ids of a target without its backends: none for a backend that is called directly. */
export function processesOf({ child, more = [] }: Pick<Target, 'child' | 'more'>): readonly number[] {
  const found: number[] = [];
  const queue = [child, ...more].map(({ pid = 0 }) => pid);
  for (let pid = queue.pop(); pid !== undefined; pid = queue.pop()) {
    if (read(`/proc/${pid}/cmdline`).split('\0')[1]?.endsWith('backend.mjs') === true) continue;
    found.push(pid);
    for (const task of readdirSync(`/proc/${pid}/task`))
      queue.push(...read(`/proc/${pid}/task/${task}/children`).split(' ').filter(Boolean).map(Number));
  }
  return found;
}

/**
 * Returns a function that returns the processor time since then, ns, of the processes of a target with all their
 * threads (Linux: schedstat). Linux forgets the time of a thread that ends: what it used in between does not count.
 */
export function startCpu(target: Pick<Target, 'child' | 'more'>): () => number {
  const before = cpuByTask(target);
  return () => {
    let sum = 0;
    for (const [task, ns] of cpuByTask(target)) sum += ns - (before.get(task) ?? 0);
    return sum;
  };
}

function cpuByTask(target: Pick<Target, 'child' | 'more'>): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const pid of processesOf(target)) {
    const folder = `/proc/${pid}/task`;
    for (const task of readdirSync(folder)) {
      const ns = Number(read(`${folder}/${task}/schedstat`).split(' ')[0]);
      // Not of a thread that has just ended.
      if (ns > 0) found.set(task, ns);
    }
  }
  return found;
}

/** Returns the peak resident memory of processes, MB. */
export function peakOf(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + Number(/VmHWM:\s+(\d+)/.exec(read(`/proc/${pid}/status`))?.[1]) / 1024, 0);
}

/** Returns the number of calls of write(2) and writev(2) of the main thread of a process (Linux: /proc/PID/io). */
export function writesOf(pid: number): number {
  return Number(/syscw: (\d+)/.exec(read(`/proc/${pid}/task/${pid}/io`))?.[1] ?? Number.NaN);
}
