/** Tests that pings detect the loss of an unused remote server, and that Tollgate reconnects by itself. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import { type Bench, callOf, chaos, serve, textOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

const servers: Server[] = [];
const benches: Bench[] = [];
afterEach(async () => {
  await Promise.all(benches.splice(0).map(({ pool }) => pool.stopAll()));
  servers.splice(0).forEach(end);
});

const end = (server: Server): void => {
  server.closeAllConnections();
  server.close();
};

/** How the server responds to a ping. */
type Ping = 'answer' | 'hang' | 502 | 405;

/** A Streamable HTTP server with one tool. It counts its pings. */
function listener(state: { ping: Ping; pings: number }): RequestListener {
  return (request, response) =>
    void (async () => {
      const body = await readText(request);
      if (request.method !== 'POST') return void response.writeHead(405).end();
      const { id, method, params } = JSON.parse(body) as {
        id?: number;
        method: string;
        params: { protocolVersion: string };
      };
      if (id === undefined) return void response.writeHead(202).end();
      if (method === 'ping') state.pings += 1;
      if (method === 'ping' && state.ping === 'hang') return;
      if (method === 'ping' && typeof state.ping === 'number') return void response.writeHead(state.ping).end();
      const result =
        method === 'initialize'
          ? {
              protocolVersion: params.protocolVersion,
              capabilities: { tools: {} },
              serverInfo: { name: 'away', version: '1' },
            }
          : method === 'tools/list'
            ? { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] }
            : method === 'ping'
              ? {}
              : { content: [{ type: 'text', text: 'here' }] };
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
    })();
}

async function listen(on: RequestListener, port = 0): Promise<{ readonly server: Server; readonly port: number }> {
  const server = createServer(on);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { server, port: (server.address() as AddressInfo).port };
}

async function connected(port: number, healthCheckMs: number): Promise<Bench> {
  const { command: _command, isolation: _isolation, ...rest } = chaos();
  const bench = serve({
    ...rest,
    name: 'remote',
    transport: 'http',
    url: `http://127.0.0.1:${port}/mcp`,
    maxRetries: 100,
    reconnectBackoffMs: 20,
    healthCheckMs,
  });
  benches.push(bench);
  expect(await textOf(bench.server, callOf('echo'))).toBe('here');
  expect(bench.server.health().state).toBe('healthy');
  return bench;
}

const stateOf = ({ server }: Bench): string => server.health().state;

describe('an idle remote server', () => {
  it('becomes degraded when it dies, before any call, and healthy when it is back' + verifies('ST-55'), async () => {
    const on = listener({ ping: 'answer', pings: 0 });
    const { server, port } = await listen(on);
    const bench = await connected(port, 50);
    end(server);
    await expect.poll(() => stateOf(bench), { timeout: 20_000 }).toBe('degraded');
    expect(bench.server.health().reason).toMatch(
      /^Server "remote" cannot be reached|^Server "remote" does not answer a ping/,
    );
    await listen(on, port);
    await expect.poll(() => stateOf(bench), { timeout: 20_000 }).toBe('healthy');
    expect(await textOf(bench.server, callOf('echo'))).toBe('here');
  });

  it(
    'becomes degraded if a proxy reports it as gone, but stays healthy if it does not support ping' + verifies('ST-55'),
    async () => {
      const state = { ping: 405 as Ping, pings: 0 };
      const { port } = await listen(listener(state));
      const bench = await connected(port, 50);
      await expect.poll(() => state.pings, { timeout: 20_000 }).toBeGreaterThan(3);
      expect(stateOf(bench)).toBe('healthy');
      state.ping = 502;
      await expect.poll(() => bench.events.map(({ event }) => event), { timeout: 20_000 }).toContain('disconnected');
    },
  );

  it('is disconnected after five seconds without an answer' + verifies('ST-55'), async () => {
    const state = { ping: 'hang' as Ping, pings: 0 };
    const { port } = await listen(listener(state));
    const bench = await connected(port, 50);
    await expect.poll(() => bench.events.map(({ event }) => event), { timeout: 20_000 }).toContain('disconnected');
    expect(bench.server.health().restarts).toBeGreaterThanOrEqual(0);
  });

  it('is not pinged with healthCheckMs: 0 or while a call runs', async () => {
    const state = { ping: 'answer' as Ping, pings: 0 };
    const { port } = await listen(listener(state));
    const [silent, checked] = [await connected(port, 0), await connected(port, 50)];
    await expect.poll(() => state.pings, { timeout: 20_000 }).toBeGreaterThan(2);
    await checked.pool.stopAll();
    // A ping that was sent before has arrived by then.
    await silent.server.call(callOf('echo'));
    const { pings } = state;
    for (let calls = 0; calls < 20; calls += 1) await silent.server.call(callOf('echo'));
    expect(state.pings).toBe(pings);
  });
});
