/** Tests one conversation with a server over a link in memory: ids, deadlines, progress, cancellation. */

import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { UpstreamError } from '../../adapters/port.ts';
import { readMessage } from '../../adapters/rpc/message-parser.ts';
import { Peer } from '../../adapters/rpc/peer.ts';
import type { PeerRequest } from '../../adapters/rpc/pending-call.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

interface Sent {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly [key: string]: unknown;
}

/** The benches of one test. Their pending calls end with the test. */
const benches: Bench[] = [];
afterEach(() => benches.splice(0).forEach(({ peer }) => peer.end(new TollgateError('CANCELLED'))));

class Bench {
  readonly texts: string[] = [];
  queued = 0;
  dropped = 0;
  changed = 0;
  readonly peer = new Peer(
    { send: (text) => void this.texts.push(text), backlog: () => this.queued },
    { onToolsChanged: () => this.changed++, onDropped: () => this.dropped++ },
  );

  constructor() {
    benches.push(this);
  }

  get sent(): Sent[] {
    return this.texts.map((text) => JSON.parse(text) as Sent);
  }

  receive(...messages: object[]): void {
    for (const message of messages)
      this.peer.receive(readMessage(Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })), 'server'));
  }

  request(more: Partial<PeerRequest> = {}): Promise<unknown> {
    return this.peer
      .request({ method: 'tools/call', params: () => '{}', timeoutMs: 5000, hardTimeoutMs: 5000, ...more })
      .then((result) => result.value);
  }
}

async function codeOf(work: Promise<unknown>): Promise<string> {
  try {
    await work;
    return 'none';
  } catch (thrown) {
    return thrown instanceof TollgateError ? thrown.code : (thrown as Error).name;
  }
}

const progressOf = (token: unknown, progress: unknown): object => ({
  method: 'notifications/progress',
  params: { progressToken: token, progress },
});

describe('Peer', () => {
  it('gives every one of 50 interleaved calls its own answer, in any order', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.shuffledSubarray(
          Array.from({ length: 50 }, (_, i) => i),
          { minLength: 50 },
        ),
        async (order) => {
          const bench = new Bench();
          const calls = Array.from({ length: 50 }, (_, i) => bench.request({ params: () => `{"n":${i}}` }));
          const ids = bench.sent.map((message) => message.id);
          expect(new Set(ids).size).toBe(50);
          for (const i of order) bench.receive({ id: ids[i], result: { n: bench.sent[i]?.params?.n } });
          expect(await Promise.all(calls)).toEqual(Array.from({ length: 50 }, (_, n) => ({ n })));
          expect([bench.dropped, bench.peer.inFlight]).toEqual([0, 0]);
        },
      ),
      { numRuns: roundsOf(20, 8) },
    );
  });

  it('ignores and counts ids and progress tokens of another type' + verifies('TR-54'), async () => {
    const bench = new Bench();
    const seen: unknown[] = [];
    const call = bench.request({ onProgress: (params) => seen.push(params) });
    bench.receive(
      progressOf('1', 1),
      { id: '1', result: { forged: true } },
      { id: '1', error: { code: 1, message: 'forged' } },
      { id: '01', result: {} },
      { id: 2, result: {} },
    );
    expect([bench.dropped, bench.peer.inFlight, seen]).toEqual([5, 1, []]);
    bench.receive({ id: 1, result: { own: true } });
    expect(await call).toEqual({ own: true });
  });

  it('sends the text of the params unchanged', () => {
    const bench = new Bench();
    void codeOf(bench.request({ params: (id) => `{"arguments":{"n":12345678901234567890, "z" : -0},"t":${id}}` }));
    expect(bench.texts).toEqual([
      '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"n":12345678901234567890, "z" : -0},"t":1}}',
    ]);
  });

  it("passes a server's own error on unchanged", async () => {
    const bench = new Bench();
    const call = bench.request();
    bench.receive({ id: 1, error: { code: -32043, message: 'own', data: { a: 1 } } });
    await expect(call).rejects.toMatchObject({
      name: 'UpstreamError',
      rpc: { code: -32043, message: 'own', data: { a: 1 } },
    } satisfies Partial<UpstreamError>);
  });

  it('fails the call immediately if its answer is invalid', async () => {
    const bench = new Bench();
    const calls = [bench.request(), bench.request()];
    bench.receive({ id: 1 }, { id: 2, result: {}, error: { code: 1, message: 'x' } });
    expect(await Promise.all(calls.map(codeOf))).toEqual(['UPSTREAM_INVALID', 'UPSTREAM_INVALID']);
  });

  it('drops and counts second answers, unknown ids and answers without an id', async () => {
    const bench = new Bench();
    const call = bench.request();
    bench.receive(
      { id: 1, result: { first: true } },
      { id: 1, result: { first: false } },
      { id: 77, result: {} },
      { id: 'abc', result: {} },
      { id: null, error: { code: 1, message: 'x' } },
    );
    expect(await call).toEqual({ first: true });
    expect(bench.dropped).toBe(4);
  });

  it('cancels at the server after a timeout, and tolerates one late answer', async () => {
    const bench = new Bench();
    expect(await codeOf(bench.request({ timeoutMs: 20, hardTimeoutMs: 1000 }))).toBe('TOOL_TIMEOUT');
    expect(bench.sent[1]).toMatchObject({ method: 'notifications/cancelled', params: { requestId: 1 } });
    bench.receive(progressOf(1, 1), { id: 1, result: {} });
    expect(bench.dropped).toBe(0);
    bench.receive({ id: 1, result: {} });
    expect(bench.dropped).toBe(1);
  });

  it('lets progress extend the timeout, but not the hard timeout', async () => {
    const bench = new Bench();
    const seen: unknown[] = [];
    const started = performance.now();
    const call = codeOf(
      bench.request({ timeoutMs: 200, hardTimeoutMs: 700, onProgress: (params) => seen.push(params.progress) }),
    );
    let step = 0;
    const ticking = setInterval(() => bench.receive(progressOf(1, ++step)), 20);
    expect(await call).toBe('TOOL_TIMEOUT');
    clearInterval(ticking);
    expect(performance.now() - started).toBeGreaterThan(600);
    expect(seen.length).toBeGreaterThan(3);
  });

  it('delivers progress before the result, and nothing after it', async () => {
    const bench = new Bench();
    const seen: string[] = [];
    const call = bench
      .request({ onProgress: (params) => seen.push(JSON.stringify(params)) })
      .then(() => seen.push('result'));
    bench.receive(progressOf(1, 1), progressOf(1, 2), { id: 1, result: {} }, progressOf(1, 3));
    await call;
    expect(seen).toEqual(['{"progress":1}', '{"progress":2}', 'result']);
  });

  it('drops progress that was not requested, goes backwards or is not a number', () => {
    const bench = new Bench();
    void codeOf(bench.request());
    const seen: unknown[] = [];
    void codeOf(bench.request({ onProgress: (params) => seen.push(params.progress) }));
    bench.receive(
      progressOf(1, 1),
      progressOf(2, 5),
      progressOf(2, 5),
      progressOf(2, 4),
      progressOf(2, 'x'),
      progressOf(9, 1),
      { method: 'notifications/progress' },
    );
    expect([seen, bench.dropped]).toEqual([[5], 6]);
  });

  it('cancels with the id of the call when the signal aborts, and only then', async () => {
    const bench = new Bench();
    const controller = new AbortController();
    const call = codeOf(bench.request({ signal: controller.signal }));
    controller.abort();
    expect(await call).toBe('CANCELLED');
    expect(bench.sent[1]).toMatchObject({ method: 'notifications/cancelled', params: { requestId: 1 } });
    expect(await codeOf(bench.request({ signal: controller.signal }))).toBe('CANCELLED');
    const finished = new AbortController();
    const done = bench.request({ signal: finished.signal });
    bench.receive({ id: 2, result: {} });
    await done;
    finished.abort();
    expect(bench.texts).toHaveLength(3);
  });

  it('never cancels initialize', async () => {
    const bench = new Bench();
    expect(await codeOf(bench.request({ method: 'initialize', timeoutMs: 10, hardTimeoutMs: 10 }))).toBe(
      'TOOL_TIMEOUT',
    );
    expect(bench.texts).toHaveLength(1);
  });

  it('answers pings and refuses every other request of the server', () => {
    const bench = new Bench();
    bench.receive(
      { id: 'p', method: 'ping' },
      { id: 5, method: 'sampling/createMessage', params: {} },
      { id: 6, method: 'elicitation/create' },
      { id: 7, method: 'roots/list' },
    );
    expect(bench.sent[0]).toEqual({ jsonrpc: '2.0', id: 'p', result: {} });
    for (const refused of bench.sent.slice(1))
      expect(refused).toMatchObject({ error: { code: -32601, data: { code: 'UPSTREAM_REQUEST_DENIED' } } });
    expect(bench.texts).toHaveLength(4);
  });

  it('coalesces 10,000 list_changed notifications' + verifies('HA-10'), async () => {
    const bench = new Bench();
    for (let i = 0; i < 10_000; i++) bench.receive({ method: 'notifications/tools/list_changed' });
    expect(bench.changed).toBe(0);
    await sleep(260);
    expect(bench.changed).toBe(1);
    bench.receive({ method: 'notifications/tools/list_changed' }, { method: 'notifications/message', params: {} });
    bench.peer.end(new TollgateError('TOOL_CRASHED'));
    await sleep(260);
    expect(bench.changed).toBe(1);
  });

  it('sends nothing to a server that does not read', async () => {
    const bench = new Bench();
    bench.queued = 2 * 1024 * 1024;
    bench.receive({ id: 1, method: 'ping' });
    expect([bench.texts.length, bench.dropped]).toEqual([0, 1]);
    bench.queued = 65 * 1024 * 1024;
    expect(await codeOf(bench.request())).toBe('SERVER_UNAVAILABLE');
    expect(bench.texts).toHaveLength(0);
  });

  it('fails every waiting call at its end, and sends no later one', async () => {
    const bench = new Bench();
    const calls = [bench.request(), bench.request()].map(codeOf);
    bench.peer.end(new TollgateError('TOOL_CRASHED'));
    bench.peer.end(new TollgateError('INTERNAL'));
    expect(await Promise.all(calls)).toEqual(['TOOL_CRASHED', 'TOOL_CRASHED']);
    expect(await codeOf(bench.request())).toBe('SERVER_UNAVAILABLE');
    bench.peer.notify('notifications/x');
    expect(bench.texts).toHaveLength(2);
  });

  it.each([
    ['at the head', '{"jsonrpc":"2.0","id":2,"result":{"x":"', 'UPSTREAM_TOO_LARGE'],
    ['at the head alone', '{"id":2,"result":', 'UPSTREAM_TOO_LARGE'],
    ['at the tail', 'xxx"}]},"jsonrpc":"2.0","id":2}', 'UPSTREAM_TOO_LARGE'],
    ['before the version at the tail', 'xxx"},"id": 2,"jsonrpc":"2.0"} ', 'UPSTREAM_TOO_LARGE'],
    ['nowhere', 'xxxx', 'TOOL_TIMEOUT'],
  ])('finds the call of a message over the limit by its id %s', async (_where, edges, code) => {
    const bench = new Bench();
    const calls = [bench.request({ timeoutMs: 30 }), bench.request({ timeoutMs: 30 })].map(codeOf);
    bench.peer.failTooLarge(edges);
    expect(await Promise.all(calls)).toEqual(['TOOL_TIMEOUT', code]);
    expect(bench.dropped).toBe(1);
  });

  it('assigns a message over the limit to the only call', async () => {
    const bench = new Bench();
    const call = codeOf(bench.request());
    bench.peer.failTooLarge('who knows');
    expect(await call).toBe('UPSTREAM_TOO_LARGE');
    bench.peer.failTooLarge('nobody waits');
  });
});
