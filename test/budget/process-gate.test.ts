/** Tests the limit of calls in a process: turns of principals, the memory of waiting calls, and calls that are shed. */

import { afterEach, describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ReleaseSlot } from '../../facade/budget/concurrency-limit.ts';
import { memoryPressure, ProcessGate, WAITING_CALL_BYTES } from '../../facade/budget/process-gate.ts';
import { inFull } from '../harness/full-tests.ts';
import { ACT, allow, type RawFacade, startRaw } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const calm = (): boolean => false;
const ROOM = 1024 * WAITING_CALL_BYTES;

/** A gate, and the order in which it admitted calls. */
function gateOf(calls: number, waitingBytes = ROOM, isPressed = calm) {
  const gate = new ProcessGate({ calls, waitingBytes }, isPressed);
  const order: string[] = [];
  const running: ReleaseSlot[] = [];
  const refused: TollgateError[] = [];
  const patience = (principal: string, more: { signal?: AbortSignal; ms?: number; bytes?: number } = {}) => ({
    signal: more.signal ?? new AbortController().signal,
    deadline: Date.now() + (more.ms ?? 60_000),
    takeRoom: () => gate.takeRoom(principal, more.bytes ?? 0),
  });
  const ask = async (principal: string, more: Parameters<typeof patience>[1] = {}): Promise<void> => {
    try {
      const leave = await gate.enter(principal, patience(principal, more));
      order.push(principal);
      running.push(leave);
    } catch (thrown) {
      refused.push(thrown as TollgateError);
    }
  };
  /** Ends the call that has run longest. */
  const endOne = async (): Promise<void> => {
    running.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { gate, order, running, refused, ask, endOne };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a process that has all its calls running', () => {
  it('gives the next places to another principal than one with 1000 calls' + verifies('FL-23'), async () => {
    const { gate, order, refused, ask, endOne } = gateOf(8, 4 * ROOM);
    for (let at = 0; at < 1000; at += 1) void ask('greedy');
    await settled();
    expect([order.length, gate.readings.waiting]).toEqual([8, 992]);
    for (let at = 0; at < 10; at += 1) void ask('modest');
    await settled();
    for (let at = 0; at < 8; at += 1) await endOne();
    // Each freed place goes to the principal that holds fewer, so the two share the eight places after four calls.
    expect(order.slice(8, 16).filter((who) => who === 'modest').length).toBeGreaterThanOrEqual(4);
    while (gate.readings.waiting > 0) await endOne();
    expect([refused, order.length, order.lastIndexOf('modest') < 40]).toEqual([[], 1010, true]);
  });

  it(
    'keeps the calls of one principal in their order, and admits at once after the burst' + verifies('FL-23'),
    async () => {
      const { gate, running, endOne } = gateOf(1);
      const seen: number[] = [];
      const enter = async (number: number): Promise<void> => {
        const leave = await gate.enter('p', { signal: new AbortController().signal, deadline: Date.now() + 60_000 });
        seen.push(number);
        running.push(leave);
      };
      for (let at = 0; at < 5; at += 1) void enter(at);
      for (let at = 0; at < 5; at += 1) {
        await settled();
        await endOne();
      }
      expect(seen).toEqual([0, 1, 2, 3, 4]);
      expect(typeof gate.enter('p', { signal: new AbortController().signal, deadline: 0 })).toBe('function');
    },
  );

  it('gives no place back twice', async () => {
    const { gate, order, running, ask } = gateOf(1);
    await ask('a');
    void ask('b');
    void ask('c');
    const [leave] = running;
    leave?.();
    leave?.();
    await settled();
    expect([order, gate.readings.waiting]).toEqual([['a', 'b'], 1]);
  });

  it(
    'refuses a waiting call at its deadline, and drops a cancelled one with its memory' + verifies('FL-24'),
    async () => {
      const { gate, order, refused, ask, endOne } = gateOf(1);
      await ask('a');
      await ask('late', { ms: 10 });
      expect(refused[0]).toMatchObject({ code: 'RATE_LIMITED', retryable: true, data: { scope: 'process', limit: 1 } });
      const gone = new AbortController();
      const cancelled = ask('gone', { signal: gone.signal });
      gone.abort();
      await cancelled;
      expect(refused[1]?.code).toBe('CANCELLED');
      expect(gate.readings).toEqual({ waiting: 0, waitingBytes: 0, shed: 0 });
      void ask('next');
      await endOne();
      expect(order).toEqual(['a', 'next']);
    },
  );
});

describe('the memory of waiting calls', () => {
  it('is bounded, and one principal leaves as much as it takes' + verifies('FL-24'), async () => {
    const { gate, refused, ask } = gateOf(1, 100 * WAITING_CALL_BYTES);
    await ask('first');
    for (let at = 0; at < 1000; at += 1) void ask('greedy');
    await settled();
    expect([gate.readings.waiting, refused.length, gate.readings.shed]).toEqual([50, 950, 950]);
    expect(refused[0]).toMatchObject({ code: 'RATE_LIMITED', data: { scope: 'process', budget: 'waiting' } });
    expect(refused[0]?.data.retryAfterMs).toBeGreaterThanOrEqual(1000);
    for (const who of ['a', 'b', 'c']) void ask(who);
    await settled();
    expect([gate.readings.waiting, refused.length]).toEqual([53, 950]);
    for (let at = 0; at < 200; at += 1) void ask(`p${at}`);
    await settled();
    expect(gate.readings.waitingBytes).toBeLessThanOrEqual(100 * WAITING_CALL_BYTES);
  });

  it('counts arguments', async () => {
    const { gate, refused, ask } = gateOf(1, 10 * WAITING_CALL_BYTES);
    await ask('first');
    void ask('p', { bytes: 10 * WAITING_CALL_BYTES });
    void ask('p', { bytes: 3 * WAITING_CALL_BYTES });
    await settled();
    expect([refused.length, gate.readings.waitingBytes]).toEqual([1, 4 * WAITING_CALL_BYTES]);
  });
});

describe('a process with little memory left', () => {
  it('runs fewer calls and keeps none waiting, until there is memory again' + verifies('FL-24'), async () => {
    let pressed = true;
    const { order, refused, running, ask, endOne } = gateOf(16, ROOM, () => pressed);
    for (let at = 0; at < 10; at += 1) await ask('p');
    expect([order.length, refused.length, refused[0]?.code]).toEqual([2, 8, 'RATE_LIMITED']);
    await endOne();
    await ask('p');
    expect(order.length).toBe(3);
    pressed = false;
    for (let at = 0; at < 14; at += 1) await ask('p');
    expect([running.length, refused.length]).toEqual([16, 8]);
  });

  it('is measured at most every 250 ms', () => {
    let at = 0;
    let reads = 0;
    const isPressed = memoryPressure(
      () => [0.95, 0.5][reads++] ?? 0,
      () => at,
    );
    expect([isPressed(), isPressed(), reads]).toEqual([true, true, 1]);
    at = 250;
    expect([isPressed(), reads]).toEqual([false, 2]);
  });

  it('is not the state of this test', () => expect(memoryPressure()()).toBe(false));
});

describe('a facade with more calls than it may run', () => {
  let facade: RawFacade | undefined;
  afterEach(() => facade?.close());

  const people = ['ann', 'ben'].map((id) => ({ id, profiles: ['all'], stdio: true }));
  const start = async (limits: object): Promise<RawFacade> =>
    (facade = await startRaw(
      { web: { tools: [ACT] } },
      { principals: people, rules: [allow('web')], limits: { connections: 4, ...limits } },
    ));
  const slow = { delayMs: 20, raw: '{"content":[]}' };

  it(
    'runs no more at once, records each shed call once and never sends it, and recovers' + verifies('FL-24'),
    async () => {
      const { call, open, records, calls, mostAtOnce, assembled } = await start({
        calls: 3,
        waitingBytes: 40 * WAITING_CALL_BYTES,
      });
      const sessions = Array.from({ length: 10 }, () => open('ann'));
      const warm = await call(sessions[0]!, 'web_act', slow);
      expect(warm.code).toBe('');
      const burst = await Promise.all(
        sessions.flatMap((session) => Array.from({ length: 20 }, () => call(session, 'web_act', slow))),
      );
      const codes = burst.map(({ code }) => code);
      const shed = codes.filter((code) => code === 'RATE_LIMITED').length;
      expect([...new Set(codes)].sort()).toEqual(['', 'RATE_LIMITED']);
      expect(shed).toBeGreaterThan(100);
      expect(burst.find(({ code }) => code !== '')?.result?._meta).toMatchObject({
        'tollgate/retryable': true,
        'tollgate/retryAfterMs': expect.any(Number) as number,
      });
      expect([calls('web').length, mostAtOnce('web')]).toEqual([201 - shed, 3]);
      expect((await call(open('ben'), 'web_act', slow)).code).toBe('');
      const written = records();
      expect(written.filter(({ type, code }) => type === 'budget' && code === 'RATE_LIMITED')).toHaveLength(shed);
      expect(written.filter(({ type }) => type === 'intent')).toHaveLength(202 - shed);
      expect(written.filter(({ type }) => type === 'outcome')).toHaveLength(202 - shed);
      const text = assembled.gateway.metrics({ ...open('ann').principal, owner: true });
      expect(text).toContain(`tollgate_calls_shed_total ${shed}`);
      expect(text).toContain('tollgate_calls_waiting 0');
      expect(text).toContain('tollgate_calls_waiting_bytes 0');
    },
  );

  inFull('serves one principal while another has 320 calls waiting' + verifies('FL-23'), async () => {
    const { call, open, calls } = await start({ calls: 4 });
    const done: string[] = [];
    const greedy = Array.from({ length: 20 }, () => open('ann')).flatMap((session) =>
      Array.from({ length: 16 }, () => call(session, 'web_act', { ...slow, who: 'ann' }).then(() => done.push('ann'))),
    );
    const before = done.length;
    await call(open('ben'), 'web_act', { ...slow, who: 'ben' });
    const sent = calls('web').findIndex(({ args }) => args.includes('ben'));
    // At most the calls that ran when it came, and those that were admitted before it had been decided.
    expect([before, sent >= 0 && sent < 20]).toEqual([0, true]);
    await Promise.all(greedy);
    expect(done).toHaveLength(320);
  });
});
