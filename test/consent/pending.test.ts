/** Tests tools that wait for their owner: what one process saw holds in all of them, and ends when the server lists what was approved again. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { RawTool } from '../../catalogs/tool.ts';
import { ApprovedTools } from '../../facade/consent/approved-tools.ts';
import { openState } from '../../facade/state/sqlite.ts';
import { ACT, startRaw, tool, type RawFacade } from '../properties/raw.ts';
import { temporaryFolder } from '../state/place.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { approveSet, withConsents } from './place.ts';

const MAIL = tool('mail');
const PULLED = tool('mail', { description: 'Sends it on.' });
const SET = [ACT, MAIL, tool('gone')];

const running: TestFacade[] = [];
afterEach(async () => {
  for (const facade of running.splice(0).reverse()) await facade.close();
});

/** Another process's facade over the same folder, but for the process. */
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

const shown = async (facade: TestFacade): Promise<readonly string[]> => (await facade.list(facade.open('me'))).map(({ name }) => name).sort();
const code = async (facade: TestFacade, name: string, args: unknown = {}): Promise<string> => (await facade.call(facade.open('me'), name, args)).code;

describe('a tool that changed before the eyes of one process', () => {
  it('is neither shown nor called in any other, until the server lists the approved one again' + verifies('HA-15', 'CY-16'), async () => {
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
    // A program that is started now lists what was approved: its call goes through, and the others show it again.
    expect(await code(fresh, 'one_mail')).toBe('');
    expect(await shown(fresh)).toEqual(all);
    expect(await withConsents(one.assembled.config, (consents) => Promise.resolve(consents.tools.pending('one')))).toBeUndefined();
    expect(await code(one, 'one_act', { notify: true })).toBe('');
    await expect.poll(() => shown(one), { timeout: 5000 }).toEqual(all);
  });

  it('is told to clients of another process that have seen it' + verifies('HA-15'), async () => {
    const one = await begin();
    const other = await beside(one);
    for (const facade of [one, other]) expect(await shown(facade)).toContain('one_mail');
    let told = 0;
    other.assembled.gateway.onToolsChanged(() => (told += 1));
    one.redefine('one', { tools: [ACT, PULLED] });
    expect(await code(one, 'one_act')).toBe('');
    await expect.poll(() => told, { timeout: 5000 }).toBeGreaterThan(0);
  });
});

describe('who has a say', () => {
  it('an older program that lists what was approved does not put back what a newer one lists otherwise, unless it listed otherwise itself' + verifies('HA-15'), async () => {
    const state = openState(temporaryFolder());
    const [newer, older] = [new ApprovedTools(state), new ApprovedTools(state)];
    const [approved, changed]: readonly (readonly RawTool[])[] = [[MAIL], [PULLED]];
    const at = Date.UTC(2026, 10, 22);
    const drift = (now: readonly RawTool[], startedAt: number, when = at) => ({ approved: approved!, now, startedAt, at: when });
    expect(await newer.note('one', drift(changed!, at - 1))).toMatchObject({ changed: ['mail'] });
    await older.note('one', drift(approved!, at - 5));
    expect(newer.pending('one')).toMatchObject({ changed: ['mail'] });
    await older.note('one', drift(changed!, at - 5));
    await older.note('one', drift(approved!, at - 5));
    expect(newer.pending('one')).toBeUndefined();
    // Seen again within a minute, it is kept again, without a second word.
    expect(await newer.note('one', drift([], at + 1, at + 2))).toBeUndefined();
    expect(newer.pending('one')).toMatchObject({ removed: ['mail'] });
    await new ApprovedTools(state).note('one', drift(approved!, at + 3, at + 4));
    expect(newer.pending('one')).toBeUndefined();
    await state.close();
  });
});
