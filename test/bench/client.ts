/** The clients of the benchmark: fast hand-written JSON-RPC over stdio and HTTP. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';

/** A running target. */
export interface Target {
  readonly name: string;
  readonly child: ChildProcess;
  /** Sends one request; resolves to the bytes of the answer. */
  ask(method: string, params: unknown): Promise<number>;
  close(): Promise<void>;
}

/** Returns the CPU nanoseconds of a process with its threads, without its children (Linux: schedstat). */
export function cpuOf(child: ChildProcess): number {
  const folder = `/proc/${child.pid}/task`;
  return readdirSync(folder).reduce(
    (sum, task) => sum + Number(readFileSync(`${folder}/${task}/schedstat`, 'utf8').split(' ')[0]),
    0,
  );
}

/** Returns the peak resident memory, MB. */
export function peakOf(child: ChildProcess): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1] ?? 0) / 1024;
}

const HELLO = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1' } };

/** Starts a target over stdio, and makes its handshake. */
export async function openStdio(
  name: string,
  args: readonly string[],
  place: { readonly cwd?: string; readonly env?: NodeJS.ProcessEnv; readonly detached?: boolean } = {},
): Promise<Target> {
  const child = spawn(process.execPath, [...args], { stdio: ['pipe', 'pipe', 'ignore'], ...place });
  const waiting = new Map<number, (bytes: number) => void>();
  let parts: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      const line =
        parts.length === 0 ? chunk.subarray(start, end) : Buffer.concat([...parts, chunk.subarray(start, end)]);
      parts = [];
      start = end + 1;
      settle(waiting, line);
    }
    if (start < chunk.length) parts.push(chunk.subarray(start));
  });
  let id = 0;
  const target: Target = {
    name,
    child,
    ask: (method, params) =>
      new Promise((resolve) => {
        id += 1;
        waiting.set(id, resolve);
        child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
      }),
    close: () => ended(child),
  };
  await target.ask('initialize', HELLO);
  child.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n');
  return target;
}

/** Returns the id of a reply. It is the first or the last member, never inside the result. */
function settle(waiting: Map<number, (bytes: number) => void>, line: Buffer): void {
  const edge =
    line.length < 200
      ? line.toString('latin1')
      : line.toString('latin1', 0, 100) + line.toString('latin1', line.length - 60);
  const found = /"jsonrpc":"2.0","id":(\d+)/.exec(edge) ?? /"id":(\d+)\}?$/.exec(edge) ?? /"id":(\d+)/.exec(edge);
  const id = Number(found?.[1]);
  if (edge.includes('"error":{'))
    throw new Error(`the target answered with an error: ${line.toString('utf8').slice(0, 400)}`);
  waiting.get(id)?.(line.length);
  waiting.delete(id);
}

/** Starts a target that prints `listening URL` (and `token …`) on stderr, and makes its handshake over HTTP. */
export async function openHttp(name: string, args: readonly string[]): Promise<Target> {
  const child = spawn(process.execPath, [...args], { stdio: ['pipe', 'ignore', 'pipe'] });
  const { url, token } = await listening(child);
  const agent = new http.Agent({ keepAlive: true, maxSockets: 128 });
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    ...(token === '' ? {} : { authorization: `Bearer ${token}` }),
  };
  let id = 0;
  const post = (body: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const request = http.request(
        url,
        { method: 'POST', agent, headers: { ...headers, 'content-length': Buffer.byteLength(body) } },
        (response) => {
          const session = response.headers['mcp-session-id'];
          if (typeof session === 'string') headers['mcp-session-id'] = session;
          let bytes = 0;
          response.on('data', (chunk: Buffer) => (bytes += chunk.length));
          response.on('end', () =>
            (response.statusCode ?? 500) < 300
              ? resolve(bytes)
              : reject(new Error(`${name}: HTTP ${response.statusCode}`)),
          );
        },
      );
      request.on('error', reject).end(body);
    });
  const ask = (method: string, params: unknown): Promise<number> =>
    post(JSON.stringify({ jsonrpc: '2.0', id: (id += 1), method, params }));
  await ask('initialize', HELLO);
  headers['mcp-protocol-version'] = '2025-11-25';
  await post('{"jsonrpc":"2.0","method":"notifications/initialized"}');
  return { name, child, ask, close: async () => (agent.destroy(), ended(child)) };
}

function listening(child: ChildProcess): Promise<{ url: string; token: string }> {
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
    if (child.exitCode !== null) resolve();
    child.stdin?.end();
    setTimeout(() => child.kill('SIGTERM'), 500).unref();
    setTimeout(() => child.kill('SIGKILL'), 8000).unref();
  });
}
