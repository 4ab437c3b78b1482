/** The timers of a store outlive its server: what they ask must not end the process. */
import { expect, it, onTestFinished, vi } from 'vitest';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { verifies } from '../verifies.ts';
import { freePort } from './store-servers.ts';

it(`the hourly cleaning of a store that is away ends no process${verifies('FL-04')}`, async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const unhandled: unknown[] = [];
  const note = (thrown: unknown): void => void unhandled.push(thrown);
  process.on('unhandledRejection', note);
  onTestFinished(() => void process.off('unhandledRejection', note));
  const url = `postgres://tollgate@127.0.0.1:${await freePort()}/tollgate`;
  const store = openPostgresStore({ kind: 'postgres', url, namespace: 'tollgate', connections: 1, timeoutMs: 2000 });
  onTestFinished(() => store.close());
  vi.advanceTimersByTime(3_600_000);
  await expect(store.leave('')).rejects.toMatchObject({ code: 'STATE_AWAY' });
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(unhandled).toEqual([]);
});

it(`the end of a store that is away does not hold the process${verifies('FL-04')}`, async () => {
  const url = `redis://127.0.0.1:${await freePort()}`;
  const store = openRedisStore({ kind: 'redis', url, namespace: 'tollgate', connections: 1, timeoutMs: 200 });
  await expect(store.leave('')).rejects.toMatchObject({ code: 'STATE_AWAY' });
  const timers = vi.spyOn(globalThis, 'setTimeout');
  onTestFinished(() => timers.mockRestore());
  await store.close();
  expect(Math.max(0, ...timers.mock.calls.map(([, ms]) => ms ?? 0))).toBeLessThanOrEqual(100);
});
