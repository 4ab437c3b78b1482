/** Tests calls that clients run as tasks: their life, what they show, and attacks on them. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';
import {
  type ProtocolFacade,
  type ProtocolServer,
  type Step,
  startProtocol,
  type WireClient,
} from './protocol-facade.ts';

type Json = Readonly<Record<string, unknown>>;

let facade: ProtocolFacade;
afterEach(() => facade.close());

const OFFERED = { tools: {}, tasks: { list: {}, cancel: {}, requests: { tools: { call: {} } } } };
const raw = (value: unknown, more: object = {}): Step => ({ raw: JSON.stringify(value), ...more });
const task = (status: string, more: object = {}): Json => ({
  taskId: 'of-the-server',
  status,
  createdAt: '2026-01-01T00:00:00Z',
  ttl: 60_000,
  pollInterval: 100,
  ...more,
});
const RELATED = 'io.modelcontextprotocol/related-task';
const RESULT = {
  content: [{ type: 'text', text: 'done, by KEY-7654321' }],
  _meta: { [RELATED]: { taskId: 'of-the-server' }, kept: 1 },
};
const LONG = { name: 's_long', arguments: { n: 1 } };
const run = (name = 'long', more: object = {}): Json => ({ name: `s_${name}`, arguments: { n: 1 }, task: more });

const server = (answers: ProtocolServer['answers'] = {}, more: object = {}): ProtocolServer => ({
  capabilities: OFFERED,
  answers: {
    'tools/list': raw({
      tools: [
        tool('long', { execution: { taskSupport: 'required' } }),
        tool('maybe', { execution: { taskSupport: 'optional' } }),
        tool('short'),
      ],
    }),
    'tools/call': raw({ task: task('working') }),
    'tasks/get': [raw(task('working')), raw(task('completed', { statusMessage: 'by KEY-7654321\u001b[31m' }))],
    'tasks/result': raw(RESULT),
    'tasks/cancel': raw(task('cancelled')),
    ...answers,
  },
  settings: { semantics: { long: 'read', maybe: 'read', short: 'read' }, env: { KEY: '${KEY}' }, ...more },
});
const start = async (one = server(), rules: readonly object[] = []): Promise<void> => {
  facade = await startProtocol(
    { s: one },
    {
      principals: [
        { id: 'me', profiles: ['p'], stdio: true },
        { id: 'you', profiles: ['p'], stdio: true },
      ],
      profiles: { p: { servers: ['s'], expose: { primitives: {}, tools: ['s.*'] } } },
      rules: [{ id: 'all', outcome: 'allow', when: { servers: ['s'], kind: ['tool', 'elicitation'] } }, ...rules],
    },
    { env: { KEY: 'KEY-7654321' } },
  );
};
/** The server works until the test says otherwise. */
const WORKING = server({ 'tasks/get': raw(task('working')) });

const methods = (): readonly unknown[] =>
  facade
    .got('s')
    .map(({ method }) => method)
    .filter((method) => /^(tasks|tools.call)/.test(String(method)));
const created = async (client: Pick<WireClient, 'request'>, params = run()): Promise<Json> => {
  const { result, error } = await client.request('tools/call', params);
  if (error !== undefined) throw new Error(JSON.stringify(error));
  return (result as { task: Json }).task;
};
const codeOf = ({ error }: Json): unknown => (error as { data?: { code?: unknown } } | undefined)?.data?.code;
const records = (): readonly Json[] => facade.records().filter(({ type }) => type === 'task');

describe('a call that a client runs as a task' + verifies('PR-T08'), () => {
  it('has an id of Tollgate, a state, and the shaped result of the tool', async () => {
    await start();
    const client = await facade.connect();
    expect(client.hello.capabilities).toMatchObject({
      tasks: { requests: { tools: { call: {} } }, list: {}, cancel: {} },
    });
    const made = await created(client, run('long', { ttl: 50_000 }));
    expect(made).toMatchObject({ taskId: expect.stringMatching(/^[0-9a-f]{32}$/), status: 'working', ttl: 50_000 });
    const { taskId } = made;
    await expect
      .poll(async () => (await client.request('tasks/get', { taskId })).result)
      .toMatchObject({ taskId, status: 'completed', statusMessage: 'by [redacted]' });
    const { result } = await client.request('tasks/result', { taskId });
    expect(result).toMatchObject({
      content: [{ type: 'text', text: 'done, by [redacted]' }],
      _meta: { [RELATED]: { taskId }, kept: 1 },
    });
    expect((await client.request('tasks/list')).result).toMatchObject({ tasks: [{ taskId, status: 'completed' }] });
    expect(client.received).toContainEqual(
      expect.objectContaining({
        method: 'notifications/tasks/status',
        params: expect.objectContaining({ taskId, status: 'completed' }),
      }),
    );
    expect(JSON.stringify([made, result, client.received])).not.toContain('of-the-server');
    const outcome = facade.records().find(({ type }) => type === 'outcome');
    expect(outcome).toMatchObject({ tool: 'long', verb: 'read', executed: 'yes' });
    expect(records()).toMatchObject([{ event: 'delivered', id: outcome?.id, tool: 'long', server: 's' }]);
    expect(JSON.stringify(facade.records())).not.toContain(String(taskId));
  });

  it('waits in tasks/result for the end, and asks the client there', async () => {
    const form = { message: 'Name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
    await start(
      server(
        {
          'tasks/get': raw(task('input_required')),
          'tasks/result': raw(
            { content: [{ type: 'text', text: '$ANSWER' }] },
            { ask: [{ method: 'elicitation/create', params: form }] },
          ),
        },
        { asks: ['elicitation'] },
      ),
    );
    const client = await facade.connect({
      capabilities: { elicitation: {} },
      answers: { 'elicitation/create': { result: { action: 'accept', content: { name: 'Ann' } } } },
    });
    const { taskId } = await created(client);
    const state = async (): Promise<unknown> => (await client.request('tasks/get', { taskId })).result;
    await expect.poll(state).toMatchObject({ status: 'input_required' });
    expect(client.received.filter(({ method }) => method === 'elicitation/create')).toEqual([]);
    const { result } = await client.request('tasks/result', { taskId });
    expect(JSON.stringify(result)).toContain('Ann');
    expect(client.received.find(({ method }) => method === 'elicitation/create')?.params).toMatchObject({
      message: '[s] Name?',
      _meta: { [RELATED]: { taskId } },
    });
  });

  it('passes progress on until it ends', async () => {
    const progress = (n: number): string =>
      `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,"progress":${n}}}`;
    await start(server({ 'tasks/get': [raw(task('working'), { before: [progress(1)] }), raw(task('completed'))] }));
    const client = await facade.connect();
    const { taskId } = await created(client, { ...run(), _meta: { progressToken: 'mine' } });
    await client.request('tasks/result', { taskId });
    expect(client.received.filter(({ method }) => method === 'notifications/progress')).toMatchObject([
      { params: { progressToken: 'mine', progress: 1 } },
    ]);
  });

  it('is cancelled with tasks/cancel, also at the server', async () => {
    await start(WORKING);
    const client = await facade.connect();
    const { taskId } = await created(client);
    expect((await client.request('tasks/cancel', { taskId })).result).toMatchObject({ taskId, status: 'cancelled' });
    await expect.poll(methods).toContain('tasks/cancel');
    expect(codeOf(await client.request('tasks/cancel', { taskId }))).toBe('TASK_ENDED');
    expect(codeOf(await client.request('tasks/result', { taskId }))).toBe('CANCELLED');
    expect(facade.records().find(({ type }) => type === 'outcome')).toMatchObject({
      code: 'CANCELLED',
      executed: 'unknown',
    });
    expect(records()).toMatchObject([{ event: 'cancelled' }, { event: 'delivered' }]);
  });

  it('is refused for a tool that does not run as a task, and as usual for an unknown one', async () => {
    await start();
    const client = await facade.connect();
    expect((await client.request('tools/call', run('short'))).error).toMatchObject({ code: -32601 });
    expect((await client.request('tools/call', run('none'))).error).toMatchObject({ code: -32602 });
    expect(codeOf(await client.request('tools/call', { ...LONG, task: { ttl: 'x' } }))).toBe('WIRE_PARAMS');
    expect(methods()).toEqual([]);
  });

  it('is failed at once if the policy refuses it', async () => {
    await start(server(), [{ id: 'no', outcome: 'deny', when: { tools: ['s.long'], args: { n: { equals: 1 } } } }]);
    const client = await facade.connect();
    const { taskId, status } = await created(client);
    expect([status, methods()]).toEqual(['failed', []]);
    const { result } = await client.request('tasks/result', { taskId });
    expect(result).toMatchObject({ isError: true, _meta: { 'tollgate/code': 'DENIED', [RELATED]: { taskId } } });
  });

  it('is a task of the server too if the tool allows one, and a plain call is not', async () => {
    await start();
    const client = await facade.connect();
    const { taskId } = await created(client, run('maybe'));
    await client.request('tasks/result', { taskId });
    await client.request('tools/call', { name: 's_maybe', arguments: {} });
    const calls = facade.got('s').filter(({ method }) => method === 'tools/call');
    expect(calls.map(({ params }) => 'task' in (params as object))).toEqual([true, false]);
  });

  it('is not offered by servers without tasks', async () => {
    await start({ ...server(), answers: { 'tools/list': raw({ tools: [tool('short')] }) } });
    await facade.list(facade.open('me'));
    expect((await facade.connect()).hello.capabilities).not.toHaveProperty('tasks');
  });
});

describe('a task, under attack' + verifies('PR-T09'), () => {
  it('is unknown to other principals, to other sessions, and by the id of the server', async () => {
    await start(WORKING);
    const mine = await facade.connect();
    const { taskId } = await created(mine);
    const thieves = [await facade.connect({ as: 'you' }), await facade.connect()];
    for (const client of thieves)
      for (const method of ['tasks/get', 'tasks/result', 'tasks/cancel']) {
        const random = await client.request(method, { taskId: 'f'.repeat(32) });
        expect(codeOf(random)).toBe('UNKNOWN_TASK');
        const { data: one, ...stolen } = (await client.request(method, { taskId })).error as { data: Json };
        const { data: other, ...none } = random.error as { data: Json };
        expect<unknown>([stolen, { ...one, decision: '' }]).toEqual([none, { ...other, decision: '' }]);
      }
    expect((await thieves[1]?.request('tasks/list'))?.result).toEqual({ tasks: [] });
    expect(codeOf(await mine.request('tasks/get', { taskId: 'of-the-server' }))).toBe('UNKNOWN_TASK');
    expect(codeOf(await mine.request('tasks/get', {}))).toBe('UNKNOWN_TASK');
    expect(records().filter(({ event, code }) => event === 'refused' && code === 'UNKNOWN_TASK')).toHaveLength(14);
    expect((await mine.request('tasks/get', { taskId })).result).toMatchObject({ status: 'working' });
    expect(methods()).not.toContain('tasks/cancel');
  });

  it('gives out no result after a stop', async () => {
    await start();
    const client = await facade.connect();
    const { taskId } = await created(client);
    await expect
      .poll(async () => (await client.request('tasks/get', { taskId })).result)
      .toMatchObject({ status: 'completed' });
    const state = openState(facade.assembled.config.state);
    new KillSwitch(state).throw({ since: new Date().toISOString(), by: 'test' });
    await state.close();
    expect(codeOf(await client.request('tasks/result', { taskId }))).toBe('SWITCHED_OFF');
    expect(records()).toMatchObject([{ event: 'refused', code: 'SWITCHED_OFF' }]);
  });

  it('leaves nothing behind: it ends with its session, and with its time', async () => {
    await start(WORKING);
    const client = await facade.connect();
    await created(client);
    await client.close();
    await expect.poll(methods).toContain('tasks/cancel');
    const other = await facade.connect();
    const { taskId } = await created(other, run('long', { ttl: 300 }));
    await sleep(500);
    expect(codeOf(await other.request('tasks/get', { taskId }))).toBe('UNKNOWN_TASK');
    await expect.poll(() => methods().filter((method) => method === 'tasks/cancel')).toHaveLength(2);
    await expect.poll(() => facade.records().filter(({ type }) => type === 'outcome')).toHaveLength(2);
  });

  it('is one of at most 32 of its principal', async () => {
    await start(server(), [{ id: 'no', outcome: 'deny', when: { tools: ['s.long'], args: { n: { equals: 1 } } } }]);
    const [one, two] = [await facade.connect(), await facade.connect()];
    for (let at = 0; at < 16; at += 1) await Promise.all([created(one), created(two)]);
    expect(codeOf(await one.request('tools/call', run()))).toBe('RATE_LIMITED');
    const you = await facade.connect({ as: 'you' });
    expect((await created(you)).status).toBe('failed');
    await two.close();
    expect((await created(one)).status).toBe('failed');
  });
});

describe('a task of a client of revision 2026-07-28' + verifies('PR-T10'), () => {
  const KNOWS = { elicitation: {}, extensions: { 'io.modelcontextprotocol/tasks': {} } };

  it('is created for a client that knows tasks, and carries its result', async () => {
    await start();
    const client = facade.connectStateless(KNOWS);
    const hello = (await client.request('server/discover')).result as Json;
    expect(hello.capabilities).toMatchObject({ extensions: { 'io.modelcontextprotocol/tasks': {} } });
    expect(hello.capabilities).not.toHaveProperty('tasks');
    const made = (await client.request('tools/call', LONG)).result as Json;
    expect(made).toMatchObject({
      resultType: 'task',
      taskId: expect.stringMatching(/^[0-9a-f]{32}$/),
      status: 'working',
    });
    const { taskId } = made;
    const look = async (): Promise<unknown> => (await client.request('tasks/get', { taskId })).result;
    await expect.poll(look).toMatchObject({
      resultType: 'complete',
      taskId,
      status: 'completed',
      result: { content: [{ text: 'done, by [redacted]' }] },
    });
    expect((await client.request('tasks/cancel', { taskId })).result).toMatchObject({ resultType: 'complete' });
    expect((await client.request('tasks/result', { taskId })).error).toMatchObject({ code: -32601 });
    expect((await client.request('tools/call', { name: 's_maybe', arguments: {} })).result).toMatchObject({
      resultType: 'complete',
    });
  });

  it('asks in tasks/get, and is answered by tasks/update', async () => {
    const form = { message: 'Name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } } } };
    await start(
      server(
        {
          'tasks/get': raw(task('input_required')),
          'tasks/result': raw(
            { content: [{ type: 'text', text: '$ANSWER' }] },
            { ask: [{ method: 'elicitation/create', params: form }] },
          ),
        },
        { asks: ['elicitation'] },
      ),
    );
    const client = facade.connectStateless(KNOWS);
    const { taskId } = (await client.request('tools/call', LONG)).result as Json;
    const look = async (): Promise<Json> => (await client.request('tasks/get', { taskId })).result as Json;
    await expect.poll(look).toMatchObject({
      status: 'input_required',
      inputRequests: { q1: { method: 'elicitation/create', params: { message: '[s] Name?' } } },
    });
    const inputResponses = { other: {}, q1: { action: 'accept', content: { name: 'Ann' } } };
    expect((await client.request('tasks/update', { taskId, inputResponses })).result).toMatchObject({
      resultType: 'complete',
    });
    await expect.poll(look).toMatchObject({ status: 'completed' });
    expect(JSON.stringify(await look())).toContain('Ann');
  });

  it('is not created for another client, whose requests about tasks are refused', async () => {
    await start();
    const client = facade.connectStateless({});
    expect((await client.request('tools/call', LONG)).result).toMatchObject({
      content: [{ text: 'done, by [redacted]' }],
    });
    expect((await client.request('tasks/get', { taskId: 'x' })).error).toMatchObject({
      code: -32021,
      data: { requiredCapabilities: { extensions: { 'io.modelcontextprotocol/tasks': {} } } },
    });
  });
});
