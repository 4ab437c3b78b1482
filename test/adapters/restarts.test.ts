/** Owns the tests of restarts, health and slots by themselves, at exact times. */
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors.ts';
import { judgeHealth } from '../../adapters/health.ts';
import { Restarts } from '../../adapters/restarts.ts';
import { ConnectionSlots } from '../../adapters/slots.ts';
import type { SlotHolder } from '../../adapters/slots.ts';
import { verifies } from '../verifies.ts';
import { chaos, codeOf } from './servers.ts';

describe('Restarts', () => {
  it('allows a process its retries and no more' + verifies('HA-08'), () => {
    const restarts = new Restarts(chaos('ok', { maxRetries: 2 }));
    for (let loss = 1; loss <= 2; loss++) {
      restarts.noteLoss('It ended.', 0);
      expect(restarts.refusal(0)).toBeUndefined();
    }
    restarts.noteStart();
    expect([restarts.count, restarts.reason]).toEqual([1, undefined]);
    restarts.noteLoss('It ended.', 0);
    expect(restarts.refusal(1e9)?.code).toBe('SERVER_UNAVAILABLE');
  });

  it('lets a remote server wait twice as long each time, up to 30 s, and anew after a success' + verifies('HE-02'), () => {
    const restarts = new Restarts(chaos('ok', { transport: 'http', reconnectBackoffMs: 1000 }));
    const pauses = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
    let now = 50;
    for (const pause of pauses) {
      restarts.noteLoss('It cannot be reached.', now);
      expect(restarts.refusal(now + pause - 1)?.message).toBe('It cannot be reached. It is tried again in 1 s.');
      expect(restarts.refusal(now + pause)).toBeUndefined();
      now += pause;
    }
    restarts.noteStart();
    restarts.noteLoss('It is gone.', now);
    expect(restarts.refusal(now + 1000)).toBeUndefined();
  });
});

describe('judgeHealth', () => {
  it('names the gravest state with its reason', () => {
    const facts = { refusal: undefined, connected: true, restarts: 0, badLines: 0, loss: undefined };
    expect(judgeHealth(facts).state).toBe('healthy');
    expect(judgeHealth({ ...facts, badLines: 9 }).state).toBe('healthy');
    expect(judgeHealth({ ...facts, badLines: 10, restarts: 1 })).toMatchObject({ state: 'degraded', reason: 'It broke the protocol 10 times.' });
    expect(judgeHealth({ ...facts, restarts: 2 })).toMatchObject({ state: 'degraded', reason: 'It was started again 2 times.' });
    expect(judgeHealth({ ...facts, connected: false }).state).toBe('idle');
    expect(judgeHealth({ ...facts, connected: false, loss: 'Gone.' })).toMatchObject({ state: 'unavailable', reason: 'Gone.' });
    expect(judgeHealth({ ...facts, refusal: new TollgateError('SERVER_UNAVAILABLE') }).state).toBe('disabled');
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

  it('takes the slot of the idle holder longest unused' + verifies('HA-05'), async () => {
    const slots = new ConnectionSlots(2);
    const [old, young, next] = [holder(1), holder(2), holder(3)];
    await slots.acquire(old, 50);
    await slots.acquire(young, 50);
    await slots.acquire(next, 50);
    expect([old.gaveUp, young.gaveUp]).toEqual([1, 0]);
    // The old holder's own release comes late and must not free the slot that it has lost.
    slots.release(old);
    young.occupied = true;
    next.occupied = true;
    expect(await codeOf(slots.acquire(old, 30))).toBe('SERVER_UNAVAILABLE');
  });

  it('serves those who wait in their order' + verifies('HA-05'), async () => {
    const slots = new ConnectionSlots(1);
    const busy = holder(1, true);
    await slots.acquire(busy, 50);
    const order: string[] = [];
    const first = holder(2, true);
    const waits = [slots.acquire(first, 1000).then(() => order.push('first')), slots.acquire(holder(3, true), 1000).then(() => order.push('second'))];
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
