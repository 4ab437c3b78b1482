/** Tests that counts of sessions are shared between processes, survive them, and stay few; and `tollgate stats`. */
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { ContextAccounts } from '../../facade/runtime/metrics/context-accounts.ts';
import { type ContextCounts, noContext } from '../../facade/runtime/metrics/context-counts.ts';
import { type ContextReport, readContextReport } from '../../facade/runtime/metrics/context-report.ts';
import {
  type ContextSession,
  putSession,
  readContext,
  sumUpSessions,
} from '../../facade/runtime/metrics/context-store.ts';
import type { Session } from '../../facade/serve/facade-port.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

const DAY_MS = 86_400_000;

function open(folder: string): State {
  const state = openState(folder);
  onTestFinished(() => void state.close());
  return state;
}

/** Counts with this many bytes of results, of which `tokens` are known for all. */
function counts(shown: number, without: number, tokens?: number): ContextCounts {
  const made = noContext();
  made.results.count = 1;
  made.results.shown.bytes = shown;
  made.results.without.bytes = without;
  if (tokens !== undefined)
    Object.assign(made.results.without, { sampledBytes: without, sampledTokens: tokens } satisfies Partial<
      ContextCounts['results']['without']
    >);
  return made;
}

function session(id: string, more: Partial<ContextSession> = {}): ContextSession {
  const started = Date.now();
  return { id, principal: 'me', started, ended: started + 1000, mark: 'gone', counts: counts(10, 100), ...more };
}

/** A list of 12 bytes on one side, and of 7 on the other. */
function list(accounts: ContextAccounts, id: string): void {
  accounts.onList({ id } as Session, { kind: 'result', text: '{"tools":[1]}' }, [[1] as never]);
}

describe('counts of sessions', () => {
  it('are written every ten seconds and at the end, and any process reads them' + verifies('CM-52'), async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const folder = temporaryFolder();
    const [own, other] = [open(folder), open(folder)];
    const accounts = new ContextAccounts(own);
    accounts.open({ id: 'a', principal: { id: 'me' } } as Session);
    accounts.open({ id: 'unused', principal: { id: 'me' } } as Session);
    list(accounts, 'a');
    expect(readContextReport(other).sessions).toEqual([]);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(readContextReport(other).sessions).toMatchObject([
      { id: 'a', principal: 'me', running: true, lists: { count: 1, shown: { bytes: 13 }, without: { bytes: 3 } } },
    ]);
    list(accounts, 'a');
    accounts.end('a');
    accounts.end('unused');
    await accounts.close();
    vi.useRealTimers();
    const [only, ...more] = readContextReport(open(folder)).sessions;
    expect([only?.running, only?.lists.count, typeof only?.ended, more]).toEqual([false, 2, 'string', []]);
    // Its process counts on.
    expect(accounts.samples('me').find(({ kind, side }) => kind === 'lists' && side === 'shown')?.bytes).toBe(26);
    expect(accounts.samples('ann').every(({ bytes }) => bytes === 0)).toBe(true);
  });

  it(
    'of a killed process are not running, and those of a process that fails to write are kept' + verifies('CM-52'),
    async () => {
      const state = open(temporaryFolder());
      let isFull = true;
      const accounts = new ContextAccounts({
        ...Object.fromEntries(
          ['get', 'list', 'take', 'remove', 'swap', 'mark', 'isAlive'].map((name) => [name, bound(state, name)]),
        ),
        put: (...value: Parameters<State['put']>) => {
          if (isFull) throw new Error('full');
          return state.put(...value);
        },
      } as unknown as State);
      accounts.open({ id: 'a', principal: { id: 'me' } } as Session);
      list(accounts, 'a');
      accounts.end('a');
      await accounts.flush();
      expect(readContext(state).sessions).toEqual([]);
      isFull = false;
      await accounts.close();
      const { ended: _ended, ...killed } = session('b');
      await putSession(state, killed);
      expect(
        readContextReport(state)
          .sessions.map(({ id, running }) => [id, running])
          .sort(),
      ).toEqual([
        ['a', false],
        ['b', false],
      ]);
    },
  );

  it('are kept for 200 sessions, then for 30 days by day, each counted once' + verifies('CM-52'), async () => {
    const folder = temporaryFolder();
    const [one, other] = [open(folder), open(folder)];
    const now = Date.now();
    const twoDaysAgo = Math.floor(now / DAY_MS - 2) * DAY_MS;
    const { ended: _ended, ...running } = session('running', { started: now - 3 * DAY_MS, mark: one.mark() });
    await putSession(one, running);
    await putSession(one, session('ancient', { started: now - 40 * DAY_MS }));
    for (let n = 0; n < 210; n += 1) await putSession(one, session(`s${n}`, { started: twoDaysAgo + n }));
    await one.put('context', 'session 000000000000001 broken', '{');
    await one.put('context', 'day 2999-01-01', '{"counts":{}}');
    await Promise.all([sumUpSessions(one), sumUpSessions(other)]);
    const { sessions, days } = readContext(other);
    expect(sessions).toHaveLength(201);
    expect(sessions.at(-1)?.id).toBe('running');
    expect(sessions[0]?.id).toBe('s209');
    expect(days.map(({ sessions: count, counts: { results } }) => [count, results.without.bytes])).toEqual([
      [10, 1000],
    ]);
    const report = readContextReport(one);
    expect(report.total.results.without.bytes).toBe(21_100);
    expect(report.total.total.savedPercent).toBe(90);
  });
});

function bound(state: State, name: string): unknown {
  return (state as unknown as Record<string, (...args: unknown[]) => unknown>)[name]?.bind(state);
}

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
principals:
  - {id: me, profiles: [p], owner: true, stdio: true}
  - {id: ann, profiles: [p], stdio: true}
profiles: {p: {expose: {primitives: workspace}}}
rules: [{id: all, outcome: allow, when: {}}]
`;

async function projectWith(...sessions: readonly ContextSession[]): Promise<Project> {
  const project = new Project();
  onTestFinished(() => project.remove());
  project.write('workspace/notes.md', '');
  const state = open(project.config(CONFIG).state);
  for (const one of sessions) await putSession(state, one);
  return project;
}

const AT = Date.parse('2026-11-27T10:20:30Z');
const BIG = session('aaaa1111bbbb', { started: AT, counts: counts(123_456, 999_499, 250_000) });
const SMALL = session('aaaa2222cccc', {
  principal: 'a-principal-with-a-name',
  started: AT + 1,
  counts: counts(300, 100),
});

describe('tollgate stats', () => {
  it('says what to do while nothing is counted, and answers owners only' + verifies('CM-53'), async () => {
    const project = await projectWith();
    const { code, out, err } = await cli(project, ['stats', '--as', 'me']);
    expect([code, out]).toEqual([0, '']);
    expect(err).toMatch(/^No session has been counted yet\. .*`tollgate run`/);
    const refused = await cli(project, ['stats', '--as', 'ann']);
    expect([refused.code, refused.err]).toEqual([
      4,
      'IDENTITY: ann is no owner, and only an owner sees what sessions cost.\n' +
        'Use --as with a principal that has `owner: true`.\n',
    ]);
  });

  it('shows each session and the total, also where Tollgate costs, in 100 columns' + verifies('CM-53'), async () => {
    const project = await projectWith(BIG, SMALL);
    const { code, out, err } = await cli(project, ['stats', '--as', 'me']);
    expect(code).toBe(0);
    expect(out.split('\n').map((line) => line.replace(/ {2,}/g, '|'))).toEqual([
      'SESSION|PRINCIPAL|STARTED (UTC)|LISTS|CALLS|RESULTS|TOKENS|SAVED',
      'aaaa2222|a-principal-with-a-name|2026-11-27T10:20|0/0|0/0|300/100|75/25|-200 %',
      'aaaa1111|me|2026-11-27T10:20|0/0|0/0|123k/999k|30.9k/250k|88 %',
      'total|0/0|0/0|124k/1M|31k/250k|88 %',
      '',
    ]);
    for (const line of `${out}${err}`.split('\n')) expect(line.length).toBeLessThanOrEqual(100);
    expect(err.replaceAll(/\s+/g, ' ')).toContain('TOKENS are an estimate with o200k_base; other models count differ');
    vi.stubEnv('FORCE_COLOR', '1');
    onTestFinished(() => void vi.unstubAllEnvs());
    expect((await cli(project, ['stats', '--as', 'me'], { isTTY: true })).out).toContain('\u001B[31m-200 %');
  });

  it('says that Tollgate costs more than it saves' + verifies('CM-53'), async () => {
    const { err } = await cli(await projectWith(SMALL), ['stats', '--as', 'me']);
    expect(err.replaceAll(/\s+/g, ' ')).toContain('where it is negative, Tollgate cost more than it saved');
    expect(err).not.toContain('TOKENS');
  });

  it('shows one session by the beginning of its id, and all data as JSON' + verifies('CM-53'), async () => {
    const project = await projectWith(BIG, SMALL);
    const { out, err } = await cli(project, ['stats', '--as', 'me', '--session', 'aaaa1']);
    expect(out).toMatch(/^aaaa1111bbbb {2}me {2}2026-11-27T10:20:30 {2}ended /);
    expect(out).toMatch(/^results +1 +123456 +999499 +30\.9k\/250k +88 %$/m);
    expect(err.replaceAll(/\s+/g, ' ')).toContain('each list that was sent counts');
    for (const [id, why] of [
      ['aaaa', '2 sessions begin with "aaaa".'],
      ['', 'There is no session "".'],
      ['x', 'There is no session "x".'],
    ] as const) {
      const refused = await cli(project, ['stats', '--as', 'me', '--session', id]);
      expect([refused.code, refused.err.split('\n')[0]]).toEqual([2, `USAGE: ${why}`]);
    }
    const data = dataOf<ContextReport>((await cli(project, ['stats', '--as', 'me', '--json'])).out);
    expect(data.tokens).toMatchObject({ encoding: 'o200k_base', estimated: true, installed: true });
    expect(data.sessions.map(({ id, total }) => [id, total.savedPercent])).toEqual([
      ['aaaa2222cccc', -200],
      ['aaaa1111bbbb', 87.6],
    ]);
    const one = dataOf<{ readonly session: unknown }>(
      (await cli(project, ['stats', '--as', 'me', '--json', '--session', 'aaaa2'])).out,
    );
    expect(one.session).toEqual(data.sessions[0]);
  });
});
