/** Replaces replicas under load, and runs replicas that differ: in their configuration, and in their clocks. */

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { openAuditReader } from '../../facade/audit/index/audit-reader.ts';
import { openRedisStore } from '../../facade/state/shared/redis-store.ts';
import { openSharedState } from '../../facade/state/shared/shared-state.ts';
import type { StoreAccess } from '../../facade/state/shared/shared-store.ts';
import { createSeals } from '../../facade/state/state-seals.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf, roundsOf } from '../harness/slices.ts';
import { STORE_PASSWORD, startStoreServer } from '../state/store-servers.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { numbers } from './fault-seed.ts';
import { FleetGround, FleetLoad, TOKENS } from './fleet-ground.ts';

const MINUTE_MS = 60_000;
const REPLICAS = roundsOf(3, 2);
/** A replica that the test kills is the second one. */
const OTHERS = [0, 2].slice(0, REPLICAS - 1);
const ENV = { env: { STORE_OF_TEST: STORE_PASSWORD } };

async function started(
  kind: StoreAccess['kind'],
  few: number,
  how: Partial<Pick<FleetGround, 'change' | 'env' | 'probe'>>,
): Promise<FleetGround> {
  const ground = Object.assign(new FleetGround(), { count: REPLICAS }, how);
  onTestFinished(() => ground.remove());
  await ground.start(kind, few);
  return ground;
}

interface Answer {
  readonly error?: { readonly data?: { readonly code?: string } };
  readonly result?: { readonly _meta?: Readonly<Record<string, unknown>> };
}

/** A session of p0. Each request goes to the replica that the test names. */
class Client {
  readonly #ports: readonly number[];
  #id = '';
  #last = 0;

  constructor({ replicas }: FleetGround) {
    this.#ports = replicas.map(({ port }) => port);
  }

  async open(replica: number): Promise<this> {
    const clientInfo = { name: 'test', version: '1' };
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
    const response = await this.#send(replica, { id: 0, method: 'initialize', params });
    this.#id = response.headers.get('mcp-session-id') ?? '';
    await response.text();
    await (await this.#send(replica, { method: 'notifications/initialized' })).text();
    return this;
  }

  /** Calls a tool with the same arguments each time. Returns `ok` or the code of the refusal. */
  async call(replica: number, name: string): Promise<string> {
    this.#last += 1;
    const params = { name, arguments: { token: 'same' } };
    const response = await this.#send(replica, { id: this.#last, method: 'tools/call', params });
    const text = await response.text();
    const { error, result } = JSON.parse(/\{.*/.exec(text)?.[0] ?? '{}') as Answer;
    return error?.data?.code ?? (result?._meta?.['tollgate/code'] as string | undefined) ?? (result ? 'ok' : text);
  }

  #send(replica: number, message: object): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.#ports[replica]}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        authorization: `Bearer ${TOKENS[0]}`,
        ...(this.#id !== '' && { 'mcp-session-id': this.#id }),
      },
      body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    });
  }
}

inFull.each(partOf(['redis', 'postgres'] as const, 1))(
  `replicas over %s are replaced one after the other without a failed call${verifies('FL-35')}`,
  async (kind) => {
    const change = (yaml: string): string => yaml.replace('listen: {', 'listen: {unreadyMs: 1000, ');
    const ground = await started(kind, 1_000_000, { change, probe: '/readyz' });
    const load = new FleetLoad(ground.port, numbers());
    await load.open(roundsOf(40, 12));
    load.start(roundsOf(4, 2));
    await sleep(500);
    for (const replica of ground.replicas) {
      await replica.end('SIGTERM');
      const before = load.calls.length;
      await replica.start();
      // HAProxy needs two good answers, as Kubernetes needs minReadySeconds.
      await sleep(1_000);
      await expect.poll(() => load.calls.length, { timeout: 20_000 }).toBeGreaterThan(before + 20);
    }
    await load.end();
    expect(load.calls.length).toBeGreaterThan(roundsOf(100, 60));
    expect(load.calls.filter(({ code }) => code !== 'ok').map(({ code }) => code)).toEqual([]);
    expect(ground.server.ran).toHaveLength(load.calls.length);
  },
  360_000,
);

inFull(
  `replicas with different rules each decide with their own${verifies('FL-36')}`,
  async () => {
    const ground = await started('redis', 1_000_000, {
      change: (yaml, replica) => {
        const asks = '{id: asks, outcome: ask, when: {tools: [a.echo]}}';
        const denies = replica === 1 ? ', {id: no, outcome: deny, when: {tools: [b.echo]}}' : '';
        return `${yaml
          .replace('rules: [', `rules: [${asks}${denies}, `)
          .replace(
            'principals:\n',
            'principals:\n  - {id: boss, owner: true, stdio: true}\n',
          )}approvals: {waitMs: 0}\n`;
      },
    });
    const [mild, strict] = [await new Client(ground).open(0), await new Client(ground).open(1)];
    // The decision is that of the home of the session, whichever replica is asked.
    for (const asked of ground.replicas.keys()) {
      expect(await mild.call(asked, 'b_echo')).toBe('ok');
      expect(await strict.call(asked, 'b_echo')).toBe('UNKNOWN_TOOL');
    }

    // What one revision asked about and a person approved cannot be used under the other one.
    const owner = (...words: readonly string[]): ReturnType<typeof cli> =>
      cli(ground.project, ['approvals', ...words, '--as', 'boss', '--config', 'tollgate-0.yaml'], ENV);
    expect(await mild.call(0, 'a_echo')).toBe('APPROVAL_REQUIRED');
    const { approvals } = dataOf<{ approvals: { id: string; binding: string }[] }>((await owner('list', '--json')).out);
    expect(approvals).toHaveLength(1);
    const [{ id, binding } = { id: '', binding: '' }] = approvals;
    expect(await owner('approve', id, '--yes', binding)).toMatchObject({ code: 0 });
    expect(await strict.call(1, 'a_echo')).toBe('APPROVAL_REQUIRED');
    expect(await mild.call(0, 'a_echo')).toBe('ok');
    expect(await mild.call(0, 'a_echo')).toBe('APPROVAL_REQUIRED');

    // A session that moves gets the rules of its new home.
    await ground.replicas[0]!.end('SIGKILL');
    await expect.poll(() => mild.call(1, 'b_echo'), { timeout: 20_000 }).toBe('UNKNOWN_TOOL');

    const revisions = ground.replicas.slice(0, 2).map(({ state }) => {
      const reader = openAuditReader(path.join(state, 'audit'), ':memory:');
      onTestFinished(() => reader.close());
      const found = [...reader.all({})].map(({ record }) => (record as { revision?: string }).revision);
      return new Set(found.filter((revision) => revision !== undefined));
    });
    expect(revisions.map(({ size }) => size)).toEqual([1, 1]);
    expect([...revisions[0]!]).not.toEqual([...revisions[1]!]);
  },
  300_000,
);

/** Moves the clock of a process. */
const CLOCK = `const [real, RealDate] = [Date.now, Date];
Date.now = () => real() + ${MINUTE_MS};
globalThis.Date = class extends RealDate {
  constructor(...parts) { super(...(parts.length === 0 ? [Date.now()] : parts)); }
};
`;

inFull(
  `a replica whose clock is a minute ahead spends the same windows and ends no session${verifies('FL-36')}`,
  async () => {
    const hook = path.join(temporaryFolder(), 'clock.mjs');
    writeFileSync(hook, CLOCK);
    const ground = await started('redis', 6, {
      // A window and an idle time that are shorter than the difference of the clocks.
      change: (yaml) =>
        yaml.replace('calls: 6,', 'calls: 6, window: 50s,').replace('listen: {', 'listen: {idleMs: 20000, '),
      env: (replica) => (replica === 0 ? { NODE_OPTIONS: `--import=${hook}` } : {}),
    });
    const clients = [await new Client(ground).open(0), await new Client(ground).open(1)];
    const codes: string[] = [];
    for (let turn = 0; turn < 10; turn += 1) codes.push(await clients[turn % 2]!.call(turn % 2, 'b_echo'));
    expect(codes).toEqual([...Array(6).fill('ok'), ...Array(4).fill('BUDGET_EXCEEDED')]);
    // Each session is reached through the other replica, and goes on there when its home has died.
    for (const asked of ground.replicas.keys())
      for (const client of clients) expect(await client.call(asked, 'a_echo')).toBe('ok');
    await ground.replicas[1]!.end('SIGKILL');
    for (const asked of OTHERS)
      await expect.poll(() => clients[1]!.call(asked, 'a_echo'), { timeout: 20_000 }).toBe('ok');
    const reader = openAuditReader(path.join(ground.replicas[0]!.state, 'audit'), ':memory:');
    onTestFinished(() => reader.close());
    const times = [...reader.all({})].map(({ record }) => Date.parse(String((record as { ts?: unknown }).ts)));
    expect(Math.max(...times)).toBeGreaterThan(Date.now() + MINUTE_MS / 2);
  },
  300_000,
);

it(`what is sealed before midnight opens where it is a minute later, and the reverse${verifies('FL-36')}`, async () => {
  const server = await startStoreServer('redis');
  onTestFinished(() => server.remove());
  const access = server.access(`t${randomBytes(6).toString('hex')}`);
  const store = openRedisStore(access);
  await store.migrate();
  await store.close();
  const midnight = Date.UTC(2026, 10, 28);
  const [early, late] = await Promise.all(
    [midnight - MINUTE_MS / 2, midnight + MINUTE_MS / 2].map(async (now) => {
      const state = await openSharedState({ folder: temporaryFolder(), store: openRedisStore(access) });
      onTestFinished(async () => void (await state.close()));
      return createSeals(state, () => now);
    }),
  );
  expect(await late!.open(await early!.seal('one', 'b'), 'b')).toBe('one');
  expect(await early!.open(await late!.seal('two', 'b'), 'b')).toBe('two');
  const { day, key } = await late!.secret('hop');
  expect(early!.secretOf('hop', day)).toEqual(key);
}, 60_000);
