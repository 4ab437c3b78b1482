/** Tests what is traced of requests, and what servers get of the trace. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ACT, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { CONVENTIONS } from './conventions.ts';
import { type OtlpReceiver, type Plain, type ReceivedSeries, type ReceivedSpan, receiveOtlp } from './otlp-receiver.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const TRACEPARENT = `00-${TRACE}-${PARENT}-01`;
const ANSWER = '{"content":[{"type":"text","text":"hello"}]}';
const SECRET = 'wire-secret-0123456789';

let receiver: OtlpReceiver;
let facade: RawFacade;
let session: Session;
let dispatch: Dispatch;
let lastId = 0;

/** Sends one request of the session, and returns its response. */
async function ask(method: string, params: Record<string, unknown> = {}): Promise<Plain> {
  lastId += 1;
  const line = JSON.stringify({ jsonrpc: '2.0', id: lastId, method, params });
  const text = await dispatch.handle(readMessage(Buffer.from(line), 'client'), () => true);
  return JSON.parse(
    typeof text === 'string' ? text : Buffer.concat((text ?? []).map((one) => Buffer.from(one))).toString(),
  );
}

const call = (name: string, args: unknown, meta?: Record<string, unknown>): Promise<Plain> =>
  ask('tools/call', { name, arguments: args, ...(meta !== undefined && { _meta: meta }) });

/** Returns the spans of the last request, as soon as the one towards the client was received. */
async function spansOfLast(): Promise<readonly ReceivedSpan[]> {
  const id = String(lastId);
  const find = (): ReceivedSpan | undefined =>
    receiver.spans().find((span) => span.kind === 2 && span.attributes['jsonrpc.request.id'] === id);
  await vi.waitFor(() => expect(find()).toBeDefined(), { timeout: 10_000 });
  const server = find()!;
  const all = receiver.spans();
  const below = (parent: string): readonly ReceivedSpan[] =>
    all.filter((span) => span.parentSpanId === parent).flatMap((span) => [span, ...below(span.spanId)]);
  return [server, ...below(server.spanId)];
}

beforeAll(async () => {
  receiver = await receiveOtlp();
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_EXPORTER_OTLP_PROTOCOL', 'http/json');
  vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', `authorization=Bearer%20${SECRET}`);
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '50');
  vi.stubEnv('OTEL_METRIC_EXPORT_INTERVAL', '100');
  vi.stubEnv('OTEL_RESOURCE_ATTRIBUTES', 'deployment.environment.name=test');
  facade = await startRaw(
    { web: { tools: [ACT, tool('denied')] }, shared: { tools: [ACT], settings: { trace: 'baggage' } } },
    {
      rules: [
        {
          id: 'no-denied',
          outcome: 'deny',
          message: 'Never.',
          when: { tools: ['web.denied'], args: { x: { present: true } } },
        },
        { id: 'all', outcome: 'allow', when: { servers: ['web', 'shared'] } },
      ],
    },
  );
  session = facade.open('me');
  dispatch = openDispatch('both', {
    facade: facade.assembled.gateway,
    session,
    notify: () => true,
    onFault: () => undefined,
  });
  await ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } });
}, 60_000);

afterAll(async () => {
  await facade.close();
  await receiver.close();
  vi.unstubAllEnvs();
});

describe('a traced call', () => {
  it(
    'goes from the client through Tollgate to the server with the attributes of the conventions' +
      verifies('AD-60', 'AD-61'),
    async () => {
      await call('web_act', { raw: ANSWER }, { traceparent: TRACEPARENT, tracestate: 'rojo=1,congo=2' });
      const [server, ...rest] = await spansOfLast();
      const client = rest.find(({ kind }) => kind === 3)!;
      expect(server).toMatchObject({
        name: 'tools/call web_act',
        traceId: TRACE,
        parentSpanId: PARENT,
        traceState: 'rojo=1,congo=2',
      });
      expect(server!.attributes).toEqual({
        'mcp.method.name': 'tools/call',
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': 'web_act',
        'jsonrpc.request.id': String(lastId),
        'mcp.protocol.version': '2025-11-25',
        'mcp.session.id': session.id,
        'network.transport': 'pipe',
        'tollgate.decision.id': expect.stringMatching(/^[0-9a-f-]{36}$/),
        'tollgate.outcome': 'allow',
        'tollgate.rule': ['all'],
      });
      expect(client).toMatchObject({ name: 'tools/call act', traceId: TRACE, parentSpanId: server!.spanId });
      expect(client.attributes).toEqual({
        'mcp.session.id': expect.stringMatching(/^[0-9a-f-]{36}$/),
        'mcp.method.name': 'tools/call',
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': 'act',
        'jsonrpc.request.id': expect.stringMatching(/^\d+$/),
        'mcp.protocol.version': expect.stringMatching(/^20/),
        'network.transport': 'pipe',
        'tollgate.server': 'web',
      });
      const sent = facade
        .lines('web')
        .filter((line) => line.includes('"tools/call"'))
        .at(-1)!;
      expect(JSON.parse(sent)).toMatchObject({
        id: Number(client.attributes['jsonrpc.request.id']),
        params: { _meta: { traceparent: `00-${TRACE}-${client.spanId}-01`, tracestate: 'rojo=1,congo=2' } },
      });
      expect(sent).toContain(`"arguments":${JSON.stringify({ raw: ANSWER })}`);
    },
  );

  it('has spans of Tollgate with rules and outcome, each within the request' + verifies('AD-62'), async () => {
    await call('web_act', { raw: ANSWER });
    const [server, ...rest] = await spansOfLast();
    expect(rest.filter(({ kind }) => kind === 1).map(({ name }) => name)).toEqual([
      'tollgate.decide',
      'tollgate.reserve',
      'tollgate.shape',
    ]);
    const decide = rest.find(({ name }) => name === 'tollgate.decide')!;
    expect(decide.attributes).toMatchObject({ 'tollgate.outcome': 'allow', 'tollgate.rule': ['all'] });
    for (const span of rest) {
      expect(BigInt(span.startTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(server!.startTimeUnixNano));
      expect(BigInt(span.endTimeUnixNano)).toBeGreaterThanOrEqual(BigInt(span.startTimeUnixNano));
    }
  });

  it('names its error: of the tool, of the server, and of Tollgate' + verifies('AD-63'), async () => {
    await call('web_act', { raw: '{"content":[],"isError":true}' });
    const tool = await spansOfLast();
    expect(
      tool.filter(({ kind }) => kind > 1).map(({ attributes, status }) => [attributes['error.type'], status.code]),
    ).toEqual([
      ['tool_error', 2],
      ['tool_error', 2],
    ]);
    await call('web_act', { error: '{"code":-32042000,"message":"a text of the server"}' });
    const rpc = await spansOfLast();
    expect(rpc.filter(({ kind }) => kind > 1).map(({ attributes }) => attributes['rpc.response.status_code'])).toEqual([
      '-32042000',
      '-32042000',
    ]);
    await call('web_denied', { x: 1 });
    const [denied, ...rest] = await spansOfLast();
    expect(denied!.attributes).toMatchObject({
      'error.type': 'tool_error',
      'tollgate.code': 'DENIED',
      'tollgate.outcome': 'deny',
      'tollgate.rule': ['no-denied'],
    });
    expect(rest.map(({ name }) => name)).toEqual(['tollgate.decide']);
    await ask('nothing/known');
    const [unknown] = await spansOfLast();
    expect(unknown).toMatchObject({ name: '_OTHER', attributes: { 'rpc.response.status_code': '-32601' } });
    await call('no_such_tool', {});
    expect((await spansOfLast())[0]).toMatchObject({
      name: 'tools/call',
      attributes: { 'gen_ai.tool.name': 'no_such_tool' },
    });
  });

  it(
    'begins a trace of its own if the context is not valid, and passes none of it on' + verifies('AD-64'),
    async () => {
      const hostile: readonly (readonly [unknown, unknown])[] = [
        [`00-${TRACE}-${PARENT}-01-extra`, undefined],
        [`ff-${TRACE}-${PARENT}-01`, undefined],
        [`00-${'0'.repeat(32)}-${PARENT}-01`, undefined],
        [`00-${TRACE.toUpperCase()}-${PARENT}-01`, undefined],
        [` ${TRACEPARENT}`, undefined],
        [`${TRACEPARENT}\n`, undefined],
        [[TRACEPARENT], undefined],
        [{ toString: 'x' }, 'a=1'],
        [`cc-${TRACE}-${PARENT}-01-${'x'.repeat(100_000)}`, undefined],
        [null, 12],
      ];
      for (const [traceparent, tracestate] of hostile) {
        await call('web_act', { raw: ANSWER }, { traceparent, ...(tracestate !== undefined && { tracestate }) });
        const [server] = await spansOfLast();
        expect(server!.traceId).not.toBe(TRACE);
        expect(server!.parentSpanId ?? '').toBe('');
        expect(facade.lines('web').at(-1)).toContain(`00-${server!.traceId}-`);
        expect(facade.lines('web').at(-1)).not.toContain(PARENT);
      }
      for (const tracestate of ['a=1\u0000', 'x'.repeat(600), ['a=1'], '=,=,,,', `${'a=1,'.repeat(100)}`]) {
        await call('web_act', { raw: ANSWER }, { traceparent: TRACEPARENT, tracestate });
        const [server] = await spansOfLast();
        expect(server!.traceId).toBe(TRACE);
        expect(server!.traceState ?? '').toMatch(/^(a=1)?$/);
      }
    },
  );

  it('passes baggage only to servers that may have it' + verifies('AD-65'), async () => {
    const meta = { traceparent: TRACEPARENT, baggage: 'userId=alice', other: 1 };
    await call('web_act', { raw: ANSWER }, meta);
    expect(facade.lines('web').at(-1)).not.toContain('alice');
    expect(facade.lines('web').at(-1)).toContain('"other":1');
    await call('shared_act', { raw: ANSWER }, meta);
    expect(facade.lines('shared').at(-1)).toContain('"baggage":"userId=alice"');
  });

  it('is not exported if its client does not sample it, and the server is told so' + verifies('AD-61'), async () => {
    await call('web_act', { raw: ANSWER }, { traceparent: `00-${'ab'.repeat(16)}-${PARENT}-00` });
    expect(facade.lines('web').at(-1)).toMatch(/"traceparent":"00-(ab){16}-[0-9a-f]{16}-00"/);
    await ask('ping');
    await spansOfLast();
    expect(receiver.spans().some(({ traceId }) => traceId === 'ab'.repeat(16))).toBe(false);
  });
});

describe('other requests', () => {
  it('are traced too: lists, pings, the handshake, and those of Tollgate to servers' + verifies('AD-66'), async () => {
    await ask('tools/list', { _meta: { traceparent: TRACEPARENT } });
    expect((await spansOfLast())[0]).toMatchObject({
      name: 'tools/list',
      kind: 2,
      traceId: TRACE,
      parentSpanId: PARENT,
    });
    await ask('ping');
    expect((await spansOfLast())[0]!.name).toBe('ping');
    await ask('logging/setLevel', { level: 'nothing' });
    expect((await spansOfLast())[0]).toMatchObject({
      name: 'logging/setLevel',
      attributes: { 'rpc.response.status_code': '-32602' },
      status: { code: 0 },
    });
    const names = receiver
      .spans()
      .filter(({ kind, parentSpanId }) => kind === 3 && !parentSpanId)
      .map(({ name }) => name);
    expect(names).toContain('initialize');
    expect(names).toContain('tools/list');
    expect(receiver.spans().some(({ name }) => name === 'initialize')).toBe(true);
  });

  it('of the revision without sessions are traced with its version' + verifies('AD-66'), async () => {
    const KEY = 'io.modelcontextprotocol/';
    const envelope = {
      [`${KEY}protocolVersion`]: '2026-07-28',
      [`${KEY}clientInfo`]: { name: 't', version: '1' },
      [`${KEY}clientCapabilities`]: {},
    };
    await call('web_act', { raw: ANSWER }, { ...envelope, traceparent: TRACEPARENT });
    const [server] = await spansOfLast();
    expect(server).toMatchObject({ name: 'tools/call web_act', traceId: TRACE, parentSpanId: PARENT });
    expect(server!.attributes['mcp.protocol.version']).toBe('2026-07-28');
  });
});

describe('all spans and metrics', () => {
  it(
    'have attributes of the conventions only, and no argument, result, text or secret' + verifies('AD-67'),
    async () => {
      await call(
        'web_act',
        { raw: '{"content":[{"type":"text","text":"result-of-the-tool"}]}', secret: SECRET },
        { x: 'meta-of-client' },
      );
      await spansOfLast();
      for (const { kind, attributes, name } of receiver.spans()) {
        const known = kind === 2 ? CONVENTIONS.spans.server : kind === 3 ? CONVENTIONS.spans.client : {};
        for (const key of Object.keys(attributes))
          expect(
            Object.hasOwn(known, key) || (CONVENTIONS.tollgate[kind === 1 ? name : `kind-${kind}`] ?? []).includes(key),
            `${name}: ${key}`,
          ).toBe(true);
        if (kind > 1)
          for (const [key, level] of Object.entries(known))
            if (level[0] === 'required') expect(attributes).toHaveProperty([key]);
      }
      const all = receiver.bodies.map(({ body }) => body.toString()).join('\n');
      for (const text of ['result-of-the-tool', SECRET, 'meta-of-client', 'a text of the server', 'alice'])
        expect(all).not.toContain(text);
      expect(receiver.bodies[0]!.headers.authorization).toBe(`Bearer ${SECRET}`);
      expect(receiver.resource()).toMatchObject({ 'service.name': 'tollgate', 'deployment.environment.name': 'test' });
    },
  );

  it(
    'have the histograms of the conventions, in seconds, without ids and names that clients invent' + verifies('AD-68'),
    async () => {
      await ask('tools/list');
      await ask('ping');
      await ask('nothing/known');
      await call('no_such_tool', {});
      await call('web_denied', { x: 1 });
      await call('web_act', { raw: ANSWER });
      const denied = (): ReceivedSeries | undefined =>
        receiver.series().find(({ name, attributes }) => name === 'tollgate.calls' && attributes.outcome === 'DENIED');
      await vi.waitFor(() => expect(denied()?.sum).toBeGreaterThan(0), { timeout: 10_000 });
      const series = receiver.series();
      const served = series.filter(({ name }) => name === 'mcp.server.operation.duration');
      expect(served.map(({ attributes }) => attributes['mcp.method.name'])).toEqual(
        expect.arrayContaining(['tools/call', 'tools/list', 'initialize', 'ping', '_OTHER']),
      );
      for (const { name, unit, bounds } of series.filter(({ bounds }) => bounds !== undefined))
        expect([name, unit, bounds]).toEqual([
          expect.stringMatching(/^mcp\.(server|client)\.(operation|session)\.duration$/),
          's',
          CONVENTIONS.buckets,
        ]);
      const texts = JSON.stringify(series.map(({ attributes }) => attributes));
      expect(texts).not.toMatch(/no_such_tool|jsonrpc\.request\.id|session\.id|decision/);
    },
  );
});
