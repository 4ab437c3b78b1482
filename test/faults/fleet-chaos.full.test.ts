/** Kills replicas, restarts the store, cuts and slows the way to it, under the load of many sessions. */
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { THREE_ATTEMPTS } from '../bench/growth.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { numbers, TIMES } from './fault-seed.ts';
import { type FleetCall, FleetGround, FleetLoad, TOKENS } from './fleet-ground.ts';

/** Smaller than what the load asks for. */
const FEW = roundsOf(150, 15);
const SESSIONS = roundsOf(200, 20);
const IN_FLIGHT = roundsOf(8, 5);
/** A phase lasts this long, and as long as it takes to make PHASE_CALLS calls. */
const PHASE_MS = roundsOf(6_000, 1_000) * TIMES;
const PHASE_CALLS = 60;
const KINDS = partOf(['redis', 'postgres'] as const, 1);
/** How long a recovery may take that needs no person: polls and connections. */
const RECOVERY_MS = 3_000;
/** A replica without processor time for two seconds refuses calls as if the store were away. */
const OPTIONS = { ...THREE_ATTEMPTS, timeout: 480_000 };
/** Refusals that a policy gives in peace. */
const EXPECTED = new Set(['ok', 'BUDGET_EXCEEDED']);

const failed = (calls: readonly FleetCall[]): readonly string[] =>
  calls.filter(({ code }) => !EXPECTED.has(code)).map(({ code }) => code);

async function phase(load: FleetLoad, work?: () => Promise<void> | void): Promise<readonly FleetCall[]> {
  await work?.();
  const from = performance.now();
  const before = load.calls.length;
  await sleep(PHASE_MS);
  while (load.calls.length < before + PHASE_CALLS) await sleep(20);
  return load.between(from, performance.now());
}

/** Each call of a time without the store is refused with the code for it, within two seconds and some for the load. */
async function expectRefusals(load: FleetLoad, from: number): Promise<void> {
  await expect.poll(() => load.calls.filter(({ began }) => began >= from).length).toBeGreaterThan(5);
  const calls = await load.between(from, performance.now());
  expect(calls.length).toBeGreaterThan(5);
  expect([...new Set(calls.map(({ code }) => code))]).toEqual(['STATE_AWAY']);
  expect(calls.filter(({ began, ended }) => ended - began >= 4_000)).toEqual([]);
}

/** Returns the ids of the recorded ends of calls, in the logs of all replicas. */
function recordedEnds(ground: FleetGround): ReadonlySet<string> {
  const ends = new Set<string>();
  for (const { state } of ground.replicas) {
    const reader = openAuditReader(path.join(state, 'audit'), ':memory:');
    for (const type of ['outcome', 'budget', 'decision', 'session'])
      for (const { record } of reader.all({ type })) ends.add(String((record as unknown as { id: unknown }).id));
    reader.close();
  }
  return ends;
}

describe.each(KINDS)('three replicas behind HAProxy over %s', (kind) => {
  it(
    `lose nothing, run nothing twice and overspend nothing, whatever is killed and cut${verifies('FL-25', 'FL-26')}`,
    OPTIONS,
    async () => {
      const ground = new FleetGround();
      onTestFinished(() => ground.remove());
      await ground.start(kind, FEW);
      const load = new FleetLoad(ground.port, numbers());
      await load.open(SESSIONS);
      load.start(IN_FLIGHT);
      const [first, second] = ground.replicas;
      expect(failed(await phase(load))).toEqual([]);

      // A replica dies. Its sessions go on elsewhere: at most 1 % of the calls that begin afterwards fail.
      const afterDeath = await phase(load, () => first!.end('SIGKILL'));
      expect(afterDeath.length).toBeGreaterThan(50);
      expect(failed(afterDeath).length, ground.account(failed(afterDeath))).toBeLessThanOrEqual(
        afterDeath.length / 100,
      );
      await first!.start();

      // The store is killed and restarted. Without it nothing runs; afterwards everything does, without a restart.
      await ground.store.kill();
      const away = performance.now();
      await sleep(RECOVERY_MS);
      await expectRefusals(load, away + 1_500);
      await ground.store.start();
      await sleep(RECOVERY_MS);
      expect(failed(await phase(load))).toEqual([]);

      // The network is cut, and slow afterwards.
      ground.network.cut();
      const cut = performance.now();
      await sleep(RECOVERY_MS + 2_000);
      await expectRefusals(load, cut + RECOVERY_MS);
      ground.network.heal();
      await sleep(RECOVERY_MS);
      expect(failed(await phase(load, () => ground.network.slow(60)))).toEqual([]);
      ground.network.slow(0);

      // A replica ends in peace, and another one dies.
      const afterEnd = await phase(load, () => second!.end('SIGTERM'));
      expect(failed(afterEnd).length, ground.account(failed(afterEnd))).toBeLessThanOrEqual(afterEnd.length / 100);
      await second!.start();
      await load.end();
      expect(load.calls.filter(({ code }) => code === 'INTERNAL')).toEqual([]);

      const ran = new Map<string, number>();
      for (const token of ground.server.ran) ran.set(token, (ran.get(token) ?? 0) + 1);
      expect([...ran].filter(([, times]) => times > 1)).toEqual([]);
      const ok = load.calls.filter(({ code }) => code === 'ok');
      expect(ok.filter(({ token }) => !ran.has(token))).toEqual([]);
      for (const number of TOKENS.keys())
        expect([...ran.keys()].filter((token) => token.startsWith(`p${number}-b-`)).length).toBeLessThanOrEqual(FEW);
      const ends = recordedEnds(ground);
      const replied = load.calls.filter(({ decision }) => decision !== undefined);
      expect(replied.length).toBeGreaterThan(200);
      expect(replied.filter(({ decision }) => !ends.has(decision ?? ''))).toEqual([]);
    },
  );
});
