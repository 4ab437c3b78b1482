/** Tests for whom the losses of a process count, at exact times. */
import { describe, expect, it } from 'vitest';
import { CrashAttribution, NO_SESSION } from '../../adapters/supervisor/crash-attribution.ts';
import { verifies } from '../verifies.ts';

/** Work that ends when it is told to. */
function hanging(): { readonly work: () => Promise<void>; end: () => void } {
  let end = (): void => undefined;
  const done = new Promise<void>((resolve) => (end = resolve));
  return { work: () => done, end };
}

describe('losses of a process', () => {
  const blame = (maxRetries: number): CrashAttribution => new CrashAttribution({ name: 'chaos', maxRetries });

  it(
    'count for the session whose call ran, which may lose it three times within ten minutes and no more; others go on' +
      verifies('HA-08'),
    async () => {
      const one = blame(3);
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
          'Server "chaos" was lost 4 times within ten minutes during calls of this session, which may call it again in 597 s.',
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

  it('count for all whose calls ran, once each, for nobody can know which it was; else for who called last, else for nobody', async () => {
    const one = blame(0);
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
    const other = blame(0);
    await other.runFor('last', async () => undefined);
    other.noteLoss(0);
    expect([other.refusal('last', 0)?.message, other.refusal(NO_SESSION, 0)]).toEqual([
      expect.stringContaining('was lost once within'),
      undefined,
    ]);
    other.noteLoss(1);
    expect(other.refusal(NO_SESSION, 1)?.code).toBe('SERVER_UNAVAILABLE');
  });

  it('take the next call of the session before it does anything', async () => {
    const one = blame(0);
    await one.runFor('culprit', async () => one.noteLoss(performance.now()));
    let ran = false;
    await expect(one.runFor('culprit', async () => void (ran = true))).rejects.toMatchObject({
      code: 'SERVER_UNAVAILABLE',
    });
    expect(ran).toBe(false);
  });
});
