/** Decisions of people in a fleet: an approval is used once, and a revocation, a kill and a suspension reach everyone. */

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { type Approval, ApprovalStore } from '../../facade/consent/approvals/call-approval.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { Suspensions } from '../../facade/consent/switch/suspensions.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { THREE_ATTEMPTS } from '../bench/growth.ts';
import { inFull } from '../harness/full-tests.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { type StoreServer, startStoreServer } from './store-servers.ts';
import { temporaryFolder } from './temporary-folder.ts';

const RACES = roundsOf(50, 10);
const CHANGES = roundsOf(40, 12);
/** The promise of docs/fleet.md, ms. */
const EVERYWHERE_MS = 2_000;

const servers = new Map<string, StoreServer>();

beforeAll(async () => {
  for (const kind of ['postgres', 'redis'] as const) servers.set(kind, await startStoreServer(kind));
});

afterAll(async () => {
  for (const server of servers.values()) await server.remove();
});

/** Opens three replicas of one installation. */
async function replicasOver(kind: 'postgres' | 'redis'): Promise<readonly [State, State, State]> {
  const access = servers.get(kind)!.access(`t${randomBytes(6).toString('hex')}`);
  const openStore = kind === 'postgres' ? openPostgresStore : openRedisStore;
  const store = openStore(access);
  await store.migrate();
  await store.close();
  const states = await Promise.all(
    [0, 1, 2].map(() => openSharedState({ folder: temporaryFolder(), store: openStore(access) })),
  );
  onTestFinished(async () => {
    for (const state of states) await state.close();
  });
  return states as unknown as readonly [State, State, State];
}

/** Returns the time until `isSeen` is true for each replica, ms; it asks as a call does. */
async function timeUntil(states: readonly State[], isSeen: (state: State) => boolean): Promise<number> {
  const began = performance.now();
  await Promise.all(
    states.map(async (state) => {
      for (;;) {
        await state.refresh();
        if (isSeen(state)) return;
        await sleep(1);
      }
    }),
  );
  return performance.now() - began;
}

function p99(times: readonly number[]): number {
  return [...times].sort((one, other) => one - other)[Math.floor(times.length * 0.99)] ?? Number.POSITIVE_INFINITY;
}

describe.each(['postgres', 'redis'] as const)('three replicas over %s', (kind) => {
  it(`use an approval once in ${RACES} races${verifies('FL-27')}`, async () => {
    const states = await replicasOver(kind);
    const stores = states.map((state) => new ApprovalStore(state));
    for (let race = 0; race < RACES; race += 1) {
      const key = `race ${race}`;
      await stores[0]!.add(key, { id: key, state: 'approved', scope: 'call' } as Approval);
      await Promise.all(states.map((state) => state.refresh('exact')));
      const used = await Promise.all(
        Array.from({ length: 9 }, async (_, at) => {
          const store = stores[at % 3]!;
          const found = await store.find(key);
          return found !== undefined && (await store.take(found));
        }),
      );
      expect(used.filter((won) => won)).toHaveLength(1);
    }
  });

  inFull(
    `hear of revocations, kills and suspensions within two seconds${verifies('FL-28')}`,
    THREE_ATTEMPTS,
    async () => {
      const states = await replicasOver(kind);
      const times: number[] = [];
      for (let change = 0; change < CHANGES; change += 1) {
        const [by, others] = [states[change % 3]!, states.filter((_, at) => at !== change % 3)];
        await by.put('grants', `g${change}`, '1');
        times.push(await timeUntil(others, (state) => state.get('grants', `g${change}`) === '1'));
        await by.remove('grants', `g${change}`);
        times.push(await timeUntil(others, (state) => state.get('grants', `g${change}`) === undefined));
      }
      for (let change = 0; change < CHANGES / 4; change += 1) {
        const [by, others] = [states[change % 3]!, states.filter((_, at) => at !== change % 3)];
        new KillSwitch(by).throw({ server: 'files', since: new Date().toISOString(), by: 'ann' });
        times.push(await timeUntil(others, (state) => new KillSwitch(state).refusalOf('files') !== undefined));
        new Suspensions(by).suspend('agent', { by: 'ann' });
        times.push(await timeUntil(others, (state) => new Suspensions(state).find('agent') !== undefined));
        new KillSwitch(by).lift('files');
        new Suspensions(by).resume('agent');
        times.push(
          await timeUntil(
            others,
            (state) =>
              new KillSwitch(state).refusalOf('files') === undefined &&
              new Suspensions(state).find('agent') === undefined,
          ),
        );
      }
      expect(p99(times)).toBeLessThanOrEqual(EVERYWHERE_MS);
    },
  );
});
