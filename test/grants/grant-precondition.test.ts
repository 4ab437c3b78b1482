/**
 * Tests the effect of grants on lists and calls: profiles that require them, sleeping servers, and views that change.
 */
import { describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { ProfileConfig } from '../../facade/config/config.ts';
import type { Grant } from '../../facade/consent/grants/grant.ts';
import { checkGrants, grantPrecondition } from '../../facade/consent/grants/grant-precondition.ts';
import type { Precondition, PreconditionCall, PreconditionView } from '../../facade/consent/preconditions.ts';
import type { Principal } from '../../policies/port.ts';
import { verifies } from '../verifies.ts';

const PAGE = 'https://a.example';
const [LIST, CALL, CONNECT] = ['mcp:tools.list', 'mcp:tools.call', 'mcp:server.connect'];
const READ = { server: 'files', tool: 'read' };
const profiles = new Map(
  Object.entries({ open: 'optional', strict: 'required', stricter: 'required' }).map(([name, grants]) => [
    name,
    { name, grants } as ProfileConfig,
  ]),
);
let count = 0;
const one = (profile: string, scope: string, more: Partial<Grant> = {}): Grant => ({
  id: `grant_${(count += 1)}`,
  origin: PAGE,
  profile,
  scope,
  kind: 'always',
  by: 'o',
  at: 0,
  ...more,
});

interface Asker {
  readonly source: Precondition;
  readonly principal: Principal;
  view(from?: { id: string; tab?: string }): Promise<PreconditionView>;
  judge(server?: string): Promise<string>;
}

function among(grants: readonly Grant[], of: { profiles: readonly string[]; asleep?: boolean }): Asker {
  const principal: Principal = { id: 'a', role: 'user', groups: [], profiles: of.profiles, origin: PAGE };
  const source = grantPrecondition({
    profiles,
    grantsOf: (origin) => (origin === PAGE ? grants : []),
    isAsleep: () => of.asleep === true,
  });
  return {
    source,
    principal,
    view: async (from) => source.view(principal, from),
    judge: async (server = 'files') => {
      const call = {
        caller: { principal, session: { id: 's' } },
        effect: { server, tool: 'read' },
        args: {},
      } as unknown as PreconditionCall;
      try {
        return source.judge(call).grant ?? 'nothing';
      } catch (thrown) {
        return (thrown as TollgateError).code;
      }
    },
  };
}

describe('profiles that require no grants', () => {
  it('work without grants, and everything is visible' + verifies('HB-02'), async () => {
    const asker = among([], { profiles: ['open'], asleep: true });
    const view = await asker.view();
    expect([view.unlisted, view.withholds?.(READ), view.mayStart?.('files')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(await asker.judge()).toBe('nothing');
  });

  it('are not limited by an allow, or by a deny of another origin', async () => {
    const asker = among([one('open', CALL, { tools: ['files.write'] })], { profiles: ['open'], asleep: true });
    expect((await asker.view()).withholds?.(READ)).toBe(false);
    expect(await asker.judge()).toBe('nothing');
    const elsewhere = among([], { profiles: ['open'] });
    expect(await elsewhere.judge()).toBe('nothing');
  });
});

describe('profiles that require grants', () => {
  it('each need their own grant' + verifies('HB-02'), async () => {
    const of = { profiles: ['open', 'strict', 'stricter'] };
    const half = [LIST, CALL].map((scope) => one('strict', scope ?? ''));
    expect(await among(half, of).judge()).toBe('APPROVAL_REQUIRED');
    expect((await among(half, of).view()).unlisted?.code).toBe('APPROVAL_REQUIRED');
    const whole = [...half, ...[LIST, CALL].map((scope) => one('stricter', scope ?? ''))];
    expect(await among(whole, of).judge()).toBe('nothing');
    expect((await among(whole, of).view()).unlisted).toBeUndefined();
    expect(await among([...whole, one('open', CALL ?? '', { kind: 'deny' })], of).judge()).toBe('DENIED');
  });

  it(
    'start nothing without a grant, and a running server may be used unless that is denied' + verifies('HB-01'),
    async () => {
      const calling = one('strict', CALL ?? '');
      expect([
        await among([calling], { profiles: ['strict'], asleep: true }).judge(),
        await among([calling], { profiles: ['strict'] }).judge(),
      ]).toEqual(['APPROVAL_REQUIRED', 'nothing']);
      const connecting = one('strict', CONNECT ?? '', { tools: ['files.*'] });
      const asker = among([calling, connecting], { profiles: ['strict'], asleep: true });
      expect([await asker.judge(), await asker.judge('web')]).toEqual(['nothing', 'DENIED']);
      const view = await asker.view();
      expect([view.mayStart?.('files'), view.mayStart?.('web'), view.withholds?.(READ)]).toEqual([true, false, false]);
      const denied = among([calling, connecting, one('strict', CONNECT ?? '', { kind: 'deny', tools: ['files.*'] })], {
        profiles: ['strict'],
      });
      expect([
        await denied.judge(),
        (await denied.view()).withholds?.(READ),
        (await denied.view()).mayStart?.('files'),
      ]).toEqual(['DENIED', true, false]);
    },
  );

  it('hide exactly the tools whose calls are denied', async () => {
    for (const grants of [
      [],
      [one('strict', CALL ?? '')],
      [one('strict', CALL ?? '', { tools: ['web.*'] })],
      [one('strict', CALL ?? '', { tools: ['files.read'] })],
      [one('strict', CALL ?? ''), one('strict', CALL ?? '', { kind: 'deny' })],
    ]) {
      const asker = among(grants, { profiles: ['strict'] });
      expect((await asker.view()).withholds?.(READ)).toBe((await asker.judge()) === 'DENIED');
    }
  });
});

describe('the view of a list', () => {
  it('changes its revision with every grant that is added, removed, or valid for another session', async () => {
    const [all, tab] = [one('strict', LIST ?? ''), one('strict', CALL ?? '', { kind: 'once', tab: '1' })];
    const revision = async (grants: readonly Grant[], from?: { id: string; tab?: string }): Promise<string> =>
      (await among(grants, { profiles: ['strict'] }).view(from)).revision;
    const seen = [
      await revision([]),
      await revision([all]),
      await revision([all, tab], { id: 's', tab: '1' }),
      await revision([tab], { id: 's', tab: '1' }),
    ];
    expect(new Set(seen).size).toBe(4);
    expect(await revision([tab, all], { id: 'other' })).toBe(await revision([all]));
    expect(await revision([tab, all], { id: 'x', tab: '1' })).toBe(await revision([all, tab], { id: 's', tab: '1' }));
  });

  it('is refused in words that say what to do and reveal nothing of other origins', async () => {
    const { unlisted } = await among([], { profiles: ['strict'] }).view();
    expect(unlisted?.message).toBe(`No one has granted mcp:tools.list to ${PAGE}.`);
    expect(unlisted?.next).toContain('tollgate grants add');
    expect(unlisted?.data).toEqual({ scope: LIST, origin: PAGE });
  });
});

describe('a check of a scope', () => {
  it('returns the answer for all profiles together', () => {
    const grants = [one('strict', CALL ?? '', { tools: ['files.read'] })];
    const check = (asked: readonly string[], tool?: string): unknown =>
      checkGrants(grants, { profiles: asked, scope: CALL ?? '', ...(tool !== undefined && { tool }) });
    expect(check(['strict'], 'files.read')).toEqual({ granted: true, grant: grants[0] });
    expect(check(['strict'])).toEqual({ granted: true, grant: grants[0] });
    expect(check(['strict'], 'files.write')).toEqual({ granted: false, code: 'DENIED' });
    expect(check(['strict', 'open'], 'files.read')).toEqual({ granted: false, code: 'APPROVAL_REQUIRED' });
    expect(check([], 'files.read')).toEqual({ granted: false, code: 'APPROVAL_REQUIRED' });
  });
});
