/** Tests traces over HTTP: of a client, of a remote server that has spans of its own, and of calls that wait. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { type OtlpReceiver, type ReceivedSpan, receiveOtlp } from './otlp-receiver.ts';

/** What a request of a server sees. */
interface Seen {
  readonly method: string;
  readonly meta: Readonly<Record<string, unknown>> | undefined;
}

/** Starts an MCP server over HTTP without a session id, which keeps what it is sent. */
async function startRemote(): Promise<{ readonly port: number; readonly seen: Seen[] }> {
  const seen: Seen[] = [];
  const results: Readonly<Record<string, unknown>> = {
    initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'r', version: '1' } },
    'tools/list': { tools: ['go', 'wait'].map((name) => ({ name, inputSchema: { type: 'object' } })) },
    'tools/call': { content: [{ type: 'text', text: 'done' }] },
  };
  const server = createServer((request, response) => {
    let text = '';
    request.setEncoding('utf8').on('data', (part: string) => (text += part));
    request.on('end', () => {
      if (request.method !== 'POST') return void response.writeHead(405).end();
      const { id, method, params } = JSON.parse(text) as {
        id?: number;
        method: string;
        params?: { _meta?: Seen['meta'] };
      };
      seen.push({ method, meta: params?._meta });
      if (id === undefined) return void response.writeHead(202).end();
      const result = results[method];
      const answer = result === undefined ? { error: { code: -32601, message: 'unknown' } } : { result };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

async function startTraced(receiver: OtlpReceiver, port: number): Promise<TestFacade> {
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json');
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '20');
  onTestFinished(() => void vi.unstubAllEnvs());
  const facade = await startFacade(
    JSON.stringify({
      version: 1,
      workspace: './workspace',
      state: './state',
      servers: { remote: { url: `http://127.0.0.1:${port}/mcp` } },
      principals: [{ id: 'me', profiles: ['p'], stdio: true }],
      profiles: { p: { servers: ['remote'], expose: { primitives: {}, tools: ['remote.*'] } } },
      approvals: { waitMs: 200 },
      rules: [
        { id: 'ask-wait', outcome: 'ask', when: { tools: ['remote.wait'] } },
        { id: 'all', outcome: 'allow', when: { servers: ['remote'] } },
      ],
    }),
  );
  onTestFinished(() => facade.close());
  return facade;
}

it('traces a client and a server over HTTP, and the wait for a person' +
  verifies('AD-60', 'AD-61', 'AD-62'), async () => {
  const receiver = await receiveOtlp();
  onTestFinished(() => receiver.close());
  const { port, seen } = await startRemote();
  const facade = await startTraced(receiver, port);
  const { gateway } = facade.assembled;
  const session = gateway.openSession(facade.open('me').principal, 'http');
  const dispatch = openDispatch('both', { facade: gateway, session, notify: () => true, onFault: () => undefined });
  const ask = async (id: number, method: string, params: unknown): Promise<string> => {
    const line = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return joinText((await dispatch.handle(readMessage(line, 'client'), () => true)) ?? '');
  };
  await ask(1, 'initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 't', version: '1' },
  });
  const traceId = 'cd'.repeat(16);
  const _meta = { traceparent: `00-${traceId}-${'ab'.repeat(8)}-01`, tracestate: 'a=1' };
  expect(await ask(2, 'tools/call', { name: 'remote_go', arguments: {}, _meta })).toContain('done');
  await ask(3, 'tools/call', { name: 'remote_wait', arguments: {}, _meta });
  const spans = (): readonly ReceivedSpan[] => receiver.spans().filter((span) => span.traceId === traceId);
  const named = (name: string, kind?: number): ReceivedSpan | undefined =>
    spans().find((span) => span.name === name && (kind ?? span.kind) === span.kind);
  await vi.waitFor(() => expect(named('tools/call remote_wait')).toBeDefined(), 15_000);
  const server = named('tools/call remote_go', 2)!;
  expect(server.attributes).toMatchObject({
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'network.protocol.version': '1.1',
  });
  const client = named('tools/call go', 3)!;
  expect(client.parentSpanId).toBe(server.spanId);
  expect(client.attributes).toMatchObject({
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'server.address': '127.0.0.1',
    'server.port': port,
    'mcp.protocol.version': '2025-06-18',
    'tollgate.server': 'remote',
  });
  expect(seen.find(({ method }) => method === 'tools/call')?.meta).toEqual({
    traceparent: `00-${traceId}-${client.spanId}-01`,
    tracestate: 'a=1',
  });
  const waited = named('tollgate.approval.wait')!;
  const decide = spans().find(({ spanId }) => spanId === waited.parentSpanId)!;
  expect(decide).toMatchObject({
    name: 'tollgate.decide',
    attributes: { 'tollgate.outcome': 'ask', 'tollgate.rule': ['ask-wait'] },
  });
  expect(Number(BigInt(waited.endTimeUnixNano) - BigInt(waited.startTimeUnixNano)) / 1e6).toBeGreaterThan(150);
  expect(named('tools/call remote_wait')!.attributes['tollgate.code']).toBe('APPROVAL_REQUIRED');
  expect(seen.filter(({ method }) => method === 'tools/call')).toHaveLength(1);
}, 60_000);
