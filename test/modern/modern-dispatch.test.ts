/** Tests the stateless protocol of revision 2026-07-28, message by message. */
import { describe, expect, it } from 'vitest';
import { VERSION } from '../../facade/serve/version.ts';
import { message, until, untilAborted } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';
import { ALL, headersOf, metaOf, modernBench, refusing, stateless } from './stateless-bench.ts';

const SERVER = { 'io.modelcontextprotocol/serverInfo': { name: 'tollgate', version: VERSION } };
const call = (id: string | number, params: Readonly<Record<string, unknown>> = {}): Record<string, unknown> =>
  stateless(id, 'tools/call', { name: 'read', arguments: { a: 1 }, ...params });

describe('server/discover' + verifies('PR-M02'), () => {
  it('says what is supported, who answers, and that nothing may be kept', async () => {
    const { ask } = modernBench();
    expect((await ask(stateless('d', 'server/discover')))?.result).toEqual({
      resultType: 'complete',
      ttlMs: 0,
      cacheScope: 'private',
      _meta: SERVER,
      supportedVersions: ['2026-07-28', '2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'],
      capabilities: { tools: { listChanged: true } },
      instructions: 'Use read.',
    });
  });
});

describe('results' + verifies('PR-M02'), () => {
  it('have a type and the server, and those of lists and resources the members of a cache', async () => {
    const { ask, facade } = modernBench();
    const common = { resultType: 'complete', _meta: SERVER };
    const kept = { ttlMs: 0, cacheScope: 'private' };
    expect((await ask(stateless(1, 'tools/list')))?.result).toMatchObject({
      ...common,
      ...kept,
      tools: [{ name: 'read' }],
    });
    expect((await ask(stateless(2, 'resources/read', { uri: 'a:b' })))?.result).toMatchObject({ ...common, ...kept });
    const called = await ask(call(3));
    expect(called?.result).toMatchObject({ ...common, content: [{ type: 'text', text: '{"a":1}' }] });
    expect(called?.result).not.toHaveProperty('ttlMs');
    facade.onCall = async () => ({
      kind: 'result',
      text: '{"content":[],"isError":true,"_meta":{"tollgate/code":"DENIED"}}',
    });
    expect((await ask(call(4)))?.result?._meta).toEqual({ 'tollgate/code': 'DENIED', ...SERVER });
  });

  it('that are shaped leave as the bytes that the facade gave', async () => {
    const { facade, dispatch } = modernBench();
    const text = ['{"resultType":"complete",', Buffer.from('"n": 1.0e0'), '}'];
    facade.onCall = async () => ({ kind: 'result', text, enveloped: true });
    const reply = await dispatch.handle(message(call(1)), () => undefined);
    expect(reply).toEqual(['{"jsonrpc":"2.0","id":1,"result":', ...text, '}']);
    expect(facade.calls[0]?.request.envelope).toEqual({
      members: '"resultType":"complete"',
      meta: JSON.stringify(SERVER).slice(1, -1),
    });
  });

  it('never have a number that the revision does not allow' + verifies('PR-M04'), async () => {
    const { facade, ask } = modernBench();
    facade.onCall = async () => ({ kind: 'error', error: { code: -32002, message: 'no' } });
    expect((await ask(stateless(1, 'resources/read', { uri: 'a:b' })))?.error).toEqual({ code: -32602, message: 'no' });
    facade.onCall = async () => ({ kind: 'error', error: { code: -32042, message: 'open', data: {} } });
    expect((await ask(call(2)))?.error?.code).toBe(-32603);
  });
});

describe('the members that each request needs' + verifies('PR-M03'), () => {
  const version = 'io.modelcontextprotocol/protocolVersion';
  it.each([
    ['no _meta', { _meta: undefined }, -32602],
    ['a _meta that is no object', { _meta: 'x' }, -32602],
    ['no revision', { _meta: metaOf(ALL, { [version]: undefined }) }, -32602],
    ['a revision that is no string', { _meta: metaOf(ALL, { [version]: 7 }) }, -32602],
    ['no capabilities', { _meta: metaOf(null) }, -32602],
    ['capabilities that are a list', { _meta: metaOf([]) }, -32602],
    ['a client without a form', { _meta: metaOf(ALL, { 'io.modelcontextprotocol/clientInfo': 'me' }) }, -32602],
    ['an unknown log level', { _meta: metaOf(ALL, { 'io.modelcontextprotocol/logLevel': 'loud' }) }, -32602],
    ['an unknown revision', { _meta: metaOf(ALL, { [version]: '1900-01-01' }) }, -32022],
    ['a revision with a handshake', { _meta: metaOf(ALL, { [version]: '2025-11-25' }) }, -32022],
  ])('%s is refused', async (_name, params, code) => {
    const { ask, facade } = modernBench();
    const answer = await ask(call(1, params));
    expect(answer).toMatchObject({ id: 1, error: { code } });
    if (code === -32022) expect(answer?.error?.data.supported).toContain('2026-07-28');
    expect(facade.calls).toEqual([]);
  });

  it('are not passed to a server, and others are', async () => {
    const { ask, facade } = modernBench();
    await ask(call(1, { _meta: metaOf(ALL, { traceparent: '00-1', 'tollgate/run': 'r', progressToken: 7 }) }));
    expect(facade.calls[0]?.request.meta).toEqual({ traceparent: '00-1', 'tollgate/run': 'r' });
    expect(facade.calls[0]?.request.client).toEqual(ALL);
  });
});

describe('methods' + verifies('PR-M04'), () => {
  it.each([
    'ping',
    'logging/setLevel',
    'resources/subscribe',
    'resources/unsubscribe',
    'sampling/createMessage',
    'tasks/list',
    'TOOLS/CALL',
    '__proto__',
    'x'.repeat(300),
  ])('that the revision does not have are refused through the facade: %s', async (method) => {
    const { facade, post } = modernBench();
    facade.onCall = async (request) => refusing(request) ?? { kind: 'result', text: '{}' };
    const { answer, refused } = post(stateless(1, method));
    expect(await answer).toMatchObject({ error: { code: -32601, data: { code: 'WIRE_METHOD' } } });
    expect(refused.map(({ code }) => code)).toEqual(['WIRE_METHOD']);
    expect(facade.calls[0]?.request).toMatchObject({ name: method.slice(0, 128), refusal: { code: 'WIRE_METHOD' } });
  });

  it('that are initialize or without this _meta stay those of a session', async () => {
    const { ask } = modernBench();
    expect(await ask({ jsonrpc: '2.0', method: 'notifications/roots/list_changed' })).toBeUndefined();
    expect(await ask({ jsonrpc: '2.0', id: 1, result: {} })).toBeUndefined();
  });
});

describe('progress and log messages' + verifies('PR-M05'), () => {
  it('reach the request only that asked for them, until its answer', async () => {
    const { facade, ask, sent } = modernBench();
    let late: (() => void) | undefined;
    facade.onCall = async ({ onProgress, notify, logLevel }) => {
      onProgress?.({ progress: 1 });
      notify?.({ method: 'notifications/message', params: { level: logLevel, data: 'x' } });
      late = () => {
        onProgress?.({ progress: 2 });
        notify?.({ method: 'notifications/message', params: {} });
      };
      return { kind: 'result', text: '{"content":[]}' };
    };
    await ask(call(1));
    expect([facade.calls[0]?.request.notify, facade.calls[0]?.request.onProgress]).toEqual([undefined, undefined]);
    await ask(call(2, { _meta: metaOf(ALL, { progressToken: 't', 'io.modelcontextprotocol/logLevel': 'error' }) }));
    late?.();
    expect(sent.map(({ method, params }) => [method, params])).toEqual([
      ['notifications/progress', { progress: 1, progressToken: 't' }],
      ['notifications/message', { level: 'error', data: 'x' }],
    ]);
  });
});

describe('a request is cancelled' + verifies('PR-M06'), () => {
  it('over HTTP when its client closes the response, and equal ids of others go on', async () => {
    const { facade, post } = modernBench();
    facade.onCall = untilAborted;
    const [one, other] = [post(call(1)), post(call(1))];
    await until(() => facade.calls.length === 2);
    one.close();
    expect(await one.answer).toBeUndefined();
    expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'CANCELLED' });
    expect(facade.calls[1]?.request.signal.aborted).toBe(false);
    other.close();
    await other.answer;
  });

  it('over stdio by its notification, where an id names one request', async () => {
    const { facade, ask } = modernBench();
    facade.onCall = untilAborted;
    const running = ask(call(1));
    expect(await ask(call(1))).toMatchObject({ error: { data: { code: 'WIRE_ID' } } });
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });
    expect(await running).toBeUndefined();
  });
});

describe('headers over HTTP' + verifies('PR-M07'), () => {
  const read = stateless(1, 'resources/read', { uri: 'a:é' });
  it.each<[string, Record<string, unknown>, Record<string, string | undefined>, string | undefined]>([
    ['all of them', call(1), {}, undefined],
    ['no revision', call(1), { 'mcp-protocol-version': undefined }, 'HEADER_MISMATCH'],
    ['another revision', call(1), { 'mcp-protocol-version': '2025-11-25' }, 'HEADER_MISMATCH'],
    ['no method', call(1), { 'mcp-method': undefined }, 'HEADER_MISMATCH'],
    ['another method', call(1), { 'mcp-method': 'tools/list' }, 'HEADER_MISMATCH'],
    ['a method in another case', call(1), { 'mcp-method': 'TOOLS/CALL' }, 'HEADER_MISMATCH'],
    ['a method twice', call(1), { 'mcp-method': 'tools/call, tools/call' }, 'HEADER_MISMATCH'],
    ['no name', call(1), { 'mcp-name': undefined }, 'HEADER_MISMATCH'],
    ['another name', call(1), { 'mcp-name': 'write' }, 'HEADER_MISMATCH'],
    ['an encoded name', call(1), { 'mcp-name': '=?base64?cmVhZA==?=' }, undefined],
    ['a wrongly encoded name', call(1), { 'mcp-name': '=?base64?cmVhZA=?=' }, 'HEADER_MISMATCH'],
    ['an encoded URI', read, { 'mcp-name': '=?base64?YTrDqQ==?=' }, undefined],
    ['a URI that is no ASCII', read, { 'mcp-name': 'a:é' }, 'HEADER_MISMATCH'],
    ['bytes that are no UTF-8', read, { 'mcp-name': '=?base64?YTrp?=' }, 'HEADER_MISMATCH'],
    ['a name for a method without one', stateless(1, 'tools/list'), { 'mcp-name': 'x' }, undefined],
  ])('%s', async (_name, request, headers, code) => {
    const { post } = modernBench();
    const { answer, refused } = post(request, { ...headersOf(request), ...headers });
    const { error } = (await answer) ?? {};
    expect(error?.data.code).toBe(code);
    if (code !== undefined) expect([error?.code, refused.map((one) => one.code)]).toEqual([-32020, [code]]);
  });

  it.each<[unknown, string | undefined, boolean]>([
    ['us-west1', 'us-west1', true],
    ['us-west1', undefined, false],
    ['us-west1', 'eu', false],
    ['ä', '=?base64?w6Q=?=', true],
    [42, '42', true],
    [42, '42.0', true],
    [42, '0x2a', false],
    [42, '43', false],
    [true, 'true', true],
    [true, 'True', false],
    [null, undefined, true],
    [null, 'null', false],
    [undefined, undefined, true],
    [undefined, 'x', false],
    [{ a: 1 }, '[object Object]', false],
  ])('the argument %j with the header %j: %s', async (value, header, accepted) => {
    const { facade, post } = modernBench();
    facade.headers = [{ path: ['at', 'region'], header: 'Region' }];
    const request = call(1, { arguments: { at: value === undefined ? {} : { region: value } } });
    const { answer } = post(request, { ...headersOf(request), 'mcp-param-region': header, 'mcp-param-other': 'x' });
    expect((await answer)?.error?.code).toBe(accepted ? undefined : -32020);
    expect(facade.calls).toHaveLength(accepted ? 1 : 0);
  });

  it('are not looked at over stdio', async () => {
    const { facade, ask } = modernBench();
    facade.headers = [{ path: ['a'], header: 'a' }];
    expect(await ask(call(1))).toHaveProperty('result');
  });
});

describe('the end' + verifies('PR-M06'), () => {
  it('refuses new requests, answers running ones, and closes the session', async () => {
    const { facade, dispatch, ask, post } = modernBench();
    facade.onCall = untilAborted;
    const running = ask(call(1));
    await until(() => facade.calls.length === 1);
    const closing = dispatch.close('It ended.');
    const { answer, refused } = post(call(2));
    expect((await answer)?.error?.data.code).toBe('SHUTTING_DOWN');
    expect(refused.map(({ code }) => code)).toEqual(['SHUTTING_DOWN']);
    await closing;
    expect(await running).toHaveProperty('error');
    expect(facade.closed).toHaveLength(1);
  });

  it('answers INTERNAL, and shows no cause, if the facade throws', async () => {
    const { facade, ask, faults } = modernBench();
    facade.onCall = async () => Promise.reject(new Error('boom at /root/x'));
    const answer = await ask(stateless(1, 'completion/complete', { ref: {}, argument: {} }));
    expect(answer?.error).toMatchObject({ code: -32603, data: { code: 'INTERNAL' } });
    expect(JSON.stringify(answer)).not.toContain('/root');
    expect(faults).toHaveLength(1);
  });
});
