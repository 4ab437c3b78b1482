/** Tests the HTTP listener over real sockets: routes, tokens, sessions, bodies, streams, and its end. */

import { once } from 'node:events';
import { Agent, type IncomingMessage, request as open } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Reply } from '../../facade/serve/facade-port.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { ALICE, echo, FakeFacade, initialize, LIST_TEXT, request, until, untilAborted } from './fake-facade.ts';
import { type Answered, type Asked, type HttpBench, LISTEN, listen } from './http-bench.ts';

const benches: HttpBench[] = [];
async function start(options: Parameters<typeof listen>[0] = {}): Promise<HttpBench> {
  const bench = await listen(options);
  benches.push(bench);
  return bench;
}
afterEach(async () => {
  await Promise.all(benches.splice(0).map(({ server }) => server.close()));
});

const code = ({ text }: Answered): unknown =>
  (JSON.parse(text) as { error?: { data?: { code?: unknown } } }).error?.data?.code;
const call = (id: string | number, params: Record<string, unknown> = {}): unknown =>
  request(id, 'tools/call', { name: 'read', ...params });
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns the text of a POST request of alice. */
function postText(port: number, headers: Readonly<Record<string, string | number>>, body = ''): string {
  return [
    'POST /mcp HTTP/1.1',
    `Host: localhost:${port}`,
    'Authorization: Bearer alice-token',
    'Content-Type: application/json',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '',
    body,
  ].join('\r\n');
}

/**
 * Sends bytes, and returns what arrives until it contains the head of an answer, the connection ends, or `ms` have
 * passed.
 */
function raw(port: number, text: string, ms = 10_000): Promise<string> {
  return new Promise((resolve) => {
    let seen = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    const end = setTimeout(() => socket.destroy(), ms);
    socket.on('data', (chunk: Buffer) => {
      seen += chunk.toString();
      if (seen.includes('\r\n\r\n')) socket.destroy();
    });
    socket.on('close', () => {
      clearTimeout(end);
      resolve(seen);
    });
    socket.on('error', () => resolve(seen));
  });
}

describe('an HTTP session', () => {
  it('opens with initialize, has an id of 128 random bits, and answers plain JSON', async () => {
    const { facade, ask, session, server } = await start();
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/mcp$/);
    const hello = await ask({ body: initialize(7) });
    expect(hello.status).toBe(200);
    expect(hello.headers['content-type']).toBe('application/json');
    expect(hello.headers['mcp-session-id']).toMatch(/^[0-9a-f]{32}$/);
    expect(hello.headers['access-control-allow-origin']).toBeUndefined();
    expect(JSON.parse(hello.text)).toMatchObject({ id: 7, result: { protocolVersion: '2025-11-25' } });
    const id = await session();
    expect(id).not.toBe(hello.headers['mcp-session-id']);
    const list = await ask({
      headers: { 'mcp-session-id': id, 'mcp-protocol-version': '2025-11-25' },
      body: request(1, 'tools/list'),
    });
    expect(list.text).toBe(`{"jsonrpc":"2.0","id":1,"result":${LIST_TEXT}}`);
    expect(list.headers['content-length']).toBe(String(Buffer.byteLength(list.text)));
    expect(facade.opened[0]).toMatchObject({ transport: 'http', principal: { id: 'alice', origin: 'claude' } });
  });

  it('accepts notifications and answers with 202 and no body', async () => {
    const { ask, session } = await start();
    const headers = { 'mcp-session-id': await session() };
    for (const body of [
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      { jsonrpc: '2.0', id: 1, result: {} },
    ]) {
      expect(await ask({ headers, body })).toMatchObject({ status: 202, text: '' });
    }
  });

  it('passes a result byte for byte, with its line breaks', async () => {
    const { facade, ask, session } = await start();
    const text = '{\n  "content": [{"type":"text","text":"ä€😀"}], "n": 1.0e0\n}';
    facade.onCall = async () => ({ kind: 'result', text });
    const reply = await ask({ headers: { 'mcp-session-id': await session() }, body: call(1) });
    expect(reply.text).toBe(`{"jsonrpc":"2.0","id":1,"result":${text}}`);
  });

  it('ends with DELETE, which interrupts and answers running calls' + verifies('ST-21'), async () => {
    const { facade, ask, session } = await start();
    facade.onCall = untilAborted;
    const headers = { 'mcp-session-id': await session() };
    const running = ask({ headers, body: call(1) });
    await until(() => facade.calls.length === 1);
    expect(await ask({ method: 'DELETE', headers })).toMatchObject({ status: 204, text: '' });
    expect(await running).toMatchObject({ status: 200, text: expect.stringContaining('"id":1') as string });
    expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'INTERRUPTED' });
    expect(facade.closed).toHaveLength(1);
    const after = await ask({ headers, body: request(2, 'ping') });
    expect([after.status, code(after)]).toEqual([404, 'HTTP_SESSION']);
  });

  it.each([
    ['POST', request(4, 'ping'), undefined, 400, 'NOT_INITIALIZED'],
    ['POST', { jsonrpc: '2.0', method: 'notifications/initialized' }, undefined, 400, 'NOT_INITIALIZED'],
    ['POST', request(4, 'tools/list'), 'f'.repeat(32), 404, 'HTTP_SESSION'],
    ['POST', initialize(4), 'f'.repeat(32), 404, 'HTTP_SESSION'],
    ['POST', request(4, 'server/discover'), undefined, 400, 'WIRE_PARAMS'],
    ['GET', undefined, undefined, 400, 'NOT_INITIALIZED'],
    ['GET', undefined, '__proto__', 404, 'HTTP_SESSION'],
    ['DELETE', undefined, undefined, 400, 'NOT_INITIALIZED'],
    ['DELETE', undefined, 'x', 404, 'HTTP_SESSION'],
  ])('refuses %s of %j in session %s with %i %s', async (method, body, id, status, expected) => {
    const { ask } = await start();
    const reply = await ask({ method, body, headers: { 'mcp-session-id': id } });
    expect([reply.status, code(reply)]).toEqual([status, expected]);
    expect(JSON.parse(reply.text)).toMatchObject({
      id: method === 'POST' && body !== undefined && 'id' in body ? 4 : null,
    });
  });

  it('opens after a request of the modern era, which has none', async () => {
    const { ask } = await start();
    expect((await ask({ body: initialize(1, '2026-07-28') })).status).toBe(200);
    const headers = { 'mcp-protocol-version': '2026-07-28' };
    expect(code(await ask({ headers, body: initialize() }))).toBe('WIRE_VERSION');
  });

  it.each(['1.0', '2024-10-07'])('refuses the revision %s in the header', async (revision) => {
    const { ask, session } = await start();
    const headers = { 'mcp-protocol-version': revision };
    expect((await ask({ headers, body: initialize() })).status).toBe(400);
    const id = await session();
    for (const asked of [{ body: request(1, 'ping') }, { method: 'GET' }, { method: 'DELETE' }]) {
      const reply = await ask({ ...asked, headers: { ...headers, 'mcp-session-id': id } });
      expect([reply.status, code(reply)]).toEqual([400, 'WIRE_VERSION']);
    }
  });

  it('answers errors of the protocol inside a session with 200', async () => {
    const { ask, session } = await start();
    const body = request(1, 'tools/list', { cursor: 'x' });
    const reply = await ask({ headers: { 'mcp-session-id': await session() }, body });
    expect([reply.status, code(reply)]).toEqual([200, 'WIRE_PARAMS']);
  });

  it('answers 500 and reports the error if the facade cannot open one', async () => {
    const { facade, ask, faults } = await start();
    facade.openSession = () => {
      throw new Error('disk /home/x');
    };
    const reply = await ask({ body: initialize() });
    expect([reply.status, code(reply)]).toEqual([500, 'INTERNAL']);
    expect(reply.text).not.toContain('/home');
    expect(faults).toHaveLength(1);
  });

  it.each([
    ['STATE_FAILED', 503],
    ['AUDIT_FAILED', 503],
    ['IDENTITY', 403],
    ['POLICY_FAILED', 500],
  ] as const)('answers %s at its start with %i' + verifies('ST-31'), async (refused, status) => {
    const { facade, ask } = await start();
    facade.openSession = () => {
      throw new TollgateError(refused);
    };
    const reply = await ask({ body: initialize(3) });
    expect([reply.status, code(reply), (JSON.parse(reply.text) as { id: unknown }).id]).toEqual([status, refused, 3]);
  });
});

describe('headers, methods and bodies of HTTP', () => {
  const cases: readonly [string, Asked, number, string][] = [
    ['text/plain', { headers: { 'content-type': 'text/plain' } }, 415, 'HTTP_METHOD'],
    ['a form', { headers: { 'content-type': 'application/x-www-form-urlencoded' } }, 415, 'HTTP_METHOD'],
    ['no content type', { headers: { 'content-type': undefined } }, 415, 'HTTP_METHOD'],
    ['json-seq', { headers: { 'content-type': 'application/json-seq' } }, 415, 'HTTP_METHOD'],
    ['a charset', { headers: { 'content-type': 'Application/JSON; charset=utf-8' } }, 200, ''],
    ['no Accept', { headers: { accept: undefined } }, 200, ''],
    ['Accept */*', { headers: { accept: '*/*' } }, 200, ''],
    ['Accept application/*;q=0.5', { headers: { accept: 'text/html, application/*;q=0.5' } }, 200, ''],
    ['Accept json only', { headers: { accept: 'application/json' } }, 200, ''],
    ['Accept event-stream only', { headers: { accept: 'text/event-stream' } }, 406, 'HTTP_METHOD'],
    ['Accept html', { headers: { accept: 'text/html' } }, 406, 'HTTP_METHOD'],
    ['GET that accepts no stream', { method: 'GET', headers: { accept: 'application/json' } }, 406, 'HTTP_METHOD'],
    ['PUT', { method: 'PUT' }, 405, 'HTTP_METHOD'],
    ['HEAD', { method: 'HEAD', body: undefined }, 405, ''],
    ['OPTIONS without origin', { method: 'OPTIONS' }, 405, 'HTTP_METHOD'],
    ['another path', { path: '/' }, 404, 'HTTP_PATH'],
    ['a path below', { path: '/mcp/x' }, 404, 'HTTP_PATH'],
    ['a query', { path: '/mcp?token=alice-token' }, 200, ''],
    ['POST to /healthz', { path: '/healthz' }, 405, 'HTTP_METHOD'],
  ];
  it.each(cases)('get the right status: %s', async (_name, asked, status, expected) => {
    const { ask } = await start();
    const reply = await ask({ body: initialize(), ...asked });
    expect(reply.status).toBe(status);
    if (expected !== '') expect(code(reply)).toBe(expected);
    if (status === 405) expect(reply.headers.allow).toBe(asked.path === '/healthz' ? 'GET' : 'GET, POST, DELETE');
  });

  it.each([
    ['{', 'WIRE_PARSE'],
    ['', 'WIRE_PARSE'],
    [Buffer.from([0x7b, 0xff, 0x7d]), 'WIRE_UTF8'],
    ['\ufeff{}', 'WIRE_PARSE'],
    ['{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 'WIRE_DUPLICATE_KEY'],
    ['{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}', 'WIRE_NOTIFICATION_CALL'],
  ])('with the body %j get 400 and a JSON-RPC error', async (body, expected) => {
    const { ask } = await start();
    const reply = await ask({ body });
    expect([reply.status, code(reply), reply.headers['content-type']]).toEqual([400, expected, 'application/json']);
  });

  it('batch: are refused as a whole, and nothing in it runs', async () => {
    const { facade, ask, session } = await start();
    const reply = await ask({ headers: { 'mcp-session-id': await session() }, body: [call(1), call(2)] });
    expect([reply.status, code(reply)]).toEqual([400, 'WIRE_BATCH']);
    expect(facade.calls).toHaveLength(0);
  });
});

describe('the origin check of the listener', () => {
  const routes = ['/mcp', '/healthz', '/metrics', '/nowhere'];

  it.each(routes)(
    'dns-rebinding: answers a foreign Host or Origin on %s with 403 before anything else',
    async (path) => {
      const { ask, port } = await start();
      for (const method of ['GET', 'POST', 'DELETE', 'OPTIONS']) {
        const host = await ask({ method, path, headers: { host: `evil.example:${port}` } });
        expect([host.status, code(host)]).toEqual([403, 'HTTP_HOST']);
        for (const origin of ['https://evil.example', 'null', `http://localhost:${port + 1}`]) {
          const page = await ask({ method, path, headers: { origin } });
          expect([page.status, code(page), page.headers['access-control-allow-origin']]).toEqual([
            403,
            'HTTP_ORIGIN',
            undefined,
          ]);
        }
      }
    },
  );

  it('dns-rebinding: refuses two Host headers, an absolute target and a missing Host', async () => {
    const { port } = await start();
    expect(await raw(port, `GET /healthz HTTP/1.1\r\nHost: localhost:${port}\r\nHost: evil.example\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 403/,
    );
    expect(await raw(port, `GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost:${port}\r\n\r\n`)).toMatch(
      /^HTTP\/1\.1 404/,
    );
    expect(await raw(port, 'GET /healthz HTTP/1.1\r\n\r\n')).toMatch(/^HTTP\/1\.1 400/);
    expect(await raw(port, 'GET /healthz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 403/);
  });

  it('accepts the page of a listed origin, and records it as the origin', async () => {
    const { facade, ask } = await start({ listen: { origins: ['https://app.example'] } });
    const headers = { origin: 'https://app.example' };
    const preflight = await ask({ method: 'OPTIONS', headers: { ...headers, authorization: undefined } });
    expect(preflight.status).toBe(204);
    expect(preflight.headers).toMatchObject({
      'access-control-allow-origin': 'https://app.example',
      vary: 'origin',
      'access-control-allow-methods': 'GET, POST, DELETE',
    });
    const hello = await ask({ headers, body: initialize() });
    expect(hello.headers).toMatchObject({
      'access-control-allow-origin': 'https://app.example',
      'access-control-expose-headers': 'mcp-session-id, www-authenticate',
    });
    expect(facade.opened[0]?.principal).toEqual({ ...ALICE, origin: 'https://app.example' });
  });
});

describe('health checks', () => {
  const probe = async ({ ask, port }: HttpBench, path: string, asked: Asked = {}): Promise<string> => {
    const { status, text } = await ask({
      method: 'GET',
      path,
      ...asked,
      headers: {
        host: `10.1.2.3:${port}`,
        authorization: undefined,
        'content-type': undefined,
        accept: undefined,
        ...asked.headers,
      },
    });
    return `${status} ${text}`;
  };

  it('work with any address and without a token, and name what fails' + verifies('ST-28', 'ST-29'), async () => {
    const bench = await start();
    const { facade, ask } = bench;
    expect([await probe(bench, '/livez'), await probe(bench, '/readyz')]).toEqual([
      '200 {"status":"live"}',
      '200 {"status":"ready"}',
    ]);
    facade.failing.push('audit', 'off');
    expect([await probe(bench, '/livez'), await probe(bench, '/readyz')]).toEqual([
      '200 {"status":"live"}',
      '503 {"status":"failing","failing":["audit","off"]}',
    ]);
    expect([
      await probe(bench, '/readyz', { method: 'HEAD' }),
      (await probe(bench, '/readyz', { method: 'POST' })).slice(0, 3),
    ]).toEqual(['503 ', '405']);
    // The other routes are behind the Host check, and a page of another origin is refused here too.
    for (const path of ['/healthz', '/metrics', '/mcp']) expect((await probe(bench, path)).slice(0, 3)).toBe('403');
    expect((await probe(bench, '/readyz', { headers: { origin: 'https://evil.example' } })).slice(0, 3)).toBe('403');
    const healthz = await ask({ method: 'GET', path: '/healthz' });
    expect([healthz.status, healthz.text]).toEqual([
      503,
      '{"status":"failing","failing":["audit","off"],"servers":{"files":"healthy"}}',
    ]);
  });

  it('report a drain while running calls continue' + verifies('ST-20', 'ST-28', 'FL-16'), async () => {
    const bench = await start({ drainMs: 60_000 });
    const { facade, ask, session, server } = bench;
    let finish: () => void = () => undefined;
    facade.onCall = (running) => new Promise((resolve) => (finish = () => resolve(echo(running))));
    const running = ask({ headers: { 'mcp-session-id': await session() }, body: call(1) });
    await until(() => facade.calls.length === 1);
    const closing = server.close();
    expect([await probe(bench, '/readyz'), await probe(bench, '/livez')]).toEqual([
      '503 {"status":"failing","failing":["draining"]}',
      '200 {"status":"live"}',
    ]);
    finish();
    expect((await running).status).toBe(200);
    await closing;
  });
});

describe('tokens of HTTP requests', () => {
  it.each([undefined, 'Bearer wrong', 'Bearer alice-token2', 'Basic alice-token', 'alice-token', 'Bearer'])(
    'are refused with 401: %s',
    async (authorization) => {
      const { facade, ask } = await start();
      for (const asked of [
        { body: initialize() },
        { method: 'GET' },
        { method: 'DELETE' },
        { method: 'GET', path: '/metrics' },
      ]) {
        const reply = await ask({ ...asked, headers: { authorization } });
        expect([reply.status, code(reply), reply.headers['www-authenticate']]).toEqual([
          401,
          'HTTP_AUTH',
          'Bearer realm="tollgate"',
        ]);
      }
      expect(facade.opened).toHaveLength(0);
    },
  );

  it('are not needed for /healthz, which names servers only with a token' + verifies('TR-65'), async () => {
    const { ask } = await start();
    const reply = await ask({ method: 'GET', path: '/healthz', headers: { authorization: undefined } });
    expect([reply.status, reply.text]).toEqual([200, '{"status":"ok"}']);
    expect((await ask({ method: 'GET', path: '/healthz' })).text).toBe('{"status":"ok","servers":{"files":"healthy"}}');
    expect((await ask({ method: 'GET', path: '/healthz', headers: { authorization: 'Bearer wrong' } })).status).toBe(
      401,
    );
  });

  it('are needed for /metrics' + verifies('HB-06'), async () => {
    const { ask } = await start();
    const reply = await ask({ method: 'GET', path: '/metrics' });
    expect([reply.status, reply.headers['content-type']]).toEqual([200, 'text/plain; version=0.0.4; charset=utf-8']);
    expect(reply.text).toContain('tollgate_calls_total 1');
  });

  it('session-hijack: make the session of another principal as unknown as a missing one', async () => {
    const { facade, ask, session } = await start();
    const id = await session();
    const unknown = await ask({
      headers: { authorization: 'Bearer bob-token', 'mcp-session-id': '0'.repeat(32) },
      body: request(1, 'ping'),
    });
    for (const asked of [{ body: request(1, 'ping') }, { body: initialize(1) }]) {
      const stolen = await ask({ ...asked, headers: { authorization: 'Bearer bob-token', 'mcp-session-id': id } });
      expect([stolen.status, stolen.text]).toEqual([404, unknown.text]);
    }
    for (const method of ['GET', 'DELETE'])
      expect((await ask({ method, headers: { authorization: 'Bearer bob-token', 'mcp-session-id': id } })).status).toBe(
        404,
      );
    expect(facade.closed).toHaveLength(0);
    expect((await ask({ headers: { 'mcp-session-id': id }, body: request(1, 'ping') })).status).toBe(200);
  });

  it(
    'session-hijack: keep a page from a session that the same token opened elsewhere, and the reverse' +
      verifies('TR-88'),
    async () => {
      const page = 'https://page.example';
      const { ask, session } = await start({ listen: { origins: [page] } });
      const id = await session();
      const ping = (headers: Record<string, string | undefined>): ReturnType<typeof ask> =>
        ask({ headers: { 'mcp-session-id': id, ...headers }, body: request(1, 'ping') });
      expect([(await ping({ origin: page })).status, (await ping({})).status]).toEqual([404, 200]);
      const own = await ask({ headers: { origin: page }, body: initialize() });
      const ofPage = { 'mcp-session-id': String(own.headers['mcp-session-id']) };
      expect([(await ping({ ...ofPage, origin: page })).status, (await ping(ofPage)).status]).toEqual([200, 404]);
    },
  );

  it('id-collision: separate two clients with the same ids, also for a cancellation', async () => {
    const { facade, ask, session } = await start();
    const [alice, bob] = [await session(), await session('bob-token')];
    const waiting: (() => void)[] = [];
    facade.onCall = (running, { principal }) =>
      new Promise((resolve) => {
        waiting.push(() =>
          resolve({
            kind: 'result',
            text: JSON.stringify({ content: [{ type: 'text', text: `${principal.id} ${running.args.text}` }] }),
          }),
        );
        running.signal.addEventListener('abort', () => resolve(echo(running)));
      });
    const asAlice = { 'mcp-session-id': alice };
    const asBob = { authorization: 'Bearer bob-token', 'mcp-session-id': bob };
    const ids = [1, '1', 2, 3];
    const hers = ids.map((id) => ask({ headers: asAlice, body: call(id, { arguments: { id } }) }));
    const his = ids.map((id) => ask({ headers: asBob, body: call(id, { arguments: { id } }) }));
    await until(() => facade.calls.length === 8);
    await ask({
      headers: asBob,
      body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 3 } },
    });
    for (const go of waiting.reverse()) go();
    const answers = await Promise.all([...hers, ...his]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200, 200, 202]);
    for (const [at, { text }] of answers.slice(0, 7).entries()) {
      const id = ids[at % 4];
      expect(JSON.parse(text)).toEqual({
        jsonrpc: '2.0',
        id,
        result: { content: [{ type: 'text', text: `${at < 4 ? 'alice' : 'bob'} ${JSON.stringify({ id })}` }] },
      });
    }
  });
});

describe('bodies of HTTP requests', () => {
  it('are read up to the cap, and refused with 413 for one byte more', async () => {
    const { ask } = await start({ listen: { maxBodyBytes: 1000 } });
    const text = JSON.stringify(initialize());
    expect((await ask({ body: text.padEnd(1000) })).status).toBe(200);
    const reply = await ask({ body: text.padEnd(1001) });
    expect([reply.status, code(reply)]).toEqual([413, 'HTTP_BODY_TOO_LARGE']);
  });

  it('unbounded-body: are answered at the cap if a chunked body has no end, and the connection ends', async () => {
    const { port } = await start({ listen: { maxBodyBytes: 100_000 } });
    const outcome = await new Promise<{ status: number | undefined; sent: number; ended: boolean }>((resolve) => {
      let sent = 0;
      let status: number | undefined;
      const stream = open({
        host: '127.0.0.1',
        port,
        method: 'POST',
        path: '/mcp',
        headers: { host: `localhost:${port}`, authorization: 'Bearer alice-token', 'content-type': 'application/json' },
      });
      const feed = setInterval(() => {
        stream.write(Buffer.alloc(10_000, 0x20));
        sent += 10_000;
      }, 1);
      stream.on('response', (response: IncomingMessage) => {
        status = response.statusCode;
        response.resume();
      });
      const end = (ended: boolean): void => {
        clearInterval(feed);
        resolve({ status, sent, ended });
      };
      stream.on('error', () => end(true));
      stream.on('close', () => end(true));
    });
    expect(outcome).toMatchObject({ status: 413, ended: true });
  });

  it('unbounded-body: are refused before they arrive if their length is over the cap', async () => {
    const { port } = await start({ listen: { maxBodyBytes: 1000 } });
    expect(await raw(port, postText(port, { 'Content-Length': 999999999 }))).toMatch(/^HTTP\/1\.1 413/);
  });

  it('slow-loris: end the connection if headers or body do not arrive', async () => {
    const { port } = await start({ listen: { headersMs: 100, requestMs: 200 } });
    const before = performance.now();
    const [headers, body] = await Promise.all([
      raw(port, `POST /mcp HTTP/1.1\r\nHost: localhost:${port}\r\n`, 25_000),
      raw(port, postText(port, { 'Content-Length': 50 }, '{'), 25_000),
    ]);
    expect(headers).toMatch(/^HTTP\/1\.1 408/);
    expect(body).toMatch(/^HTTP\/1\.1 408|^$/);
    expect(performance.now() - before).toBeLessThan(24_000);
  });

  it('cost nothing if the client disconnects in the middle', async () => {
    const { facade, port, ask, faults } = await start();
    await raw(port, postText(port, { 'Content-Length': 50 }, '{'), 20);
    await pause(20);
    expect((await ask({ body: initialize() })).status).toBe(200);
    expect([facade.opened.length, faults.length]).toEqual([1, 0]);
  });
});

describe('calls over HTTP', () => {
  it('continue when their client disconnects', async () => {
    const { facade, ask, session, faults } = await start();
    let finish: () => void = () => undefined;
    facade.onCall = (running) => new Promise((resolve) => (finish = () => resolve(echo(running))));
    const headers = { 'mcp-session-id': await session() };
    const leave = new AbortController();
    const left = ask({ headers, body: call(1), signal: leave.signal });
    await until(() => facade.calls.length === 1);
    leave.abort();
    await expect(left).rejects.toThrow();
    await pause(20);
    expect(facade.calls[0]?.request.signal.aborted).toBe(false);
    finish();
    expect((await ask({ headers, body: request(2, 'ping') })).status).toBe(200);
    expect(faults).toEqual([]);
  });

  it('are answered as a stream with progress, and as JSON without', async () => {
    const { facade, ask, session } = await start();
    const headers = { 'mcp-session-id': await session() };
    const body = call(1, { _meta: { progressToken: 'p' } });
    expect((await ask({ headers, body })).headers['content-type']).toBe('application/json');
    facade.onCall = async (running) => {
      running.onProgress?.({ progress: 1 });
      running.onProgress?.({ progress: 2 });
      return { kind: 'result', text: '{\n"content":[]}' };
    };
    const streamed = await ask({ headers, body });
    expect(streamed.headers['content-type']).toBe('text/event-stream');
    const events = streamed.text
      .trim()
      .split('\n\n')
      .map((event) => JSON.parse(event.replace('event: message\ndata: ', '')) as unknown);
    expect(events).toEqual([
      { jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 1, progressToken: 'p' } },
      { jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 2, progressToken: 'p' } },
      { jsonrpc: '2.0', id: 1, result: { content: [] } },
    ]);
    expect((await ask({ headers: { ...headers, accept: 'application/json' }, body })).headers['content-type']).toBe(
      'application/json',
    );
  });

  it('end their stream without an answer when they are cancelled after progress', async () => {
    const { facade, ask, session } = await start();
    facade.onCall = (running) => {
      running.onProgress?.({ progress: 1 });
      return untilAborted(running);
    };
    const headers = { 'mcp-session-id': await session() };
    const running = ask({ headers, body: call(1, { _meta: { progressToken: 1 } }) });
    await until(() => facade.calls.length === 1);
    await ask({ headers, body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } } });
    const { status, text } = await running;
    expect(status).toBe(200);
    expect(text).not.toContain('"id"');
  });
});

describe('the stream of notifications', () => {
  interface Stream {
    readonly status: number;
    readonly seen: () => string;
    close(): void;
  }
  const openStream = (port: number, id: string): Promise<Stream> =>
    new Promise((resolve, reject) => {
      const sent = open(
        {
          host: '127.0.0.1',
          port,
          path: '/mcp',
          headers: {
            host: `localhost:${port}`,
            authorization: 'Bearer alice-token',
            accept: 'text/event-stream',
            'mcp-session-id': id,
          },
        },
        (response) => {
          let text = '';
          response.on('data', (chunk: Buffer) => (text += chunk.toString()));
          response.on('error', () => undefined);
          resolve({ status: response.statusCode ?? 0, seen: () => text, close: () => sent.destroy() });
        },
      );
      sent.on('error', reject);
      sent.end();
    });

  it('announces changed tools once, also a change before it was opened, and each session has one stream', async () => {
    const { facade, port, session } = await start();
    const id = await session();
    facade.changeTools();
    await pause(10);
    const stream = await openStream(port, id);
    await until(() => stream.seen().includes('list_changed'));
    expect((await openStream(port, id)).status).toBe(409);
    facade.changeTools();
    facade.changeTools();
    await until(() => stream.seen().split('list_changed').length === 3);
    stream.close();
    expect(stream.status).toBe(200);
    let again = await openStream(port, id);
    // Until the server notices the close, the first stream is still the stream of the session.
    for (
      const end = performance.now() + 20_000;
      again.status === 409 && performance.now() < end;
      again = await openStream(port, id)
    )
      await pause(20);
    expect([again.status, again.seen()]).toEqual([200, '']);
    again.close();
  });

  it('is kept alive, counts as use of its session, and ends with it', async () => {
    let now = 0;
    const { port, ask, session } = await start({ now: () => now, listen: { idleMs: 40 } });
    const id = await session();
    const stream = await openStream(port, id);
    now = 10_000;
    await until(() => stream.seen().split(': keep-alive\n\n').length > 3);
    expect((await ask({ headers: { 'mcp-session-id': id }, body: request(1, 'ping') })).status).toBe(200);
    await ask({ method: 'DELETE', headers: { 'mcp-session-id': id } });
    expect((await ask({ headers: { 'mcp-session-id': id }, body: request(1, 'ping') })).status).toBe(404);
  });
});

describe('the limits of HTTP sessions', () => {
  /** Opens sessions with a running call. */
  const busy = async (
    { facade, ask, session }: HttpBench,
    ...tokens: readonly string[]
  ): Promise<readonly string[]> => {
    facade.onCall = untilAborted;
    const ids = await Promise.all(tokens.map((token) => session(token)));
    const before = facade.calls.length;
    for (const [at, id] of ids.entries())
      void ask({ headers: { authorization: `Bearer ${tokens[at]}`, 'mcp-session-id': id }, body: call(1) }).catch(
        () => undefined,
      );
    await until(() => facade.calls.length === before + ids.length);
    return ids;
  };

  it(
    'refuse a principal over its quota with 429 while all its sessions are in use, and accept another principal' +
      verifies('TR-64'),
    async () => {
      const bench = await start({ listen: { maxSessions: 4, maxSessionsPerPrincipal: 2 } });
      const { ask, session } = bench;
      const [id] = await busy(bench, 'alice-token', 'alice-token');
      const full = await ask({ body: initialize(3) });
      expect([full.status, code(full), full.headers['retry-after']]).toEqual([429, 'HTTP_SESSIONS_QUOTA', '10']);
      expect(JSON.parse(full.text)).toMatchObject({ id: 3, error: { data: { retryable: true } } });
      expect(await session('bob-token')).toMatch(/^[0-9a-f]{32}$/);
      await ask({ method: 'DELETE', headers: { 'mcp-session-id': id } });
      expect((await ask({ body: initialize() })).status).toBe(200);
    },
  );

  it('refuse with 503 while all sessions are in use', async () => {
    const bench = await start({ listen: { maxSessions: 2 } });
    const { ask } = bench;
    const [id] = await busy(bench, 'alice-token', 'bob-token');
    const full = await ask({ body: initialize(3) });
    expect([full.status, code(full), full.headers['retry-after']]).toEqual([503, 'HTTP_SESSIONS_FULL', '10']);
    expect(JSON.parse(full.text)).toMatchObject({ id: 3, error: { data: { retryable: true } } });
    await ask({ method: 'DELETE', headers: { 'mcp-session-id': id } });
    expect((await ask({ body: initialize() })).status).toBe(200);
  });

  it(
    'end the idle session that was unused longest, so that crashed clients block no one' + verifies('ST-24'),
    async () => {
      const { ask, session } = await start({ listen: { maxSessions: 3, maxSessionsPerPrincipal: 2 } });
      const ping = async (id: string, token = 'alice-token'): Promise<number> =>
        (await ask({ headers: { authorization: `Bearer ${token}`, 'mcp-session-id': id }, body: request(1, 'ping') }))
          .status;
      const [first, second] = [await session(), await session()];
      const other = await session('bob-token');
      expect(await ping(first)).toBe(200);
      const third = await session();
      expect([await ping(second), await ping(first), await ping(third), await ping(other, 'bob-token')]).toEqual([
        404, 200, 200, 200,
      ]);
      const theirs = await session('bob-token');
      expect([
        await ping(first),
        await ping(third),
        await ping(other, 'bob-token'),
        await ping(theirs, 'bob-token'),
      ]).toEqual([404, 200, 200, 200]);
    },
  );

  it('apply to pipelined calls of one session', async () => {
    const { facade, ask, port, session } = await start();
    facade.onCall = untilAborted;
    const id = await session();
    const post = (n: number): string => {
      const body = JSON.stringify(call(n));
      return postText(port, { 'Mcp-Session-Id': id, 'Content-Length': body.length }, body);
    };
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(Array.from({ length: 1100 }, (_, n) => post(n)).join('')),
    );
    await until(() => facade.calls.length >= 1024);
    const refused = await ask({ headers: { 'mcp-session-id': id }, body: call('more') });
    expect([refused.status, code(refused), facade.calls.length]).toEqual([429, 'RATE_LIMITED', 1024]);
    expect(
      (
        await ask({
          headers: { 'mcp-session-id': id },
          body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 0 } },
        })
      ).status,
    ).toBe(202);
    socket.destroy();
  });

  it('end an idle session by the clock, and no session in use', async () => {
    let now = 0;
    const { facade, ask, session } = await start({ now: () => now, listen: { idleMs: 1000 } });
    const [idle, used] = [await session(), await session()];
    const ping = async (id: string): Promise<number> =>
      (await ask({ headers: { 'mcp-session-id': id }, body: request(1, 'ping') })).status;
    now = 900;
    expect(await ping(used)).toBe(200);
    now = 1500;
    expect([await ping(idle), await ping(used)]).toEqual([404, 200]);
    expect(facade.closed.map(({ id }) => id)).toEqual([idle]);
  });
});

describe('the end of the listener', () => {
  it('lets running calls end, refuses new requests, closes every session, and can be repeated', async () => {
    const { facade, ask, session, server } = await start({ drainMs: 5000 });
    const headers = { 'mcp-session-id': await session() };
    let finish: () => void = () => undefined;
    facade.onCall = (running) => new Promise((resolve) => (finish = () => resolve(echo(running))));
    const running = ask({ headers, body: call(1) });
    await until(() => facade.calls.length === 1);
    const closing = Promise.all([server.close(), server.close()]);
    await pause(10);
    finish();
    expect((await running).status).toBe(200);
    await closing;
    expect(facade.closed).toHaveLength(1);
    await expect(ask({ headers, body: call(2) })).rejects.toThrow();
  });

  it(
    'starts no session and no call while it drains, lets running calls end, and accepts a cancellation' +
      verifies('ST-20'),
    async () => {
      const { facade, ask, session, server } = await start({ drainMs: 60_000 });
      const headers = { 'mcp-session-id': await session() };
      const ends: (() => void)[] = [];
      facade.onCall = (running) =>
        Promise.race([untilAborted(running), new Promise<Reply>((resolve) => ends.push(() => resolve(echo(running))))]);
      const running = [ask({ headers, body: call(1) }), ask({ headers, body: call(2) })];
      await until(() => facade.calls.length === 2);
      const closing = server.close();
      for (const asked of [
        { body: initialize(5) },
        { headers, body: call(5) },
        { headers, body: request(5, 'tools/list') },
      ]) {
        const refused = await ask(asked);
        expect([refused.status, code(refused), refused.headers['retry-after'], refused.headers.connection]).toEqual([
          503,
          'SHUTTING_DOWN',
          '1',
          'close',
        ]);
        expect(JSON.parse(refused.text)).toMatchObject({ id: 5, error: { data: { retryable: true } } });
      }
      expect((await ask({ method: 'GET', headers })).status).toBe(503);
      expect(
        (await ask({ headers, body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } } }))
          .status,
      ).toBe(202);
      ends[0]?.();
      expect((await Promise.all(running)).map(({ status }) => status)).toEqual([200, 202]);
      await closing;
      expect(facade.calls).toHaveLength(2);
      await expect(ask({ body: initialize() })).rejects.toThrow();
    },
  );

  it('answers calls that outlive the drain, as JSON or on their stream' + verifies('ST-21'), async () => {
    const { facade, ask, session, server } = await start({ drainMs: 20 });
    facade.onCall = (running) => {
      running.onProgress?.({ progress: 1 });
      return untilAborted(running);
    };
    const headers = { 'mcp-session-id': await session() };
    const running = [
      ask({ headers, body: call(1) }),
      ask({ headers, body: call(2, { _meta: { progressToken: 'p' } }) }),
    ];
    await until(() => facade.calls.length === 2);
    await server.close();
    const [plain, streamed] = await Promise.all(running);
    expect([plain?.status, JSON.parse(plain?.text ?? '')]).toEqual([
      200,
      expect.objectContaining({ id: 1, error: expect.anything() as unknown }),
    ]);
    expect([streamed?.status, streamed?.text]).toEqual([200, expect.stringContaining('"id":2')]);
    expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'INTERRUPTED' });
  });

  it('is not reached if the address is in use, which is reported', async () => {
    const { port } = await start();
    await expect(
      serveHttp({
        facade: new FakeFacade(),
        listen: { ...LISTEN, port },
        authenticate: () => ALICE,
        drainMs: 0,
        onFault: () => undefined,
      }),
    ).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: `listen: 127.0.0.1:${port} is not available (EADDRINUSE).`,
    });
  });
});

describe('the limits of HTTP connections', () => {
  const silent = async (port: number, count: number): Promise<Socket[]> =>
    Promise.all(
      Array.from(
        { length: count },
        () =>
          new Promise<Socket>((resolve, reject) => {
            const socket = connect(port, '127.0.0.1', () => resolve(socket));
            socket.on('error', reject);
            socket.on('close', () => socket.removeAllListeners('error').on('error', () => undefined));
            socket.resume();
          }),
      ),
    );
  const agent = (): Agent => new Agent({ keepAlive: true, maxSockets: 1 });
  const get = (port: number, by: Agent, authorization = 'Bearer alice-token'): Promise<number> =>
    new Promise((resolve, reject) => {
      open({ agent: by, host: '127.0.0.1', port, path: '/metrics', headers: { authorization } }, (response) =>
        response.resume().on('end', () => resolve(response.statusCode ?? 0)),
      )
        .on('error', reject)
        .end();
    });

  it(
    'silent-sockets: let connections without a token block no one and end no connection of a principal' +
      verifies('ST-25'),
    async () => {
      const { port } = await start({ listen: { maxConnections: 20 } });
      const own = agent();
      expect(await get(port, own)).toBe(200);
      const sockets = [...(await silent(port, 19)), ...(await silent(port, 30))];
      await until(() => sockets.filter(({ destroyed }) => destroyed).length >= 30);
      // The first connection is still open, and a new one is accepted.
      const late = agent();
      expect([await get(port, own), await get(port, late)]).toEqual([200, 200]);
      expect(
        Object.values(own.freeSockets)
          .flat()
          .map((socket) => socket?.bytesRead ?? 0)
          .every((bytes) => bytes > 200),
      ).toBe(true);
      for (const one of [...sockets, own, late]) one.destroy();
    },
  );

  it(
    'close the connection with the oldest last request if all have a token, and never one with a running request' +
      verifies('ST-25'),
    async () => {
      const { facade, port, ask, session } = await start({ listen: { maxConnections: 16 } });
      facade.onCall = untilAborted;
      const id = await session();
      const calls = Array.from({ length: 15 }, (_, n) =>
        ask({ headers: { 'mcp-session-id': id }, body: call(n) }).then(
          ({ status }) => status,
          () => 0,
        ),
      );
      await until(() => facade.calls.length === 15);
      const [idle, next] = [agent(), agent()];
      expect(await get(port, idle)).toBe(200);
      const ended = once(Object.values(idle.freeSockets).flat()[0] as Socket, 'close');
      expect(await get(port, next)).toBe(200);
      await ended;
      // There is no place for another, because connections with calls stay.
      facade.onCall = async (running) => echo(running);
      const cancel = (n: number): ReturnType<typeof ask> =>
        ask({
          headers: { 'mcp-session-id': id },
          body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: n } },
        });
      for (let n = 0; n < 15; n += 1) expect((await cancel(n)).status).toBe(202);
      expect(await Promise.all(calls)).toEqual(Array.from({ length: 15 }, () => 202));
      for (const one of [idle, next]) one.destroy();
    },
  );

  inFull(
    'close a connection that does nothing, and one whose client does not read its answer' + verifies('ST-25'),
    async () => {
      const { facade, port, session, server } = await start({ listen: { socketIdleMs: 200 } });
      const [quiet] = await silent(port, 1);
      const big = 'x'.repeat(50_000_000);
      facade.onCall = async () => ({
        kind: 'result',
        text: JSON.stringify({ content: [{ type: 'text', text: big }] }),
      });
      const body = JSON.stringify(call(1));
      const id = await session();
      const deaf = connect(port, '127.0.0.1');
      deaf.on('error', () => undefined);
      deaf.write(postText(port, { 'Mcp-Session-Id': id, 'Content-Length': body.length }, body));
      await until(() => facade.calls.length === 1 && quiet?.destroyed === true && server.connections === 0);
      deaf.resume();
      await once(deaf, 'close');
      expect(deaf.bytesRead).toBeLessThan(50_000_000);
    },
  );

  it('do not close the quiet connection of a long call' + verifies('ST-25'), async () => {
    const { facade, ask, session } = await start({ listen: { socketIdleMs: 400 } });
    facade.onCall = async (running) => {
      await pause(1_500);
      return echo(running);
    };
    expect((await ask({ headers: { 'mcp-session-id': await session() }, body: call(1) })).status).toBe(200);
  });
});
