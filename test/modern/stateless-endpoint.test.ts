/** Tests requests of revision 2026-07-28 over real sockets: statuses, sessions that no one opens, and streams. */
import { request as openRequest } from 'node:http';
import { afterEach, describe, expect, it } from 'vitest';
import { SessionTable } from '../../facade/serve/http/http-sessions.ts';
import { ALICE, BOB, FakeFacade, initialize, request, until, untilAborted } from '../serve/fake-facade.ts';
import { type Answered, type Asked, type HttpBench, listen } from '../serve/http-bench.ts';
import { verifies } from '../verifies.ts';
import { ALL, asking, headersOf, metaOf, refusing, stateless } from './stateless-bench.ts';

const benches: HttpBench[] = [];
async function start(options: Parameters<typeof listen>[0] = {}): Promise<HttpBench> {
  const bench = await listen(options);
  benches.push(bench);
  return bench;
}
afterEach(async () => {
  await Promise.all(benches.splice(0).map(({ server }) => server.close()));
});

const MODERN = { 'mcp-protocol-version': '2026-07-28' };
const call = (id: number, params: Readonly<Record<string, unknown>> = {}): Record<string, unknown> =>
  stateless(id, 'tools/call', { name: 'read', arguments: {}, ...params });
const post = (
  { ask }: HttpBench,
  body: Record<string, unknown>,
  { headers, ...asked }: Asked = {},
): Promise<Answered> => ask({ body, ...asked, headers: { ...headersOf(body), ...headers } });
const errorOf = ({ text }: Answered): { readonly code: number; readonly data: { readonly code: string } } | undefined =>
  (JSON.parse(text) as { error?: { code: number; data: { code: string } } }).error;

/** Opens a request and collects its events. */
function stream(
  port: number,
  body: Record<string, unknown>,
): { readonly text: () => string; readonly ended: () => boolean; close(): void } {
  let text = '';
  let ended = false;
  const sent = openRequest(
    {
      host: '127.0.0.1',
      port,
      method: 'POST',
      path: '/mcp',
      headers: {
        host: `127.0.0.1:${port}`,
        authorization: 'Bearer alice-token',
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...headersOf(body),
      },
    },
    (response) => {
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => (ended = true)).on('error', () => undefined);
    },
  );
  sent.on('error', () => undefined).end(JSON.stringify(body));
  return { text: () => text, ended: () => ended, close: () => sent.destroy() };
}

describe('a request without a session' + verifies('PR-M01'), () => {
  it('is served at once on the same URL as sessions, and gets no session id', async () => {
    const bench = await start();
    const id = await bench.session();
    const answer = await post(bench, call(1), { headers: { 'mcp-session-id': 'any', 'last-event-id': '7' } });
    expect([answer.status, answer.headers['mcp-session-id']]).toEqual([200, undefined]);
    expect(JSON.parse(answer.text)).toMatchObject({ id: 1, result: { resultType: 'complete' } });
    const legacy = await bench.ask({ headers: { 'mcp-session-id': id }, body: request(2, 'tools/list') });
    expect(JSON.parse(legacy.text)).not.toHaveProperty('result.resultType');
  });

  it('passes the same checks of host, origin, token, type and size', async () => {
    const bench = await start();
    const answers = await Promise.all([
      post(bench, call(1), { headers: { host: `evil.example:${bench.port}` } }),
      post(bench, call(1), { headers: { origin: 'https://evil.example' } }),
      post(bench, call(1), { headers: { authorization: 'Bearer x' } }),
      post(bench, call(1), { headers: { 'content-type': 'text/plain' } }),
      post(bench, call(1, { arguments: { a: 'x'.repeat(70_000) } })),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([403, 403, 401, 415, 413]);
    expect(bench.facade.opened).toEqual([]);
  });

  it.each<[string, Record<string, unknown>, Asked['headers'], number, number, string]>([
    ['an unknown method', stateless(1, 'ping'), {}, 404, -32601, 'WIRE_METHOD'],
    ['no _meta', stateless(1, 'tools/list', { _meta: undefined }), {}, 400, -32602, 'WIRE_PARAMS'],
    [
      'no _meta of discover',
      request(1, 'server/discover'),
      { 'mcp-protocol-version': undefined },
      400,
      -32602,
      'WIRE_PARAMS',
    ],
    [
      'no headers',
      call(1),
      { 'mcp-protocol-version': undefined, 'mcp-method': undefined },
      400,
      -32020,
      'HEADER_MISMATCH',
    ],
    [
      'an unknown revision',
      stateless(1, 'tools/list', { _meta: metaOf(ALL, { 'io.modelcontextprotocol/protocolVersion': '1900-01-01' }) }),
      { 'mcp-protocol-version': '1900-01-01' },
      400,
      -32022,
      'WIRE_REVISION',
    ],
  ])('is refused: %s', async (_name, body, headers, status, number, code) => {
    const bench = await start();
    bench.facade.onCall = async (asked) => refusing(asked) ?? { kind: 'result', text: '{}' };
    const answer = await post(bench, { ...body, params: body.params ?? {} }, headers === undefined ? {} : { headers });
    expect([answer.status, errorOf(answer)?.code, errorOf(answer)?.data.code]).toEqual([status, number, code]);
  });

  it('has the status 400 if the client lacks a capability, and 200 for any other refusal of a call', async () => {
    const bench = await start();
    const refuse = (code: number): void => {
      bench.facade.onCall = async () => ({ kind: 'error', error: { code, message: 'no', data: { code: 'X' } } });
    };
    refuse(-32021);
    expect((await post(bench, call(1))).status).toBe(400);
    refuse(-32602);
    expect((await post(bench, call(2))).status).toBe(200);
  });

  it('is a POST: GET and DELETE get 405, a notification 202, and a response 400', async () => {
    const { ask } = await start();
    for (const method of ['GET', 'DELETE', 'PUT']) {
      const { status, headers } = await ask({ method, headers: MODERN });
      expect([status, headers.allow]).toEqual([405, 'POST']);
    }
    expect((await ask({ headers: MODERN, body: { jsonrpc: '2.0', method: 'notifications/cancelled' } })).status).toBe(
      202,
    );
    expect((await ask({ headers: MODERN, body: { jsonrpc: '2.0', id: 1, result: {} } })).status).toBe(400);
  });

  it('may come from a page of an allowed origin, with the headers that it needs', async () => {
    const { ask } = await start({ listen: { origins: ['https://app.example'] } });
    const { headers } = await ask({
      method: 'OPTIONS',
      headers: {
        origin: 'https://app.example',
        'access-control-request-headers': 'Mcp-Param-Region, mcp-param-a b, x-other',
      },
    });
    const allowed = String(headers['access-control-allow-headers']).split(', ');
    expect(allowed).toEqual(
      expect.arrayContaining(['mcp-method', 'mcp-name', 'mcp-protocol-version', 'mcp-param-region']),
    );
    expect(allowed).not.toContain('x-other');
    expect(allowed.join()).not.toContain('a b');
  });
});

describe('the virtual session' + verifies('PR-M08'), () => {
  it('is one for a principal and an origin, whatever run a request names', async () => {
    const bench = await start({ listen: { origins: ['https://app.example'] } });
    const run = (name: string): Readonly<Record<string, unknown>> => ({ _meta: metaOf(ALL, { 'tollgate/run': name }) });
    await post(bench, call(1));
    for (const name of ['a', 'b', 'c']) await post(bench, call(1, run(name)));
    expect(bench.facade.opened).toHaveLength(1);
    await post(bench, call(1), { headers: { origin: 'https://app.example' } });
    await post(bench, call(1), { headers: { authorization: 'Bearer bob-token' } });
    expect(bench.facade.opened.map(({ principal }) => [principal.id, principal.origin])).toEqual([
      ['alice', 'claude'],
      ['alice', 'https://app.example'],
      ['bob', 'cursor'],
    ]);
  });

  it('cannot be used by its id, and ends with its idle time only, never to make room', async () => {
    let now = 0;
    const facade = new FakeFacade();
    const sessions = new SessionTable({
      facade,
      maxSessions: 2,
      maxPerPrincipal: 1,
      idleMs: 1000,
      now: () => now,
      onFault: (thrown) => {
        throw thrown;
      },
    });
    const virtual = await sessions.virtual(ALICE);
    for (let at = 0; at < 5; at += 1) sessions.open('legacy', ALICE);
    expect(await sessions.virtual({ ...ALICE })).toBe(virtual);
    expect(sessions.find(virtual.session.id, ALICE)).toBeUndefined();
    now = 1000;
    sessions.tick();
    expect(await sessions.virtual(ALICE)).toBe(virtual);
    now = 2001;
    sessions.tick();
    const next = await sessions.virtual(ALICE);
    expect(next).not.toBe(virtual);
    await until(() => facade.closed.includes(virtual.session));
    sessions.virtual(BOB);
    expect(() => sessions.virtual({ ...BOB, id: 'carol' })).toThrowError('There are too many sessions.');
    await sessions.endAll('It ended.');
    expect(facade.closed).toHaveLength(facade.opened.length);
  });

  it('does not end while a call is parked', async () => {
    let now = 0;
    const bench = await start({ now: () => now });
    bench.facade.onCall = (asked) => asking(asked);
    const { text } = await post(bench, call(1));
    const { result } = JSON.parse(text) as { readonly result: { readonly requestState: string } };
    now = 10_000_000;
    const answer = await post(
      bench,
      call(2, { requestState: result.requestState, inputResponses: { name: { action: 'cancel' } } }),
    );
    expect(JSON.parse(answer.text)).toMatchObject({ result: { resultType: 'complete' } });
    expect(bench.facade.opened).toHaveLength(1);
  });
});

describe('a stream' + verifies('PR-M13'), () => {
  it('of notifications begins at once, carries them, and ends with a result when Tollgate stops', async () => {
    const bench = await start();
    const body = stateless('s', 'subscriptions/listen', { notifications: { toolsListChanged: true } });
    const { text, ended } = stream(bench.port, body);
    await until(() => text().includes('notifications/subscriptions/acknowledged'));
    bench.facade.changeTools();
    await until(() => text().includes('notifications/tools/list_changed'));
    await bench.server.close();
    await until(ended);
    expect(text()).toContain('"resultType":"complete"');
    expect(bench.faults).toEqual([]);
  });

  it('of notifications ends when the token of its client has expired', async () => {
    let isCurrent = true;
    let now = 0;
    const bench = await start({ now: () => now, isCurrent: () => isCurrent, listen: { idleMs: 20 } });
    const body = stateless('s', 'subscriptions/listen', { notifications: { toolsListChanged: true } });
    const { text, ended } = stream(bench.port, body);
    await until(() => text().includes('acknowledged'));
    now = 1000;
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(ended()).toBe(false);
    isCurrent = false;
    await until(ended);
    expect(text()).toContain('"resultType":"complete"');
  });

  it('of notifications needs a client that accepts it', async () => {
    const bench = await start();
    const body = stateless('s', 'subscriptions/listen', { notifications: {} });
    expect((await post(bench, body, { headers: { accept: 'application/json' } })).status).toBe(406);
  });

  it(
    'of a call carries its progress, and the call is cancelled when the client closes it' + verifies('PR-M06'),
    async () => {
      const bench = await start();
      bench.facade.onCall = async (asked) => {
        asked.onProgress?.({ progress: 1 });
        return untilAborted(asked);
      };
      const { text, close } = stream(bench.port, call(1, { _meta: metaOf(ALL, { progressToken: 5 }) }));
      await until(() => text().includes('"progressToken":5'));
      close();
      await until(() => bench.facade.calls[0]?.request.signal.aborted === true);
      expect(bench.facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'CANCELLED' });
    },
  );

  it('that a client of a session closes cancels nothing', async () => {
    const bench = await start();
    bench.facade.onCall = untilAborted;
    const id = await bench.session();
    const controller = new AbortController();
    const asked = bench
      .ask({
        headers: { 'mcp-session-id': id },
        body: request(1, 'tools/call', { name: 'a' }),
        signal: controller.signal,
      })
      .catch(() => undefined);
    await until(() => bench.facade.calls.length === 1);
    controller.abort();
    await asked;
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(bench.facade.calls[0]?.request.signal.aborted).toBe(false);
    await bench.ask({ body: initialize() });
  });
});
