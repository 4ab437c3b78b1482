/** Tests for which sessions the losses of a process count, at exact times. */
import { describe, expect, it } from 'vitest';
import { CrashAttribution, NO_SESSION } from '../../adapters/supervisor/crash-attribution.ts';
import { verifies } from '../verifies.ts';

/** Returns work that ends when `end` is called. */
function hanging(): { readonly work: () => Promise<void>; end: () => void } {
  let end = (): void => undefined;
  const done = new Promise<void>((resolve) => (end = resolve));
  return { work: () => done, end };
}

describe('CrashAttribution', () => {
  const attribution = (maxRetries: number): CrashAttribution => new CrashAttribution({ name: 'chaos', maxRetries });

  it(
    'counts a loss for the session with the running call, and refuses it after more than three in ten minutes' +
      verifies('HA-08'),
    async () => {
      const one = attribution(3);
      const call = hanging();
      const running = one.runFor('culprit', call.work);
      for (const now of [0, 1000, 2000]) {
        one.noteLoss(now);
        expect(one.refusal('culprit', now)).toBeUndefined();
      }
      one.noteLoss(3000);
      expect(one.refusal('culprit', 3000)).toMatchObject({
        code: 'SERVER_UNAVAILABLE',
        retryable: true,
        data: { retryAfterMs: 597_000 },
        message:
          'Server "chaos" was lost 4 times within ten minutes during calls of this session, ' +
          'which may call it again in 597 s.',
      });
      expect([one.refusal('another', 3000), one.refusal(NO_SESSION, 3000)]).toEqual([undefined, undefined]);
      expect([one.refusal('culprit', 599_999)?.code, one.refusal('culprit', 600_000)]).toEqual([
        'SERVER_UNAVAILABLE',
        undefined,
      ]);
      call.end();
      await running;
      expect(one.isBusy).toBe(false);
    },
  );

  it('counts a loss for all sessions with running calls, else for the last caller, else for no session', async () => {
    const one = attribution(0);
    const [first, second] = [hanging(), hanging()];
    const all = [one.runFor('first', first.work), one.runFor('first', first.work), one.runFor('second', second.work)];
    one.noteLoss(0);
    expect(['first', 'second', NO_SESSION].map((session) => one.refusal(session, 0)?.code)).toEqual([
      'SERVER_UNAVAILABLE',
      'SERVER_UNAVAILABLE',
      undefined,
    ]);
    first.end();
    second.end();
    await Promise.all(all);
    const other = attribution(0);
    await other.runFor('last', async () => undefined);
    other.noteLoss(0);
    expect([other.refusal('last', 0)?.message, other.refusal(NO_SESSION, 0)]).toEqual([
      expect.stringContaining('was lost once within'),
      undefined,
    ]);
    other.noteLoss(1);
    expect(other.refusal(NO_SESSION, 1)?.code).toBe('SERVER_UNAVAILABLE');
  });

  it('refuses the next call of the session before it does anything', async () => {
    const one = attribution(0);
    await one.runFor('culprit', async () => one.noteLoss(performance.now()));
    let ran = false;
    await expect(one.runFor('culprit', async () => void (ran = true))).rejects.toMatchObject({
      code: 'SERVER_UNAVAILABLE',
    });
    expect(ran).toBe(false);
  });
});
