/** Tests tools that their servers run as tasks, for clients that do not know tasks. */

import { afterEach, describe, expect, it } from 'vitest';
import { inFull } from '../harness/full-tests.ts';
import { tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import { type ProtocolFacade, type ProtocolServer, type Step, startProtocol } from './protocol-facade.ts';

type Json = Readonly<Record<string, unknown>>;

let facade: ProtocolFacade;
afterEach(() => facade.close());

const TASKS = { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z', ttl: 60_000 };
const task = (status: string, more: object = {}): Json => ({
  taskId: 'of-the-server',
  status,
  ...TIMES,
  pollInterval: 100,
  ...more,
});
const raw = (value: unknown, more: object = {}): Step => ({ raw: JSON.stringify(value), ...more });
const RELATED = { 'io.modelcontextprotocol/related-task': { taskId: 'of-the-server' } };
const RESULT = { content: [{ type: 'text', text: 'done, by KEY-7654321' }], _meta: { ...RELATED, kept: 1 } };
const LONG = tool('long', { execution: { taskSupport: 'required' } });

const server = (answers: ProtocolServer['answers'], more: object = {}): ProtocolServer => ({
  capabilities: TASKS,
  answers: {
    'tools/list': raw({ tools: [LONG, tool('short')] }),
    'tools/call': raw({ task: task('working') }),
    'tasks/get': [raw(task('working')), raw(task('completed'))],
    'tasks/result': raw(RESULT),
    'tasks/cancel': raw(task('cancelled')),
    ...answers,
  },
  settings: { semantics: { long: 'read', short: 'read' }, env: { KEY: '${KEY}' }, ...more },
});
const start = async (answers: ProtocolServer['answers'] = {}, more: object = {}): Promise<void> => {
  facade = await startProtocol(
    { s: server(answers, more) },
    {
      profiles: { p: { servers: ['s'], expose: { primitives: {}, tools: ['s.*'] } } },
      rules: [{ id: 'all', outcome: 'allow', when: { servers: ['s'], kind: ['tool', 'elicitation'] } }],
    },
    { env: { KEY: 'KEY-7654321' } },
  );
};
const methods = (): readonly unknown[] =>
  facade
    .got('s')
    .map(({ method }) => method)
    .filter((method) => /^(tasks|tools.call)/.test(String(method)));
const text = ({ result }: Json): string =>
  ((result as { content?: readonly { text: string }[] }).content ?? []).map((one) => one.text).join('\n');
const CALL = { name: 's_long', arguments: { n: 1 } };

describe('a tool that its server runs only as a task' + verifies('PR-T06'), () => {
  it('is listed as one that can be called, and answers a plain call with its result', async () => {
    await start();
    const client = await facade.connect();
    const { tools } = (await client.request('tools/list')).result as { tools: readonly Json[] };
    expect(tools.map(({ execution }) => execution)).toEqual([{ taskSupport: 'optional' }, undefined]);
    const answer = await client.request('tools/call', CALL);
    expect(text(answer)).toBe('done, by [redacted]');
    expect(JSON.stringify(answer)).not.toContain('of-the-server');
    expect((answer.result as { _meta: Json })._meta.kept).toBe(1);
    expect(methods()).toEqual(['tools/call', 'tasks/get', 'tasks/get', 'tasks/result']);
    expect(facade.got('s').find(({ method }) => method === 'tools/call')?.params).toMatchObject({
      name: 'long',
      arguments: { n: 1 },
      task: { ttl: 360_000 },
    });
    expect(facade.records().filter(({ type }) => type === 'outcome')).toMatchObject([
      { tool: 'long', executed: 'yes' },
    ]);
  });

  it('passes its progress on, also after the task was created', async () => {
    const progress = (n: number): string =>
      `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":${n},"message":"KEY-7654321"}}`;
    await start({
      'tools/call': raw({ task: task('working') }, { before: [progress(1)] }),
      'tasks/get': [raw(task('working'), { before: [progress(2)] }), raw(task('completed'))],
    });
    const client = await facade.connect();
    await client.request('tools/call', { ...CALL, _meta: { progressToken: 'mine' } });
    expect(client.received).toMatchObject([
      { method: 'notifications/progress', params: { progressToken: 'mine', progress: 1, message: '[redacted]' } },
      { method: 'notifications/progress', params: { progressToken: 'mine', progress: 2, message: '[redacted]' } },
    ]);
    expect(facade.assembled.gateway.health({ ...facade.open('me').principal, owner: true })).toMatchObject({
      s: 'healthy',
    });
  });

  inFull('is cancelled at the server if the client cancels, or if it takes longer than the hard limit', async () => {
    await start({ 'tasks/get': raw(task('working')) }, { hardTimeoutMs: 1_500, timeoutMs: 1_000 });
    const client = await facade.connect();
    void client.request('tools/call', CALL);
    await expect.poll(methods).toContain('tasks/get');
    client.notify('notifications/cancelled', { requestId: 2 });
    await expect.poll(() => methods().filter((method) => method === 'tasks/cancel')).toHaveLength(1);
    const late = await client.request('tools/call', CALL);
    expect(text(late)).toContain('took longer than 1500 ms in all and was cancelled');
    await expect.poll(() => methods().filter((method) => method === 'tasks/cancel')).toHaveLength(2);
    expect(facade.records().filter(({ type }) => type === 'outcome')).toMatchObject([
      { executed: 'unknown', code: 'CANCELLED' },
      { executed: 'unknown', code: 'TOOL_TIMEOUT' },
    ]);
  });

  it('asks the client during tasks/result when it waits for input', async () => {
    const form = { message: 'Name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
    await start(
      {
        'tasks/get': raw(task('input_required')),
        'tasks/result': raw(
          { content: [{ type: 'text', text: '$ANSWER' }] },
          { ask: [{ method: 'elicitation/create', params: { ...form, _meta: RELATED } }] },
        ),
      },
      { asks: ['elicitation'] },
    );
    const client = await facade.connect({
      capabilities: { elicitation: {} },
      answers: { 'elicitation/create': { result: { action: 'accept', content: { name: 'Ann' } } } },
    });
    expect(text(await client.request('tools/call', CALL))).toContain('"name":"Ann"');
  });

  it.each([
    ['the server ends', { 'tasks/get': { exit: true } }, 'TOOL_CRASHED', 'unknown'],
    ['the server cancels it', { 'tasks/get': raw(task('cancelled')) }, 'TOOL_FAILED', 'unknown'],
    [
      'the server names another task',
      { 'tasks/get': raw(task('completed', { taskId: 'other' })) },
      'UPSTREAM_INVALID',
      'unknown',
    ],
    ['the server makes up a status', { 'tasks/get': raw(task('resting')) }, 'UPSTREAM_INVALID', 'unknown'],
    ['the task has no id', { 'tools/call': raw({ task: { status: 'working' } }) }, 'UPSTREAM_INVALID', 'unknown'],
  ])('is reported as having run, or maybe, if %s', async (_, answers, code, executed) => {
    await start(answers as ProtocolServer['answers']);
    const client = await facade.connect();
    await client.request('tools/call', CALL);
    expect(facade.records().findLast(({ type }) => type === 'outcome')).toMatchObject({ code, executed });
  });

  it('passes an error of its task on', async () => {
    await start({
      'tasks/get': raw(task('failed')),
      'tasks/result': { error: '{"code":-5,"message":"KEY-7654321 gone"}' },
    });
    const client = await facade.connect();
    expect((await client.request('tools/call', CALL)).error).toMatchObject({ code: -5, message: '[redacted] gone' });
  });

  it('is called without a task if the server does not offer tasks, or answers at once', async () => {
    await start({ 'tools/call': raw(RESULT) });
    const client = await facade.connect();
    expect(text(await client.request('tools/call', CALL))).toBe('done, by [redacted]');
    await facade.close();
    facade = await startProtocol(
      { s: { ...server({ 'tools/call': raw(RESULT) }), capabilities: { tools: {} } } },
      {
        profiles: { p: { servers: ['s'], expose: { primitives: {}, tools: ['s.*'] } } },
        rules: [{ id: 'all', outcome: 'allow', when: { servers: ['s'] } }],
      },
      { env: { KEY: 'KEY-7654321' } },
    );
    const other = await facade.connect();
    await other.request('tools/call', CALL);
    expect(facade.got('s').find(({ method }) => method === 'tools/call')?.params).not.toHaveProperty('task');
  });
});

const MODERN = {
  resultType: 'complete',
  supportedVersions: ['2026-07-28'],
  capabilities: { tools: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } },
};
const flat = (status: string, more: object = {}): Json => ({
  resultType: 'complete',
  taskId: 'of-the-server',
  status,
  createdAt: TIMES.createdAt,
  lastUpdatedAt: TIMES.createdAt,
  ttlMs: 60_000,
  pollIntervalMs: 100,
  ...more,
});
const FORM = {
  method: 'elicitation/create',
  params: { message: 'Name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } },
};

describe('a task of a server of revision 2026-07-28' + verifies('PR-T07'), () => {
  const modern = (answers: ProtocolServer['answers']): ProtocolServer['answers'] => ({
    'server/discover': raw(MODERN),
    'tools/list': raw({ resultType: 'complete', tools: [tool('long'), tool('short')], ttlMs: 0 }),
    'tools/call': raw(flat('working', { resultType: 'task' })),
    'tasks/get': [raw(flat('working')), raw(flat('completed', { result: RESULT }))],
    'tasks/update': raw({ resultType: 'complete' }),
    'tasks/cancel': raw({ resultType: 'complete' }),
    ...answers,
  });

  it('is followed, and the caller gets its result', async () => {
    await start(modern({}));
    const client = await facade.connect();
    expect(text(await client.request('tools/call', CALL))).toBe('done, by [redacted]');
    const [call, get] = facade.got('s').filter(({ method }) => /^(tools.call|tasks)/.test(String(method)));
    for (const { params } of [call, get] as Json[])
      expect((params as { _meta: Json })._meta['io.modelcontextprotocol/clientCapabilities']).toMatchObject({
        extensions: { 'io.modelcontextprotocol/tasks': {} },
      });
    expect(get?.params).toMatchObject({ taskId: 'of-the-server' });
  });

  it('gets the answers of the client once, by tasks/update', async () => {
    await start(
      modern({
        'tasks/get': [
          raw(flat('input_required', { inputRequests: { name: FORM } })),
          raw(flat('input_required', { inputRequests: { name: FORM } })),
          raw(flat('completed', { result: RESULT })),
        ],
      }),
      { asks: ['elicitation'] },
    );
    const client = await facade.connect({
      capabilities: { elicitation: {} },
      answers: { 'elicitation/create': { result: { action: 'accept', content: { name: 'Ann' } } } },
    });
    expect(text(await client.request('tools/call', CALL))).toBe('done, by [redacted]');
    const updates = facade.got('s').filter(({ method }) => method === 'tasks/update');
    expect(updates).toMatchObject([
      { params: { taskId: 'of-the-server', inputResponses: { name: { action: 'accept', content: { name: 'Ann' } } } } },
    ]);
  });

  it('is cancelled if no one may answer it, and its error passes', async () => {
    await start(modern({ 'tasks/get': raw(flat('input_required', { inputRequests: { name: FORM } })) }));
    const client = await facade.connect({ capabilities: { elicitation: {} } });
    await client.request('tools/call', CALL);
    expect(facade.records().findLast(({ type }) => type === 'outcome')).toMatchObject({
      code: 'UPSTREAM_REQUEST_DENIED',
    });
    await expect.poll(methods).toContain('tasks/cancel');
    facade.rescript('s', {
      capabilities: TASKS,
      answers: modern({
        'tasks/get': raw(flat('failed', { error: { code: -7, message: 'no', data: { n: 1 } } })),
      }) as Record<string, Step>,
    });
    expect((await client.request('tools/call', CALL)).error).toMatchObject({ code: -7, message: 'no', data: { n: 1 } });
  });
});
