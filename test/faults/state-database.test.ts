/**
 * Tests faults of the state database: held locks, a damaged or removed file under load, and changed clocks.
 * Covers: facade/runtime, facade/call, facade/state.
 */
import {
  closeSync,
  cpSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { createBudgets } from '../../facade/budget/budgets.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { elapsed, type Instant, instant } from '../../facade/state/budget-clock.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { followState } from '../../facade/state/state-follower.ts';
import type { BudgetClaim, Reservation, State } from '../../facade/state/state-port.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { roundsOf } from '../harness/slices.ts';
import { type Fixture, momentAt, startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

const NOW = { since: '2026-11-23T00:00:00.000Z', by: 'boss' };
/** Milliseconds. Longer than any wait for a lock. */
const FROZEN_MS = 6_000;
const CALLS: BudgetClaim = {
  budget: 'b',
  scope: 'run',
  key: 'r',
  demands: [{ unit: 'calls', limit: 1000, most: 1, least: 1 }],
};
const OUTPUT: BudgetClaim = {
  budget: 'o',
  scope: 'run',
  key: 'r',
  demands: [{ unit: 'outputBytes', limit: 1_000_000, most: 10, least: 1 }],
  concurrent: 1000,
};

async function execute(holder: Fixture, line: string): Promise<string> {
  holder.child.stdin?.write(`${line}\n`);
  return holder.line();
}

async function holderOf(folder: string): Promise<Fixture> {
  const holder = startFixture('state-holder.mjs', [path.join(folder, 'state.db')]);
  expect(await holder.line()).toBe('ready');
  return holder;
}

/** Returns how often a timer of 10 ms fires while something is awaited. */
async function ticksDuring(work: Promise<unknown>): Promise<number> {
  let ticks = 0;
  const timer = setInterval(() => (ticks += 1), 10);
  await work.catch(() => undefined);
  clearInterval(timer);
  return ticks;
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => '',
    (thrown: unknown) => (thrown as TollgateError).code,
  );

describe('another process that is frozen while it holds the database lock' + verifies('ST-01'), () => {
  let folder: string;
  let state: State;
  beforeEach(async () => {
    folder = temporaryFolder();
    state = await followState(folder);
  });
  afterEach(() => state.close());

  const WRITES: readonly (readonly [
    name: string,
    write: (state: State, reservation: Reservation) => Promise<unknown>,
  ])[] = [
    ['reserve', async (one) => one.reserve([CALLS], instant())],
    ['settle', async (one, held) => one.settle(held, { outputBytes: 1, wallMs: 0 })],
    ['endScope', async (one) => one.endScope('run', 'r')],
    ['put', async (one) => one.put('grants', 'a', '2')],
    ['remove', async (one) => one.remove('grants', 'a')],
    ['take', async (one) => one.take('grants', 'a')],
    ['swap', async (one) => one.swap('grants', 'a', { from: '1', to: '2' })],
  ];

  it('does not block the event loop or reads, and causes no error after it continues', async () => {
    await state.put('grants', 'a', '1');
    const answer = await state.reserve([OUTPUT], instant());
    const held = (answer as { reservation: Reservation }).reservation;
    const holder = await holderOf(folder);
    expect(await execute(holder, 'BEGIN IMMEDIATE')).toBe('done');
    holder.child.kill('SIGSTOP');
    const writes = WRITES.map(([, write]) => write(state, held));
    const codes = Promise.all(writes.map(codeOf));
    const ticks = ticksDuring(codes);
    for (let reads = 0; reads < 10; reads += 1) {
      await state.refresh();
      expect(state.get('grants', 'a')).toBe('1');
      await sleep(FROZEN_MS / 10);
    }
    expect(await codes).toEqual(WRITES.map(() => 'STATE_FAILED'));
    expect(await ticks).toBeGreaterThan(100);
    holder.child.kill('SIGCONT');
    expect(await execute(holder, 'ROLLBACK')).toBe('done');
    // Both processes can write again, and each sees the other's writes.
    expect(await execute(holder, "INSERT INTO value VALUES ('grants', 'later', '1')")).toBe('done');
    await expect.poll(async () => (await state.refresh(), state.get('grants', 'later'))).toBe('1');
    for (const [name, write] of WRITES) expect([name, await codeOf(write(state, held))]).toEqual([name, '']);
    expect(await execute(holder, 'PRAGMA wal_checkpoint(TRUNCATE)')).toBe('done');
    expect(statSync(path.join(folder, 'state.db-wal')).size).toBe(0);
  }, 60_000);
});

describe('the open descriptors of a long-running process' + verifies('ST-16'), () => {
  it('do not grow with checks of the database or with attempts to get its lock', async () => {
    const folder = temporaryFolder();
    const state = openState(folder, { busyMs: 300 });
    const open = (): number =>
      readdirSync('/proc/self/fd').filter((fd) =>
        linkOf(`/proc/self/fd/${fd}`).startsWith(path.join(folder, 'state.db')),
      ).length;
    state.probe(true);
    const before = open();
    for (let n = 0; n < 40; n += 1) state.probe(n % 10 === 0);
    expect(open() - before).toBeLessThan(5);
    const holder = await holderOf(folder);
    expect(await execute(holder, 'BEGIN IMMEDIATE')).toBe('done');
    expect(() => state.put('grants', 'a', '1')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    expect(open() - before).toBeLessThan(5);
    state.close();
  });
});

function linkOf(file: string): string {
  try {
    return readlinkSync(file);
  } catch {
    return '';
  }
}

describe('a write of another process' + verifies('ST-03'), () => {
  it('is visible after refresh()', async () => {
    const folder = temporaryFolder();
    const state = await followState(folder);
    const other = openState(folder);
    for (let n = 0; n < 50; n += 1) {
      void other.put('grants', 'a', `${n}`);
      await sleep(2);
      await state.refresh();
      expect(state.get('grants', 'a')).toBe(`${n}`);
    }
    void other.remove('grants', 'a');
    await sleep(2);
    await state.refresh();
    expect([state.get('grants', 'a'), [...state.list('grants')]]).toEqual([undefined, []]);
    other.close();
    await state.close();
  });

  it('is listed among the changes since an earlier point, or all values are listed', async () => {
    const folder = temporaryFolder();
    const other = openState(folder);
    const { to } = other.changesAfter(undefined);
    for (const n of [1, 2, 3]) void other.put('s', `k${n}`, `${n}`);
    void other.remove('s', 'k2');
    expect(other.changesAfter(to)).toMatchObject({
      all: false,
      changes: expect.arrayContaining([
        { space: 's', key: 'k1', value: '1' },
        { space: 's', key: 'k2' },
      ]) as unknown,
    });
    expect(other.changesAfter(to + 100)).toMatchObject({ all: true });
    other.close();
  });
});

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
principals: [{id: alice, stdio: true, owner: true}]
profiles: {default: {expose: {primitives: workspace}}}
budgets: [{id: many, scope: principal, calls: 100000}]
rules: [{id: all, outcome: allow, when: {}}]
`;

describe('a running facade' + verifies('ST-04'), () => {
  let facade: TestFacade;
  const read = (): Promise<{ code: string; text: string }> =>
    facade.call(facade.open('alice'), 'read', { path: 'a.txt' });
  const file = (): string => path.join(facade.folder, 'state', 'state.db');
  beforeEach(async () => {
    facade = await startFacade(CONFIG, { files: { 'workspace/a.txt': 'hello' } });
    expect((await read()).text).toContain('hello');
  });
  // Its close fails, because it can no longer write.
  afterEach(() => facade.close().catch(() => undefined));

  it('refuses every call after its database was removed, and still obeys off', async () => {
    rmSync(file());
    await expect.poll(async () => (await read()).code, { timeout: 10_000 }).toBe('STATE_LOST');
    expect(() => openState(path.join(facade.folder, 'state'))).toThrow(
      expect.objectContaining({ code: 'STATE_LOST' }) as Error,
    );
    expect(readdirSync(path.join(facade.folder, 'state'))).not.toContain('state.db');
    const stops = new Stops(path.join(facade.folder, 'state'));
    new KillSwitch({ stops }).throw(NOW);
    stops.close();
    expect(['SWITCHED_OFF', 'STATE_LOST']).toContain((await read()).code);
  });

  it('refuses every call after its database was damaged under load, and still obeys off', async () => {
    const kept = path.join(facade.folder, 'kept');
    let isOver = false;
    const codes = new Set<string>();
    const load = (async () => {
      while (!isOver) codes.add((await read()).code);
    })();
    const holder = await holderOf(path.join(facade.folder, 'state'));
    await execute(holder, 'PRAGMA wal_checkpoint(TRUNCATE)');
    cpSync(file(), kept);
    damage(file());
    await expect.poll(async () => (await read()).code, { timeout: 20_000 }).toBe('STATE_FAILED');
    const stops = new Stops(path.join(facade.folder, 'state'));
    new KillSwitch({ stops }).throw(NOW);
    expect(['SWITCHED_OFF', 'STATE_FAILED']).toContain((await read()).code);
    isOver = true;
    await load;
    expect([...codes].filter((code) => !['', 'STATE_FAILED', 'SWITCHED_OFF'].includes(code))).toEqual([]);
    stops.close();
    holder.child.kill('SIGKILL');
  }, 60_000);
});

/** Overwrites the beginning of every page, like a write to the wrong place. */
function damage(file: string): void {
  const fd = openSync(file, 'r+');
  for (let at = 0; at < statSync(file).size; at += 4096) writeSync(fd, Buffer.alloc(200, 'x'), 0, 200, at);
  closeSync(fd);
}

describe('a running process' + verifies('ST-02', 'ST-03', 'ST-04'), () => {
  let folder: string;
  let state: State;
  const refused = (code: string): Promise<unknown> =>
    expect.poll(() => codeOf((async () => state.refresh())()), { timeout: 20_000 }).toBe(code);
  beforeEach(async () => {
    folder = temporaryFolder();
    state = await followState(folder);
    await state.put('grants', 'a', '1');
  });
  afterEach(() => state.close());

  it('notices without any load that its database is damaged, and keeps refusing', async () => {
    const holder = await holderOf(folder);
    await execute(holder, 'PRAGMA wal_checkpoint(TRUNCATE)');
    damage(path.join(folder, 'state.db'));
    await refused('STATE_FAILED');
    for (let n = 0; n < 20; n += 1) {
      expect(await codeOf((async () => state.refresh())())).toBe('STATE_FAILED');
      await sleep(50);
    }
    expect(() => state.get('grants', 'a')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
  }, 60_000);

  it.each(['-wal', '-shm'])(
    'refuses if %s was removed, because it can no longer see the writes of others',
    async (part) => {
      rmSync(path.join(folder, `state.db${part}`));
      await refused('STATE_LOST');
    },
  );

  it('refuses if the file of stops was moved, even if another file is in its place', async () => {
    renameSync(path.join(folder, 'stopped'), path.join(folder, 'moved'));
    await refused('STATE_LOST');
    new Stops(folder).close();
    await sleep(2);
    expect(() => state.stops.list()).toThrow(expect.objectContaining({ code: 'STATE_LOST' }) as Error);
  });

  it('refuses requests after it has closed its state, and does not wait', async () => {
    const other = await followState(temporaryFolder());
    await other.close();
    for (const ask of [() => other.put('a', 'b', 'c'), () => other.refresh(), () => other.close()])
      expect(['STATE_FAILED', '']).toContain(await codeOf((async () => ask())()));
  });

  it('reports each read and write that fails' + verifies('ST-34'), async () => {
    let faults = 0;
    const other = await followState(temporaryFolder(), () => void (faults += 1));
    await other.put('a', 'b', 'c');
    expect([other.get('a', 'b'), faults]).toEqual(['c', 0]);
    await other.close();
    expect(() => other.get('a', 'b')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    expect(await codeOf(Promise.resolve(other.put('a', 'b', 'd')))).toBe('STATE_FAILED');
    expect(await codeOf(Promise.resolve(other.remove('a', 'b')))).toBe('STATE_FAILED');
    expect(faults).toBe(3);
  });

  it('starts its state thread again after it died, and ends in order', async () => {
    const fixture = startFixture('state-thread.ts', [temporaryFolder()]);
    const [line] = await fixture.ended;
    expect(JSON.parse(line ?? '[]')).toEqual(
      [0, 50, 800].map((wait) => ({ wait, code: '', first: true, value: `${wait}`, written: '' })),
    );
    expect(fixture.child.exitCode).toBe(0);
  }, 60_000);

  it('does not open more files while it polls', async () => {
    const open = (): number => readdirSync('/proc/self/fd').length;
    await sleep(roundsOf(1_500, 500));
    const before = open();
    await sleep(roundsOf(4_500, 1_500));
    expect(open()).toBeLessThan(before + 10);
  }, 30_000);
});

describe('a clock that is set' + verifies('ST-06'), () => {
  const MINUTE = { id: 'minute', scope: 'principal' as const, window: 60, calls: 1 };
  const request = {
    budgets: [MINUTE],
    keys: { run: '', session: '', sessions: 'p', principal: 'p', server: '', tool: '', origin: '' },
    argBytes: 0,
    maxOutputBytes: 0,
    maxWallMs: 0,
    signal: new AbortController().signal,
    deadline: 0,
  };

  it.each([
    ['back by a day', -86_400_000],
    ['back by half of the window', -30_000],
    ['ahead by a day', 86_400_000],
  ])('%s does not change the end of a window', async (_name, jump) => {
    const started = Date.parse('2026-11-23T12:00:00Z');
    let now: Instant = { wall: started, monotonic: 1_000, boot: 'one' };
    const budgets = createBudgets(openState(temporaryFolder()), () => now);
    await budgets.reserve(request);
    now = { wall: started + jump + 59_000, monotonic: 60_000, boot: 'one' };
    await expect(budgets.reserve(request)).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      data: { resetsAt: new Date(now.wall + 1_000).toISOString() },
    });
    now = { wall: started + jump + 60_000, monotonic: 61_000, boot: 'one' };
    await expect(budgets.reserve(request)).resolves.toBeDefined();
  });

  it('with a reboot starts the window again, and keeps what was spent', async () => {
    let now: Instant = { wall: 100_000_000, monotonic: 5_000_000, boot: 'one' };
    const budgets = createBudgets(openState(temporaryFolder()), () => now);
    await budgets.reserve(request);
    now = { wall: 10_000_000, monotonic: 100, boot: 'two' };
    await expect(budgets.reserve(request)).rejects.toMatchObject({ code: 'BUDGET_EXCEEDED' });
    now = { wall: 10_060_000, monotonic: 60_100, boot: 'two' };
    await expect(budgets.reserve(request)).resolves.toBeDefined();
    expect(elapsed(momentAt(5), momentAt(3))).toBe(0);
  });
});
