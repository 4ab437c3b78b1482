/** Measures what the way out of a sandbox adds to a request: fresh and kept connections, direct, through the preload, and over the bridge. Run: npm run build && node dist/test/bench/egress.js */
import { execFile, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { openEgress } from '../../adapters/egress/open.ts';

const ROUNDS = 400;

/** Times requests in this process; prints milliseconds as JSON. */
const CLIENT = `
const http = require('node:http');
const [host, port, proxy] = process.argv.slice(1);
const kept = new http.Agent({ keepAlive: true, maxSockets: 1 });
const target = proxy ? { host: '127.0.0.1', port: Number(proxy), path: 'http://' + host + ':' + port + '/', headers: { host: host + ':' + port } } : { host, port: Number(port), path: '/' };
const ask = (agent) => new Promise((resolve, reject) => {
  const start = performance.now();
  http.get({ ...target, agent }, (answer) => answer.resume().on('end', () => resolve(performance.now() - start))).on('error', reject);
});
(async () => {
  const times = { fresh: [], kept: [] };
  for (let at = 0; at < ${ROUNDS} + 50; at += 1) for (const [name, agent] of [['fresh', false], ['kept', kept]]) { const took = await ask(agent); if (at >= 50) times[name].push(took); }
  console.log(JSON.stringify(times));
  process.exit();
})();`;

async function run(args: readonly string[], env: NodeJS.ProcessEnv): Promise<Readonly<Record<'fresh' | 'kept', number[]>>> {
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', CLIENT, ...args], { env: { PATH: process.env['PATH'], ...env } });
  return JSON.parse(stdout) as Record<'fresh' | 'kept', number[]>;
}

function quantile(times: readonly number[], part: number): number {
  return [...times].sort((a, b) => a - b)[Math.floor(times.length * part)] ?? 0;
}

const server = createServer((_request, response) => response.end('x'.repeat(1000)));
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
const port = String((server.address() as AddressInfo).port);
const egress = await openEgress({ server: 'bench', allowedDomains: [`target.test:${port}`, `127.0.0.1:${port}`] }, { onBlocked: () => undefined, lookup: async () => ['127.0.0.1'] });
const bridgePort = '39128';
const bridge = spawn('socat', [`TCP-LISTEN:${bridgePort},bind=127.0.0.1,fork,reuseaddr`, `UNIX-CONNECT:${egress.socket}`]).on('error', () => undefined);
await sleep(300);
const preload = { ...egress.env, NO_PROXY: 'localhost', NODE_OPTIONS: `--require ${egress.mounts[0]?.from}`, TOLLGATE_EGRESS: egress.socket };
const rows = [
  ['direct', await run(['127.0.0.1', port], {})],
  ['preload', await run(['target.test', port], preload)],
  ['bridge (socat)', await run(['target.test', port, bridgePort], {})],
] as const;
const lines = rows.map(([name, times]) => `| ${name} | ${(['fresh', 'kept'] as const).map((kind) => `${quantile(times[kind], 0.5).toFixed(2)} / ${quantile(times[kind], 0.95).toFixed(2)}`).join(' | ')} |`);
process.stderr.write(`| way | fresh connection p50 / p95 ms | kept connection p50 / p95 ms |\n|---|---|---|\n${lines.join('\n')}\n`);
bridge.kill();
await egress.close();
server.close();
