/** Tests our own client of Streamable HTTP on the wire, next to the SDK's client as a peer. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { afterEach, describe, expect, it } from 'vitest';
import { StreamableConnection } from '../../adapters/http/streamable-connection.ts';
import type { UpstreamError } from '../../adapters/port.ts';
import type { WireMessage } from '../../adapters/rpc/message-parser.ts';
import { errorJson } from '../../adapters/rpc/wire-message.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { inFull } from '../harness/full-tests.ts';
import { Guarded } from '../oauth/issuer.ts';
import { Room } from '../oauth/sign-in-bench.ts';
import { callOf, chaos, codeOf, HOST, refusalOf, serve } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

/** A request as the server got it. */
interface Got {
  readonly method: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
  /** Resolves when the client has ended the response. */
  readonly ended: Promise<void>;
}

/** What the server does with a request. `at` counts the requests. */
type Script = (got: Got, response: ServerResponse, at: number) => void | Promise<void>;

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function listen(script: Script): Promise<{ readonly url: string; readonly got: Got[] }> {
  const got: Got[] = [];
  const server = createServer((request: IncomingMessage, response) => {
    void (async () => {
      const { method = '', headers } = request;
      const ended = new Promise<void>((resolve) => response.once('close', resolve));
      const one = { method, headers, body: await readText(request), ended };
      got.push(one);
      await script(one, response, got.length - 1);
    })();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, got };
}

function settingsOf(url: string, more: Partial<ServerSettings> = {}): ServerSettings {
  const { command: _command, isolation: _isolation, ...rest } = chaos();
  return { ...rest, name: 'remote', transport: 'http', url, reconnectBackoffMs: 1, ...more };
}

interface Opened {
  readonly connection: StreamableConnection;
  readonly messages: (readonly [kind: string, what: unknown, during: number | undefined])[];
  readonly failed: (readonly [id: number, error: TollgateError])[];
  readonly closed: string[];
}

function whatOf(message: WireMessage): unknown {
  if (message.kind === 'result') return message.result.text;
  if (message.kind === 'error') return errorJson(message.error);
  return message.kind === 'invalid' ? message.error.code : message.method;
}

async function open(url: string): Promise<Opened> {
  const connection = new StreamableConnection(settingsOf(url), HOST);
  const [messages, failed, closed]: [Opened['messages'], Opened['failed'], string[]] = [[], [], []];
  await connection.start({
    onMessage: (message, during) => messages.push([message.kind, whatOf(message), during]),
    onBad: () => undefined,
    onTooLarge: () => undefined,
    onFailed: (id, error) => failed.push([id, error]),
    onClosed: (why) => closed.push(why),
  });
  closers.push(() => connection.killNow());
  return { connection, messages, failed, closed };
}

const request = (id: number, method = 'tools/call'): string => `{"jsonrpc":"2.0","id":${id},"method":"${method}"}`;
const result = (id: unknown, text = '{}'): string => `{"jsonrpc":"2.0","id":${String(id)},"result":${text}}`;
const idOf = ({ body }: Got): unknown => (JSON.parse(body) as { id?: unknown }).id;
const json = (response: ServerResponse, body: string, status = 200): void =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(body);
const stream = (response: ServerResponse): ServerResponse =>
  response.writeHead(200, { 'content-type': 'text/event-stream' });
const event = (data: string, id?: string): string => `${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`;
const progress = (value: number): string =>
  `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":${value}}}`;

/** A legacy server: the handshake, no listening stream, and `answer` for each other request. */
function legacy(answer: Script): Script {
  return (got, response, at) => {
    if (got.method === 'GET') return void response.writeHead(405).end();
    if (idOf(got) === undefined) return void response.writeHead(202).end();
    if (got.body.includes('"initialize"')) {
      const handshake = '{"protocolVersion":"2025-11-25","capabilities":{}}';
      return json(response, result(idOf(got), handshake));
    }
    // The modern era is not known here.
    if (got.body.includes('server/discover'))
      return json(response, `{"jsonrpc":"2.0","id":${String(idOf(got))},"error":{"code":-32601,"message":"no"}}`);
    return answer(got, response, at);
  };
}

function bench(url: string, more: Partial<ServerSettings> = {}): ReturnType<typeof serve> {
  const made = serve(settingsOf(url, more), { livenessMs: 300 });
  closers.push(() => made.pool.stopAll());
  return made;
}

describe.each(['application/json', 'text/event-stream'])('numbers of a remote server (%s)', (type) => {
  const RESULT =
    '{ "content": [], "structuredContent": {"n": 12345678901234567890, "z": -0, "e": 1E2}, "k": "\\u0061" }';

  it('arrive as they were written, in results and in the data of errors' + verifies('PR-H01'), async () => {
    const { url } = await listen(
      legacy((got, response) => {
        const id = String(idOf(got));
        const error = `{"code":-32000,"message":"no","data":{"n": 12345678901234567890}}`;
        const body = got.body.includes('"fails"')
          ? `{"jsonrpc":"2.0","id":${id},"error":${error}}`
          : result(id, RESULT);
        if (type === 'application/json') json(response, body);
        else stream(response).end(event(body));
      }),
    );
    const { server } = bench(url);
    expect((await server.call(callOf('echo'))).text).toBe(RESULT);
    const thrown = await server.call(callOf('fails')).catch((error: unknown) => error);
    expect(errorJson((thrown as UpstreamError).rpc)).toContain('"data":{"n": 12345678901234567890}');
  });
});

describe('a session (revision 2025-11-25)', () => {
  /** What a client sends over a whole session. Both clients below do the same. */
  const SENT = [
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":{}}}',
    '{"jsonrpc":"2.0","id":"s-1","result":{}}',
  ];

  /** Answers with a session id. The listening stream carries a request of the server. */
  const script: Script = (got, response) => {
    if (got.method === 'DELETE') return void response.writeHead(200).end();
    if (got.method === 'GET')
      return void stream(response).write(event('{"jsonrpc":"2.0","id":"s-1","method":"ping"}', '7'));
    if (got.body.includes('"initialize"'))
      return void response
        .writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 'session-1' })
        .end(result(1));
    if (!got.body.includes('"tools/call"')) return void response.writeHead(202).end();
    stream(response).end(event(progress(1)) + event(progress(2)) + event(result(2)));
  };

  const seen = ({ method, headers, body }: Got): unknown => [
    method,
    body,
    ...['accept', 'content-type', 'mcp-session-id', 'mcp-protocol-version', 'mcp-method'].map((name) => headers[name]),
  ];

  it('has the same requests as one of the SDK, in the same order' + verifies('PR-H02'), async () => {
    const [ours, theirs] = [await listen(script), await listen(script)];
    const { connection, messages } = await open(ours.url);
    const sdk = new StreamableHTTPClientTransport(new URL(theirs.url));
    const heard: unknown[] = [];
    sdk.onmessage = (message) => heard.push('method' in message ? message.method : 'result');
    await sdk.start();
    for (const text of SENT) {
      const id = (JSON.parse(text) as { id?: unknown }).id;
      const count = ours.got.length;
      await connection.send(text, typeof id === 'number' ? id : undefined);
      await sdk.send(JSON.parse(text) as JSONRPCMessage);
      await expect.poll(() => Math.min(ours.got.length, theirs.got.length)).toBeGreaterThan(count);
      if (id === 1) {
        connection.useProtocolVersion('2025-11-25');
        sdk.setProtocolVersion('2025-11-25');
      }
      // The listening stream opens after the handshake.
      if (id === undefined) await expect.poll(() => Math.min(heard.length, messages.length)).toBe(2);
      if (id === 2) await expect.poll(() => Math.min(heard.length, messages.length)).toBe(5);
    }
    await sdk.terminateSession();
    await sdk.close();
    await connection.close();
    expect(ours.got.map(seen)).toEqual(theirs.got.map(seen));
    expect(ours.got.map(({ method }) => method)).toEqual(['POST', 'POST', 'GET', 'POST', 'POST', 'DELETE']);
    expect(ours.got.at(-1)?.headers).toMatchObject({
      'mcp-session-id': 'session-1',
      'mcp-protocol-version': '2025-11-25',
    });
    expect(messages.map(([kind, what]) => (kind === 'result' ? kind : what))).toEqual(heard);
  });

  it('says on which stream each message came' + verifies('PR-H03'), async () => {
    const { url } = await listen(script);
    const { connection, messages } = await open(url);
    connection.useProtocolVersion('2025-11-25');
    await connection.send(SENT[1] as string);
    await expect.poll(() => messages.length).toBe(1);
    void connection.send(SENT[2] as string, 2);
    await expect.poll(() => messages.length).toBe(4);
    expect(messages).toEqual([
      ['request', 'ping', undefined],
      ['notification', 'notifications/progress', 2],
      ['notification', 'notifications/progress', 2],
      ['result', '{}', 2],
    ]);
  });

  it('ends if the server does not know it any more: 404 to a request or to the reopened stream', async () => {
    let knows = true;
    const { url } = await listen((got, response) => {
      if (!knows) return void response.writeHead(404).end();
      if (got.method === 'GET') {
        knows = false;
        return void stream(response).end(': nothing\n\n');
      }
      response.writeHead(202, { 'mcp-session-id': 's' }).end();
    });
    const { connection, closed } = await open(url);
    connection.useProtocolVersion('2025-11-25');
    await connection.send(SENT[1] as string);
    await expect.poll(() => closed).toEqual(['does not know the session or this address (HTTP 404)']);
  });
});

describe('a stream that ends before its answer', () => {
  it('is resumed after the pause that the server asks for, and keeps its request' + verifies('PR-H04'), async () => {
    const times: number[] = [];
    const { url, got } = await listen((one, response, at) => {
      times.push(performance.now());
      if (at === 0) return void stream(response).end(`retry: 400\n${event(progress(1), 'é-1')}`);
      if (at === 1) return void stream(response).end(event(progress(2), 'é-2'));
      if (at === 2) return void response.destroy();
      expect(one.method).toBe('GET');
      stream(response).end(event(progress(3), 'é-3') + event(result(1)));
    });
    const { connection, messages, failed, closed } = await open(url);
    connection.useProtocolVersion('2025-11-25');
    void connection.send(request(1), 1);
    await expect.poll(() => messages.length).toBe(4);
    expect(messages.map(([kind, , during]) => [kind, during])).toEqual([
      ['notification', 1],
      ['notification', 1],
      ['notification', 1],
      ['result', 1],
    ]);
    expect([failed, closed]).toEqual([[], []]);
    const ids = got.map(({ headers }) => headers['last-event-id'] as string | undefined);
    const written = (id: string): string => Buffer.from(id).toString('latin1');
    expect(ids).toEqual([undefined, written('é-1'), written('é-2'), written('é-2')]);
    expect((times[1] as number) - (times[0] as number)).toBeGreaterThan(350);
  });

  it('is not resumed without event ids, or after the call was cancelled', async () => {
    const { url, got } = await listen((one, response) => {
      if (idOf(one) === 1) return void stream(response).end(event(progress(1)));
      stream(response).end(event(progress(1), '1'));
    });
    const { connection, failed, messages } = await open(url);
    connection.useProtocolVersion('2025-11-25');
    void connection.send(request(1), 1);
    await expect.poll(() => failed.map(([id, { code }]) => [id, code])).toEqual([[1, 'TOOL_CRASHED']]);
    void connection.send(request(2), 2);
    await expect.poll(() => messages.length).toBe(2);
    expect(connection.cancel(2)).toBe(false);
    await sleep(600);
    expect(got.map(({ method }) => method)).toEqual(['POST', 'POST']);
    expect(failed).toHaveLength(1);
  });

  it('is given up when the server has gone, and its call may have run', async () => {
    let isGone = false;
    const { url } = await listen((_got, response) => {
      if (isGone) return void response.destroy();
      isGone = true;
      stream(response).end(event(progress(1), '1'));
    });
    const { connection, failed, closed } = await open(url);
    connection.useProtocolVersion('2025-11-25');
    void connection.send(request(1), 1);
    await expect.poll(() => closed.length, { timeout: 20_000 }).toBe(1);
    expect(failed.map(([id, { code }]) => [id, code])).toEqual([[1, 'TOOL_CRASHED']]);
  });
});

describe('revision 2026-07-28', () => {
  const VERSION = '2026-07-28';

  it('has no session, no listening stream and no DELETE, and passes on the headers' + verifies('PR-H05'), async () => {
    const { url, got } = await listen((one, response) => {
      response.setHeader('mcp-session-id', 'never-used');
      if (idOf(one) === undefined) return void response.writeHead(202).end();
      json(response, result(idOf(one)));
    });
    const { connection, messages } = await open(url);
    connection.useProtocolVersion(VERSION);
    await connection.send('{"jsonrpc":"2.0","method":"notifications/x"}');
    for (const id of [1, 2])
      void connection.send(request(id), id, {
        'mcp-method': 'tools/call',
        'mcp-name': '=?base64?w6k=?=',
        'mcp-param-a': 'b',
      });
    await expect.poll(() => messages.length).toBe(2);
    await connection.close();
    expect(got.map(({ method }) => method)).toEqual(['POST', 'POST', 'POST']);
    expect(got.at(-1)?.headers).toMatchObject({
      'mcp-protocol-version': VERSION,
      'mcp-method': 'tools/call',
      'mcp-name': '=?base64?w6k=?=',
      'mcp-param-a': 'b',
    });
    expect(got.every(({ headers }) => headers['mcp-session-id'] === undefined)).toBe(true);
  });

  it('cancels a request by ending its stream' + verifies('PR-H05'), async () => {
    const { url, got } = await listen((_one, response) => void stream(response).write(': begun\n\n'));
    const { connection, failed, closed } = await open(url);
    connection.useProtocolVersion(VERSION);
    void connection.send(request(1), 1);
    await expect.poll(() => got.length).toBe(1);
    expect(connection.cancel(1)).toBe(true);
    await got[0]?.ended;
    expect([got.length, failed, closed]).toEqual([1, [], []]);
  });

  it.each([400, 404])('takes a JSON-RPC error with HTTP %i as the answer' + verifies('PR-H05'), async (status) => {
    const { url } = await listen((one, response, at) => {
      const id = at === 0 ? String(idOf(one)) : 'null';
      const body = `{"jsonrpc":"2.0","id":${id},"error":{"code":-32020,"message":"no","data":{"n":1234567890123456789}}}`;
      json(response, body, status);
    });
    const { connection, messages, failed, closed } = await open(url);
    connection.useProtocolVersion(VERSION);
    void connection.send(request(1), 1);
    await expect.poll(() => messages.length).toBe(1);
    void connection.send(request(2), 2);
    await expect.poll(() => messages.length).toBe(2);
    const error = '{"code":-32020,"message":"no","data":{"n":1234567890123456789}}';
    expect(messages).toEqual([1, 2].map((id) => ['error', error, id]));
    expect([failed, closed]).toEqual([[], []]);
  });
});

describe('a server that vanishes while a call waits', () => {
  inFull('is noticed long before the deadline of the call' + verifies('PR-H06'), async () => {
    let isGone = false;
    const answers = legacy((_got, response) => {
      isGone = true;
      stream(response).write(': begun\n\n');
    });
    const { url } = await listen((...request) => (isGone ? undefined : answers(...request)));
    const { server } = bench(url, { healthCheckMs: 100 });
    const began = performance.now();
    const call = callOf('slow', {}, { timeoutMs: 600_000, hardTimeoutMs: 600_000 });
    expect(await refusalOf(server.call(call))).toMatch(/TOOL_CRASHED: Server "remote" does not answer a ping/);
    expect(performance.now() - began).toBeLessThan(40_000);
  });

  it('is not confused with one that is busy, and answers pings or keeps its stream alive', async () => {
    let pings = 0;
    const { url } = await listen(
      legacy((got, response) => {
        if (got.body.includes('"ping"')) {
          pings += 1;
          return json(response, result(idOf(got)));
        }
        const isTalking = got.body.includes('"talks"');
        stream(response);
        const timer = setInterval(() => response.write(isTalking ? ': here\n\n' : ''), 20);
        setTimeout(() => {
          clearInterval(timer);
          response.end(event(result(idOf(got))));
        }, 700);
      }),
    );
    const { server } = bench(url, { healthCheckMs: 100 });
    const long = { timeoutMs: 600_000, hardTimeoutMs: 600_000 };
    expect(await codeOf(server.call(callOf('talks', {}, long)))).toBe('none');
    expect(pings).toBe(0);
    expect(await codeOf(server.call(callOf('silent', {}, long)))).toBe('none');
    expect(pings).toBeGreaterThan(1);
  });
});

/** Protects calls alone: the handshake and the lists need no token. */
class CallsGuarded extends Guarded {
  protected override answer(incoming: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
    if (!body.includes('"tools/call"')) incoming.headers.authorization = 'Bearer anyone';
    return super.answer(incoming, response, body);
  }
}

describe('a server that challenges later requests than initialize', () => {
  it('is named with the command that signs in, and is usable after it' + verifies('PR-H07'), async () => {
    const room = new Room();
    closers.push(() => room.close());
    await room.issuer.open();
    room.guarded = await new CallsGuarded(room.issuer).open();
    room.issuer.tokens.set('anyone', { resource: room.guarded.mcp, scope: 'read', expires: Infinity });
    const { server } = room.bench();
    expect((await server.listTools()).map(({ name }) => name)).toEqual(['echo', 'write']);
    expect(await refusalOf(server.call(callOf('echo')))).toMatch(
      /SERVER_UNAVAILABLE: .* requires a sign-in .* Run `tollgate login remote`, then call again\./,
    );
    expect(server.health().state).toBe('healthy');
    await room.signIn();
    expect(await codeOf(server.call(callOf('echo')))).toBe('none');
    // The token expires: it is renewed at the call, not at a new handshake.
    for (const token of room.issuer.tokens.keys()) if (token !== 'anyone') room.issuer.tokens.delete(token);
    expect(await codeOf(server.call(callOf('echo')))).toBe('none');
    expect(room.guarded.ran).toEqual(['echo', 'echo']);
    expect(room.guarded.heard.filter(({ body }) => body.includes('"initialize"'))).toHaveLength(2);
  });
});
