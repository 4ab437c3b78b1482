/**
 * Tests the answer of grants: order does not matter, a deny wins, the end is exact, and nothing crosses origins or
 * profiles.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ConsentEntry } from '../../facade/audit/audit-entry.ts';
import {
  completeGrant,
  evaluateGrants,
  findAnsweringGrant,
  GRANT_KINDS,
  GRANT_SCOPES,
  type Grant,
  isInForce,
  type NewGrant,
  requireScope,
} from '../../facade/consent/grants/grant.ts';
import { Grants } from '../../facade/consent/grants/grant-store.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { verifies } from '../verifies.ts';

const NOW = 1_800_000_000_000;
const CALL = 'mcp:tools.call';
const FILES = { server: 'files', tool: 'read' };
const PAGE = 'https://a.example';

const one = (more: Partial<Grant> = {}): Grant => ({
  id: 'grant_1',
  origin: PAGE,
  profile: 'harbor',
  scope: CALL,
  kind: 'always',
  by: 'o',
  at: NOW,
  ...more,
});
const tools = fc.option(fc.subarray(['*', 'files.*', 'files.read', 'files.write', 'web.get'], { minLength: 1 }), {
  nil: undefined,
});
const grant: fc.Arbitrary<Grant> = fc
  .record({
    id: fc.stringMatching(/^[0-9a-f]{6}$/),
    profile: fc.constantFrom('harbor', 'p'),
    scope: fc.constantFrom(CALL, 'mcp:tools.list'),
    kind: fc.constantFrom(...GRANT_KINDS),
    tools,
    tab: fc.option(fc.constantFrom('1', '2'), { nil: undefined }),
  })
  .map(({ tools: some, tab, ...rest }) =>
    one({ ...rest, ...(some !== undefined && { tools: some }), ...(tab !== undefined && { tab }) }),
  );
const question = fc.record({
  profile: fc.constantFrom('harbor', 'p'),
  scope: fc.constantFrom(CALL, 'mcp:tools.list'),
  tool: fc.constantFrom(FILES, { server: 'files', tool: 'write' }, { server: 'web', tool: 'get' }),
  from: fc.constantFrom({}, { tab: '1' }, { tab: '2' }),
});
const unique = fc.uniqueArray(grant, { selector: ({ id }) => id, maxLength: 8 });

const codeOf = (work: () => unknown): string => {
  try {
    work();
    return '';
  } catch (thrown) {
    return (thrown as TollgateError).code;
  }
};

describe('the answer of grants', () => {
  it('does not depend on their order' + verifies('HB-02'), () => {
    fc.assert(
      fc.property(unique, question, fc.infiniteStream(fc.nat()), (grants, asked, order) => {
        const shuffled = grants
          .map((each) => ({ each, key: order.next().value }))
          .sort((a, b) => a.key - b.key)
          .map(({ each }) => each);
        expect(evaluateGrants(shuffled, asked)).toEqual(evaluateGrants(grants, asked));
        expect(findAnsweringGrant(shuffled, asked)).toEqual(findAnsweringGrant(grants, asked));
      }),
    );
  });

  it('is a deny as soon as one grant denies' + verifies('HB-02'), () => {
    fc.assert(
      fc.property(unique, question, (grants, asked) => {
        const denied = [...grants, one({ id: 'deny', kind: 'deny', profile: asked.profile, scope: asked.scope })];
        expect(evaluateGrants(denied, asked).kind).toBe('deny');
        expect(findAnsweringGrant(denied, asked)).toBeUndefined();
      }),
    );
  });

  it('never crosses profiles or scopes, and one more allow never takes a permission away', () => {
    fc.assert(
      fc.property(unique, grant, question, (grants, more, asked) => {
        const before = evaluateGrants(grants, asked);
        const after = evaluateGrants([...grants, more], asked);
        if (more.profile !== asked.profile || more.scope !== asked.scope) expect(after).toEqual(before);
        else if (more.kind !== 'deny' && before.kind === 'allow') expect(after.kind).toBe('allow');
      }),
    );
  });

  it('is valid until the last millisecond, and not longer', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 45 }), (end) => {
        expect([
          isInForce({ expiresAt: end }, end - 1),
          isInForce({ expiresAt: end }, end),
          isInForce({ expiresAt: end }, end + 1),
        ]).toEqual([true, false, false]);
      }),
    );
    expect(isInForce({}, Number.MAX_SAFE_INTEGER)).toBe(true);
  });

  it('distinguishes "no decision" from "decided otherwise"', () => {
    const asked = { profile: 'harbor', scope: CALL, tool: FILES };
    expect(evaluateGrants([], asked)).toEqual({ kind: 'none' });
    expect(evaluateGrants([one({ tools: ['files.write', 'web.*'] })], asked)).toEqual({ kind: 'uncovered' });
    expect(evaluateGrants([one({ tools: ['files.*'] })], asked)).toMatchObject({ kind: 'allow' });
    expect(evaluateGrants([one({ kind: 'deny', tools: ['files.write'] })], asked)).toEqual({ kind: 'none' });
    // For the whole scope: some of it is allowed, and not all of it is denied.
    expect(
      evaluateGrants([one({ tools: ['files.read'] }), one({ id: 'grant_2', kind: 'deny', tools: ['web.*'] })], {
        profile: 'harbor',
        scope: CALL,
      }),
    ).toMatchObject({ kind: 'allow' });
  });

  it('answers an ask only if the grant names the tool, its server, or all', () => {
    const asked = { profile: 'harbor', scope: CALL, tool: FILES };
    expect(findAnsweringGrant([one()], asked)).toBeUndefined();
    for (const written of ['files.read', 'files.*', '*'])
      expect(findAnsweringGrant([one(), one({ id: 'grant_2', tools: [written] })], asked)?.id).toBe('grant_2');
    for (const written of ['files.readme', 'files.rea*', 'file.*', 'FILES.read'])
      expect(findAnsweringGrant([one({ tools: [written] })], asked)).toBeUndefined();
    expect(findAnsweringGrant([one({ tools: ['*'] }), one({ id: 'grant_2', kind: 'deny' })], asked)).toBeUndefined();
  });

  it('is only for the session and the tab that the grant names', () => {
    const asked = (from: object): string =>
      evaluateGrants([one({ kind: 'once', session: 's1', tab: 't1' })], {
        profile: 'harbor',
        scope: CALL,
        tool: FILES,
        from,
      }).kind;
    expect([
      asked({ id: 's1', tab: 't1' }),
      asked({ id: 's1' }),
      asked({ tab: 't1' }),
      asked({ id: 's2', tab: 't1' }),
      asked({}),
    ]).toEqual(['allow', 'none', 'none', 'none', 'none']);
  });
});

describe('a new grant', () => {
  const wanted = (more: Partial<NewGrant> = {}): NewGrant => ({
    origin: PAGE,
    profile: 'harbor',
    scope: CALL,
    kind: 'once',
    ...more,
  });

  it("has a known scope, or a host's own scope in the right form" + verifies('HB-01'), () => {
    for (const scope of [...GRANT_SCOPES, 'shop:cart.read', 'x:y.z'])
      expect(codeOf(() => requireScope(scope))).toBe('');
    for (const scope of [
      '',
      'mcp',
      'mcp:tools',
      'mcp:tools.delete',
      'browser:tabs.read',
      'MCP:tools.list',
      'mcp:tools.list ',
      'a:b.c.d',
      'a:b.c\n',
      'ä:b.c',
      '*',
      'shop:*.read',
      'a:b/../c',
    ])
      expect([scope, codeOf(() => requireScope(scope))]).toEqual([scope, 'USAGE']);
  });

  it('has an origin as browsers write it, or a client, and nothing ambiguous', () => {
    for (const origin of [PAGE, 'http://localhost:8080', 'moz-extension://0a-1b', 'cursor', 'a@b'])
      expect(codeOf(() => completeGrant(wanted({ origin }), NOW))).toBe('');
    for (const origin of [
      '',
      '*',
      'null ',
      'https://A.example',
      'https://a.example/',
      'https://a.example/x',
      'https://u@a.example',
      'https://a.example?x',
      'https://',
      '//a',
      'https://a b',
      'https://a\u202e',
      '../x',
      'a b',
      'x'.repeat(65),
    ])
      expect([origin, codeOf(() => completeGrant(wanted({ origin }), NOW))]).toEqual([origin, 'USAGE']);
  });

  it('of kind once ends after ten minutes by default, and other kinds cannot name a tab', () => {
    expect(completeGrant(wanted(), NOW).expiresAt).toBe(NOW + 600_000);
    expect(completeGrant(wanted({ expiresAt: NOW + 1 }), NOW).expiresAt).toBe(NOW + 1);
    expect(completeGrant(wanted({ kind: 'always' }), NOW)).not.toHaveProperty('expiresAt');
    for (const more of [
      { expiresAt: NOW },
      { kind: 'always', tab: '1' },
      { kind: 'deny', session: 's' },
      { tab: '' },
      { tab: '../1' },
      { tools: [] },
      { tools: ['x'] },
      { tools: ['files.'] },
      { tools: ['a b.c'] },
      { scope: 'mcp:tools.list', tools: ['*'] },
      { scope: 'mcp:server.connect', tools: ['files.read'] },
    ] as Partial<NewGrant>[]) {
      expect([more, codeOf(() => completeGrant(wanted(more), NOW))]).toEqual([more, 'USAGE']);
    }
    expect(codeOf(() => completeGrant(wanted({ scope: 'mcp:server.connect', tools: ['files.*', '*'] }), NOW))).toBe('');
  });
});

describe('the store of grants', () => {
  let folder: string;
  let state: State;
  let entries: ConsentEntry[];
  let clock: number;
  let grants: Grants;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'tollgate-grants-'));
    state = openState(folder);
    entries = [];
    clock = NOW;
    grants = new Grants({ state, now: () => clock, append: (entry) => void entries.push(entry) });
  });
  afterEach(async () => {
    await state.close();
    rmSync(folder, { recursive: true, force: true });
  });

  it('keeps an always grant over a restart, unchanged' + verifies('HB-02'), async () => {
    const given = await grants.add(
      { origin: PAGE, profile: 'harbor', scope: CALL, kind: 'always', tools: ['files.read'] },
      'owner',
    );
    await state.close();
    state = openState(folder);
    expect(await new Grants({ state, now: () => clock + 10 ** 12, append: () => undefined }).of(PAGE)).toEqual([given]);
    expect(entries).toEqual([
      {
        type: 'grant',
        event: 'added',
        id: given.id,
        outcome: 'allow',
        principal: { id: '', role: '', profiles: ['harbor'], origin: PAGE },
        scope: CALL,
        kind: 'always',
        by: 'owner',
      },
    ]);
  });

  it(
    'returns only the grants of one origin, also if another origin has the same beginning' + verifies('HB-02'),
    async () => {
      for (const origin of [PAGE, `${PAGE}.evil.example`, 'https://a.exampl', 'a'])
        await grants.add({ origin, profile: 'p', scope: CALL, kind: 'always' }, 'o');
      for (const origin of [PAGE, `${PAGE}.evil.example`, 'https://a.exampl', 'a'])
        expect((await grants.of(origin)).map((each) => each.origin)).toEqual([origin]);
      for (const origin of ['https://a.example ', 'https:', '', '%']) expect(await grants.of(origin)).toEqual([]);
    },
  );

  it('drops a once grant exactly at its end, and records the expiry', async () => {
    const { id } = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'once', expiresAt: NOW + 5 }, 'o');
    clock = NOW + 4;
    expect(await grants.of(PAGE)).toHaveLength(1);
    clock = NOW + 5;
    expect(await grants.of(PAGE)).toEqual([]);
    expect(await grants.list()).toEqual([]);
    expect(entries.at(-1)).toMatchObject({ event: 'expired', id, outcome: 'deny' });
  });

  it('ends a grant with the tab or session that it names, and no other' + verifies('HB-03'), async () => {
    const add = (more: object, origin = PAGE): Promise<Grant> =>
      grants.add({ origin, profile: 'p', scope: CALL, kind: 'once', ...more }, 'o');
    await Promise.all([
      add({ tab: '12' }),
      add({ tab: '1' }),
      add({ tab: '12' }, 'https://b.example'),
      add({ session: '12' }),
      add({}),
    ]);
    expect(await grants.expire({ tab: '12', origin: PAGE }, 'o')).toBe(1);
    expect(await grants.expire({ tab: '12' }, 'o')).toBe(1);
    expect(await grants.expire({ tab: '12' }, 'o')).toBe(0);
    expect((await grants.list()).map(({ tab, session }) => tab ?? session ?? 'none').sort()).toEqual([
      '1',
      '12',
      'none',
    ]);
    expect(await grants.expire({ session: '12' })).toBe(1);
  });

  it('attack, tab id reuse: does not return a grant of a closed tab to a new tab with the same id', async () => {
    const old = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'once', tab: '7' }, 'o');
    await grants.expire({ tab: '7' }, 'o');
    const next = await grants.add({ origin: PAGE, profile: 'p', scope: 'mcp:tools.list', kind: 'once', tab: '7' }, 'o');
    expect((await grants.of(PAGE)).map(({ id }) => id)).toEqual([next.id]);
    expect(next.id).not.toBe(old.id);
  });

  it('attack, replay after revoke: has removed the id in every process, and a second revoke says so', async () => {
    const { id } = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'always' }, 'o');
    const other = openState(folder);
    const elsewhere = new Grants({ state: other, now: () => clock, append: () => undefined });
    expect(await elsewhere.of(PAGE)).toHaveLength(1);
    await grants.revoke(id, 'o');
    // Another process sees a change after 1 ms at most.
    await sleep(2);
    expect(await elsewhere.of(PAGE)).toEqual([]);
    await expect(elsewhere.revoke(id, 'o')).rejects.toMatchObject({ code: 'USAGE' });
    await other.close();
  });

  it('is read again after any change, here or in another process, and only then', async () => {
    let reads = 0;
    const counted = new Grants({
      state: {
        ...state,
        list: (space, prefix) => {
          reads += 1;
          return state.list(space, prefix);
        },
      },
      now: () => clock,
      append: () => undefined,
    });
    const { id } = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'once', expiresAt: NOW + 5 }, 'o');
    for (let count = 0; count < 3; count += 1) expect(await counted.of(PAGE)).toHaveLength(1);
    expect(reads).toBe(1);
    const other = openState(folder);
    await new Grants({ state: other, now: () => clock, append: () => undefined }).add(
      { origin: PAGE, profile: 'p', scope: CALL, kind: 'deny' },
      'o',
    );
    await sleep(2);
    expect(await counted.of(PAGE)).toHaveLength(2);
    await other.close();
    await grants.revoke(id, 'o');
    expect(await counted.of(PAGE)).toHaveLength(1);
    expect(reads).toBe(3);
    // The passage of time alone causes no read.
    const late = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'once', expiresAt: NOW + 5 }, 'o');
    expect((await counted.of(PAGE)).map((each) => each.id)).toContain(late.id);
    clock = NOW + 5;
    expect((await counted.of(PAGE)).map((each) => each.id)).not.toContain(late.id);
    expect(reads).toBe(4);
  });

  it('attack, a path in an id: accepts only the form of an id', async () => {
    await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'always' }, 'o');
    for (const id of ['', '../grant_1', '%', 'grant_%', `${PAGE} p`, 'grant_' + '0'.repeat(32)])
      await expect(grants.revoke(id, 'o')).rejects.toMatchObject({ code: 'USAGE' });
    expect(await grants.list()).toHaveLength(1);
  });

  it('grants nothing that cannot be recorded, and revokes also what cannot be recorded', async () => {
    const { id } = await grants.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'always' }, 'o');
    const full = new Grants({
      state,
      now: () => clock,
      append: () => {
        throw new Error('disk full');
      },
    });
    await expect(full.add({ origin: PAGE, profile: 'p', scope: CALL, kind: 'always' }, 'o')).rejects.toThrow(
      'disk full',
    );
    expect(await grants.of(PAGE)).toHaveLength(1);
    await expect(full.revoke(id, 'o')).rejects.toThrow('disk full');
    expect(await grants.of(PAGE)).toEqual([]);
  });
});
