/** Tests restarts, health and connection slots at exact times. */
import { describe, expect, it } from 'vitest';
import { ConnectionSlots, type SlotHolder } from '../../adapters/supervisor/connection-cap.ts';
import { type RestartDecision, type RestartMode, Restarts } from '../../adapters/supervisor/restarts.ts';
import { judgeHealth } from '../../adapters/supervisor/upstream-server.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { chaos, codeOf } from '../stdio/misbehaving-server.ts';
import { verifies } from '../verifies.ts';

describe('Restarts', () => {
  const lose = (restarts: Restarts, mode: RestartMode, now: number): RestartDecision =>
    restarts.noteLoss({ why: 'It is gone.', mode, now });

  it(
    'restarts an on-call process ten times maxRetries within ten minutes, for all sessions together' +
      verifies('HA-08'),
    () => {
      const restarts = new Restarts(chaos('ok', { maxRetries: 2 }));
      for (const now of [0, ...Array<number>(19).fill(60_000)]) {
        expect(lose(restarts, 'on-call', now)).toBe('on-call');
        expect(restarts.refusal(now)).toBeUndefined();
      }
      expect(restarts.noteStart(60_000)).toBe(true);
      expect([restarts.count, restarts.reason]).toEqual([1, undefined]);
      expect(lose(restarts, 'on-call', 90_000)).toBe('never');
      expect(restarts.refusal(90_000)).toMatchObject({
        code: 'SERVER_UNAVAILABLE',
        retryable: true,
        data: { retryAfterMs: 510_000 },
        message: 'It is gone. It was lost 21 times within ten minutes. The next attempt is possible in 510 s.',
      });
      expect([restarts.refusal(599_999)?.code, restarts.refusal(600_000), restarts.end]).toEqual([
        'SERVER_UNAVAILABLE',
        undefined,
        undefined,
      ]);
      expect(restarts.noteStart(600_000)).toBe(true);
      expect(lose(restarts, 'on-call', 601_000)).toBe('never');
      expect([restarts.refusal(659_999)?.code, restarts.refusal(660_000)]).toEqual(['SERVER_UNAVAILABLE', undefined]);
      expect(restarts.noteStart(1_300_000)).toBe(true);
      expect(lose(restarts, 'on-call', 1_300_000)).toBe('on-call');
    },
  );

  it(
    'restarts a keep-alive process after 1, 5 and 30 s, and not after a fourth crash in ten healthy minutes' +
      verifies('PF-14'),
    () => {
      const restarts = new Restarts(chaos());
      let now = 0;
      for (const pause of [1000, 5000, 30_000]) {
        restarts.noteStart(now);
        now += 190_000;
        expect(lose(restarts, 'keep-alive', now)).toBe(pause);
        expect(restarts.refusal(now + pause - 1)?.message).toMatch(
          /It is gone\. The next attempt is possible in \d+ s\./,
        );
        // Time without a connection does not count.
        now += 3_600_000;
        expect(restarts.refusal(now)).toBeUndefined();
      }
      restarts.noteStart(now);
      expect(lose(restarts, 'keep-alive', now + 190_000)).toBe('never');
      expect(restarts.end?.message).toBe(
        'Server "chaos" crashed 4 times within ten minutes of healthy time and is disabled.',
      );
    },
  );

  it('forgets crashes after ten healthy minutes' + verifies('PF-14'), () => {
    const restarts = new Restarts(chaos());
    const pauses: RestartDecision[] = [];
    for (let crash = 0; crash < 12; crash++) {
      restarts.noteStart(crash * 1e6);
      pauses.push(lose(restarts, 'keep-alive', crash * 1e6 + 250_000));
    }
    // Any ten minutes contain three crashes.
    expect(new Set(pauses.slice(2))).toEqual(new Set([30_000]));
    restarts.noteStart(2e7);
    restarts.noteStop(2e7 + 600_000);
    restarts.noteStart(3e7);
    expect(lose(restarts, 'keep-alive', 3e7)).toBe(1000);
  });

  it(
    'retries a lost remote server ten times, with pauses that double up to 30 s, and again after a success' +
      verifies('HE-02', 'HE-08'),
    () => {
      const restarts = new Restarts(chaos('ok', { transport: 'http', maxRetries: 10, reconnectBackoffMs: 1000 }));
      let now = 50;
      const decisions = Array.from({ length: 12 }, () => {
        const decision = lose(restarts, 'remote', now);
        const pause = typeof decision === 'number' ? decision : 30_000;
        expect(restarts.refusal(now + pause - 1)?.message).toBe('It is gone. The next attempt is possible in 1 s.');
        expect(restarts.refusal(now + pause)).toBeUndefined();
        now += pause;
        return decision;
      });
      expect(decisions).toEqual([
        1000,
        2000,
        4000,
        8000,
        16_000,
        30_000,
        30_000,
        30_000,
        30_000,
        30_000,
        'exhausted',
        'on-call',
      ]);
      restarts.noteStart(now);
      expect(lose(restarts, 'remote', now)).toBe(1000);
    },
  );

  it('lets only calls retry a remote server that was never connected, with the same pauses' + verifies('HE-02'), () => {
    const restarts = new Restarts(chaos('ok', { transport: 'http', reconnectBackoffMs: 300 }));
    expect([lose(restarts, 'on-call', 0), restarts.refusal(299)?.code, restarts.refusal(300)]).toEqual([
      'on-call',
      'SERVER_UNAVAILABLE',
      undefined,
    ]);
  });
});

describe('judgeHealth', () => {
  it('returns the worst state with its reason', () => {
    const facts = {
      refusal: undefined,
      connected: true,
      restarts: 0,
      badLines: 0,
      loss: undefined,
      reconnecting: false,
    };
    expect(judgeHealth(facts).state).toBe('healthy');
    expect(judgeHealth({ ...facts, badLines: 9, restarts: 2 })).toEqual({ state: 'healthy', restarts: 2, badLines: 9 });
    expect(judgeHealth({ ...facts, badLines: 10, restarts: 1 })).toMatchObject({
      state: 'degraded',
      reason: 'It broke the protocol 10 times.',
    });
    expect(judgeHealth({ ...facts, connected: false }).state).toBe('idle');
    expect(judgeHealth({ ...facts, connected: false, loss: 'Gone.' })).toMatchObject({
      state: 'unavailable',
      reason: 'Gone.',
    });
    expect(judgeHealth({ ...facts, connected: false, loss: 'Gone.', reconnecting: true }).state).toBe('degraded');
    const refused = (data: Record<string, unknown>): string =>
      judgeHealth({ ...facts, refusal: new TollgateError('SERVER_UNAVAILABLE', { data }) }).state;
    expect([
      refused({}),
      refused({ consent: 'disabled' }),
      refused({ consent: 'lacking' }),
      refused({ killed: true }),
    ]).toEqual(['disabled', 'disabled', 'not approved', 'killed']);
  });
});

describe('ConnectionSlots', () => {
  function holder(usedAt: number, busy = false): SlotHolder & { gaveUp: number; occupied: boolean } {
    return {
      gaveUp: 0,
      occupied: busy,
      busy() {
        return this.occupied;
      },
      lastUsed: () => usedAt,
      async giveUp() {
        this.gaveUp++;
      },
    };
  }

  it('takes the slot of the least recently used idle holder' + verifies('HA-05'), async () => {
    const slots = new ConnectionSlots(2);
    const [old, young, next] = [holder(1), holder(2), holder(3)];
    await slots.acquire(old, 50);
    await slots.acquire(young, 50);
    await slots.acquire(next, 50);
    expect([old.gaveUp, young.gaveUp]).toEqual([1, 0]);
    // The late release of the old holder must not free the slot of its successor.
    slots.release(old);
    young.occupied = true;
    next.occupied = true;
    expect(await codeOf(slots.acquire(old, 30))).toBe('SERVER_UNAVAILABLE');
  });

  it('serves waiters in their order' + verifies('HA-05'), async () => {
    const slots = new ConnectionSlots(1);
    const busy = holder(1, true);
    await slots.acquire(busy, 50);
    const order: string[] = [];
    const first = holder(2, true);
    const waits = [
      slots.acquire(first, 1000).then(() => order.push('first')),
      slots.acquire(holder(3, true), 1000).then(() => order.push('second')),
    ];
    slots.noteIdle();
    expect(order).toEqual([]);
    busy.occupied = false;
    slots.noteIdle();
    await waits[0];
    slots.release(first);
    await Promise.all(waits);
    expect([order, busy.gaveUp]).toEqual([['first', 'second'], 1]);
  });
});
