/** Tests the spans of calls within a call: of code, and of the wrappers call_read and call_write. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { ACT, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { type OtlpReceiver, type Plain, type ReceivedSpan, receiveOtlp } from './otlp-receiver.ts';

const ANSWER = '{"content":[{"type":"text","text":"hello"}]}';

let receiver: OtlpReceiver;
let facade: RawFacade;

beforeAll(async () => {
  receiver = await receiveOtlp();
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_BSP_SCHEDULE_DELAY', '20');
  facade = await startRaw(
    { web: { tools: [ACT, tool('look'), tool('denied')], settings: { semantics: { act: 'write', look: 'read' } } } },
    {
      profiles: { all: { servers: ['web'], expose: { primitives: {}, tools: ['web.*'], search: true, code: true } } },
      rules: [
        { id: 'no', outcome: 'deny', message: 'No.', when: { tools: ['web.denied'], args: { x: { present: true } } } },
        { id: 'all', outcome: 'allow', when: { servers: ['web', 'code'] } },
      ],
    },
  );
}, 60_000);

afterAll(async () => {
  await facade.close();
  await receiver.close();
  vi.unstubAllEnvs();
});

/** Calls a tool in a trace of its own, and returns the span of the request and a search for the spans below a span. */
async function trace(name: string, args: unknown): Promise<{ server: ReceivedSpan; below: typeof below }> {
  const traceId = Buffer.from(crypto.getRandomValues(new Uint8Array(16))).toString('hex');
  const session = facade.open('me');
  const { gateway } = facade.assembled;
  const dispatch = openDispatch('both', { facade: gateway, session, notify: () => true, onFault: () => undefined });
  const send = async (id: number, method: string, params: object): Promise<Plain> => {
    const line = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    return JSON.parse(joinText((await dispatch.handle(readMessage(line, 'client'), () => true)) ?? '{}'));
  };
  await send(1, 'initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 't', version: '1' },
  });
  await send(2, 'tools/list', {});
  const _meta = { traceparent: `00-${traceId}-${'ab'.repeat(8)}-01` };
  const answer = await send(3, 'tools/call', { name, arguments: args, _meta });
  expect(answer.result, JSON.stringify(answer)).toBeDefined();
  const spans = (): readonly ReceivedSpan[] => receiver.spans().filter((span) => span.traceId === traceId);
  await vi.waitFor(() => expect(spans().some(({ kind }) => kind === 2)).toBe(true), 10_000);
  const below = (parent: ReceivedSpan, kind: number): readonly ReceivedSpan[] =>
    spans().filter((span) => span.parentSpanId === parent.spanId && span.kind === kind);
  return { server: spans().find(({ kind }) => kind === 2)!, below };
}

/** The trace context of the last request that the server received. */
const contextAtServer = (): unknown => {
  const line = facade.lines('web').findLast((one) => one.includes('"tools/call"')) ?? '{}';
  return (JSON.parse(line) as { params: { _meta?: Plain } }).params._meta?.traceparent;
};

it(
  'a call of code is a span below its run, with what the policy decided, and its server has the trace' +
    verifies('AD-143'),
  async () => {
    const code = `
    import { act, denied } from 'host:mcp-web';
    act({ raw: ${JSON.stringify(ANSWER)} });
    return denied({ x: 1 });`;
    const { server, below } = await trace('run_code', { code });
    expect(server.name).toBe('tools/call run_code');
    const [ran, denied, ...others] = below(server, 1).filter(({ name }) => name.startsWith('tools/call'));
    expect(others).toEqual([]);
    expect(ran).toMatchObject({ name: 'tools/call web_act', status: { code: 0 } });
    expect(ran!.attributes).toEqual({
      'mcp.method.name': 'tools/call',
      'gen_ai.operation.name': 'execute_tool',
      'gen_ai.tool.name': 'web_act',
      'tollgate.decision.id': expect.any(String),
      'tollgate.outcome': 'allow',
      'tollgate.rule': ['all'],
    });
    expect(below(ran!, 1).map(({ name }) => name)).toEqual(['tollgate.decide', 'tollgate.reserve', 'tollgate.shape']);
    const [client] = below(ran!, 3);
    expect(client).toMatchObject({ name: 'tools/call act', attributes: { 'tollgate.server': 'web' } });
    expect(contextAtServer()).toBe(`00-${server.traceId}-${client!.spanId}-01`);
    expect(denied).toMatchObject({
      name: 'tools/call web_denied',
      status: { code: 2 },
      attributes: { 'error.type': 'tool_error', 'tollgate.code': 'DENIED', 'tollgate.rule': ['no'] },
    });
    expect(below(denied!, 3)).toEqual([]);
    const { parent } = facade.records().find(({ id }) => id === ran!.attributes['tollgate.decision.id']) ?? {};
    expect(parent).toBe(server.attributes['tollgate.decision.id']);
  },
);

it.each([
  ['call_read', 'look', {}],
  ['call_write', 'act', { raw: ANSWER }],
])('a call by %s has the name of its tool' + verifies('AD-143'), async (wrapper, name, args) => {
  const { server, below } = await trace(wrapper, { name: `web_${name}`, arguments: args });
  expect(server).toMatchObject({
    name: `tools/call web_${name}`,
    status: { code: 0 },
    attributes: { 'gen_ai.tool.name': `web_${name}`, 'tollgate.outcome': 'allow' },
  });
  const [client] = below(server, 3);
  expect(client).toMatchObject({ name: `tools/call ${name}`, status: { code: 0 } });
  expect(contextAtServer()).toBe(`00-${server.traceId}-${client!.spanId}-01`);
});

it('calls of code count as requests to servers, and not as requests of a client' + verifies('AD-143'), async () => {
  await facade.close();
  const names = (metric: string): readonly unknown[] =>
    receiver
      .series()
      .filter(({ name }) => name === metric)
      .map(({ attributes }) => attributes['gen_ai.tool.name']);
  await vi.waitFor(() => expect(names('mcp.client.operation.duration')).toContain('act'), 10_000);
  expect(names('mcp.server.operation.duration')).toContain('run_code');
  expect(names('mcp.server.operation.duration')).not.toContain('web_denied');
});
