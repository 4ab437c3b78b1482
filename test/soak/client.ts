/** The clients of the soak: `tollgate run`, and many sessions of `tollgate serve`, with a probe of the process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root of the checkout, from the source and from dist/. */
export const ROOT = rootOf(path.dirname(fileURLToPath(import.meta.url)));
const PROBE = path.join(ROOT, 'test', 'fixtures', 'probe.mjs');
const MAIN = path.join(ROOT, 'dist', 'facade', 'main.js');
const HELLO = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'soak', version: '1' } };

/** A reading of the probe: bytes, µs and open descriptors. */
export interface Reading {
  readonly heap: number;
  readonly rss: number;
  readonly cpuUs: number;
  readonly descriptors: number;
}

/** A gateway and its clients. */
export interface Soaked {
  /** Calls a tool in one of the sessions, and returns the text of the answer. */
  call(session: number, params: object): Promise<string>;
  read(): Promise<Reading>;
  close(): Promise<void>;
}

function rootOf(folder: string): string {
  const above = path.join(folder, '..', '..');
  return path.basename(above) === 'dist' ? path.dirname(above) : above;
}

function start(words: readonly string[], folder: string): ChildProcess {
  const child = spawn(
    process.execPath,
    ['--expose-gc', '--import', PROBE, MAIN, ...words, '-c', path.join(folder, 'tollgate.yaml')],
    { cwd: folder, env: { PATH: process.env.PATH ?? '', HOME: folder }, stdio: ['pipe', 'pipe', 'pipe', 'ipc'] },
  );
  // The output of the start is not part of the measurement.
  child.stderr?.resume();
  return child;
}

function readingOf(child: ChildProcess): Promise<Reading> {
  return new Promise((resolve) => {
    child.once('message', (told) =>
      resolve({ ...(told as Omit<Reading, 'descriptors'>), descriptors: readdirSync(`/proc/${child.pid}/fd`).length }),
    );
    child.send('read');
  });
}

/** Ends the gateway as a client does. */
function ended(child: ChildProcess, signal?: NodeJS.Signals): Promise<void> {
  return new Promise((resolve) => {
    child.once('close', () => resolve());
    if (signal === undefined) child.stdin?.end();
    else child.kill(signal);
  });
}

/** Returns the lines of a stream as they arrive. */
function eachLine(child: ChildProcess, take: (line: string) => void): void {
  let rest = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) take(line);
  });
}

/** Starts `tollgate run`, which has one session, in a folder. */
export async function openStdio(folder: string): Promise<Soaked> {
  const child = start(['run'], folder);
  const waiting = new Map<
    number,
    { readonly resolve: (text: string) => void; readonly reject: (why: Error) => void }
  >();
  eachLine(child, (line) => {
    const id = Number((JSON.parse(line) as { id?: unknown }).id);
    waiting.get(id)?.resolve(line);
    waiting.delete(id);
  });
  child.once('close', () => [...waiting.values()].forEach(({ reject }) => reject(new Error('The gateway has ended.'))));
  let ids = 0;
  const ask = (method: string, params: object): Promise<string> =>
    new Promise((resolve, reject) => {
      ids += 1;
      waiting.set(ids, { resolve, reject });
      child.stdin?.write(`${JSON.stringify({ jsonrpc: '2.0', id: ids, method, params })}\n`);
    });
  await ask('initialize', HELLO);
  await ask('tools/list', {});
  return {
    call: (_session, params) => ask('tools/call', params),
    read: () => readingOf(child),
    close: () => ended(child),
  };
}

/** Starts `tollgate serve` in a folder and opens sessions of one principal. */
export async function openHttp(
  folder: string,
  { sessions, sockets }: { readonly sessions: number; readonly sockets: number },
): Promise<Soaked> {
  const child = start(['serve', '--json'], folder);
  const { url, tokenFile } = await new Promise<{ url: string; tokenFile: string }>((resolve, reject) => {
    eachLine(child, (line) => resolve(JSON.parse(line) as { url: string; tokenFile: string }));
    child.once('close', () => reject(new Error('The gateway has ended.')));
  });
  const token = readFileSync(tokenFile, 'utf8').trim();
  const agent = new http.Agent({ keepAlive: true, maxSockets: sockets });
  let ids = 0;
  const post = (
    method: string,
    params: object,
    session?: string,
  ): Promise<{ readonly session: string; readonly text: string }> =>
    new Promise((resolve, reject) => {
      const body = JSON.stringify({ jsonrpc: '2.0', id: (ids += 1), method, params });
      const headers = {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${token}`,
        'content-length': Buffer.byteLength(body),
        ...(session === undefined ? {} : { 'mcp-session-id': session, 'mcp-protocol-version': HELLO.protocolVersion }),
      };
      const sent = http.request(url, { method: 'POST', agent, headers }, (response) => {
        let text = '';
        response
          .setEncoding('utf8')
          .on('data', (chunk: string) => void (text += chunk))
          .on('end', () => {
            if (response.statusCode === 200) resolve({ session: String(response.headers['mcp-session-id']), text });
            else reject(new Error(`HTTP ${response.statusCode}: ${text}`));
          });
      });
      sent.on('error', reject).end(body);
    });
  const open: string[] = [];
  for (let at = 0; at < sessions; at += 1) open.push((await post('initialize', HELLO)).session);
  for (const session of open) await post('tools/list', {}, session);
  return {
    call: async (session, params) => (await post('tools/call', params, open[session % open.length])).text,
    read: () => readingOf(child),
    close: async () => (agent.destroy(), ended(child, 'SIGTERM')),
  };
}
