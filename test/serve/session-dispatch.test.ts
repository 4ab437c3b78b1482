/** Tests the protocol of one session, message by message. */

import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { oneLine } from '../../adapters/rpc/framing.ts';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { joinText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Reply } from '../../facade/serve/facade-port.ts';
import type { Dispatch } from '../../facade/serve/legacy-dispatch.ts';
import { eraOf, negotiate } from '../../facade/serve/protocol-revisions.ts';
import { notificationText, refusalText, resultText } from '../../facade/serve/reply-text.ts';
import { openDispatch } from '../../facade/serve/session-dispatch.ts';
import { metaOf } from '../modern/stateless-bench.ts';
import { verifies } from '../verifies.ts';
import {
  ALICE,
  echo,
  FakeFacade,
  initialize,
  LIST_TEXT,
  message,
  noFault,
  request,
  untilAborted,
} from './fake-facade.ts';

interface Bench {
  readonly facade: FakeFacade;
  readonly dispatch: Dispatch;
  /** Notifications of the session, and of requests. */
  readonly notified: string[];
  readonly sent: string[];
  readonly faults: unknown[];
  ask(value: unknown): Promise<Answer | undefined>;
  text(value: unknown): Promise<string | undefined>;
}

interface Answer {
  readonly id: unknown;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly code: number; readonly message: string; readonly data: Record<string, unknown> };
}

function bench(era: 'legacy' | 'both' = 'legacy'): Bench {
  const facade = new FakeFacade();
  const notified: string[] = [];
  const sent: string[] = [];
  const faults: unknown[] = [];
  const session = facade.openSession(ALICE, 'stdio');
  const dispatch = openDispatch(era, {
    facade,
    session,
    notify: (text) => notified.push(text),
    onFault: (thrown) => faults.push(thrown),
  });
  const text = async (value: unknown): Promise<string | undefined> => {
    const reply = await dispatch.handle(message(value), (line) => sent.push(line));
    return reply && joinText(reply);
  };
  const ask = async (value: unknown): Promise<Answer | undefined> => {
    const reply = await text(value);
    return reply === undefined ? undefined : (JSON.parse(reply) as Answer);
  };
  return { facade, dispatch, notified, sent, faults, ask, text };
}

async function ready(): Promise<Bench> {
  const made = bench();
  await made.ask(initialize());
  return made;
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('initialize', () => {
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };

  it.each(['2024-11-05', '2025-03-26', '2025-06-18', '2025-11-25'])('accepts the revision %s', async (asked) => {
    const reply = await bench().ask(initialize(1, asked));
    expect(reply?.result).toEqual({
      protocolVersion: asked,
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: 'tollgate', version },
      instructions: 'Use read.',
    });
  });

  it.each(['2026-07-28', '2024-10-07', '', 7, null, undefined])(
    "answers Tollgate's revision if asked for %s",
    async (asked) => {
      const reply = await bench().ask(request(1, 'initialize', { protocolVersion: asked }));
      expect(reply?.result?.protocolVersion).toBe('2025-11-25');
    },
  );

  it('works without params and without instructions', async () => {
    const { facade, ask } = bench();
    facade.words = '';
    expect(await ask(request('a', 'initialize'))).toMatchObject({ id: 'a', result: { protocolVersion: '2025-11-25' } });
    expect(await ask(request('b', 'initialize'))).not.toHaveProperty('result.instructions');
  });

  it('may follow a probe of the modern era on the same connection' + verifies('PR-M01'), async () => {
    const { ask } = bench('both');
    const modern = metaOf({});
    expect(await ask(request('server-discover-probe-1', 'server/discover', { _meta: modern }))).toMatchObject({
      id: 'server-discover-probe-1',
      result: { resultType: 'complete', supportedVersions: expect.arrayContaining(['2026-07-28', '2025-11-25']) },
    });
    expect(await ask(request(1, 'tools/list'))).toMatchObject({ error: { data: { code: 'NOT_INITIALIZED' } } });
    expect((await ask(initialize()))?.result).not.toHaveProperty('resultType');
    expect((await ask(request(2, 'tools/list')))?.result).not.toHaveProperty('resultType');
    expect((await ask(request(3, 'tools/list', { _meta: modern })))?.result).toHaveProperty('resultType', 'complete');
  });

  it('and modern requests of one connection share one session, which ends once' + verifies('PR-M08'), async () => {
    const { ask, facade, dispatch } = bench('both');
    await ask(initialize());
    await ask(request(1, 'tools/call', { name: 'read' }));
    await ask(request(2, 'tools/call', { name: 'read', _meta: metaOf({}) }));
    expect(new Set(facade.calls.map(({ session }) => session.id)).size).toBe(1);
    await Promise.all([dispatch.close('It ended.'), dispatch.close('It ended.')]);
    expect(facade.closed).toHaveLength(1);
  });

  it('answers INTERNAL and reports the error if the facade throws', async () => {
    const { facade, ask, faults } = bench();
    facade.instructions = () => {
      throw new Error('secret path /home/x');
    };
    const reply = await ask(initialize());
    expect(reply?.error).toMatchObject({ code: -32603, data: { code: 'INTERNAL' } });
    expect(JSON.stringify(reply)).not.toContain('secret');
    expect(faults).toHaveLength(1);
  });
});

describe.each(['legacy', 'modern', 'both'] as const)('the running requests of a connection: %s', (era) => {
  it('include each task of the session once', () => {
    const facade = new FakeFacade();
    facade.runningTasks = () => 3;
    const session = facade.openSession(ALICE, 'stdio');
    const dispatch = openDispatch(era, { facade, session, notify: () => true, onFault: noFault });
    expect(dispatch.running).toBe(3);
  });
});

describe('a session before initialize', () => {
  it.each(['tools/list', 'tools/call', 'resources/list', 'logging/setLevel'])('refuses %s', async (method) => {
    const { ask, facade } = bench();
    expect(await ask(request(1, method, { name: 'read' }))).toMatchObject({
      error: { code: -32002, data: { code: 'NOT_INITIALIZED' } },
    });
    expect(facade.calls).toHaveLength(0);
  });

  it('answers ping', async () => {
    expect(await bench().text(request(1, 'ping'))).toBe('{"jsonrpc":"2.0","id":1,"result":{}}');
  });
});

describe('the methods of a session', () => {
  it('answer ping and a level of log messages', async () => {
    const { text, facade } = await ready();
    expect(await text(request('x', 'ping'))).toBe('{"jsonrpc":"2.0","id":"x","result":{}}');
    expect(await text(request('x', 'logging/setLevel', { level: 'error' }))).toBe(
      '{"jsonrpc":"2.0","id":"x","result":{}}',
    );
    expect(facade.opened[0]?.logLevel).toBe('error');
    expect(await text(request('x', 'logging/setLevel', { level: 'loud' }))).toContain('WIRE_PARAMS');
  });

  it.each(['resources/list', 'resources/templates/list', 'prompts/list'])('pass %s to the facade', async (method) => {
    const { text } = await ready();
    expect(await text(request('x', method))).toBe(`{"jsonrpc":"2.0","id":"x","result":${LIST_TEXT}}`);
  });

  it.each([
    'resources/read',
    'completion/complete',
    'sampling/createMessage',
    'elicitation/create',
    'roots/list',
    'TOOLS/CALL',
    'tools/call ',
    'tools/call\0',
    '__proto__',
    'constructor',
  ])('pass %j to the facade by its method, with all of its params', async (method) => {
    const { ask, facade } = await ready();
    await ask(request(3, method, { uri: 'x' }));
    expect(facade.calls.map((call) => call.request)).toMatchObject([
      { method, name: method, args: { text: '{"uri":"x"}' } },
    ]);
  });

  it('pass a prompt by its name', async () => {
    const { ask, facade } = await ready();
    await ask(request(3, 'prompts/get', { name: 'sum', arguments: { a: 'b' } }));
    expect(facade.calls[0]?.request).toMatchObject({
      method: 'prompts/get',
      name: 'sum',
      args: { text: '{"a":"b"}' },
    });
    expect(await ask(request(4, 'prompts/get', {}))).toMatchObject({ error: { data: { code: 'WIRE_PARAMS' } } });
  });

  it.each([
    'notifications/initialized',
    'notifications/roots/list_changed',
    'notifications/unknown',
    'notifications/cancelled',
  ])('do not answer the notification %s', async (method) => {
    const { text } = await ready();
    expect(await text({ jsonrpc: '2.0', method })).toBeUndefined();
    expect(await text({ jsonrpc: '2.0', method, params: { requestId: {} } })).toBeUndefined();
  });

  it('ignore responses to requests that were not sent', async () => {
    const { text } = await ready();
    expect(await text({ jsonrpc: '2.0', id: 1, result: {} })).toBeUndefined();
    expect(await text({ jsonrpc: '2.0', id: 1, error: { code: 1, message: 'x' } })).toBeUndefined();
  });

  it('pass the text of a list unchanged', async () => {
    const { facade, text } = await ready();
    expect(await text(request(1, 'tools/list', { cursor: '' }))).toBe(`{"jsonrpc":"2.0","id":1,"result":${LIST_TEXT}}`);
    facade.onList = async () => ({
      kind: 'error',
      error: { code: -32004, message: 'no', data: { code: 'POLICY_FAILED' } },
    });
    expect(await text(request(2, 'tools/list'))).toBe(
      '{"jsonrpc":"2.0","id":2,"error":{"code":-32004,"message":"no","data":{"code":"POLICY_FAILED"}}}',
    );
  });

  it('refuse a cursor that Tollgate did not give out', async () => {
    const { ask } = await ready();
    expect(await ask(request(1, 'tools/list', { cursor: 'abc' }))).toMatchObject({
      error: { code: -32602, data: { code: 'WIRE_PARAMS' } },
    });
    expect(await ask(request(1, 'tools/list', { cursor: null }))).toHaveProperty('result');
  });
});

describe('tools/call', () => {
  it('passes the name, the text of the arguments, and _meta without its token', async () => {
    const { facade, dispatch } = await ready();
    const line =
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read",' +
      '"arguments":{"n": 1.50, "s":"\\u0041"},"_meta":{"progressToken":7,"traceparent":"00-1"}}}';
    await dispatch.handle(readMessage(Buffer.from(line), 'client'), () => undefined);
    const call = facade.calls[0]?.request;
    expect(call?.name).toBe('read');
    expect(call?.args.text).toBe('{"n": 1.50, "s":"\\u0041"}');
    expect(call?.meta).toEqual({ traceparent: '00-1' });
    expect(call?.onProgress).toBeTypeOf('function');
  });

  it('reads missing arguments as {}, and offers no progress without a token', async () => {
    const { facade, ask } = await ready();
    await ask(request(1, 'tools/call', { name: 'read' }));
    expect(facade.calls[0]?.request.args).toEqual({ text: '{}', value: {}, exact: true });
    expect(facade.calls[0]?.request.onProgress).toBeUndefined();
    expect(facade.calls[0]?.request.meta).toBeUndefined();
  });

  it('inserts the text of a result without parsing it', async () => {
    const { facade, text } = await ready();
    const odd = '{"content":[],"n":1.0000000000000000001,"n2":1e400,"x":{}}';
    facade.onCall = async () => ({ kind: 'result', text: odd });
    expect(await text(request('é"', 'tools/call', { name: 'read' }))).toBe(
      `{"jsonrpc":"2.0","id":"é\\"","result":${odd}}`,
    );
  });

  it('passes an error of the facade unchanged', async () => {
    const { facade, ask } = await ready();
    const error = { code: -32042, message: 'url', data: { elicitations: [1] } };
    facade.onCall = async () => ({ kind: 'error', error });
    expect(await ask(request(0, 'tools/call', { name: 'read' }))).toEqual({ jsonrpc: '2.0', id: 0, error });
  });

  it.each([
    [{ name: 1 }],
    [{}],
    [{ name: 'read', _meta: 'x' }],
    [{ name: 'read', _meta: [] }],
    [{ name: 'read', _meta: null }],
    [{ name: 'read', _meta: { progressToken: null } }],
    [{ name: 'read', _meta: { progressToken: {} } }],
    [{ name: 'read', _meta: { progressToken: 1.5 } }],
    [{ name: 'read', _meta: { progressToken: 2 ** 53 } }],
  ])('refuses the params %j', async (params) => {
    const { facade, ask, faults } = await ready();
    expect(await ask(request(1, 'tools/call', params))).toMatchObject({
      id: 1,
      error: { code: -32602, data: { code: 'WIRE_PARAMS' } },
    });
    expect(facade.calls).toHaveLength(0);
    expect(faults).toHaveLength(0);
  });

  it('answers INTERNAL, and reveals no cause, if the facade throws', async () => {
    const { facade, ask, faults } = await ready();
    facade.onCall = async () => Promise.reject(new Error('boom at /root/x'));
    const reply = await ask(request(1, 'tools/call', { name: 'read' }));
    expect(reply?.error).toMatchObject({ code: -32603, data: { code: 'INTERNAL' } });
    expect(JSON.stringify(reply)).not.toContain('boom');
    expect(faults).toHaveLength(1);
  });

  it('keeps code and advice of a refusal, whatever its data contains', () => {
    const error = new TollgateError('POLICY_FAILED', {
      detail: 'seen',
      data: { code: 'OTHER', next: 'lie', decision: 'd1' },
    });
    expect(JSON.parse(refusalText(1, error))).toEqual({
      jsonrpc: '2.0',
      id: 1,
      error: {
        code: -32004,
        message: 'seen',
        data: { code: 'POLICY_FAILED', next: error.next, retryable: false, decision: 'd1' },
      },
    });
    expect(JSON.parse(refusalText(null, new TollgateError('DENIED')))).toMatchObject({
      id: null,
      error: { code: -32603, data: { code: 'DENIED' } },
    });
  });
});

describe('progress of a call', () => {
  it.each(['7', 7, 0, ''])('has the token %j in its own type', async (progressToken) => {
    const { facade, ask, sent } = await ready();
    facade.onCall = async (call) => {
      call.onProgress?.({ progress: 1, total: 2, progressToken: 'forged' });
      return echo(call);
    };
    await ask(request(1, 'tools/call', { name: 'read', _meta: { progressToken } }));
    expect(sent.map((line) => JSON.parse(line))).toEqual([
      { jsonrpc: '2.0', method: 'notifications/progress', params: { progress: 1, total: 2, progressToken } },
    ]);
  });

  it('is not sent after the result, nor after a cancellation', async () => {
    const { facade, ask, sent } = await ready();
    await ask(request(1, 'tools/call', { name: 'read', _meta: { progressToken: 1 } }));
    facade.calls[0]?.request.onProgress?.({ progress: 1 });
    facade.onCall = untilAborted;
    const running = ask(request(2, 'tools/call', { name: 'read', _meta: { progressToken: 2 } }));
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } });
    facade.calls[1]?.request.onProgress?.({ progress: 1 });
    await running;
    expect(sent).toEqual([]);
  });
});

describe('notifications/cancelled', () => {
  it('aborts the call with this id of this type, and sends no answer', async () => {
    const { facade, ask, text, dispatch } = await ready();
    facade.onCall = untilAborted;
    const cancelled = text(request(0, 'tools/call', { name: 'a' }));
    const kept = text(request('0', 'tools/call', { name: 'b' }));
    expect(dispatch.running).toBe(2);
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 0, reason: 'user' } });
    expect(await cancelled).toBeUndefined();
    expect(facade.calls.map(({ request: call }) => call.signal.aborted)).toEqual([true, false]);
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: '0' } });
    expect(await kept).toBeUndefined();
    expect(dispatch.running).toBe(0);
  });

  it('aborts a list, and sends no answer even if the facade then throws', async () => {
    const { facade, ask, text } = await ready();
    facade.onList = (_session, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new TollgateError('CANCELLED'))));
    const list = text(request(5, 'tools/list'));
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 5 } });
    expect(await list).toBeUndefined();
  });

  it('ignores ids that are not running, also that of initialize', async () => {
    const { ask } = bench();
    const opening = ask(initialize('i'));
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 'i' } });
    await ask({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 99 } });
    expect(await opening).toHaveProperty('result');
  });

  it('ignores an id that was answered, which may be used again', async () => {
    const { ask } = await ready();
    expect(await ask(request(1, 'tools/call', { name: 'a' }))).toHaveProperty('result');
    expect(await ask(request(1, 'tools/call', { name: 'a' }))).toHaveProperty('result');
  });
});

describe('list_changed', () => {
  it('is sent once per turn of the event loop, and only after initialize', async () => {
    const { dispatch, notified, ask } = bench();
    dispatch.toolsChanged();
    await turn();
    expect(notified).toEqual([]);
    await ask(initialize());
    for (let time = 0; time < 1000; time++) dispatch.toolsChanged();
    await turn();
    dispatch.toolsChanged();
    await turn();
    const expected = notificationText('notifications/tools/list_changed');
    expect(notified).toEqual([expected, expected]);
  });

  it('is not sent to a session that has ended', async () => {
    const { dispatch, notified } = await ready();
    dispatch.toolsChanged();
    await dispatch.close('It ended.');
    await turn();
    expect(notified).toEqual([]);
  });
});

describe('the end of a session', () => {
  it(
    'waits for running calls and refuses new ones while it drains, and close ends the session once' + verifies('ST-20'),
    async () => {
      const { facade, dispatch, ask } = await ready();
      let finish: (reply: Reply) => void = noFault;
      facade.onCall = () => new Promise((resolve) => (finish = resolve));
      const call = ask(request(1, 'tools/call', { name: 'a' }));
      let isDrained = false;
      const draining = dispatch.drain().then(() => (isDrained = true));
      expect(await ask(request(2, 'tools/call', { name: 'a' }))).toMatchObject({
        id: 2,
        error: { data: { code: 'SHUTTING_DOWN', retryable: true } },
      });
      await turn();
      expect([isDrained, facade.calls.length]).toEqual([false, 1]);
      finish({ kind: 'result', text: '{}' });
      await draining;
      await Promise.all([dispatch.close('It ended.'), dispatch.close('It ended.')]);
      expect(await call).toHaveProperty('result');
      expect(facade.closed).toHaveLength(1);
    },
  );

  it(
    'interrupts and answers running calls on close, and reports a facade that cannot close' + verifies('ST-21'),
    async () => {
      const { facade, dispatch, ask, faults } = await ready();
      facade.onCall = untilAborted;
      facade.closeSession = () => Promise.reject(new Error('disk'));
      const call = ask(request(1, 'tools/call', { name: 'a' }));
      await dispatch.close('It ended.');
      expect(await call).toMatchObject({ id: 1, error: { code: -32800 } });
      expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'INTERRUPTED', message: 'It ended.' });
      expect(faults).toHaveLength(1);
    },
  );

  it(
    'answers a call that does not end when it is interrupted, unless its client cancelled it' + verifies('ST-21'),
    async () => {
      const { facade, dispatch, ask, text } = await ready();
      facade.onCall = () => new Promise(() => undefined);
      const call = ask(request(1, 'tools/call', { name: 'a' }));
      const given = text(request(2, 'tools/call', { name: 'a' }));
      await text({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } });
      await dispatch.close('It ended.');
      expect(await call).toMatchObject({
        id: 1,
        error: {
          message: 'It ended.',
          data: { code: 'INTERRUPTED', retryable: false, next: expect.stringContaining('may have run') as string },
        },
      });
      expect(await given).toBeUndefined();
    },
  );
});

describe('a session under attack', () => {
  it('call-as-notification: refuses the call and does not run it', async () => {
    const { facade, ask } = await ready();
    const reply = await ask({ jsonrpc: '2.0', method: 'tools/call', params: { name: 'delete_all' } });
    expect(reply).toMatchObject({ id: null, error: { data: { code: 'WIRE_NOTIFICATION_CALL' } } });
    expect(facade.calls).toHaveLength(0);
  });

  it('batch: refuses the batch as a whole, and nothing in it runs', async () => {
    const { facade, ask } = await ready();
    expect(await ask([request(1, 'tools/call', { name: 'a' })])).toMatchObject({
      id: null,
      error: { data: { code: 'WIRE_BATCH' } },
    });
    expect(facade.calls).toHaveLength(0);
  });

  it('id reuse: refuses a second request with a running id, and the first continues', async () => {
    const { facade, ask } = await ready();
    let finish: (reply: Reply) => void = noFault;
    facade.onCall = () => new Promise((resolve) => (finish = resolve));
    const first = ask(request(1, 'tools/call', { name: 'a' }));
    expect(await ask(request(1, 'tools/call', { name: 'b' }))).toMatchObject({
      id: 1,
      error: { code: -32600, data: { code: 'WIRE_ID' } },
    });
    expect(await ask(request(1, 'ping'))).toMatchObject({ error: { data: { code: 'WIRE_ID' } } });
    expect(facade.calls).toHaveLength(1);
    finish({ kind: 'result', text: '{"content":[]}' });
    expect(await first).toMatchObject({ id: 1, result: { content: [] } });
  });

  it('is not polluted by a __proto__ key in _meta', async () => {
    const { facade, dispatch } = await ready();
    const line =
      '{"jsonrpc":"2.0","id":1,"method":"tools/call",' +
      '"params":{"name":"a","_meta":{"__proto__":{"progressToken":1},"a":1}}}';
    await dispatch.handle(readMessage(Buffer.from(line), 'client'), () => undefined);
    expect(facade.calls[0]?.request.onProgress).toBeUndefined();
    expect(Object.getPrototypeOf(facade.calls[0]?.request.meta)).toBe(Object.prototype);
  });
});

describe('the texts of messages', () => {
  it('are on one line, whatever white space a result has', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom('\n', '\r\n', '\t'), (value, indent) => {
        const pretty = JSON.stringify(value, null, 2).replaceAll('\n', indent);
        const line = oneLine(resultText(1, pretty));
        expect(line).not.toMatch(/[\r\n]/);
        expect(JSON.parse(line)).toEqual({ jsonrpc: '2.0', id: 1, result: JSON.parse(pretty) });
      }),
    );
  });

  it('contain the right revisions', () => {
    expect([eraOf(undefined), eraOf('2025-06-18'), eraOf('2026-07-28'), eraOf('')]).toEqual([
      'legacy',
      'legacy',
      'modern',
      undefined,
    ]);
    expect(negotiate('2025-03-26')).toBe('2025-03-26');
  });
});

describe('concurrent requests of a session', () => {
  it('each get exactly their own answer', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.uniqueArray(fc.oneof(fc.integer(), fc.string()), { minLength: 1, maxLength: 40, comparator: 'SameValue' }),
        async (scheduler, ids) => {
          const { facade, ask } = await ready();
          facade.onCall = (call) => scheduler.schedule(Promise.resolve(echo(call)));
          const answers = ids.map((id) => ask(request(id, 'tools/call', { name: 'read', arguments: { id } })));
          await scheduler.waitAll();
          for (const [at, answer] of (await Promise.all(answers)).entries()) {
            expect(answer).toEqual({
              jsonrpc: '2.0',
              id: ids[at],
              result: { content: [{ type: 'text', text: JSON.stringify({ id: ids[at] }) }] },
            });
          }
        },
      ),
      { numRuns: 50 },
    );
  });
});
