/** Tests spans and metrics, attribute by attribute, against the semantic conventions: both transports, both encodings. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request as open } from 'node:http';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { serveHttp } from '../../facade/serve/http/http-listener.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { LISTEN } from '../serve/http-bench.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { CONVENTIONS, type WantedAttributes } from './conventions.ts';
import { type OtlpReceiver, type Plain, type ReceivedSpan, receiveOtlp } from './otlp-receiver.ts';

const program = path.join(import.meta.dirname, '..', 'fixtures', 'traced-server.mjs');
const VERSION = '2025-11-25';
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Transport = 'stdio' | 'http';
type Send = (method: string, params: unknown) => Promise<Plain>;

/** One request, and how it ends. */
interface Case {
  readonly method: 'tools/call' | 'resources/read' | 'prompts/get';
  readonly params: (server: Plain) => unknown;
  /** The names of its tool, prompt or resource, as the client and the server know it. */
  readonly target: readonly [client: string, server: string];
  /** `error.type` of an error at the server. */
  readonly error?: string;
  /** Absent: the request reaches the server. */
  readonly refused?: 'tool_error';
}

const toolCase = (how: string, rest: Pick<Case, 'error' | 'refused'> = {}, name = 'act'): Case => ({
  method: 'tools/call',
  params: () => ({ name: `traced_${name}`, arguments: { how } }),
  target: [`traced_${name}`, name],
  ...rest,
});
const promptCase = (name: string, error?: string): Case => ({
  method: 'prompts/get',
  params: () => ({ name: `traced_${name}` }),
  target: [`traced_${name}`, name],
  ...(error !== undefined && { error }),
});
const resourceCase = (uri: string, error?: string): Case => ({
  method: 'resources/read',
  params: () => ({ uri: `traced+${uri}` }),
  target: [`traced+${uri}`, uri],
  ...(error !== undefined && { error }),
});

const CASES: Readonly<Record<string, Case>> = {
  'a tool': toolCase('ok'),
  'a tool with isError': toolCase('fail', { error: 'tool_error' }),
  'a tool with an error of the protocol': toolCase('-32603', { error: '-32603' }),
  'a tool with a fault of the caller': toolCase('-32602', { error: '-32602' }),
  'a tool that the policy denies': toolCase('ok', { refused: 'tool_error' }, 'denied'),
  'a prompt': promptCase('ask'),
  'a prompt with an error': promptCase('ask-32603', '-32603'),
  'a prompt with a fault of the caller': promptCase('ask-32602', '-32602'),
  'a resource': resourceCase('mem://a'),
  'a resource with an error': resourceCase('mem://a-32603', '-32603'),
  'a resource that is not there': resourceCase('mem://a-32002', '-32002'),
};

/** What all requests of a run have in common. */
interface Run {
  readonly transport: Transport;
  readonly receiver: OtlpReceiver;
  readonly send: Send;
  readonly session: () => string;
  readonly port: number;
  readonly log: string;
}

/** Starts a client, Tollgate and a server, each pair connected by this transport. */
async function startRun(transport: Transport, protocol: string): Promise<Run & { readonly facade: TestFacade }> {
  const receiver = await receiveOtlp();
  onTestFinished(() => receiver.close());
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_EXPORTER_OTLP_PROTOCOL', protocol);
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '20');
  onTestFinished(() => void vi.unstubAllEnvs());
  const log = path.join(temporaryFolder(), 'received.log');
  writeFileSync(log, '');
  const port = transport === 'http' ? await startRemote(log) : 0;
  const stdio = { command: process.execPath, args: [program, log], isolation: 'direct' };
  const facade = await startFacade(
    JSON.stringify({
      version: 1,
      workspace: './workspace',
      state: './state',
      servers: { traced: transport === 'http' ? { url: `http://127.0.0.1:${port}/mcp` } : stdio },
      principals: [{ id: 'me', profiles: ['p'], stdio: true }],
      profiles: {
        p: {
          servers: ['traced'],
          expose: { primitives: {}, tools: ['traced.*'], resources: ['traced'], prompts: ['traced.*'] },
        },
      },
      rules: [
        {
          id: 'no',
          outcome: 'deny',
          message: 'No.',
          when: { tools: ['traced.denied'], args: { how: { present: true } } },
        },
        { id: 'all', outcome: 'allow', when: { servers: ['traced'] } },
        { id: 'reads', outcome: 'allow', when: { kind: ['resource', 'prompt'] } },
      ],
      prompts: Object.fromEntries(
        ['ask', 'ask-32602', 'ask-32603'].map((name) => [`traced.${name}`, { template: 'text' }]),
      ),
    }),
  );
  onTestFinished(() => facade.close());
  const client = transport === 'http' ? await overHttp(facade) : overStdio(facade);
  await client.send('initialize', {
    protocolVersion: VERSION,
    capabilities: {},
    clientInfo: { name: 't', version: '1' },
  });
  for (const list of ['tools/list', 'resources/list', 'prompts/list']) await client.send(list, {});
  return { transport, receiver, port, log, facade, ...client };
}

async function startRemote(log: string): Promise<number> {
  const child = spawn(process.execPath, [program, log, 'http'], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill());
  for await (const line of createInterface({ input: child.stdout })) return Number(line);
  throw new Error('the server did not start');
}

function overStdio(facade: TestFacade): Pick<Run, 'send' | 'session'> {
  const session = facade.open('me');
  const { gateway } = facade.assembled;
  const dispatch = openDispatch('both', { facade: gateway, session, notify: () => true, onFault: () => undefined });
  let id = 0;
  return {
    session: () => session.id,
    send: async (method, params) => {
      const line = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params }));
      return JSON.parse(joinText((await dispatch.handle(readMessage(line, 'client'), () => true)) ?? '{}'));
    },
  };
}

async function overHttp(facade: TestFacade): Promise<Pick<Run, 'send' | 'session'>> {
  const { principal } = facade.open('me');
  const server = await serveHttp({
    facade: facade.assembled.gateway,
    authenticate: () => principal,
    onFault: () => undefined,
    drainMs: 100,
    listen: LISTEN,
  });
  onTestFinished(() => server.close());
  let session = '';
  let id = 0;
  return {
    session: () => session,
    send: async (method, params) => {
      const body = JSON.stringify({ jsonrpc: '2.0', id: ++id, method, params });
      const headers = {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: 'Bearer any',
        ...(session !== '' && { 'mcp-session-id': session, 'mcp-protocol-version': VERSION }),
      };
      const sent = open(server.url, { method: 'POST', headers }).end(body);
      const [response] = await once(sent, 'response');
      session ||= response.headers['mcp-session-id'];
      let text = '';
      for await (const part of response.setEncoding('utf8')) text += part;
      return JSON.parse(text.replace(/^[^{]*data: (?=\{)/, ''));
    },
  };
}

/** Returns the attributes of the conventions that a request must have on this side, with their values. */
function wantedOf(wanted: WantedAttributes, values: Plain, facts: ReadonlySet<string>): Plain {
  const due = Object.entries(wanted).filter(([, [, when]]) => when === 'always' || facts.has(when));
  return Object.fromEntries(due.map(([key]) => [key, values[key]]));
}

/** Returns what is true of a request on one side: the conditions of the table. */
function factsOf(
  { method }: Case,
  error: string | undefined,
  { transport, side }: Pick<Run, 'transport'> & { side: string },
) {
  const isFault = side === 'server' && CONVENTIONS.faultsOfCallers.includes(error ?? '');
  const kind = { 'tools/call': 'tool', 'prompts/get': 'prompt', 'resources/read': 'resource' }[method];
  return new Set([
    kind,
    transport,
    ...(error !== undefined && !isFault ? ['failure'] : []),
    ...(/^-\d+$/.test(error ?? '') ? ['rpc-error'] : []),
  ]);
}

function valuesOf(one: Case, error: string | undefined, { transport, port }: Run, target: string): Plain {
  return {
    'mcp.method.name': one.method,
    'error.type': error,
    'gen_ai.tool.name': target,
    'gen_ai.prompt.name': target,
    'jsonrpc.request.id': expect.stringMatching(/^\d+$/),
    'mcp.resource.uri': target,
    'rpc.response.status_code': error,
    'gen_ai.operation.name': 'execute_tool',
    'mcp.protocol.version': VERSION,
    'network.transport': transport === 'http' ? 'tcp' : 'pipe',
    'network.protocol.name': 'http',
    'network.protocol.version': '1.1',
    'client.address': '127.0.0.1',
    'client.port': expect.any(Number),
    'server.address': '127.0.0.1',
    'server.port': port,
  };
}

const isConvention = (key: string): boolean => !key.startsWith('tollgate.');
const conventional = (attributes: Plain): Plain =>
  Object.fromEntries(Object.entries(attributes).filter(([key]) => isConvention(key)));

/** Sends one request, and compares its two spans with the table. */
async function checkSpans(run: Run, one: Case): Promise<void> {
  const traceId = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex');
  const _meta = { traceparent: `00-${traceId}-${'ab'.repeat(8)}-01` };
  await run.send(one.method, { ...(one.params({}) as object), _meta });
  const spans = (kind: number): readonly ReceivedSpan[] =>
    run.receiver.spans().filter((span) => span.traceId === traceId && span.kind === kind);
  await vi.waitFor(() => expect(spans(2)).toHaveLength(1), 20_000);
  for (const [side, kind] of [
    ['server', 2],
    ['client', 3],
  ] as const) {
    const [span] = spans(kind);
    if (side === 'client' && one.refused !== undefined) {
      expect(span).toBeUndefined();
      continue;
    }
    const error = one.error ?? one.refused;
    const target = one.target[side === 'server' ? 0 : 1];
    const facts = factsOf(one, error, { ...run, side });
    const values = {
      ...valuesOf(one, error, run, target),
      'mcp.session.id': side === 'server' ? run.session() : expect.stringMatching(UUID),
    };
    expect(conventional(span!.attributes)).toEqual(wantedOf(CONVENTIONS.spans[side], values, facts));
    expect(span!.name).toBe(one.method === 'resources/read' ? one.method : `${one.method} ${target}`);
    expect(span!.status).toEqual({ code: facts.has('failure') ? 2 : 0 });
  }
}

/** Compares the metrics of all requests with the table. */
function checkMetrics(run: Run): void {
  const series = run.receiver.series();
  const attributesOf = (metric: string): readonly Plain[] =>
    series.filter(({ name }) => name === metric).map(({ attributes }) => conventional(attributes));
  for (const one of Object.values(CASES))
    for (const side of ['server', 'client'] as const) {
      if (side === 'client' && one.refused !== undefined) continue;
      const error = one.error ?? one.refused;
      const values = valuesOf(one, error, run, one.target[side === 'server' ? 0 : 1]);
      const metric = `mcp.${side}.operation.duration` as const;
      const wanted = wantedOf(CONVENTIONS.metrics[metric], values, factsOf(one, error, { ...run, side }));
      expect(attributesOf(metric)).toContainEqual(wanted);
    }
  const values = valuesOf(CASES['a tool'] as Case, undefined, run, '');
  for (const side of ['server', 'client'] as const) {
    const metric = `mcp.${side}.session.duration` as const;
    expect(attributesOf(metric)).toContainEqual(
      wantedOf(CONVENTIONS.metrics[metric], values, new Set([run.transport])),
    );
  }
}

/** The next test sends all cases over HTTP in both encodings, and compares them with the table too. */
const RUNS = partOf(
  [
    ['stdio', 'http/protobuf'],
    ['http', 'http/protobuf'],
    ['stdio', 'http/json'],
    ['http', 'http/json'],
  ] as const,
  1,
);

describe('spans and metrics', () => {
  it.each(RUNS)(
    'have each attribute of the conventions if its condition holds, and no other: %s, %s' +
      verifies('AD-140', 'AD-141'),
    async (transport, protocol) => {
      const run = await startRun(transport, protocol);
      for (const one of Object.values(CASES)) await checkSpans(run, one);
      await run.facade.close();
      await vi.waitFor(() => checkMetrics(run), 20_000);
      expect(run.receiver.bodies.every(({ headers }) => headers['content-type']?.includes(protocol.slice(5)))).toBe(
        true,
      );
    },
    60_000,
  );
});

inFull(
  'spans, metrics and resource are the same in protobuf and JSON, attribute by attribute' + verifies('AD-142'),
  async () => {
    const exports: unknown[] = [];
    for (const protocol of ['http/json', 'http/protobuf']) {
      const run = await startRun('http', protocol);
      for (const one of Object.values(CASES)) await checkSpans(run, one);
      await run.facade.close();
      await vi.waitFor(() => checkMetrics(run), 20_000);
      exports.push(comparable(run.receiver));
    }
    const [json, protobuf] = exports;
    expect(protobuf).toEqual(json);
  },
  60_000,
);

/** Returns what was received without ids, ports and times. Requests of Tollgate itself may come in any number. */
function comparable(receiver: OtlpReceiver): unknown {
  const sorted = (list: readonly unknown[]): readonly string[] =>
    [...new Set(list.map((one) => JSON.stringify(one)))].sort();
  const same = (attributes: Plain): Plain =>
    Object.fromEntries(
      Object.entries(attributes)
        .map(([key, value]) => [key, /\.(id|port)$/.test(key) ? typeof value : value] as const)
        .sort(([one], [other]) => (one < other ? -1 : 1)),
    );
  const spans = receiver.spans().filter(({ parentSpanId = '' }) => parentSpanId !== '');
  return {
    spans: sorted(spans.map(({ name, kind, status, attributes }) => [name, kind, status, same(attributes)])),
    series: sorted(
      receiver.series().map(({ name, unit, bounds, attributes }) => [name, unit, bounds, same(attributes)]),
    ),
    resource: same(receiver.resource()),
  };
}

it('requests of Tollgate itself to servers carry the context of their span' + verifies('AD-144'), async () => {
  const { receiver, log, facade } = await startRun('stdio', 'http/protobuf');
  await facade.close();
  const received = readFileSync(log, 'utf8')
    .split('\n')
    .filter((line) => line.includes('"id"'))
    .map((line) => JSON.parse(line) as { id: number; method: string; params: { _meta?: Plain } });
  const own = received.filter(({ method }) => /^(initialize|tools\/list|server\/discover)$/.test(method));
  expect(own.length).toBeGreaterThan(1);
  for (const { id, method, params } of own) {
    const [, traceId, spanId] = /^00-(.{32})-(.{16})-01$/.exec(String(params._meta?.traceparent)) ?? [];
    const span = receiver.spans().find((one) => one.spanId === spanId)!;
    expect(span).toMatchObject({ name: method, kind: 3, traceId });
    expect(span.parentSpanId ?? '').toBe('');
    expect(span.attributes['jsonrpc.request.id']).toBe(String(id));
    expect(span.attributes['mcp.session.id']).toMatch(UUID);
  }
});

it('requests of Tollgate itself carry no context while telemetry is off' + verifies('AD-144'), async () => {
  const log = path.join(temporaryFolder(), 'received.log');
  writeFileSync(log, '');
  const server = { command: process.execPath, args: [program, log], isolation: 'direct' };
  const facade = await startFacade(
    JSON.stringify({
      version: 1,
      workspace: './workspace',
      state: './state',
      servers: { traced: server },
      principals: [{ id: 'me', profiles: ['p'], stdio: true }],
      profiles: { p: { servers: ['traced'], expose: { primitives: {}, tools: ['traced.*'] } } },
      rules: [{ id: 'all', outcome: 'allow', when: { servers: ['traced'] } }],
    }),
  );
  onTestFinished(() => facade.close());
  await facade.call(facade.open('me'), 'traced_act', { how: 'ok' });
  expect(readFileSync(log, 'utf8')).toContain('tools/list');
  expect(readFileSync(log, 'utf8')).not.toContain('traceparent');
});
