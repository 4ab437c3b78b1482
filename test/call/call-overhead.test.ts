/**
 * Measures a call through the facade in processor time, which other work on the machine does not change.
 * docs/performance.md has the promised figures.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const CALLS = 200;

describe('a call through the facade' + verifies('HE-11'), () => {
  let facade: RawFacade;
  afterEach(() => facade.close());

  it('takes less than 10 ms of processor time, with policy and audit', async () => {
    facade = await startRaw({ one: { tools: [tool('say')] } });
    const session = facade.open('me');
    await facade.list(session);
    for (let count = 0; count < 20; count += 1) await facade.call(session, 'one_say', { count });
    const before = process.cpuUsage();
    for (let count = 0; count < CALLS; count += 1)
      expect((await facade.call(session, 'one_say', { count })).code).toBe('');
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / CALLS).toBeLessThan(10_000);
  });
});
