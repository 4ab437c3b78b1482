/** Tests that the list ranks by what Tollgate knows, keeps its ids, and that no flood hides other items. */
import { describe, expect, it } from 'vitest';
import {
  ATTENTION_KINDS,
  type AttentionSource,
  type FoundItem,
  listAttention,
  MOST_OF_KIND,
} from '../../facade/attention/attention-list.ts';
import { readTroubles, Troubles, unusedRules } from '../../facade/attention/troubles.ts';
import { Redactor } from '../../facade/output/redactor.ts';
import { verifies } from '../verifies.ts';

const redactor = new Redactor();
redactor.register('sk-live-0123456789');
const source = (items: readonly FoundItem[], name = 'test'): AttentionSource => ({ name, find: () => items });
const approval = (id: string, from: string, more: Partial<FoundItem> = {}): FoundItem => ({
  kind: 'approval',
  subject: id,
  from,
  title: `${from} asks for mail.send`,
  next: `tollgate approvals show ${id}`,
  since: 1_700_000_000_000,
  ...more,
});
const fault: FoundItem = { kind: 'disk-full', subject: 'state', title: 'The disk is full', next: 'tollgate doctor' };

describe('the list of what needs attention', () => {
  it('has the most serious first, then the oldest, with ids that stay the same' + verifies('AD-46'), async () => {
    const items = [
      approval('new', 'alice', { since: 1_700_000_009_000 }),
      approval('old', 'alice'),
      { kind: 'server-disabled', subject: 'one', title: 'one is off', next: 'tollgate servers info one' } as const,
      fault,
    ];
    const list = await listAttention([source(items)], redactor);
    expect(list.map(({ subject, rank }) => [subject, rank])).toEqual([
      ['state', 1],
      ['old', 2],
      ['new', 2],
      ['one', 4],
    ]);
    const again = await listAttention([source([...items].reverse()), source([])], redactor);
    expect(again.map(({ id }) => id)).toEqual(list.map(({ id }) => id));
    expect(list[1]).toMatchObject({ id: expect.stringMatching(/^[0-9a-f]{16}$/), since: '2023-11-14T22:13:20.000Z' });
    expect(ATTENTION_KINDS.length).toBe(new Set(ATTENTION_KINDS).size);
  });

  it(
    'is not hidden by an agent that floods it with 10,000 requests, and its rank is not theirs' + verifies('AD-47'),
    async () => {
      const flood = Array.from({ length: 10_000 }, (_, at) => approval(`flood-${at}`, 'mallory', { since: at }));
      const rest = [approval('one', 'alice'), approval('two', 'bob'), fault];
      const list = await listAttention([source([...flood, ...rest])], redactor);
      expect(list).toHaveLength(MOST_OF_KIND + 2);
      expect(list[0]?.kind).toBe('disk-full');
      expect(list.map(({ subject }) => subject)).toEqual(expect.arrayContaining(['one', 'two', 'flood-0']));
      const more = list.find(({ subject }) => subject === '');
      expect(more).toMatchObject({ title: 'And 9,982 more (approval)', next: 'tollgate approvals list', rank: 2 });
      // The number changes, the id does not, so no notice is sent for each request.
      const longer = await listAttention([source([...flood, ...flood, ...rest])], redactor);
      expect(longer.find(({ subject }) => subject === '')?.id).toBe(more?.id);
      // 10,000 names of one kind that agents choose, each its own cause, are limited too.
      const names = Array.from({ length: 10_000 }, (_, at) => approval(`n${at}`, `jwt:${at}`));
      expect(await listAttention([source(names)], redactor)).toHaveLength(MOST_OF_KIND + 1);
    },
  );

  it('shows no secret, nothing that a terminal obeys, and no long text' + verifies('AD-48'), async () => {
    const name = '\u001b[2J<img src=x onerror=alert(1)>\u202egnp.exe';
    const [item] = await listAttention(
      [source([approval('a', name, { title: `${name} asks`, detail: `sk-live-0123456789 ${'x'.repeat(100_000)}` })])],
      redactor,
    );
    const text = JSON.stringify(item);
    expect(item?.title).toContain('\\u{1b}[2J<img src=x onerror=alert(1)>\\u{202e}gnp.exe');
    expect(item?.detail.length).toBeLessThanOrEqual(500);
    expect(text).not.toContain('sk-live-0123456789');
    expect(text).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/);
  });

  it('says what it does not know: a source that fails is an item itself', async () => {
    const broken: AttentionSource = {
      name: 'servers',
      find: () => {
        throw new Error('/secret/path cannot be read');
      },
    };
    const list = await listAttention([broken, source([fault])], redactor);
    expect(list[0]).toMatchObject({ kind: 'unknown', rank: 1, title: 'Not known: servers' });
    expect(JSON.stringify(list)).not.toContain('/secret/path');
    expect(list).toHaveLength(2);
  });
});

describe('troubles and rules in the shared state' + verifies('AD-49'), () => {
  const stateOf = () => {
    const rows = new Map<string, string>();
    const at = (space: string, key: string): string => `${space} ${key}`;
    let writes = 0;
    return {
      get: (space: string, key: string) => rows.get(at(space, key)),
      put: (space: string, key: string, value: string) => {
        writes += 1;
        rows.set(at(space, key), value);
      },
      remove: (space: string, key: string) => void rows.delete(at(space, key)),
      list: (space: string) =>
        new Map(
          [...rows].flatMap(([key, value]) =>
            key.startsWith(`${space} `) ? [[key.slice(space.length + 1), value]] : [],
          ),
        ),
      writes: () => writes,
    };
  };

  it('are noted at most every ten seconds, end after an hour, and a refused reload ends with the next good one', async () => {
    const state = stateOf();
    let now = 1_000_000;
    const troubles = new Troubles(state, () => now);
    for (let call = 0; call < 10_000; call += 1) troubles.note('policy-failed', 'POLICY_FAILED');
    troubles.note('reload-refused', 'CONFIG_INVALID');
    await Promise.resolve();
    expect(state.writes()).toBe(2);
    now += 20_000;
    troubles.note('policy-failed', 'POLICY_FAILED');
    expect(readTroubles(state, now)).toMatchObject([
      { kind: 'policy-failed', since: 1_000_000, last: 1_020_000, count: 2 },
      { kind: 'reload-refused' },
    ]);
    now += 3_600_000;
    expect(readTroubles(state, now).map(({ kind }) => kind)).toEqual(['reload-refused']);
    troubles.clear('reload-refused');
    expect(readTroubles(state, now)).toEqual([]);
  });

  it('name the rules that decided no call in a week', async () => {
    const state = stateOf();
    let now = 0;
    const troubles = new Troubles(state, () => now);
    troubles.noteRules(['used', 'unused', '__proto__']);
    for (let call = 0; call < 1_000; call += 1) troubles.noteHit('used');
    // A write now would delay the next calls.
    expect(state.writes()).toBe(1);
    await troubles.flush();
    expect(unusedRules(state, now)).toBeUndefined();
    now = 8 * 86_400_000;
    troubles.noteRules(['used', 'unused', 'new', '__proto__']);
    expect(unusedRules(state, now)).toEqual({ ids: ['unused', '__proto__'], since: 0 });
    expect(state.writes()).toBe(3);
  });
});
