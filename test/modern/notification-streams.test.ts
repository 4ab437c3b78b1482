/** Tests streams of notifications: what a client asked for, tagged, bounded, and decided. */
import { describe, expect, it } from 'vitest';
import { message, until } from '../serve/fake-facade.ts';
import { verifies } from '../verifies.ts';
import { type ModernBench, modernBench, refusing, stateless } from './stateless-bench.ts';

const listen = (id: string | number, notifications: unknown): Record<string, unknown> =>
  stateless(id, 'subscriptions/listen', { notifications });
const tag = (id: string | number): unknown => ({ 'io.modelcontextprotocol/subscriptionId': id });

function open(): ModernBench {
  const bench = modernBench();
  bench.facade.capabilities = () => ({ tools: {}, resources: { subscribe: true } });
  bench.facade.onCall = async (request) =>
    refusing(request) ??
    ((request.args.value as { uri?: string }).uri === 'a:no'
      ? { kind: 'error', error: { code: -32011, message: 'no' } }
      : { kind: 'result', text: '{}' });
  return bench;
}

const methods = ({ facade }: ModernBench): readonly unknown[] =>
  facade.calls.map(({ request }) => [request.method, (request.args.value as { uri?: string }).uri]);

describe('a stream of notifications' + verifies('PR-M13'), () => {
  it('begins with what is honoured: supported lists, and resources whose subscription is allowed', async () => {
    const bench = open();
    const { ask, sent } = bench;
    const done = ask(
      listen('s', {
        toolsListChanged: true,
        promptsListChanged: true,
        resourcesListChanged: false,
        resourceSubscriptions: ['a:b', 'a:no', 'a:b'],
      }),
    );
    await until(() => sent.length === 1);
    expect(sent).toEqual([
      {
        jsonrpc: '2.0',
        method: 'notifications/subscriptions/acknowledged',
        params: { notifications: { toolsListChanged: true, resourceSubscriptions: ['a:b'] }, _meta: tag('s') },
      },
    ]);
    expect(methods(bench)).toEqual([
      ['resources/subscribe', 'a:b'],
      ['resources/subscribe', 'a:no'],
    ]);
    await bench.dispatch.drain();
    expect(await done).toMatchObject({ id: 's', result: { resultType: 'complete', _meta: tag('s') } });
  });

  it('carries only what it asked for, with its own id', async () => {
    const { ask, sent, dispatch } = open();
    void ask(listen(1, { toolsListChanged: true }));
    void ask(listen(2, { resourcesListChanged: true, resourceSubscriptions: ['a:b'] }));
    await until(() => sent.length === 2);
    sent.length = 0;
    dispatch.toolsChanged();
    for (const method of ['resources/list_changed', 'prompts/list_changed', 'message', 'progress'])
      dispatch.notice({ method: `notifications/${method}` });
    for (const uri of ['a:b', 'a:c']) dispatch.notice({ method: 'notifications/resources/updated', params: { uri } });
    expect(sent.map(({ method, params }) => [method, params])).toEqual([
      ['notifications/tools/list_changed', { _meta: tag(1) }],
      ['notifications/resources/list_changed', { _meta: tag(2) }],
      ['notifications/resources/updated', { uri: 'a:b', _meta: tag(2) }],
    ]);
    await dispatch.drain();
  });

  it('ends a subscription with the last stream that follows it', async () => {
    const bench = open();
    const [one, other] = [1, 2].map((id) => bench.post(listen(id, { resourceSubscriptions: ['a:b'] })));
    await until(() => bench.sent.length === 2);
    one?.close();
    expect(await one?.answer).toBeUndefined();
    expect(methods(bench)).toHaveLength(2);
    other?.close();
    await other?.answer;
    await until(() => bench.facade.calls.length === 3);
    expect(methods(bench).at(-1)).toEqual(['resources/unsubscribe', 'a:b']);
    expect(bench.dispatch.running).toBe(0);
  });

  it('over stdio ends by a cancellation of its id, without a response', async () => {
    const { ask, sent, dispatch } = open();
    const done = ask(listen('x', { toolsListChanged: true }));
    await until(() => sent.length === 1);
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'x' } });
    expect(await done).toBeUndefined();
    dispatch.toolsChanged();
    expect(sent).toHaveLength(1);
  });

  it('keeps what a slow client missed, each once, until it reads', async () => {
    const { dispatch } = open();
    const sent: string[] = [];
    let isSlow = false;
    const done = dispatch.handle(message(listen(1, { toolsListChanged: true })), (text) =>
      isSlow ? false : sent.push(text),
    );
    await until(() => sent.length === 1);
    isSlow = true;
    dispatch.toolsChanged();
    dispatch.toolsChanged();
    isSlow = false;
    dispatch.retell?.();
    dispatch.retell?.();
    expect(sent.slice(1).map((text) => (JSON.parse(text) as { method: string }).method)).toEqual([
      'notifications/tools/list_changed',
    ]);
    await dispatch.drain();
    await done;
  });

  it.each([
    undefined,
    null,
    [],
    'all',
    { toolsListChanged: 'yes' },
    { resourceSubscriptions: 'a:b' },
    { resourceSubscriptions: [7] },
    { resourceSubscriptions: [''] },
    { resourceSubscriptions: ['a:'.padEnd(9000, 'x')] },
    { resourceSubscriptions: Array.from({ length: 65 }, (_, at) => `a:${at}`) },
  ])('is refused with the filter %j', async (filter) => {
    const { ask, facade } = open();
    expect(await ask(listen(1, filter))).toMatchObject({ error: { code: -32602, data: { code: 'WIRE_PARAMS' } } });
    expect(facade.calls).toEqual([]);
  });

  it('is one of at most 64 of a session', async () => {
    const { ask, sent, dispatch } = open();
    for (let id = 0; id < 64; id += 1) void ask(listen(id, {}));
    await until(() => sent.length === 64);
    expect(await ask(listen(64, {}))).toMatchObject({ error: { data: { code: 'RATE_LIMITED' } } });
    await dispatch.drain();
  });
});
