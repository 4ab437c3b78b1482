/**
 * Tests that no person is asked about a call that cannot run: each kind of stop ends its wait within a second and
 * withdraws the request.
 */

import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { awaitedRequests, mergeProgress } from '../../facade/consent/approvals/approval-wait.ts';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { ACT, allow, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import type { Answer } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ApprovalOwner } from './owner-context.ts';

const NOW = { since: '2026-01-01T00:00:00.000Z', by: 'olga' };
const ACT_OF = { by: 'olga', at: NOW.since };

let facade: RawFacade;
let owner: ApprovalOwner;
let me: Session;

const put = (session = me): Promise<Answer> => facade.call(session, 'one_put', { n: 1 });
const asked = (): Promise<void> =>
  expect.poll(() => owner.all('pending'), { interval: 10 }).toHaveLength(1) as unknown as Promise<void>;
const events = (): readonly unknown[] =>
  facade.records().flatMap((record) => (record.type === 'approval' ? [(record as { event?: unknown }).event] : []));

/** The stops, as another process makes them, with the answer for the caller. */
const STOPS: readonly (readonly [name: string, stop: () => unknown, code: string, says: string])[] = [
  ['off', () => new KillSwitch(owner.state).throw(NOW), 'SWITCHED_OFF', 'tollgate on'],
  [
    'kill',
    () => new KillSwitch(owner.state).throw({ server: 'one', ...NOW }),
    'SERVER_UNAVAILABLE',
    'tollgate kill --lift one',
  ],
  ['revoke', () => facade.assembled.consents.revoke('one'), 'SERVER_UNAVAILABLE', 'tollgate approve one'],
  [
    'servers disable',
    () => facade.assembled.consents.disable('one', ACT_OF),
    'SERVER_UNAVAILABLE',
    'tollgate servers enable one',
  ],
  [
    'a grant that denies',
    () =>
      facade.assembled.deps.grants.add(
        { origin: me.principal.origin, profile: 'all', scope: 'mcp:tools.call', kind: 'deny' } as never,
        'olga',
      ),
    'DENIED',
    'mcp:tools.call is denied',
  ],
];

beforeEach(async () => {
  facade = await startRaw(
    { one: { tools: [ACT, tool('put')] } },
    {
      approvals: { waitMs: 60_000 },
      rules: [allow('one'), { id: 'put-asks', outcome: 'ask', when: { tools: ['one.put'] } }],
    },
  );
  owner = new ApprovalOwner(facade.assembled.config.state);
  me = facade.open('me');
  await facade.list(me);
});
afterEach(async () => {
  await owner.close();
  await facade.close();
});

describe('a call that can no longer run' + verifies('PF-08'), () => {
  it.each(partOf(STOPS, 2))('stops waiting after %s, and its request is withdrawn', async (_name, stop, code, says) => {
    const answer = put();
    await asked();
    const { item } = await owner.open();
    await expect.poll(async () => [...(await awaitedRequests(owner.state))]).toEqual([item.id]);
    await stop();
    const began = performance.now();
    expect(await answer).toMatchObject({ code, text: expect.stringContaining(says) });
    expect(performance.now() - began).toBeLessThan(20_000);
    expect((await answer).result?._meta?.['tollgate/retryable']).toBe(false);
    expect((await owner.all()).map(({ item: { state, decided } }) => [state, decided?.by])).toEqual([
      ['withdrawn', 'tollgate'],
    ]);
    expect(events()).toEqual(['asked', 'withdrawn']);
    expect(facade.records()).toContainEqual(
      expect.objectContaining({ type: 'approval', event: 'withdrawn', id: item.id, code, outcome: 'deny' }),
    );
    await expect(owner.deny('No.', (await owner.all())[0])).rejects.toMatchObject({
      code: 'USAGE',
      message: expect.stringContaining(`${item.id} has ended`),
    });
    expect(facade.calls('one')).toEqual([]);
    expect((await awaitedRequests(owner.state)).size).toBe(0);
  });

  it.each(partOf(STOPS, 2))('asks no person after %s', async (_name, stop) => {
    await stop();
    expect((await put()).code).not.toBe('APPROVAL_REQUIRED');
    expect([await owner.all(), events()]).toEqual([[], []]);
  });

  inFull('ends together with every equal call, and asks again when it may run again', async () => {
    const both = [put(), put(facade.open('me'))];
    await asked();
    await expect.poll(() => owner.state.list('waiting'), { interval: 10 }).toHaveProperty('size', 2);
    const killSwitch = new KillSwitch(owner.state);
    await killSwitch.throw({ server: 'one', ...NOW });
    expect((await Promise.all(both)).map(({ code }) => code)).toEqual(['SERVER_UNAVAILABLE', 'SERVER_UNAVAILABLE']);
    expect(events()).toEqual(['asked', 'withdrawn']);
    await killSwitch.lift('one');
    const again = put();
    await asked();
    await owner.approve();
    expect((await again).code).toBe('');
    expect(facade.calls('one')).toHaveLength(1);
  });

  it('does not use up its approval', async () => {
    const stop = new AbortController();
    const given = facade.call(me, 'one_put', { n: 1 }, { signal: stop.signal });
    await asked();
    stop.abort();
    await given;
    await owner.approve();
    const killSwitch = new KillSwitch(owner.state);
    await killSwitch.throw({ server: 'one', ...NOW });
    expect((await put()).code).not.toBe('');
    expect((await owner.all()).map(({ item }) => item.state)).toEqual(['approved']);
    await killSwitch.lift();
    await expect.poll(async () => (await put()).code, { timeout: 20_000 }).toBe('');
  });
});

describe('a server without approval', () => {
  it('asks no person about its calls', async () => {
    const refusal = async (): Promise<string> => (await put()).code;
    await facade.assembled.consents.revoke('one');
    expect(await refusal()).not.toBe('APPROVAL_REQUIRED');
    expect(await owner.all()).toEqual([]);
  });
});

describe('the progress of a call that waits and then runs', () => {
  it('always increases, whatever the wait and the server report', () => {
    const growing = fc.uniqueArray(fc.nat(1000), { minLength: 1 }).map((numbers) => numbers.sort((a, b) => a - b));
    fc.assert(
      fc.property(fc.array(fc.nat(60)), growing, (waited, counted) => {
        const heard: { progress: number; total?: number }[] = [];
        const { onWait, onProgress } = mergeProgress((params) => void heard.push(params as { progress: number }));
        for (const progress of waited) onWait({ progress, total: 60 });
        for (const progress of counted) onProgress({ progress, total: 1000 });
        expect(heard.slice(1).every(({ progress }, at) => progress > (heard[at]?.progress ?? 0))).toBe(true);
        expect(heard.slice(-counted.length).every(({ progress, total }) => progress <= (total ?? 0))).toBe(true);
        if (waited.length === 0) expect(heard.map(({ progress }) => progress)).toEqual(counted);
      }),
    );
  });
});
