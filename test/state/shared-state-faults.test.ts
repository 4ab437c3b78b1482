/** What a shared state does when its store is away, wrong, full, emptied, older or newer. */

import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { asTollgateError } from '../../catalogs/errors/error-table.ts';
import { instant } from '../../facade/state/budget-clock.ts';
import { openPostgresStore } from '../../facade/state/shared/postgres-store.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { SharedStore, StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { type BudgetClaim, OUTCOME_UNKNOWN, type State } from '../../facade/state/state-port.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { freePort, STORE_PASSWORD, type StoreServer, startStoreServer } from './store-servers.ts';
import { temporaryFolder } from './temporary-folder.ts';

/** The limit of an answer, and time for a busy machine, ms. */
const REFUSED_MS = 2_000 + 1_500;
const KINDS = ['postgres', 'redis'] as const;
const CALLS: BudgetClaim = {
  budget: 'b',
  scope: 'principal',
  key: 'p',
  demands: [{ unit: 'calls', limit: 1000, most: 1, least: 1 }],
};

const servers = new Map<string, StoreServer>();

beforeAll(async () => {
  for (const kind of KINDS) servers.set(kind, await startStoreServer(kind));
});

afterAll(async () => {
  for (const server of servers.values()) await server.remove();
});

function openStore(access: StoreAccess): SharedStore {
  return access.kind === 'postgres' ? openPostgresStore(access) : openRedisStore(access);
}

async function migrated(kind: StoreAccess['kind']): Promise<StoreAccess> {
  const access = servers.get(kind)!.access(`t${randomBytes(6).toString('hex')}`);
  const store = openStore(access);
  await store.migrate();
  await store.close();
  return access;
}

async function open(access: StoreAccess): Promise<State> {
  const state = await openSharedState({ folder: temporaryFolder(), store: openStore(access) });
  onTestFinished(async () => void (await state.close()));
  return state;
}

/** Returns the code and the text of the refusal of an opening. */
async function refusalOf(access: StoreAccess): Promise<{ code: string; text: string }> {
  try {
    await open(access);
    return { code: 'none', text: '' };
  } catch (thrown) {
    const { code, message, next } = asTollgateError(thrown);
    return { code, text: `${message} ${next}` };
  }
}

async function codeOf(work: () => Promise<unknown> | undefined): Promise<string> {
  try {
    await work();
    return 'none';
  } catch (thrown) {
    return asTollgateError(thrown).code;
  }
}

it(`a slow request does not end the connection for announcements, and the copy stays${verifies('FL-04')}`, async () => {
  const access = await migrated('postgres');
  const store = openStore(access);
  onTestFinished(() => store.close());
  const heard: string[] = [];
  store.listen({ onNews: () => heard.push('news'), onLost: () => heard.push('lost') });
  await expect.poll(() => heard).toEqual(['news']);
  const blocker = new pg.Client({ connectionString: access.url.replace('@', `:${STORE_PASSWORD}@`) });
  onTestFinished(() => blocker.end());
  await blocker.connect();
  await blocker.query(`BEGIN; SELECT * FROM "${access.namespace}".meta FOR UPDATE`);
  const write = (key: string): Promise<string> => codeOf(() => store.write({ op: 'put', space: 's', key, to: 'v' }, 0));
  expect(await Promise.all(['a', 'b', 'c'].map(write))).toEqual(['STATE_AWAY', 'STATE_AWAY', 'STATE_AWAY']);
  await blocker.query('ROLLBACK');
  expect(await write('d')).toBe('none');
  await expect.poll(() => heard).toEqual(['news', 'news']);
});

describe.each(KINDS)('a store in %s', (kind) => {
  inFull(`that does not answer refuses within two seconds, and works again by itself${verifies('FL-04')}`, async () => {
    const state = await open(await migrated(kind));
    const server = servers.get(kind)!;
    await state.put('s', 'k', 'v');
    server.signal('SIGSTOP');
    try {
      const began = performance.now();
      const codes = await Promise.all([
        codeOf(() => state.reserve([CALLS], instant()) as Promise<unknown>),
        codeOf(() => state.put('s', 'k', 'w') as Promise<unknown>),
        codeOf(() => state.refresh('exact')),
      ]);
      expect(codes).toEqual(['STATE_AWAY', 'STATE_AWAY', 'STATE_AWAY']);
      expect(performance.now() - began).toBeLessThan(REFUSED_MS);
      // Old values are not used for decisions.
      expect(await codeOf(() => state.refresh())).toBe('STATE_AWAY');
      expect(() => state.get('s', 'k')).toThrow(expect.objectContaining({ code: 'STATE_AWAY' }));
    } finally {
      server.signal('SIGCONT');
    }
    await expect.poll(() => codeOf(() => state.refresh())).toBe('none');
    expect(['v', 'w']).toContain(state.get('s', 'k'));
    expect(await state.reserve([CALLS], instant())).toHaveProperty('reservation');
  });

  it(`refuses after the time of the settings${verifies('FL-04')}`, async () => {
    const server = servers.get(kind)!;
    const access = { ...(await migrated(kind)), timeoutMs: 200 };
    // A busy machine may need longer for the first answers.
    let state!: State;
    await expect.poll(async () => codeOf(async () => (state = await open(access)))).toBe('none');
    server.signal('SIGSTOP');
    onTestFinished(() => server.signal('SIGCONT'));
    const began = performance.now();
    const codes = [await codeOf(() => state.reserve([CALLS], instant()) as Promise<unknown>)];
    codes.push(
      await codeOf(() => state.put('s', 'k', 'w') as Promise<unknown>),
      await codeOf(() => state.refresh('exact')),
    );
    expect(codes).toEqual(['STATE_AWAY', 'STATE_AWAY', 'STATE_AWAY']);
    // One after the other: with the default it would be six seconds.
    expect(performance.now() - began).toBeLessThan(6_000);
  });

  it(`that is killed and restarted has lost nothing${verifies('FL-04')}`, async () => {
    const access = await migrated(kind);
    const state = await open(access);
    const server = servers.get(kind)!;
    for (let index = 0; index < 50; index += 1) await state.put('s', `k${index}`, String(index));
    await state.reserve([CALLS], instant());
    await server.kill();
    await expect.poll(() => codeOf(() => state.refresh('exact'))).toBe('STATE_AWAY');
    await server.start();
    await expect.poll(() => codeOf(() => state.refresh())).toBe('none');
    expect(state.list('s').size).toBe(50);
    const [counter] = await state.counters(5);
    expect(counter?.amounts.calls).toBe(1);
    const fresh = await open(access);
    expect(fresh.list('s').size).toBe(50);
    await fresh.put('s', 'late', '1');
    await expect.poll(() => state.get('s', 'late')).toBe('1');
  });

  it(`says whether a request without an answer may have been done${verifies('FL-04')}`, async () => {
    const access = await migrated(kind);
    const state = await open(access);
    await state.put('approvals', 'k', 'v');
    const server = servers.get(kind)!;
    server.signal('SIGSTOP');
    const taken = await Promise.resolve(state.take('approvals', 'k')).catch((thrown: unknown) => thrown);
    server.signal('SIGCONT');
    expect(taken).toMatchObject({ code: 'STATE_AWAY', cause: OUTCOME_UNKNOWN });
    await expect.poll(() => codeOf(() => state.refresh('exact'))).toBe('none');
    // At most one taker gets it in total.
    const again = await state.take('approvals', 'k');
    expect([undefined, 'v']).toContain(again);
  });

  it(`stops on a machine while the store is away, and everywhere afterwards${verifies('FL-03')}`, async () => {
    const access = await migrated(kind);
    const [one, two] = [await open(access), await open(access)];
    const server = servers.get(kind)!;
    server.signal('SIGSTOP');
    one.stops.put('files', { since: '2026-01-01T00:00:00.000Z', by: 'ann' });
    expect(one.stops.list().has('files')).toBe(true);
    server.signal('SIGCONT');
    await expect.poll(() => two.stops.list().has('files')).toBe(true);
  });

  it(`is refused with a reason if it is wrong, empty, newer or emptied${verifies('FL-05')}`, async () => {
    const server = servers.get(kind)!;
    const access = server.access(`t${randomBytes(6).toString('hex')}`);
    const shown: string[] = [];
    const refused = async (change: Partial<StoreAccess>): Promise<string> => {
      const { code, text } = await refusalOf({ ...access, ...change });
      shown.push(text);
      return `${code}: ${text}`;
    };
    expect(await refused({})).toMatch(/^STATE_FAILED: .* is empty: .*tollgate state migrate$/);
    expect(await refused({ password: 'wrong-password-1' })).toMatch(/^STATE_FAILED: .*password is wrong/);
    const gone = await freePort();
    expect(await refused({ url: access.url.replace(/:\d+/, `:${gone}`) })).toMatch(/^STATE_AWAY: .*ECONNREFUSED/);
    expect(await refused({ url: access.url.replace('127.0.0.1', 'no-such-host.invalid') })).toMatch(/^STATE_AWAY: /);
    const store = openStore(access);
    expect(await store.migrate()).toEqual({ from: 0, to: 1 });
    expect(await Promise.all([store.migrate(), store.migrate()])).toEqual([
      { from: 1, to: 1 },
      { from: 1, to: 1 },
    ]);
    await store.close();
    expect(await refused({})).toBe('none: ');
    const running = await open(access);
    await setVersion(access, 99);
    await expect.poll(() => codeOf(() => running.refresh('exact'))).toBe('STATE_TOO_NEW');
    expect(await refused({})).toMatch(/^STATE_TOO_NEW: .*version 99/);
    const late = openStore(access);
    expect(await codeOf(() => late.migrate())).toBe('STATE_TOO_NEW');
    await late.close();
    await setVersion(access, 1);
    await expect.poll(() => codeOf(() => running.refresh('exact'))).toBe('none');
    await empty(access);
    await expect.poll(() => codeOf(() => running.refresh('exact'))).toBe('STATE_LOST');
    expect(await codeOf(() => running.reserve([CALLS], instant()) as Promise<unknown>)).toBe('STATE_LOST');
    expect(shown.join(' ')).not.toMatch(/127\.0\.0\.1|pass-of|wrong-pass|tollgate@/);
  });

  it(`is created by two commands at the same time, once${verifies('FL-05')}`, async () => {
    const access = servers.get(kind)!.access(`t${randomBytes(6).toString('hex')}`);
    const stores = [openStore(access), openStore(access), openStore(access)];
    const answers = await Promise.all(stores.map((store) => store.migrate()));
    expect(answers.every(({ to }) => to === 1)).toBe(true);
    for (const store of stores) await store.close();
    expect(await refusalOf(access)).toMatchObject({ code: 'none' });
  });

  inFull(`is opened by commands with the secret of the configuration${verifies('FL-03', 'FL-05')}`, async () => {
    const project = new Project();
    onTestFinished(() => project.remove());
    const server = servers.get(kind)!;
    process.env.STORE_OF_TEST = STORE_PASSWORD;
    const { url } = server.access('');
    project.write(
      'tollgate.yaml',
      `version: 1\nworkspace: .\nstate: {folder: ~/s, store: '${url}', password: secret:store, ` +
        `namespace: t${randomBytes(6).toString('hex')}}\nsecrets: {store: {env: STORE_OF_TEST}}\n`,
    );
    expect(await cli(project, ['state', 'check'])).toMatchObject({ code: 1, err: expect.stringContaining('migrate') });
    expect(await cli(project, ['state', 'migrate'])).toMatchObject({ code: 0 });
    expect(await cli(project, ['state', 'check', '--json'])).toMatchObject({ code: 0 });
    expect((await cli(project, ['kill', 'workspace'])).code).toBe(0);
    const file = path.join(project.folder, 'tollgate.yaml');
    writeFileSync(file, readFileSync(file, 'utf8').replace('~/s,', '~/other,'));
    expect((await cli(project, ['kill'])).out).toContain('workspace');
    expect((await cli(project, ['kill', '--lift', 'workspace'])).code).toBe(0);
    expect((await cli(project, ['state', 'backup', 'x'])).err).toContain('store that machines share');
    server.signal('SIGSTOP');
    try {
      const off = await cli(project, ['off']);
      expect(off.code).not.toBe(0);
      expect(off.err).toContain('Done on this machine.');
      const on = await cli(project, ['on']);
      expect(on.err).toContain('STATE_AWAY');
    } finally {
      server.signal('SIGCONT');
    }
    expect((await cli(project, ['on'])).code).toBe(0);
  });
});

describe.each(KINDS)('processes of %s', (kind) => {
  it(`are not dead because nothing could be heard for some time${verifies('FL-04')}`, async () => {
    const access = await migrated(kind);
    const store = openStore(access);
    onTestFinished(() => store.close());
    const mark = 'a'.repeat(32);
    const slot: BudgetClaim = { ...CALLS, demands: [], concurrent: 1 };
    const reserve = (lease: string): ReturnType<SharedStore['reserve']> =>
      store.reserve({ claims: [slot], ahead: { most: 0, held: 0 }, lease, mark: 'b'.repeat(32) });
    await store.news(undefined, mark);
    expect(await store.reserve({ claims: [slot], ahead: { most: 0, held: 0 }, lease: 'l', mark })).toHaveProperty(
      'taken',
    );
    // The store was away for longer than a lease.
    if (kind === 'redis')
      await onRedis(access, (client) => client.zincrby(`{${access.namespace}}:alive`, -25_000, mark));
    else await onPostgres(access, `UPDATE ${access.namespace}.process SET seen = seen - 25000`);
    const state = await open(access);
    expect(state.isAlive(mark)).toBe(true);
    expect(await reserve('m')).toHaveProperty('refused');
    await expect.poll(() => state.isAlive(mark), { timeout: 10_000 }).toBe(false);
    expect(await reserve('n')).toHaveProperty('taken');
  });
});

describe('Postgres', () => {
  it(`that is full refuses changes, and goes on when it has room${verifies('FL-05')}`, async () => {
    // Postgres runs as another user.
    const smallFolder = mkdtempSync(path.join(tmpdir(), 'small-'));
    chmodSync(smallFolder, 0o755);
    const server = await startStoreServer('postgres', { smallFolder });
    onTestFinished(async () => {
      await server.remove();
      rmSync(smallFolder, { recursive: true });
    });
    const access = server.access('full');
    const ask = (sql: string): Promise<unknown> => onPostgres(access, sql);
    await ask(`CREATE TABLESPACE small LOCATION '${smallFolder}'`);
    await ask('ALTER ROLE tollgate SET default_tablespace = small');
    await ask('CREATE TABLE junk AS SELECT 1 AS id');
    const store = openStore(access);
    await store.migrate();
    await store.close();
    const state = await open(access);
    await state.put('s', 'k', 'v');
    // A page of a table has 8 KB.
    await ask('INSERT INTO junk SELECT generate_series(1, 1000000)').catch(() => undefined);
    const refusals: string[] = [];
    for (let number = 0; number < 30; number += 1)
      refusals.push(
        await codeOf(() => state.put('s', `big${number}`, randomBytes(5_000).toString('hex')) as Promise<unknown>),
      );
    expect(refusals).toContain('STATE_FAILED');
    const shown = refusals.flatMap((code, number) => (code === 'none' ? [`big${number}`] : []));
    await ask('TRUNCATE junk');
    await state.refresh('exact');
    expect([...state.list('s').keys()]).toEqual(expect.arrayContaining([...shown, 'k']));
    expect(await codeOf(() => state.put('s', 'k', 'w') as Promise<unknown>)).toBe('none');
  });
});

describe('Redis', () => {
  it.each([
    ['that may evict keys', ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'], /noeviction/],
    ['that keeps nothing', ['--appendonly', 'no'], /appendonly yes/],
  ])(`%s is refused${verifies('FL-05')}`, async (_name, settings, advice) => {
    const server = await startStoreServer('redis', { redis: settings });
    onTestFinished(() => server.remove());
    const { code, text } = await refusalOf(server.access('t'));
    expect(`${code}: ${text}`).toMatch(/^STATE_FAILED: /);
    expect(text).toMatch(advice);
  });

  it(`that is full refuses changes, and goes on when it has room${verifies('FL-05')}`, async () => {
    const server = await startStoreServer('redis', {
      redis: ['--maxmemory', '3mb', '--maxmemory-policy', 'noeviction'],
    });
    onTestFinished(() => server.remove());
    const access = server.access('full');
    const store = openStore(access);
    await store.migrate();
    await store.close();
    const state = await open(access);
    await state.put('s', 'k', 'v');
    const client = new Redis(access.url, { password: STORE_PASSWORD });
    onTestFinished(() => client.disconnect());
    await client.config('SET', 'maxmemory', '1');
    expect(await codeOf(() => state.put('s', 'k', 'w') as Promise<unknown>)).toBe('STATE_FAILED');
    expect(await codeOf(() => state.reserve([CALLS], instant()) as Promise<unknown>)).toBe('STATE_FAILED');
    await client.config('SET', 'maxmemory', '0');
    await expect.poll(() => codeOf(() => state.refresh('exact'))).toBe('none');
    expect(state.get('s', 'k')).toBe('v');
    expect(await codeOf(() => state.put('s', 'k', 'w') as Promise<unknown>)).toBe('none');
  });
});

async function setVersion(access: StoreAccess, version: number): Promise<void> {
  if (access.kind === 'redis')
    return onRedis(access, (client) => client.hset(`{${access.namespace}}:meta`, { version }));
  await onPostgres(access, `UPDATE ${access.namespace}.meta SET version = ${version}`);
}

async function empty(access: StoreAccess): Promise<void> {
  if (access.kind === 'redis') return onRedis(access, (client) => client.flushall());
  await onPostgres(access, `DROP SCHEMA ${access.namespace} CASCADE`);
}

async function onRedis({ url }: StoreAccess, work: (client: Redis) => Promise<unknown>): Promise<void> {
  const client = new Redis(url, { password: STORE_PASSWORD });
  await work(client);
  client.disconnect();
}

async function onPostgres({ url }: StoreAccess, text: string): Promise<void> {
  const client = new pg.Client({ connectionString: url.replace('@', `:${STORE_PASSWORD}@`) });
  await client.connect();
  await client.query(text).finally(() => client.end());
}
