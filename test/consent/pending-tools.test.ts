/**
 * Tests pending tools: a difference that one process saw counts in all of them, and ends when the server lists the
 * approved definition again.
 */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { RawTool } from '../../catalogs/tools/tool-definition.ts';
import { ApprovedTools } from '../../facade/consent/servers/approved-tools.ts';
import { consentSummary } from '../../facade/consent/servers/consent-summary.ts';
import { pendingToolsPrecondition } from '../../facade/consent/servers/pending-tools.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { inFull } from '../harness/full-tests.ts';
import { ACT, type RawFacade, startRaw, tool } from '../properties/raw-facade.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { ACT_OF_BOSS, approveSet, withConsents } from './consent-facade.ts';

const MAIL = tool('mail');
const PULLED = tool('mail', { description: 'Sends it on.' });
const SET = [ACT, MAIL, tool('gone')];

const running: TestFacade[] = [];
afterEach(async () => {
  for (const facade of running.splice(0).reverse()) await facade.close();
});

/** Starts another facade over the same folder, as a second process would. */
async function beside({ folder }: TestFacade): Promise<TestFacade> {
  const other = await startFacade(readFileSync(path.join(folder, 'tollgate.yaml'), 'utf8'), { folder, approved: [] });
  running.push(other);
  return other;
}

async function begin(): Promise<RawFacade> {
  const facade = await startRaw({ one: { tools: SET } });
  running.push(facade);
  await approveSet(facade.assembled.config, 'one', SET);
  return facade;
}

const shown = async (facade: TestFacade): Promise<readonly string[]> =>
  (await facade.list(facade.open('me'))).map(({ name }) => name).sort();
const code = async (facade: TestFacade, name: string, args: unknown = {}): Promise<string> =>
  (await facade.call(facade.open('me'), name, args)).code;

describe('a tool that changed in one process', () => {
  inFull(
    'is neither shown nor called in any other, until the server lists the approved definition again' +
      verifies('HA-15', 'CY-16'),
    async () => {
      const one = await begin();
      const other = await beside(one);
      const all = ['one_act', 'one_gone', 'one_mail'];
      expect([await shown(one), await shown(other)]).toEqual([all, all]);
      one.redefine('one', { tools: [ACT, PULLED] });
      expect(await code(one, 'one_act')).toBe('');
      const fresh = await beside(one);
      for (const facade of [one, other, fresh]) expect(await shown(facade)).toEqual(['one_act']);
      expect([await code(other, 'one_mail'), await code(other, 'one_gone')]).toEqual(['PIN_MISMATCH', 'UNKNOWN_TOOL']);
      expect(one.calls('one').map(({ name }) => name)).toEqual(['act']);
      one.redefine('one', { tools: SET });
      // A program that is started now lists the approved tools: its call succeeds, and the other processes show the
      // tool again.
      expect(await code(fresh, 'one_mail')).toBe('');
      expect(await shown(fresh)).toEqual(all);
      expect(
        await withConsents(one.assembled.config, (consents) => Promise.resolve(consents.tools.pending('one'))),
      ).toBeUndefined();
      expect(await code(one, 'one_act', { notify: true })).toBe('');
      await expect.poll(() => shown(one), { timeout: 20_000 }).toEqual(all);
    },
  );

  it('is announced to the clients of other processes that were shown it' + verifies('HA-15'), async () => {
    const one = await begin();
    const other = await beside(one);
    for (const facade of [one, other]) expect(await shown(facade)).toContain('one_mail');
    let told = 0;
    other.assembled.gateway.onToolsChanged(() => (told += 1));
    one.redefine('one', { tools: [ACT, PULLED] });
    expect(await code(one, 'one_act')).toBe('');
    await expect.poll(() => told, { timeout: 20_000 }).toBeGreaterThan(0);
  });
});

describe('an older program of a server', () => {
  it(
    'that lists the approved tools does not override a newer one that lists others, unless it listed others itself' +
      verifies('HA-15'),
    async () => {
      const state = openState(temporaryFolder());
      const [newer, older] = [new ApprovedTools(state), new ApprovedTools(state)];
      const [approved, changed]: readonly (readonly RawTool[])[] = [[MAIL], [PULLED]];
      const at = Date.UTC(2026, 10, 22);
      const drift = (now: readonly RawTool[], startedAt: number, when = at) => ({
        approved: approved!,
        now,
        startedAt,
        at: when,
      });
      expect(await newer.note('one', drift(changed!, at - 1))).toMatchObject({ changed: ['mail'] });
      await older.note('one', drift(approved!, at - 5));
      expect(newer.pending('one')).toMatchObject({ changed: ['mail'] });
      await older.note('one', drift(changed!, at - 5));
      await older.note('one', drift(approved!, at - 5));
      expect(newer.pending('one')).toBeUndefined();
      // Seen again within a minute, it is stored again without a second record.
      expect(await newer.note('one', drift([], at + 1, at + 2))).toBeUndefined();
      expect(newer.pending('one')).toMatchObject({ removed: ['mail'] });
      await new ApprovedTools(state).note('one', drift(approved!, at + 3, at + 4));
      expect(newer.pending('one')).toBeUndefined();
      await state.close();
    },
  );
});

describe('a hostile tool list', () => {
  it('stores at most 500 names, and then all tools of its server wait, and no others' + verifies('HA-15'), async () => {
    const state = openState(temporaryFolder());
    const tools = new ApprovedTools(state);
    const standing = pendingToolsPrecondition(tools);
    const at = Date.UTC(2026, 10, 22);
    const many = Array.from({ length: 5000 }, (_, index) => tool(`t${index}`));
    const note = (now: readonly RawTool[], when: number) =>
      tools.note('one', { approved: [MAIL], now, startedAt: at - 1, at: when });
    const judge = (server: string, name: string) => () =>
      standing.judge({ effect: { server, tool: name } } as Parameters<typeof standing.judge>[0]);
    const row = (): string | undefined => state.get('consent/pending', 'one');
    expect((await note([MAIL, ...many], at))?.added).toHaveLength(5000);
    expect([tools.pending('one')?.added.length, tools.pending('one')?.more, row()!.length < 60_000]).toEqual([
      500,
      4500,
      true,
    ]);
    expect(
      await consentSummary('one', {
        tools,
        statusOf: () => ({ state: 'approved' }),
        factsOf: () => Promise.reject(new Error('Nobody asks.')),
      }),
    ).toMatchObject({ word: 'approved', pending: 5000 });
    expect(judge('one', 'mail')).toThrow(
      expect.objectContaining({
        code: 'PIN_MISMATCH',
        message: expect.stringContaining('waits with all its other tools'),
      }) as Error,
    );
    expect(judge('two', 'mail')()).toEqual({});
    const { withholds } = standing.view({} as never);
    expect([withholds?.({ server: 'one', tool: 'mail' }), withholds?.({ server: 'two', tool: 'mail' })]).toEqual([
      true,
      false,
    ]);
    // Fewer long names fit.
    await note([MAIL, ...many.slice(0, 4).map(({ name }) => tool(name.padEnd(40_000, 'x')))], at + 1);
    const before = row();
    await note([MAIL, ...many.slice(1).reverse()], at + 2);
    expect(row()).toBe(before);
    await note([MAIL, ...many.slice(0, 3)], at + 3);
    const few = row();
    expect(JSON.parse(few!)).toEqual({
      since: new Date(at + 3).toISOString(),
      changed: [],
      added: ['t0', 't1', 't2'],
      removed: [],
    });
    // Another order is no change, and writes nothing.
    await note([...many.slice(0, 3).reverse(), MAIL], at + 4);
    expect(row()).toBe(few);
    await state.close();
  });

  it('is read once while nothing was written, and gets its mark only for lists' + verifies('HA-15'), async () => {
    const state = openState(temporaryFolder());
    await state.put('consent/pending', 'one', JSON.stringify({ since: '', changed: ['mail'], added: [], removed: [] }));
    const tools = new ApprovedTools(state);
    const [standing, first] = [pendingToolsPrecondition(tools), tools.allPending()];
    const view = standing.view({} as never);
    expect([tools.allPending() === first, standing.view({} as never) === view, view.revision.length]).toEqual([
      true,
      true,
      64,
    ]);
    await state.put('consent/pending', 'two', JSON.stringify({ since: '', changed: [], added: [], removed: ['mail'] }));
    expect([
      standing.view({} as never).revision === view.revision,
      tools.allPending().why('two', 'mail'),
      tools.allPending().why('one', 'act'),
    ]).toEqual([false, 'gone', undefined]);
    await state.close();
  });
});

describe('tools that are approved after another start was approved', () => {
  it('are not added to that start, and do not change its own tools' + verifies('HA-15', 'HA-16'), async () => {
    const {
      assembled: { config },
    } = await begin();
    await withConsents(config, async (consents) => {
      const facts = await consents.factsOf(config.servers.get('one')!);
      const shown = await consents.approveStart({ facts, ...ACT_OF_BOSS });
      const other = await consents.approveStart({ facts: { ...facts, args: ['other'] }, ...ACT_OF_BOSS });
      await consents.approveTools(
        'one',
        { tools: [MAIL], prompts: [], hints: false },
        { start: other, ...ACT_OF_BOSS },
      );
      const late = { start: shown, ...ACT_OF_BOSS };
      await expect(
        consents.approveTools('one', { tools: [PULLED], prompts: [], hints: false }, late),
      ).rejects.toMatchObject({ code: 'PIN_MISMATCH' });
      await expect(consents.approveAnyTools('one', { hints: false, ...late })).rejects.toMatchObject({
        code: 'PIN_MISMATCH',
      });
      expect([consents.statusOf('one').consent?.hash === other, consents.lastSet('one')?.tools]).toEqual([
        true,
        [MAIL],
      ]);
      await consents.revoke('one');
      await expect(consents.approveAnyTools('one', { hints: false, ...late })).rejects.toMatchObject({
        code: 'APPROVAL_REQUIRED',
      });
    });
  });
});
