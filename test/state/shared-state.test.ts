/** One suite of the state port, over SQLite, Postgres and Redis: two processes on one state. */

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { instant } from '../../facade/state/budget-clock.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { SharedStore, StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { followState } from '../../facade/state/state-follower.ts';
import type { BudgetClaim, State } from '../../facade/state/state-port.ts';
import { createSeals } from '../../facade/state/state-seals.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { type StoreServer, startStoreServer } from './store-servers.ts';
import { temporaryFolder } from './temporary-folder.ts';

const NOTHING = { calls: 0, argBytes: 0, outputBytes: 0, wallMs: 0 };

function openStore(access: StoreAccess): SharedStore {
  return access.kind === 'postgres' ? openPostgresStore(access) : openRedisStore(access);
}

/** Returns a function that opens further states of one new installation, each as another process or machine does. */
type Install = () => Promise<() => Promise<State>>;

const servers = new Map<string, StoreServer>();

async function installOn(kind: StoreAccess['kind']): Promise<() => Promise<State>> {
  const access = servers.get(kind)!.access(`t${randomBytes(6).toString('hex')}`);
  const store = openStore(access);
  await store.migrate();
  await store.close();
  return () => opened(openSharedState({ folder: temporaryFolder(), store: openStore(access) }));
}

async function opened(opening: Promise<State>): Promise<State> {
  const state = await opening;
  onTestFinished(async () => void (await state.close()));
  return state;
}

const KINDS: readonly (readonly [name: string, install: Install])[] = [
  [
    'sqlite',
    async () => {
      const folder = temporaryFolder();
      return () => opened(followState(folder));
    },
  ],
  ['postgres', () => installOn('postgres')],
  ['redis', () => installOn('redis')],
];

beforeAll(async () => {
  for (const kind of ['postgres', 'redis'] as const) servers.set(kind, await startStoreServer(kind));
});

afterAll(async () => {
  for (const server of servers.values()) await server.remove();
});

const CALLS: BudgetClaim = {
  budget: 'b',
  scope: 'run',
  key: 'r',
  demands: [{ unit: 'calls', limit: 100, most: 1, least: 1 }],
};

async function leftOf(state: State, claim = CALLS): Promise<number> {
  const demands = claim.demands.map((demand) => ({ ...demand, most: 0, least: demand.limit + 1 }));
  const answer = await state.reserve([{ ...claim, demands }], instant());
  if (!('refused' in answer)) throw new Error('not refused');
  return answer.refused.left;
}

describe.each(KINDS)('the state port over %s', (_name, install) => {
  it(`keeps values, and shows them to other processes${verifies('FL-01')}`, async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    await one.put('grants', 'k', 'é "quoted" \\ text');
    await one.put('grants', 'a', '');
    await one.put('pins', 'k', '3');
    await two.refresh('exact');
    expect(two.get('grants', 'k')).toBe('é "quoted" \\ text');
    expect([...two.list('grants')].map(([key]) => key)).toEqual(['a', 'k']);
    expect([...two.list('grants', 'k')]).toHaveLength(1);
    expect(two.get('grants', 'a')).toBe('');
    const stamp = one.stamp();
    await two.remove('grants', 'k');
    await two.remove('grants', 'none');
    await one.refresh('exact');
    expect(one.get('grants', 'k')).toBeUndefined();
    expect(one.stamp()).not.toBe(stamp);
    const three = await open();
    expect([...three.list('grants')]).toEqual([['a', '']]);
    expect(three.get('pins', 'k')).toBe('3');
  });

  it('refuses text with NUL', async () => {
    const open = await install();
    const state = await open();
    const refused = expect.objectContaining({ code: 'STATE_FAILED' }) as Error;
    await expect((async () => state.put('grants', 'a\0b', '1'))()).rejects.toThrow(refused);
    await expect((async () => state.put('grants', 'a', '1\0'))()).rejects.toThrow(refused);
    await state.refresh('exact');
    expect(state.list('grants').size).toBe(0);
  });

  it(`announces changes to all processes${verifies('FL-01')}`, async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    await one.put('grants', 'k', '1');
    await expect.poll(() => two.get('grants', 'k')).toBe('1');
    await one.remove('grants', 'k');
    await expect.poll(() => two.get('grants', 'k')).toBeUndefined();
  });

  it(`gives a value that is taken by 20 processes at once to one of them${verifies('FL-02')}`, async () => {
    const open = await install();
    const states = await Promise.all(Array.from({ length: 4 }, open));
    for (let race = 0; race < 10; race += 1) {
      await states[0]!.put('approvals', `k${race}`, 'v');
      const taken = await Promise.all(
        Array.from({ length: 20 }, (_, index) => states[index % 4]!.take('approvals', `k${race}`, 'v')),
      );
      expect(taken.filter((value) => value === 'v')).toHaveLength(1);
    }
    expect(await states[0]!.take('approvals', 'none')).toBeUndefined();
  });

  it('takes and swaps only the expected value', async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    expect(await one.swap('s', 'k', { to: '1' })).toBe(true);
    expect(await two.swap('s', 'k', { to: '2' })).toBe(false);
    expect(await two.swap('s', 'k', { from: '2', to: '3' })).toBe(false);
    expect(await two.swap('s', 'k', { from: '1', to: '3' })).toBe(true);
    expect(await two.swap('s', 'none', { from: '1', to: '3' })).toBe(false);
    expect(await one.take('s', 'k', '1')).toBeUndefined();
    expect(await one.take('s', 'k', '3')).toBe('3');
    expect(await two.swap('s', 'k', { to: 'again' })).toBe(true);
    expect(two.get('s', 'k')).toBe('again');
  });

  it(`never grants more than a budget when four processes spend it at once${verifies('FL-02')}`, async () => {
    const open = await install();
    const states = await Promise.all(Array.from({ length: 4 }, open));
    const answers = await Promise.all(
      Array.from({ length: 160 }, (_, index) => states[index % 4]!.reserve([CALLS], instant())),
    );
    expect(answers.filter((answer) => 'reservation' in answer)).toHaveLength(100);
    expect(await leftOf(states[0]!)).toBe(0);
  });

  it('settles what was used, once, and only in the same window', async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    const bytes: BudgetClaim = {
      ...CALLS,
      budget: 'bytes',
      windowMs: 300,
      demands: [{ unit: 'outputBytes', limit: 1000, most: 400, least: 1 }],
    };
    const first = await one.reserve([bytes], instant());
    const second = await two.reserve([bytes], instant());
    if (!('reservation' in first) || !('reservation' in second)) throw new Error('refused');
    await one.settle(first.reservation, { outputBytes: 100 });
    expect(await leftOf(two, bytes)).toBe(500);
    await sleep(350);
    expect(await leftOf(two, bytes)).toBe(1000);
    await two.settle(second.reservation, { outputBytes: 0 });
    expect(await leftOf(one, bytes)).toBe(1000);
  });

  it('reserves all claims or none, and names the refused one', async () => {
    const open = await install();
    const state = await open();
    const small: BudgetClaim = {
      ...CALLS,
      budget: 'small',
      windowMs: 60_000,
      demands: [{ unit: 'argBytes', limit: 10, most: 20, least: 20 }],
    };
    const answer = await state.reserve([CALLS, small], instant());
    if (!('refused' in answer)) throw new Error('not refused');
    expect(answer.refused).toMatchObject({ claim: { budget: 'small' }, unit: 'argBytes', limit: 10, left: 10 });
    expect(Math.abs((answer.refused.resetsAt ?? 0) - Date.now() - 60_000)).toBeLessThan(5_000);
    expect(await leftOf(state)).toBe(100);
  });

  it('reserves ahead at most a share of what is left', async () => {
    const open = await install();
    const state = await open();
    const claim: BudgetClaim = { ...CALLS, demands: [{ unit: 'calls', limit: 1000, most: 1, least: 1 }] };
    const answer = await state.reserve([claim], instant(), { most: 255, held: 0 });
    if (!('reservation' in answer)) throw new Error('refused');
    expect(answer.reservation.taken[0]?.amounts.calls).toBe(1 + 15);
    await state.settle(answer.reservation, NOTHING);
    expect(await leftOf(state, claim)).toBe(1000);
  });

  it('gives slots back, also those of a process that has ended', async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    const slot: BudgetClaim = { ...CALLS, budget: 'slots', demands: [], concurrent: 2 };
    const first = await one.reserve([slot], instant());
    const second = await one.reserve([slot], instant());
    expect('reservation' in second).toBe(true);
    expect(await two.reserve([slot], instant())).toMatchObject({ refused: { unit: 'concurrent', limit: 2, left: 0 } });
    if ('reservation' in first) await one.settle(first.reservation, {});
    const third = await two.reserve([slot], instant());
    expect('reservation' in third).toBe(true);
    expect(two.isAlive(one.mark())).toBe(true);
    expect(two.isAlive('not a mark')).toBe(false);
  });

  it('lists, resets and ends counters', async () => {
    const open = await install();
    const state = await open();
    await state.reserve([CALLS, { ...CALLS, budget: 'c', scope: 'principal', key: 'p' }], instant());
    await state.reserve([{ ...CALLS, budget: 'c', scope: 'principal', key: 'q' }], instant());
    const counters = await state.counters(10);
    expect(counters.map(({ budget, key, amounts }) => [budget, key, amounts.calls]).sort()).toEqual([
      ['b', 'r', 1],
      ['c', 'p', 1],
      ['c', 'q', 1],
    ]);
    expect(Math.abs(counters[0]!.since.monotonic - instant().monotonic)).toBeLessThan(10_000);
    expect(await state.resetCounters('c', 'p')).toBe(1);
    expect(await state.resetCounters('c')).toBe(1);
    await state.endScope('run', 'r');
    expect(await state.counters(10)).toEqual([]);
  });

  it(`shares the keys of seals${verifies('FL-01')}`, async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    const sealed = await createSeals(one, Date.now).seal('text', 'bound');
    expect(await createSeals(two, Date.now).open(sealed, 'bound')).toBe('text');
    expect(await createSeals(two, Date.now).open(sealed, 'other')).toBeUndefined();
  });

  inFull(`carries stops to every process, and lifts them everywhere${verifies('FL-03')}`, async () => {
    const open = await install();
    const [one, two] = [await open(), await open()];
    one.stops.put('files', { since: '2026-01-01T00:00:00.000Z', by: 'ann' });
    await expect.poll(() => two.stops.list().has('files')).toBe(true);
    const late = await open();
    expect(late.stops.list().has('files')).toBe(true);
    two.stops.remove('files');
    await expect.poll(() => one.stops.list().size + late.stops.list().size).toBe(0);
    await sleep(600);
    expect([one, two, late].map((state) => state.stops.list().size)).toEqual([0, 0, 0]);
    one.stops.put('files', { since: '2026-01-02T00:00:00.000Z', by: 'ann' });
    await one.shareStops();
    await expect.poll(() => two.stops.list().get('files')?.since).toBe('2026-01-02T00:00:00.000Z');
  });
});

describe.each(['postgres', 'redis'] as const)('the processes of %s', (kind) => {
  it(`are known to have ended as soon as the values that they left are read${verifies('FL-01')}`, async () => {
    const open = await installOn(kind);
    const [one, two] = [await open(), await open()];
    const mark = one.mark();
    // Soon after the first process is heard, nothing is known of others.
    await expect.poll(() => two.isAlive('a'.repeat(32)), { timeout: 10_000 }).toBe(false);
    await one.put('replicas', mark, 'one');
    // The answer to a write shows the value before any list of processes names its writer.
    await two.put('replicas', two.mark(), 'two');
    expect(two.list('replicas').has(mark)).toBe(true);
    expect(two.isAlive(mark)).toBe(true);
    await one.close();
    const three = await open();
    expect(three.list('replicas').has(mark)).toBe(true);
    expect(three.isAlive(mark)).toBe(false);
    await expect.poll(() => two.isAlive(mark)).toBe(false);
    await two.put('replicas', two.mark(), 'again');
    expect(two.isAlive(mark)).toBe(false);
  });
});

describe('the keys of Redis', () => {
  it(`of runs and sessions expire, also if the process that has them is killed${verifies('FL-01')}`, async () => {
    const access = servers.get('redis')!.access(`t${randomBytes(6).toString('hex')}`);
    const store = openRedisStore(access);
    await store.migrate();
    const client = new Redis(access.url, { password: access.password });
    onTestFinished(async () => {
      client.disconnect();
      await store.close();
    });
    const brief = `{${access.namespace}}:brief`;
    await client.zadd(brief, 1, 'run\0old\0b');
    const reservation = { ahead: { most: 0, held: 0 }, lease: 'l', mark: 'm' };
    await store.reserve({ ...reservation, claims: [CALLS, { ...CALLS, budget: 's', demands: [], concurrent: 2 }] });
    await store.reserve({ ...reservation, claims: [{ ...CALLS, scope: 'principal', key: 'p', concurrent: 2 }] });
    expect(await client.zrange(brief, 0, -1)).toEqual(['run\0r\0b']);
    const ages = await Promise.all(
      (await client.keys(`{${access.namespace}}:*`)).map(
        async (key) => [key.slice(key.indexOf(':') + 1), await client.pttl(key)] as const,
      ),
    );
    const lasting = ages.filter(([, age]) => age === -1).map(([name]) => name);
    expect(lasting.sort()).toEqual(['brief', 'cprincipal\0p\0b', 'meta', 'sprincipal\0p\0b', 'used']);
    expect((await store.counters(2)).map(({ scope }) => scope)).toEqual(['principal', 'run']);
  });
});
