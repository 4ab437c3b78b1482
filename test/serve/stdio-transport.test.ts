/** Tests the stdio transport: order, ends, bad lines, load. */

import { PassThrough, Writable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Reply } from '../../facade/serve/facade-port.ts';
import { LineWriter, type StdioOptions, serveStdio } from '../../facade/serve/stdio-transport.ts';
import { verifies } from '../verifies.ts';
import { ALICE, echo, FakeFacade, initialize, request, until, untilAborted } from './fake-facade.ts';

interface Pipes {
  readonly facade: FakeFacade;
  readonly input: PassThrough;
  readonly output: PassThrough;
  readonly chunks: string[];
  readonly faults: unknown[];
  readonly done: Promise<void>;
  say(...messages: unknown[]): void;
  replies(): { readonly id?: unknown; readonly [key: string]: unknown }[];
}

function serve(options: Partial<StdioOptions> = {}): Pipes {
  const facade = new FakeFacade();
  const input = new PassThrough();
  const output = new PassThrough();
  const chunks: string[] = [];
  const faults: unknown[] = [];
  output.on('data', (chunk: Buffer) => chunks.push(chunk.toString()));
  const done = serveStdio({
    facade,
    principal: ALICE,
    input,
    output,
    maxBytes: 1 << 20,
    drainMs: 20_000,
    onFault: (thrown) => faults.push(thrown),
    ...options,
  });
  return {
    facade,
    input,
    output,
    chunks,
    faults,
    done,
    say: (...messages) => input.write(messages.map((message) => `${JSON.stringify(message)}\n`).join('')),
    replies: () =>
      chunks
        .join('')
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

const call = (id: string | number, args: unknown = {}): Record<string, unknown> =>
  request(id, 'tools/call', { name: 'read', arguments: args });

describe('the stdio transport', () => {
  it('answers, and ends the session when the input ends', async () => {
    const { facade, input, say, replies, done } = serve();
    say(
      initialize(),
      { jsonrpc: '2.0', method: 'notifications/initialized' },
      request(1, 'tools/list'),
      call(2, { a: 1 }),
    );
    await until(() => replies().length === 3);
    input.end();
    await done;
    expect(replies().map(({ id }) => id)).toEqual([0, 1, 2]);
    expect(facade.opened[0]).toMatchObject({ transport: 'stdio', principal: ALICE });
    expect(facade.closed).toEqual(facade.opened);
    expect(input.destroyed).toBe(true);
  });

  it('lets running calls end within the grace time after the end of the input', async () => {
    const { facade, input, say, replies, done } = serve();
    facade.onCall = (running) => new Promise((resolve) => setTimeout(() => resolve(echo(running)), 30));
    say(initialize(), call(1));
    input.end();
    await done;
    expect(replies().map(({ id }) => id)).toEqual([0, 1]);
  });

  it('interrupts and answers calls and lists that outlive the drain' + verifies('ST-21', 'ST-22'), async () => {
    const { facade, input, say, replies, done } = serve({ drainMs: 20 });
    facade.onCall = untilAborted;
    facade.onList = (_session, signal) => untilAborted({ signal });
    say(initialize(), call(1), request(2, 'tools/list'));
    input.end();
    await done;
    expect(replies().map(({ id }) => id)).toEqual([0, 1, 2]);
    expect(facade.calls[0]?.request.signal.reason).toMatchObject({ code: 'INTERRUPTED' });
  });

  it(
    'refuses later requests when told to stop, accepts a cancellation, and lets the rest end' + verifies('ST-20'),
    async () => {
      const stop = new AbortController();
      const { facade, say, replies, done } = serve({ stop: stop.signal, drainMs: 60_000 });
      const ends: (() => void)[] = [];
      facade.onCall = (running) =>
        Promise.race([untilAborted(running), new Promise<Reply>((resolve) => ends.push(() => resolve(echo(running))))]);
      say(initialize(), call(1), call(2));
      await until(() => facade.calls.length === 2);
      stop.abort();
      await new Promise((resolve) => setImmediate(resolve));
      say(call(3), { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 2 } });
      await until(() => replies().length === 2);
      expect(replies()[1]).toMatchObject({ id: 3, error: { data: { code: 'SHUTTING_DOWN' } } });
      ends[0]?.();
      await done;
      expect(replies().map(({ id }) => id)).toEqual([0, 3, 1]);
      expect(facade.calls).toHaveLength(2);
    },
  );

  it.each(['a second signal', 'a signal after the end of the input'])(
    'interrupts calls at once: %s' + verifies('ST-20'),
    async (which) => {
      const stop = new AbortController();
      let urge: (() => void) | undefined;
      const onUrge = (listener: () => void): (() => void) => {
        urge = listener;
        return () => (urge = undefined);
      };
      const { facade, input, say, replies, done } = serve({ stop: stop.signal, onUrge, drainMs: 3_600_000 });
      facade.onCall = untilAborted;
      say(initialize(), call(1));
      await until(() => facade.calls.length === 1);
      if (which === 'a second signal') {
        stop.abort();
        await until(() => urge !== undefined);
        urge?.();
      } else {
        input.end();
        await new Promise((resolve) => setImmediate(resolve));
        stop.abort();
      }
      await done;
      expect(replies().map(({ id }) => id)).toEqual([0, 1]);
      // A later signal ends the process at once.
      expect(urge).toBeUndefined();
    },
  );

  it('reads a last line without a newline', async () => {
    const { input, replies, done } = serve();
    input.end(JSON.stringify(request(9, 'ping')));
    await done;
    expect(replies()).toEqual([{ jsonrpc: '2.0', id: 9, result: {} }]);
  });

  it('ends at once when the client no longer reads', async () => {
    const { facade, output, say, done } = serve({ drainMs: 60_000 });
    facade.onCall = untilAborted;
    say(initialize(), call(1));
    await until(() => facade.calls.length === 1);
    output.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
    await done;
    expect(facade.calls[0]?.request.signal.aborted).toBe(true);
    expect(facade.closed).toHaveLength(1);
  });

  it('ends when it is told to stop, before or after it has begun', async () => {
    const stop = new AbortController();
    const { facade, done } = serve({ stop: stop.signal });
    stop.abort();
    await done;
    expect(facade.closed).toHaveLength(1);
    await serve({ stop: AbortSignal.abort() }).done;
  });

  it('reports an input that fails, and ends', async () => {
    const { input, faults, done } = serve();
    input.destroy(new Error('EIO'));
    await done;
    expect(faults).toHaveLength(1);
  });

  it('notifies the client of changed tools', async () => {
    const { facade, say, replies, input, done } = serve();
    say(initialize());
    await until(() => replies().length === 1);
    facade.changeTools();
    facade.changeTools();
    await until(() => replies().length === 2);
    input.end();
    await done;
    expect(replies().filter(({ method }) => method === 'notifications/tools/list_changed')).toHaveLength(1);
  });
});

describe('the stdio transport with bad lines', () => {
  it.each([
    ['not json', null, 'WIRE_PARSE'],
    ['[]', null, 'WIRE_BATCH'],
    ['{"jsonrpc":"1.0","id":4,"method":"ping"}', 4, 'WIRE_VERSION'],
    ['{"jsonrpc":"2.0","id":null,"method":"ping"}', null, 'WIRE_ID'],
    ['{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}', null, 'WIRE_NOTIFICATION_CALL'],
  ])('refuses only the bad line: %s', async (line, id, code) => {
    const { input, replies, done } = serve();
    input.end(`${line}\n\n${JSON.stringify(request(5, 'ping'))}\n`);
    await done;
    expect(replies()).toMatchObject([
      { id, error: { data: { code } } },
      { id: 5, result: {} },
    ]);
  });

  const big = 'x'.repeat(2000);
  it.each([
    [`{"method":"tools/call","params":{"name":"a","arguments":{"s":"${big}"}},"jsonrpc":"2.0","id":7}`, 7],
    [`{"method":"tools/call","params":{"name":"a","arguments":{"s":"${big}"}},"jsonrpc":"2.0","id":"a-1"}`, 'a-1'],
    [`{"jsonrpc": "2.0", "id": 12, "method":"tools/call","params":{"s":"${big}"}}`, 12],
    [`{"jsonrpc":"2.0","method":"tools/call","params":{"s":"${big}","id":3}}`, null],
    [`{"id":007,"s":"${big}"}`, null],
    [big, null],
  ])('refuses a line over the limit with its id, if the id can be found (%#)', async (line, id) => {
    const { facade, input, replies, done } = serve({ maxBytes: 1000 });
    input.end(`${line}\n${JSON.stringify(request(5, 'ping'))}\n`);
    await done;
    expect(replies()).toMatchObject([{ id, error: { data: { code: 'WIRE_SIZE' } } }, { id: 5 }]);
    expect(facade.calls).toHaveLength(0);
  });
});

describe('the stdio transport under load', () => {
  it('writes replies that are ready together in one write', async () => {
    const { input, say, chunks, replies, done } = serve();
    say(initialize(), ...Array.from({ length: 50 }, (_, id) => request(id + 1, 'ping')));
    await until(() => replies().length === 51);
    expect(chunks).toHaveLength(1);
    input.end();
    await done;
  });

  it('removes line breaks from a result, because they would break the framing', async () => {
    const { facade, input, say, replies, done } = serve();
    facade.onCall = async () => ({ kind: 'result', text: '{\n "content": []\r\n}' });
    say(initialize(), call(1));
    input.end();
    await done;
    expect(replies()[1]).toEqual({ jsonrpc: '2.0', id: 1, result: { content: [] } });
  });

  it('stops reading while the client does not read, drops progress, and loses no reply', async () => {
    const facade = new FakeFacade();
    const input = new PassThrough();
    const output = new PassThrough({ highWaterMark: 64 });
    facade.onCall = async (running) => {
      for (let step = 0; step < 100; step++) running.onProgress?.({ progress: step });
      return echo(running);
    };
    const done = serveStdio({
      facade,
      principal: ALICE,
      input,
      output,
      maxBytes: 1 << 20,
      drainMs: 2000,
      onFault: () => undefined,
    });
    const say = (value: unknown): boolean => input.write(`${JSON.stringify(value)}\n`);
    say(initialize());
    for (let id = 1; id <= 10; id++) say(call(id));
    await until(() => input.isPaused());
    say(request(11, 'tools/call', { name: 'read', _meta: { progressToken: 1 } }));
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(facade.calls).toHaveLength(10);
    let seen = '';
    output.on('data', (chunk: Buffer) => (seen += chunk.toString()));
    await until(() => facade.calls.length === 11);
    input.end();
    await done;
    const ids = seen
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { id?: number }).id);
    expect(ids.filter((id) => id !== undefined)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  });

  it('stops reading above 1,024 running requests and continues when they end', async () => {
    const { facade, input, say, replies, done } = serve();
    const waiting: (() => void)[] = [];
    facade.onCall = (running) => new Promise((resolve) => waiting.push(() => resolve(echo(running))));
    say(initialize());
    for (let id = 1; id <= 1024; id++) say(call(id));
    await until(() => input.isPaused());
    for (let id = 1025; id <= 1030; id++) say(call(id));
    await new Promise((resolve) => setTimeout(resolve, 10));
    const before = facade.calls.length;
    expect(before).toBeLessThan(1030);
    facade.onCall = async (running) => echo(running);
    for (const go of waiting.splice(0)) go();
    await until(() => replies().length === 1031);
    input.end();
    await done;
  });

  it('does not wait forever for a client that has stopped reading when the input ends', async () => {
    const facade = new FakeFacade();
    const input = new PassThrough();
    const stuck = new Writable({ highWaterMark: 1, write: () => undefined });
    const done = serveStdio({
      facade,
      principal: ALICE,
      input,
      output: stuck,
      maxBytes: 1000,
      drainMs: 20,
      onFault: () => undefined,
    });
    input.end(`${JSON.stringify(initialize())}\n`);
    await done;
    expect(facade.closed).toHaveLength(1);
  });

  it('writes nothing to a closed output', async () => {
    const output = new PassThrough();
    const writer = new LineWriter(output, () => undefined);
    writer.write('{}');
    output.destroy();
    await writer.finish(1000);
    expect(output.readableLength).toBe(0);
  });

  it('answers each of n interleaved requests, however the input is split', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.uniqueArray(fc.oneof(fc.integer(), fc.string({ maxLength: 8 })), { minLength: 1, maxLength: 30 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }),
        async (ids, slices) => {
          const { facade, input, replies, done } = serve();
          facade.onCall = async (running) => {
            const { wait } = running.args.value as { readonly wait: number };
            for (let turn = 0; turn < wait; turn++) await new Promise((resolve) => setImmediate(resolve));
            return echo(running);
          };
          const bytes = Buffer.from(
            [initialize('first!!!!'), ...ids.map((id, at) => call(id, { id, wait: (at * 7) % 5 }))]
              .map((value) => `${JSON.stringify(value)}\n`)
              .join(''),
          );
          for (let at = 0, turn = 0; at < bytes.length; turn++) {
            const length = slices[turn % slices.length] ?? 1;
            input.write(bytes.subarray(at, at + length));
            at += length;
          }
          input.end();
          await done;
          const texts = new Map(
            replies().map((reply) => [reply.id, (reply.result as { content?: { text: string }[] }).content?.[0]?.text]),
          );
          expect(texts.size).toBe(ids.length + 1);
          for (const id of ids) expect((JSON.parse(texts.get(id) ?? '{}') as { id?: unknown }).id).toBe(id);
        },
      ),
      { numRuns: 40 },
    );
  });
});
