/** Tests servers of revision 2026-07-28, over stdio and HTTP, and that the revision is found without a setting. */

import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { afterEach, describe, expect, it } from 'vitest';
import type { ServerNotice } from '../../adapters/port.ts';
import { headerValue } from '../../adapters/stateless/mirrored-headers.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import type { AdapterOptions } from '../../adapters/supervisor/supervisor.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { mirroredArguments } from '../../catalogs/schemas/mirrored-arguments.ts';
import { inFull } from '../harness/full-tests.ts';
import { type Bench, callOf, chaos, codeOf, refusalOf, serve, textOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

const PROGRAM = path.join(import.meta.dirname, '../fixtures/stateless-server.mjs');
const { respond } = (await import(PROGRAM)) as {
  readonly respond: (line: string, write: (text: string) => void, end?: () => void) => void;
};
const KEY = 'io.modelcontextprotocol/';

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

function open(settings: Partial<ServerSettings>, options: Partial<AdapterOptions> = {}): Bench {
  const bench = serve({ ...chaos(), name: 'modern', args: [PROGRAM], ...settings }, options);
  closers.push(() => bench.pool.stopAll());
  return bench;
}

interface Heard {
  readonly headers: IncomingHttpHeaders;
  readonly line: string;
}

/** The same server over HTTP. Each answer is an event stream. */
async function listen(): Promise<{ readonly url: string; readonly heard: Heard[] }> {
  const heard: Heard[] = [];
  const server = createServer((request, response) => {
    void readText(request).then((line) => {
      if (request.method !== 'POST') return response.writeHead(405).end();
      heard.push({ headers: request.headers, line });
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      respond(
        line,
        (text) => response.write(`data: ${text}\n\n`),
        () => response.end(),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, heard };
}

async function overHttp(options: Partial<AdapterOptions> = {}): Promise<Bench & { readonly heard: Heard[] }> {
  const { url, heard } = await listen();
  const { command: _command, isolation: _isolation, ...rest } = chaos();
  const bench = serve({ ...rest, name: 'modern', transport: 'http', url }, options);
  closers.push(() => bench.pool.stopAll());
  return { ...bench, heard };
}

interface Sent {
  readonly id: number;
  readonly params: { readonly _meta: Readonly<Record<string, unknown>> };
}

describe.each([
  ['stdio', async (options?: Partial<AdapterOptions>) => open({}, options)],
  ['HTTP', overHttp],
] as const)('a server of revision 2026-07-28 over %s', (_way, start) => {
  it('is found without a setting, listed and called' + verifies('PR-H08'), async () => {
    const { server } = await start();
    expect(await server.start()).toEqual({ name: 'modern', version: '7', protocolVersion: '2026-07-28' });
    expect((await server.listTools()).map(({ name }) => name)).toContain('echo');
    const { value } = await server.call(callOf('echo', { a: 1 }));
    expect(value).toMatchObject({ content: [{ type: 'text' }] });
  });

  it('gets the envelope with each request, and the _meta of the caller with it' + verifies('PR-H09'), async () => {
    const { server } = await start({ capabilities: () => ({ elicitation: {} }) });
    const meta = { traceparent: '00-1', [`${KEY}protocolVersion`]: 'forged', [`${KEY}clientCapabilities`]: { x: 1 } };
    const args = '{ "n": 12345678901234567890 }';
    const line = await textOf(server, callOf('echo', args, { meta, logLevel: 'warning' }));
    expect(line).toContain(`"arguments":${args}`);
    expect((JSON.parse(line) as Sent).params._meta).toEqual({
      traceparent: '00-1',
      [`${KEY}protocolVersion`]: '2026-07-28',
      [`${KEY}clientInfo`]: { name: 'tollgate', version: '0.1.0' },
      [`${KEY}clientCapabilities`]: { elicitation: {} },
      [`${KEY}logLevel`]: 'warning',
    });
    const own = await textOf(server, callOf('echo', args, { clientCapabilities: { roots: {} } }));
    expect((JSON.parse(own) as Sent).params._meta[`${KEY}clientCapabilities`]).toEqual({ roots: {} });
    const logs: unknown[] = [];
    const onLog = ({ value }: { readonly value: unknown }): unknown => logs.push(value);
    await server.call(callOf('log', {}, { onLog }));
    expect(logs).toEqual([]);
    await server.call(callOf('log', {}, { onLog, logLevel: 'info' }));
    expect(logs).toEqual([{ level: 'info', data: 'hello' }]);
  });

  it('asks in rounds, and gets its state back byte for byte' + verifies('PR-H10'), async () => {
    const { server } = await start();
    const asked: unknown[] = [];
    const onRequest: NonNullable<ReturnType<typeof callOf>['onRequest']> = async (method, params) => {
      asked.push([method, params?.text]);
      return '{"action":"accept","content":{"n":12345678901234567890}}';
    };
    const line = await textOf(server, callOf('ask', { a: 1 }, { onRequest }));
    expect(asked).toEqual([['elicitation/create', '{"message":"ask","n":12345678901234567890}']]);
    expect(line).toContain('"inputResponses":{"qé":{"action":"accept","content":{"n":12345678901234567890}}}');
    expect(line).toContain('"requestState":"st\\u0061te é 12345678901234567890"');
    expect(line).toContain('"arguments":{"a":1}');
    asked.length = 0;
    expect(await refusalOf(server.call(callOf('forever', {}, { onRequest })))).toMatch(
      /UPSTREAM_INVALID: The server still asked for input after 10 rounds/,
    );
    expect(asked).toHaveLength(10);
  });

  it(
    'is refused what no one may answer, and its question passes to a caller who answers it' + verifies('PR-H10'),
    async () => {
      const { server } = await start();
      expect(await codeOf(server.call(callOf('ask')))).toBe('UPSTREAM_REQUEST_DENIED');
      const onRequest = (): Promise<never> => Promise.reject(new TollgateError('DENIED'));
      expect(await codeOf(server.call(callOf('ask', {}, { onRequest })))).toBe('DENIED');
      const never = (): Promise<never> => new Promise(() => undefined);
      const hasty = { onRequest: never, hardTimeoutMs: 200 };
      expect(await codeOf(server.call(callOf('ask', {}, hasty)))).toBe('TOOL_TIMEOUT');
      const takesInputRequired = true;
      const { text } = await server.call(callOf('ask', {}, { takesInputRequired }));
      expect(text).toContain('"requestState":"st\\u0061te é 12345678901234567890"');
      const retry = '"inputResponses":{"q":{}},"requestState":"st\\u0061te"';
      expect(await textOf(server, callOf('ask', {}, { takesInputRequired, retry }))).toContain(retry);
    },
  );

  it('reports changes and updates on one long request' + verifies('PR-H11'), async () => {
    const notices: ServerNotice[] = [];
    const { server } = await start({ onNotice: (_name, notice) => notices.push(notice) });
    let told = 0;
    server.onToolsChanged(() => told++);
    await server.start();
    await expect.poll(async () => [await codeOf(server.call(callOf('change'))), told > 0]).toEqual(['none', true]);
    const subscribe = callOf('', { uri: 'x://1' }, { method: 'resources/subscribe' });
    expect((await server.call(subscribe)).text).toBe('{}');
    await expect
      .poll(async () => [await codeOf(server.call(callOf('change'))), notices[0]])
      .toEqual(['none', { notice: 'updated', uri: 'x://1' }]);
    // The long request is no work of a caller, so the server counts as idle.
    expect(server.health().state).toBe('healthy');
  });

  it('answers no ping, and is still found to react after a call that takes too long', async () => {
    const { server } = await start({ livenessMs: 2000 });
    expect(await codeOf(server.call(callOf('hang', {}, { timeoutMs: 100, hardTimeoutMs: 100 })))).toBe('TOOL_TIMEOUT');
    expect(await codeOf(server.call(callOf('echo')))).toBe('none');
    expect(server.health()).toMatchObject({ state: 'healthy', restarts: 0 });
  });
});

describe('the headers of a call over HTTP (revision 2026-07-28)', () => {
  it('repeat method, name and marked arguments' + verifies('PR-H12'), async () => {
    const { server, heard } = await overHttp();
    await server.call(callOf('echo', { region: 'Zürich', deep: { count: 42 }, other: 1 }));
    const { headers } = heard.at(-1) as Heard;
    expect(headers).toMatchObject({
      'mcp-protocol-version': '2026-07-28',
      'mcp-method': 'tools/call',
      'mcp-name': 'echo',
      'mcp-param-region': '=?base64?WsO8cmljaA==?=',
      'mcp-param-count': '42',
    });
    await server.call(callOf('', { uri: 'x://ä' }, { method: 'resources/read' }));
    expect(heard.at(-1)?.headers).toMatchObject({ 'mcp-method': 'resources/read', 'mcp-name': headerValue('x://ä') });
    for (const { headers: seen, line } of heard)
      expect(seen['mcp-method']).toBe((JSON.parse(line) as { method: string }).method);
  });

  it('quarantine a tool whose marks are invalid' + verifies('PR-H12'), async () => {
    const { server } = await overHttp();
    expect((await server.listTools()).map(({ name }) => name)).not.toContain('wrong');
    expect(server.health().unfit).toEqual([
      { tool: 'wrong', reason: 'x-mcp-header is not on a property of an object' },
    ]);
  });

  it.each([
    ['plain text', 'plain text'],
    [' padded', '=?base64?IHBhZGRlZA==?='],
    ['', '=?base64??='],
    ['a\nb', '=?base64?YQpi?='],
    ['=?base64?YQ==?=', '=?base64?PT9iYXNlNjQ/WVE9PT89?='],
  ])('carry %j as %j', (text, value) => {
    expect(headerValue(text)).toBe(value);
  });

  it.each([
    [{ 'x-mcp-header': 'A', type: 'string' }, 'not on a property'],
    [{ properties: { a: { 'x-mcp-header': 'A b', type: 'string' } } }, 'not a name'],
    [{ properties: { a: { 'x-mcp-header': 'A', type: 'number' } } }, 'no string, integer or boolean'],
    [
      {
        properties: { a: { 'x-mcp-header': 'A', type: 'string' }, b: { 'x-mcp-header': 'a', type: 'string' } },
      },
      'one header twice',
    ],
    [{ anyOf: [{ properties: { a: { 'x-mcp-header': 'A', type: 'string' } } }] }, 'not on a property'],
  ])('are invalid for %j', (schema, fault) => {
    expect(mirroredArguments(schema)).toContain(fault);
  });

  it('ignore marks in data of a schema', () => {
    const schema = { properties: { a: { type: 'string', const: { 'x-mcp-header': 'A' } } } };
    expect(mirroredArguments(schema)).toEqual([]);
  });
});

describe('a server that refuses the revision, but lists it', () => {
  it('is asked once more' + verifies('PR-H08'), async () => {
    const { server } = open({ args: [PROGRAM, 'refuses-once'] });
    expect(await server.start()).toMatchObject({ protocolVersion: '2026-07-28' });
  });
});

describe('a server that starts slowly', () => {
  it('keeps the revision that it offers' + verifies('PR-H08'), async () => {
    const { server } = open({ args: [PROGRAM, 'slow'], connectTimeoutMs: 20_000 });
    expect(await server.start()).toMatchObject({ protocolVersion: '2026-07-28' });
  });

  inFull('gets a session, not an error, if it needs more than half of the time' + verifies('PR-H08'), async () => {
    const { server } = open({ args: [PROGRAM, 'slow'], connectTimeoutMs: 4000 });
    expect(await server.start()).toMatchObject({ protocolVersion: '2025-11-25' });
    // It answered both, so the next start asks again.
    await server.renew?.('process');
    expect(await textOf(server, callOf('echo'))).toBe('server/discover');
  });
});

describe('a server that knows sessions only', () => {
  it('is not asked again for another revision if it ignored that' + verifies('PR-H08'), async () => {
    const { server } = open({ args: [PROGRAM, 'silent'], connectTimeoutMs: 4000 });
    expect(await textOf(server, callOf('echo'))).toBe('server/discover');
    await server.renew?.('process');
    expect(await textOf(server, callOf('echo'))).toBe('initialize');
  });

  it.each([
    ['ends at any other first message', 'session-only'],
    ['ignores other first messages', 'silent'],
  ])('is called in a session if it %s' + verifies('PR-H08'), async (_what, mode) => {
    const { server, events } = open({ args: [PROGRAM, mode], connectTimeoutMs: 4000 });
    expect(await server.start()).toMatchObject({ protocolVersion: '2025-11-25' });
    expect(await codeOf(server.call(callOf('echo')))).toBe('none');
    expect(events.map(({ event }) => event)).toEqual(['started']);
    expect(server.health()).toMatchObject({ state: 'healthy', restarts: 0 });
  });
});
