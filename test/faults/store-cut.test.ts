/** Cuts the network to a store, so that packets are lost without a word, and heals it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { SharedStore } from '../../facade/state/shared/shared-store.ts';
import { Project } from '../config/project.ts';
import { startStoreServer } from '../state/store-servers.ts';
import { verifies } from '../verifies.ts';
import { StoreNetwork } from './fleet-ground.ts';

/** The kernel sends again on an old connection 6.2 s and 12.6 s after the cut. */
const CUT_MS = 7_500;
/**
 * A refusal takes two seconds at most, and a new connection too. The rest is for a busy machine. An old connection would
 * work again only 5.1 s after the end of the cut.
 */
const SOON_MS = 4_800;

it.each(['redis', 'postgres'] as const)(
  'a cut network to %s refuses in time, and soon works again' + verifies('FL-04'),
  async (kind) => {
    const project = new Project();
    onTestFinished(() => project.remove());
    const server = await startStoreServer(kind);
    onTestFinished(() => server.remove());
    const network = new StoreNetwork(server.port);
    onTestFinished(() => network.close());
    await network.open((text) => project.write('forward.cfg', text));
    const near = server.access('t');
    const access = { ...near, url: near.url.replace(`127.0.0.1:${server.port}`, `${network.host}:${network.port}`) };
    const open = (): SharedStore => (kind === 'postgres' ? openPostgresStore(access) : openRedisStore(access));
    const store = open();
    await store.migrate();
    await store.close();
    const state = await openSharedState({ folder: project.home, store: open() });
    onTestFinished(() => state.close());
    await state.put('s', 'k', 'v');
    const refresh = async (): Promise<string> => {
      const began = performance.now();
      const code = await Promise.resolve(state.refresh('exact')).then(
        () => 'ok',
        (thrown) => asTollgateError(thrown).code,
      );
      return performance.now() - began < SOON_MS ? code : `${code} late`;
    };
    network.cut();
    const codes = new Set<string>();
    for (const end = performance.now() + CUT_MS; performance.now() < end; await sleep(200)) codes.add(await refresh());
    expect([...codes]).toEqual(['STATE_AWAY']);
    network.heal();
    const healed = performance.now();
    while ((await refresh()) !== 'ok') await sleep(20);
    expect(performance.now() - healed).toBeLessThan(SOON_MS);
    expect(state.get('s', 'k')).toBe('v');
  },
);
