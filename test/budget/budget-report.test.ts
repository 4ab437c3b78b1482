/** Tests what owners see of budgets, and that a reset makes one full again in running sessions, recorded. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { type HostBench, startHost, TOKENS } from '../host/host-bench.ts';
import { verifies } from '../verifies.ts';

const CONFIG = `version: 1
workspace: ./workspace
state: ./state
principals:
  - {id: boss, stdio: true, owner: true, token: "\${env:HOST_TOKEN}"}
  - {id: alice, stdio: true, token: "\${env:ALICE_TOKEN}"}
budgets:
  - {id: hourly, scope: principal, window: 3600, calls: 3}
  - {id: each, scope: session, calls: 2}
profiles: {default: {budgets: [{id: bytes, scope: principal, outputBytes: 1MB}]}}
rules: [{id: all, outcome: allow, when: {}}]
listen: {port: 0}
`;

interface Row {
  readonly budget: string;
  readonly key: string;
  readonly unit: string;
  readonly spent: number;
  readonly left?: number;
  readonly returns?: string;
}

let project: Project;
let host: HostBench;
const env = { HOST_TOKEN: TOKENS.host, ALICE_TOKEN: TOKENS.alice };
const run = (words: readonly string[], as = 'boss') =>
  cli(project, words[0] === 'audit' ? words : [...words, '--as', as], { env });
const rows = async (): Promise<readonly Row[]> =>
  dataOf<{ budgets: Row[] }>((await run(['budgets', '--json'])).out).budgets;
const rowOf = async (budget: string): Promise<Row | undefined> => (await rows()).find((row) => row.budget === budget);

beforeAll(async () => {
  project = new Project();
  project.write('workspace/a.txt', 'hello\n');
  host = await startHost(CONFIG, { folder: project.folder });
});
afterAll(async () => {
  await host.close();
  project.remove();
});

describe('the budgets of a state folder', () => {
  it('say what is spent, what is left and when it returns' + verifies('AD-44'), async () => {
    expect((await run(['budgets'])).err).toBe('Nothing of a budget is spent.\n');
    const session = host.facade.open('alice');
    for (const code of ['', '', 'BUDGET_EXCEEDED'])
      expect((await host.facade.call(session, 'read', { path: 'a.txt' })).code).toBe(code);
    // What the process reserved ahead is given back about a second later.
    await expect.poll(async () => (await rowOf('hourly'))?.spent, { timeout: 20_000 }).toBe(2);
    expect(await rowOf('hourly')).toMatchObject({ key: 'alice', unit: 'calls', limit: 3, left: 1 });
    const returns = Date.parse((await rowOf('hourly'))?.returns ?? '');
    expect(Math.abs(returns - Date.now() - 3_600_000)).toBeLessThan(600_000);
    // The nearest to its end is first. A budget of a session is counted over all sessions of its principal.
    expect((await rows())[0]).toMatchObject({ budget: 'each', scope: 'principal', key: 'alice', left: 0 });
    expect(await rowOf('bytes')).toMatchObject({ unit: 'outputBytes', limit: 1_000_000 });
    const screen = (await run(['budgets'])).out;
    expect(screen).toMatch(/each +principal +alice +calls +2 of 2 +0/);
    expect(screen.split('\n').filter((line) => line.length > 100)).toEqual([]);
    expect((await host.ask('GET /budgets')).value.budgets.length).toBe((await rows()).length);
  });

  it('are reset by owners only, also in running sessions, and that is recorded' + verifies('AD-45'), async () => {
    const session = host.facade.open('alice');
    const call = async (): Promise<string> => (await host.facade.call(session, 'read', { path: 'a.txt' })).code;
    expect(await call()).toBe('BUDGET_EXCEEDED');
    expect(await run(['budgets', 'reset', 'each'], 'alice')).toMatchObject({ code: 4 });
    const refused = await host.ask('POST /budgets/reset', { budget: 'each' }, { token: TOKENS.alice });
    expect(refused.value.error.code).toBe('IDENTITY');
    expect((await run(['budgets', 'reset', 'eech'])).err).toContain('did you mean "each"?');
    expect((await run(['budgets', 'reset', 'each', 'alicia'])).err).toContain('did you mean "alice"?');

    expect((await host.ask('POST /budgets/reset', { budget: 'hourly' })).value).toEqual({ reset: 1 });
    expect((await run(['budgets', 'reset', 'each', 'alice'])).err).toContain('each of alice is full again: 1 counter.');
    await expect.poll(call, { timeout: 20_000 }).toBe('');
    expect(await call()).toBe('');
    expect(await call()).toBe('BUDGET_EXCEEDED');
    // The session has a counter of its own, which its process resets when it hears of the reset.
    await run(['budgets', 'reset', 'each', 'alice']);
    await host.ask('POST /budgets/reset', { budget: 'hourly', key: 'alice' });
    await expect.poll(call, { timeout: 20_000 }).toBe('');
    const records = dataOf<object[]>((await run(['audit', 'list', '--all', '--type', 'setup', '--json'])).out);
    expect(records).toMatchObject([
      { event: 'budget-reset', by: 'boss', budget: 'hourly', count: 1 },
      { event: 'budget-reset', by: 'boss', user: 'somebody', budget: 'each', whose: 'alice', count: 1 },
      { event: 'budget-reset', budget: 'each' },
      { event: 'budget-reset', budget: 'hourly', whose: 'alice' },
    ]);
  });
});
