/** Measures what the egress proxy adds to a request: on the host, and in a sandbox by preload and by CONNECT. */
import { chownSync, mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openEgress } from '../../adapters/egress/open-egress.ts';
import { EGRESS_PORT } from '../../adapters/sandbox/sandbox-spec.ts';
import { type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { quantile, takeTurns } from './measure.ts';
import type { Part } from './tables.ts';

/** Milliseconds of requests: on a new connection, and on a reused one. */
interface EgressTimes {
  readonly fresh: readonly number[];
  readonly kept: readonly number[];
}

/** Sends requests over plain sockets, and prints milliseconds as JSON. A third argument names a proxy for a tunnel. */
const CLIENT = `
const net = require('node:net');
const [host, port, proxy, count] = process.argv.slice(1);
const until = (socket, whole) => new Promise((resolve, reject) => {
  let text = '';
  const take = (chunk) => { text += chunk; if (whole(text)) { socket.off('data', take); resolve(text); } };
  socket.on('data', take).once('error', reject).once('close', () => reject(new Error('closed: ' + text)));
});
const head = (text) => text.includes('\\r\\n\\r\\n');
async function open() {
  const socket = proxy === '' ? net.connect(Number(port), host) : net.connect(Number(proxy), '127.0.0.1');
  socket.setEncoding('latin1').setNoDelay(true);
  await new Promise((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  if (proxy === '') return socket;
  socket.write('CONNECT ' + host + ':' + port + ' HTTP/1.1\\r\\nHost: ' + host + ':' + port + '\\r\\n\\r\\n');
  if (!(await until(socket, head)).startsWith('HTTP/1.1 200')) throw new Error('no tunnel');
  return socket;
}
async function ask(socket) {
  socket.write('GET / HTTP/1.1\\r\\nHost: ' + host + ':' + port + '\\r\\n\\r\\n');
  await until(socket, (text) => text.endsWith('x'.repeat(1000)));
}
(async () => {
  const times = { fresh: [], kept: [] };
  const kept = await open();
  for (let at = -30; at < Number(count); at += 1) {
    const start = performance.now();
    const socket = await open();
    await ask(socket);
    const middle = performance.now();
    await ask(kept);
    if (at >= 0) { times.fresh.push(middle - start); times.kept.push(performance.now() - middle); }
    socket.destroy();
  }
  console.log(JSON.stringify(times));
  process.exit();
})();`;

const NAME = 'target.test';
const OWNER = 1000;

/** The part of the benchmark about the egress proxy. In brackets: the difference to the first row. */
export const EGRESS_PART: Part = {
  name: 'egress',
  tables: [
    {
      title: 'What egress adds to a request',
      head: ['way', 'fresh p50 ms', 'fresh p95 ms', 'kept p50 ms', 'kept p95 ms'],
      rows: ['direct, on the host', 'sandbox, preload (Node)', 'sandbox, CONNECT (others)'],
    },
  ],
  measure: async ({ quick, say }) => {
    say('egress: three ways in turns');
    const [base, ...ways] = await measureEgress(quick ? 2 : 6, quick ? 50 : 200);
    const figures = ({ fresh, kept }: EgressTimes): readonly number[] =>
      [fresh, kept].flatMap((times) => [0.5, 0.95].map((q) => quantile(times, q)));
    const direct = base === undefined ? [] : figures(base);
    const added = (ms: number, column: number): string => {
      const difference = ms - (direct[column] ?? 0);
      return `${ms.toFixed(2)} (${difference < 0 ? '' : '+'}${difference.toFixed(2)})`;
    };
    return { cells: [[direct.map((ms) => ms.toFixed(2)), ...ways.map((way) => figures(way).map(added))]] };
  },
};

/** Measures `count` requests in each of `rounds`. */
async function measureEgress(rounds: number, count: number): Promise<readonly EgressTimes[]> {
  const workspace = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-egress-bench-')));
  if (process.getuid?.() === 0) chownSync(workspace, OWNER, OWNER);
  const server = createServer((_request, response) => response.end('x'.repeat(1000)));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const port = String((server.address() as AddressInfo).port);
  const domains = [`${NAME}:${port}`, `127.0.0.1:${port}`];
  const host: LaunchHost = {
    workspace,
    hidden: [],
    secrets: () => Promise.reject(new Error('no secrets here')),
    openEgress: () =>
      openEgress(
        { server: 'bench', allowedDomains: domains, ...(process.getuid?.() === 0 && { owner: OWNER }) },
        { onBlocked: () => undefined, lookup: () => Promise.resolve(['127.0.0.1']) },
      ),
  };
  const settingsOf = (target: string, proxy: string, allowedDomains: readonly string[]): ServerSettings => ({
    name: 'bench',
    transport: 'stdio', // Without the preload, as programs that are not Node.
    command: 'env',
    args: [
      ...(proxy === '' ? [] : ['-u', 'NODE_OPTIONS']),
      process.execPath,
      '-e',
      CLIENT,
      target,
      port,
      proxy,
      `${count}`,
    ],
    env: {},
    cwd: workspace,
    headers: {},
    isolation: allowedDomains.length === 0 ? 'direct' : 'sandbox',
    connectTimeoutMs: 10_000,
    maxRetries: 0,
    reconnectBackoffMs: 1000,
    sandbox: {
      filesystem: { allowRead: [], allowWrite: [workspace], denyRead: [] },
      network: { allowedDomains },
      limits: { memoryMb: 512, processes: 128, fileMb: 64 },
    },
  });
  const settings = [
    settingsOf('127.0.0.1', '', []),
    settingsOf(NAME, '', domains),
    settingsOf(NAME, `${EGRESS_PORT}`, domains),
  ];
  try {
    const found = await takeTurns(settings, rounds, (one) => runOnce(one, host));
    return found.map((all) => ({ fresh: all.flatMap(({ fresh }) => fresh), kept: all.flatMap(({ kept }) => kept) }));
  } finally {
    server.close();
    rmSync(workspace, { recursive: true, force: true });
  }
}

async function runOnce(settings: ServerSettings, host: LaunchHost): Promise<EgressTimes> {
  const { child, release } = await launch(settings, host);
  let said = '';
  let complaint = '';
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString('utf8')));
  child.stderr.on('data', (chunk: Buffer) => (complaint += chunk.toString('utf8')));
  await new Promise((resolve) => child.once('close', resolve));
  await release();
  if (said === '') throw new Error(`the client of the benchmark ended: ${complaint}`);
  return JSON.parse(said) as EgressTimes;
}
