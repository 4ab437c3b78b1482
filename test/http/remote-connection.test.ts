/** Tests remote servers: real Streamable HTTP and SSE servers on loopback, and one that misbehaves. */

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { resolve } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Server as McpServer } from '@modelcontextprotocol/sdk/server/index.js';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import { afterEach, describe, expect, it } from 'vitest';
import { HttpStatusError, judgeRemoteFailure } from '../../adapters/http/remote-failure.ts';
import type { RestartAttempts } from '../../adapters/supervisor/server-events.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { type Bench, callOf, chaos, codeOf, refusalOf, serve, textOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

type Answer = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

const closers: (() => unknown)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function listen(
  answer: Answer,
): Promise<{ url: string; server: Server; headers: IncomingHttpHeaders[]; bodies: string[] }> {
  const headers: IncomingHttpHeaders[] = [];
  const bodies: string[] = [];
  const server = createServer((request, response) => {
    headers.push({ ...request.headers, ':method': request.method });
    void answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, server, headers, bodies };
}

/** Returns an address where nothing listens any more. */
async function closedUrl(): Promise<string> {
  const { url, server } = await listen(() => {});
  await new Promise((resolve) => server.close(resolve));
  return url;
}

function connect(url: string, more: Partial<ServerSettings> = {}): Bench {
  const { command: _command, isolation: _isolation, ...rest } = chaos();
  const bench = serve({
    ...rest,
    name: 'remote',
    transport: 'http',
    url,
    maxRetries: 10,
    reconnectBackoffMs: 300,
    ...more,
  });
  closers.push(() => bench.pool.stopAll());
  return bench;
}

/** Creates a real server of the SDK. Its tool `changed` sends list_changed. */
function makeMcp(): McpServer {
  const mcp = new McpServer({ name: 'real', version: '9' }, { capabilities: { tools: { listChanged: true } } });
  mcp.fallbackRequestHandler = async (request, extra) => {
    if (request.method === 'tools/list')
      return { tools: [{ name: 'echo', inputSchema: { type: 'object' }, 'x-kept': 1 }] };
    const {
      name,
      arguments: args,
      _meta,
    } = request.params as { name: string; arguments: Record<string, unknown>; _meta?: { progressToken?: number } };
    if (name === 'progress' && _meta?.progressToken !== undefined) {
      for (const progress of [1, 2])
        await extra.sendNotification({
          method: 'notifications/progress',
          params: { progressToken: _meta.progressToken, progress },
        });
    }
    if (name === 'changed') await mcp.sendToolListChanged();
    if (name === 'hang') await new Promise((resolve) => extra.signal.addEventListener('abort', resolve));
    return { content: [{ type: 'text', text: JSON.stringify(args) }], 'x-kept': { deep: [1] } };
  };
  return mcp;
}

interface Real {
  readonly url: string;
  readonly headers: IncomingHttpHeaders[];
  readonly bodies: string[];
  readonly forget: () => void;
}

async function realHttp(json = false): Promise<Real> {
  const sessions = new Map<string, StreamableHTTPServerTransport>();
  const { url, headers, bodies } = await listen(async (request, response) => {
    const body = await readText(request);
    if (body !== '') bodies.push(body);
    const id = request.headers['mcp-session-id'];
    let transport = typeof id === 'string' ? sessions.get(id) : undefined;
    if (transport === undefined && id !== undefined) return void response.writeHead(404).end();
    if (transport === undefined) {
      const made: StreamableHTTPServerTransport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        enableJsonResponse: json,
        onsessioninitialized: (session) => void sessions.set(session, made),
      });
      transport = made;
      await makeMcp().connect(made as Transport);
    }
    await transport.handleRequest(request, response, body === '' ? undefined : JSON.parse(body));
  });
  return { url, headers, bodies, forget: () => sessions.clear() };
}

describe.each([
  ['event streams', false],
  ['JSON answers', true],
])('a real Streamable HTTP server with %s', (_kind, json) => {
  it('is listed and called with the configured headers and no others' + verifies('HE-01', 'HE-02'), async () => {
    const real = await realHttp(json);
    const { server } = connect(real.url, { headers: { authorization: 'Bearer upstream-token', 'x-team': 'a' } });
    expect(await server.start()).toEqual({ name: 'real', version: '9', protocolVersion: '2025-11-25' });
    expect(await server.listTools()).toEqual([{ name: 'echo', inputSchema: { type: 'object' }, 'x-kept': 1 }]);
    const { text, value } = await server.call(callOf('echo', { a: 1 }));
    expect([value['x-kept'], JSON.parse(text)]).toEqual([{ deep: [1] }, value]);
    for (const seen of real.headers)
      expect(seen).toMatchObject({ authorization: 'Bearer upstream-token', 'x-team': 'a' });
    const known = [
      'accept',
      'accept-encoding',
      'accept-language',
      'authorization',
      'connection',
      'content-length',
      'content-type',
      'host',
      'mcp-method',
      'mcp-protocol-version',
      'mcp-session-id',
      'sec-fetch-mode',
      'user-agent',
      'x-team',
      ':method',
      'transfer-encoding',
    ];
    expect(real.headers.flatMap((seen) => Object.keys(seen)).filter((key) => !known.includes(key))).toEqual([]);
    expect(real.headers.at(-1)?.['mcp-protocol-version']).toBe('2025-11-25');
  });

  it('gets the arguments unchanged', async () => {
    const real = await realHttp(json);
    const { server } = connect(real.url);
    const text = '{ "n": 12345678901234567890, "z": -0, "e": "\\u0061é" }';
    await Promise.all([server.call(callOf('echo', text)), server.call(callOf('echo', { b: 2 }))]);
    expect(real.bodies.some((body) => body.endsWith(`"params":{"name":"echo","arguments":${text}}}`))).toBe(true);
    const { version } = JSON.parse(readFileSync(resolve(import.meta.dirname, '../../package.json'), 'utf8')) as {
      version: string;
    };
    expect(JSON.parse(real.bodies[1] ?? '')).toMatchObject({
      params: { capabilities: {}, clientInfo: { name: 'tollgate', version } },
    });
    expect(real.bodies.map((body) => (JSON.parse(body) as { method: string }).method)).toEqual([
      'server/discover',
      'initialize',
      'notifications/initialized',
      'tools/call',
      'tools/call',
    ]);
  });

  it('gets a new handshake after it has forgotten the session, and no call twice', async () => {
    const real = await realHttp(json);
    const { server } = connect(real.url);
    await server.start();
    real.forget();
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(
      /SERVER_UNAVAILABLE: Server "remote" does not know the session/,
    );
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(
      /SERVER_UNAVAILABLE: .* The next attempt is possible in 1 s/,
    );
    await expect.poll(() => textOf(server, callOf('echo', { again: 1 })).catch(() => undefined)).toBe('{"again":1}');
    expect(server.health()).toMatchObject({ state: 'healthy', restarts: 1 });
    expect(real.bodies.filter((body) => body.includes('tools/call'))).toHaveLength(2);
  });
});

describe('a real Streamable HTTP server', () => {
  it('can use progress, list_changed and cancellation' + verifies('HA-10'), async () => {
    const real = await realHttp();
    const { server } = connect(real.url);
    const seen: unknown[] = [];
    let told = 0;
    server.onToolsChanged(() => told++);
    await server.call(callOf('progress', {}, { onProgress: (params) => seen.push(params) }));
    expect(seen).toEqual([{ progress: 1 }, { progress: 2 }]);
    await server.call(callOf('changed'));
    await expect.poll(() => told).toBe(1);
    const controller = new AbortController();
    const hanging = codeOf(server.call(callOf('hang', {}, { signal: controller.signal })));
    await expect.poll(() => real.bodies.length).toBe(6);
    controller.abort();
    expect(await hanging).toBe('CANCELLED');
    await expect.poll(() => real.bodies.at(-1)).toContain('notifications/cancelled');
  });

  it('hears of the end of the session', async () => {
    const real = await realHttp();
    const { server } = connect(real.url);
    await server.start();
    await server.stop();
    expect(real.headers.map((seen) => seen[':method'])).toContain('DELETE');
    expect(await codeOf(server.call(callOf('echo')))).toBe('SERVER_UNAVAILABLE');
  });
});

describe('a remote server that goes away', () => {
  const wordsOf = ({ events }: Bench): readonly string[] =>
    events.map(({ event }) => event).filter((event) => !event.startsWith('tool.'));

  it(
    'is degraded, then comes back by itself, is listed again and is healthy' + verifies('HE-08', 'HE-09'),
    async () => {
      const real = await realHttp();
      const bench = connect(real.url, { reconnectBackoffMs: 200 });
      await bench.server.listTools();
      let told = 0;
      bench.server.onToolsChanged(() => told++);
      real.forget();
      expect(await codeOf(bench.server.call(callOf('echo')))).toBe('SERVER_UNAVAILABLE');
      expect([bench.server.health().state, told]).toEqual(['degraded', 1]);
      await expect.poll(() => wordsOf(bench).at(-1), { timeout: 20_000 }).toBe('tools.refreshed');
      expect(bench.server.health().state).toBe('healthy');
      expect(wordsOf(bench)).toEqual(['started', 'tools.discovered', 'disconnected', 'reconnected', 'tools.refreshed']);
      expect(told).toBeGreaterThan(1);
    },
  );

  it.each([10, 2])(
    'is given up after %i attempts, as maxRetries says; after that only calls try it' +
      verifies('HE-08', 'HE-05', 'HE-02', 'TR-77', 'ST-80'),
    async (maxRetries) => {
      const { url, server: listener } = await listen(async (request, response) => {
        if (request.method === 'GET') return void response.writeHead(405).end();
        const message = JSON.parse((await readText(request)) || '{}') as { id?: number; method?: string };
        if (message.method !== 'initialize') return void response.writeHead(message.id === undefined ? 202 : 404).end();
        response.writeHead(200, { 'content-type': 'application/json' });
        response.end(
          JSON.stringify({
            jsonrpc: '2.0',
            id: message.id,
            result: { protocolVersion: '2025-06-18', capabilities: {} },
          }),
        );
      });
      const bench = connect(url, { reconnectBackoffMs: 1, maxRetries });
      await bench.server.start();
      listener.closeAllConnections();
      await new Promise((resolve) => listener.close(resolve));
      await codeOf(bench.server.call(callOf('echo')));
      await expect.poll(() => wordsOf(bench).at(-1), { timeout: 20_000 }).toBe('reconnect.exhausted');
      const tries = wordsOf(bench).filter((event) => event === 'start.failed');
      // Each event names the attempt that follows. After the last attempt there is none.
      const lost = bench.events.filter(
        ({ event }) => event === 'disconnected' || event === 'start.failed',
      ) as readonly RestartAttempts[];
      expect(lost.map(({ attempt, maxAttempts }) => [attempt, maxAttempts])).toEqual(
        Array.from({ length: maxRetries + 1 }, (_, at) => [at + 1, maxRetries]),
      );
      expect([tries.length, bench.events.at(-1)]).toEqual([
        maxRetries,
        expect.objectContaining({ event: 'reconnect.exhausted', tries: maxRetries }),
      ]);
      expect(bench.server.health().state).toBe('unavailable');
      expect(await refusalOf(bench.server.call(callOf('echo')))).toMatch(
        /^SERVER_UNAVAILABLE: .* The next attempt is possible in (?:30|2\d) s/,
      );
    },
  );
});

describe('a real SSE server' + verifies('HE-01'), () => {
  async function realSse(): Promise<Real & { accepted: () => number; drop: () => void }> {
    let accepted = 0;
    const sessions = new Map<string, SSEServerTransport>();
    const { url, headers, bodies, server } = await listen(async (request, response) => {
      if (request.method === 'GET') {
        const transport = new SSEServerTransport('/messages', response);
        sessions.set(transport.sessionId, transport);
        await makeMcp().connect(transport);
        return;
      }
      const body = await readText(request);
      bodies.push(body);
      const session = new URL(request.url ?? '', 'http://x').searchParams.get('sessionId') ?? '';
      await sessions.get(session)?.handlePostMessage(request, response, JSON.parse(body));
      accepted += 1;
    });
    return {
      url,
      headers,
      bodies,
      accepted: () => accepted,
      forget: () => sessions.clear(),
      drop: () => server.closeAllConnections(),
    };
  }

  it('is listed and called with unchanged arguments', async () => {
    const real = await realSse();
    const { server } = connect(real.url, { transport: 'sse', headers: { 'x-key': 'k' } });
    expect((await server.listTools()).map((tool) => tool.name)).toEqual(['echo']);
    const seen: unknown[] = [];
    await server.call(callOf('progress', '{"n":12345678901234567890}', { onProgress: (params) => seen.push(params) }));
    expect(seen).toEqual([{ progress: 1 }, { progress: 2 }]);
    expect(real.bodies.at(-1)).toContain('"arguments":{"n":12345678901234567890}');
    expect(real.headers.every((headers) => headers['x-key'] === 'k')).toBe(true);
  });

  it('fails the calls in flight when its stream breaks, and is connected again later', async () => {
    const real = await realSse();
    const { server } = connect(real.url, { transport: 'sse' });
    await server.start();
    const before = real.accepted();
    const hanging = codeOf(server.call(callOf('hang')));
    await expect
      .poll(() => [real.accepted() > before, real.bodies.at(-1)])
      .toEqual([true, expect.stringContaining('"hang"')]);
    real.drop();
    expect(await hanging).toBe('TOOL_CRASHED');
    expect(server.health()).toMatchObject({ state: 'degraded' });
    await expect.poll(() => textOf(server, callOf('echo')).catch(() => undefined)).toBe('{}');
  });

  it('is unavailable if nothing listens or something else answers', async () => {
    expect(await codeOf(connect(await closedUrl(), { transport: 'sse' }).server.start())).toBe('SERVER_UNAVAILABLE');
    const refusing = await listen((_request, response) => void response.writeHead(401).end());
    expect(await refusalOf(connect(refusing.url, { transport: 'sse' }).server.start())).toMatch(/HTTP 401/);
  });
});

describe('a remote server that misbehaves', () => {
  type Reply = (id: number, response: ServerResponse, request: IncomingMessage) => void;

  /** Connects to a server that performs the handshake correctly and then answers with `reply`. */
  async function rogue(reply: Reply): Promise<Bench> {
    const { url } = await listen(async (request, response) => {
      if (request.method === 'GET') return void response.writeHead(405).end();
      const message = JSON.parse((await readText(request)) || '{}') as { id?: number; method?: string };
      if (message.id === undefined) return void response.writeHead(202).end();
      if (message.method === 'server/discover') return void response.writeHead(400).end();
      if (message.method !== 'initialize') return reply(message.id, response, request);
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { protocolVersion: '2025-06-18', capabilities: {} } }),
      );
    });
    return connect(url);
  }

  const json = (response: ServerResponse, body: string): void =>
    void response.writeHead(200, { 'content-type': 'application/json' }).end(body);

  it.each<[string, Reply, RegExp]>([
    [
      '401',
      (_id, response) => void response.writeHead(401).end('secret body'),
      /^SERVER_UNAVAILABLE: Server "remote" refuses the configured credentials \(HTTP 401\)\. Correct the headers/,
    ],
    [
      '500',
      (_id, response) => void response.writeHead(500).end('secret body'),
      /^SERVER_UNAVAILABLE: Server "remote" answers with HTTP 500\. The call may have run/,
    ],
    [
      '503',
      (_id, response) => void response.writeHead(503).end('secret body'),
      /^SERVER_UNAVAILABLE: .*HTTP 503\. Call again later/,
    ],
    [
      'a redirect elsewhere',
      (_id, response) => void response.writeHead(307, { location: 'http://127.0.0.2:1/' }).end(),
      /^SERVER_UNAVAILABLE: .*redirect to another origin/,
    ],
    [
      'HTML',
      (_id, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<p>'),
      /^UPSTREAM_INVALID/,
    ],
    ['half of JSON', (_id, response) => json(response, '{"jsonrpc":'), /^UPSTREAM_INVALID/],
    [
      'a frame with result and error',
      (id, response) => json(response, `{"jsonrpc":"2.0","id":${id},"result":{},"error":{"code":"x","message":"y"}}`),
      /^UPSTREAM_INVALID/,
    ],
    [
      'a reset',
      (_id, response) => void response.socket?.destroy(),
      /^TOOL_CRASHED: The connection to server "remote" broke/,
    ],
    [
      'a stream that ends without an answer',
      (_id, response) => void response.writeHead(200, { 'content-type': 'text/event-stream' }).end(': hello\n\n'),
      /^TOOL_CRASHED: The server ended its answer stream/,
    ],
  ])('fails only its call, with the right code, after %s', async (_name, reply, expected) => {
    const { server } = await rogue(reply);
    const refusal = await refusalOf(server.call(callOf('echo')));
    expect(refusal).toMatch(expected);
    expect(refusal).not.toContain('secret');
  });

  it('cannot send a JSON answer or an event over the wire limit', async () => {
    const piece = Buffer.alloc(1024 * 1024, 'x');
    for (const type of ['application/json', 'text/event-stream']) {
      const { server } = await rogue((_id, response) => {
        response.writeHead(200, { 'content-type': type });
        // The client closes the connection early, as the test expects.
        pipeline(Readable.from(Array<Buffer>(70).fill(piece)), response, () => {});
      });
      expect(await codeOf(server.call(callOf('echo', {}, { timeoutMs: 20_000, hardTimeoutMs: 20_000 })))).toBe(
        'UPSTREAM_TOO_LARGE',
      );
    }
  });

  it('runs into the timeout if it never answers; its invalid frames are counted', async () => {
    const { server } = await rogue((_id, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"no":"frame"}\n\ndata: not json\n\n');
    });
    expect(await codeOf(server.call(callOf('echo', {}, { timeoutMs: 1500, hardTimeoutMs: 1500 })))).toBe(
      'TOOL_TIMEOUT',
    );
    expect(server.health().badLines).toBe(2);
  });

  it('is not flooded with reconnects if its listening stream ends immediately', async () => {
    let opened = 0;
    const { url } = await listen(async (request, response) => {
      if (request.method === 'GET') {
        opened++;
        return void response.writeHead(200, { 'content-type': 'text/event-stream' }).end('retry: 0\n\n');
      }
      const message = JSON.parse((await readText(request)) || '{}') as { id?: number };
      if (message.id === undefined) return void response.writeHead(202).end();
      json(
        response,
        JSON.stringify({ jsonrpc: '2.0', id: message.id, result: { protocolVersion: '2025-06-18', capabilities: {} } }),
      );
    });
    const { server } = connect(url);
    await server.start();
    const began = performance.now();
    await sleep(700);
    await expect.poll(() => opened).toBeGreaterThan(1);
    expect(opened).toBeLessThan(6 * Math.max(1, (performance.now() - began) / 700));
    await server.stop();
    const before = opened;
    await sleep(600);
    expect(opened).toBe(before);
  });

  it('is unavailable if nothing listens or answers, or it has no address', async () => {
    expect(await refusalOf(connect(await closedUrl()).server.start())).toMatch(
      /SERVER_UNAVAILABLE: Server "remote" cannot be reached/,
    );
    expect(await codeOf(connect('not a url').server.start())).toBe('INIT_FAILED');
    expect(await refusalOf(connect('http://user:hunter2@127.0.0.1:9/').server.start())).not.toContain('hunter2');
    const mute = await listen(() => {});
    expect(await refusalOf(connect(mute.url, { connectTimeoutMs: 300 }).server.start())).toMatch(
      /INIT_FAILED: Server "remote" did not answer within 300 ms/,
    );
    expect(await codeOf(connect(mute.url, { unusable: 'it has no address.' }).server.start())).toBe(
      'SERVER_UNAVAILABLE',
    );
  });
});

describe('judgeRemoteFailure', () => {
  it('finds the network error code in the errors of fetch', () => {
    const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED' });
    expect(judgeRemoteFailure('a', new TypeError('fetch failed', { cause: refused })).error.code).toBe(
      'SERVER_UNAVAILABLE',
    );
    expect(judgeRemoteFailure('a', new Error('other side closed')).error.code).toBe('TOOL_CRASHED');
    expect(judgeRemoteFailure('a', 'text').error.code).toBe('TOOL_CRASHED');
    expect(judgeRemoteFailure('a', new HttpStatusError(500)).error.message).toBe('Server "a" answers with HTTP 500.');
  });
});
