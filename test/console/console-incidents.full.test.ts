/** Tests what an admin sees in the console after an incident: a budget used up, a suspension, hostile names. */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifies } from '../verifies.ts';
import { type ConsoleBench, openConsoleBench } from './console-bench.ts';
import { type ConsoleBrowser, openConsoleBrowser } from './console-browser.ts';

const MARKUP = '<img src=x onerror="window.attacked=1">';
const TIME = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/;
const CONFIG = `version: 1
workspace: ./work
principals:
  - {id: admin, owner: true, profiles: [default]}
  - {id: agent, profiles: [default]}
policies: [rules.yaml]
expose: {primitives: workspace}
budgets:
  - {id: two-a-day, scope: principal, window: 1d, calls: 2}
approvals: {waitMs: 0}
audit: {facts: full}
rules:
  - {id: no-deletes, when: {verbs: [destructive]}, outcome: deny, message: Nothing is deleted.}
`;
const RULES = `rules:
  - {id: no-secrets, when: {paths: ["**/.env"]}, outcome: deny, message: Secrets stay here.}
  - {id: read-files, when: {verbs: [read]}, outcome: allow}
  - {id: ask-writes, when: {verbs: [write]}, outcome: ask, message: A person decides about writes.}
`;

let bench: ConsoleBench;
let opened: ConsoleBrowser;
let page: Page;

interface Found {
  readonly id: string;
  readonly hash: string;
}

/** Returns the newest record that the filters select. */
async function newest(...filters: readonly string[]): Promise<Found> {
  const [found] = JSON.parse(await bench.run(['audit', 'list', ...filters, '--json'])) as readonly Found[];
  if (found === undefined) throw new Error(`no record: ${filters.join(' ')}`);
  return found;
}

const visit = async (to: string, text: RegExp | string): Promise<void> => {
  await page.goto(`${bench.url.slice(0, -1)}${to}`);
  await page.locator('main', { hasText: text }).waitFor({ timeout: 20_000 });
};
const main = (): Promise<string> => page.locator('main').innerText();

beforeAll(async () => {
  bench = await openConsoleBench(CONFIG, RULES);
  const call = (...words: readonly string[]): Promise<string> =>
    bench.run(['call', ...words, '--as', 'agent', '--by', 'admin'], true);
  await call('write', 'path=a.txt', 'content=a');
  for (let times = 0; times < 3; times += 1) await call('read', 'path=notes.txt');
  await call('read', 'path=.env');
  await bench.run(['suspend', 'agent', '--as', 'admin']);
  await call('read', 'path=notes.txt');
  await bench.run(['resume', 'agent', '--as', 'admin']);
  opened = await openConsoleBrowser();
  page = opened.page;
  await page.goto(`${bench.url}#${bench.code}`);
  await page.getByRole('heading', { name: 'Now' }).waitFor();
}, 180_000);

afterAll(async () => {
  await opened?.browser.close();
  await bench?.close();
});

describe('the page of a call', () => {
  it(
    'names the budget that refused it, what was spent, when it returns and who resets it' + verifies('AD-131'),
    async () => {
      await visit(`/calls/${(await newest('--code', 'BUDGET_EXCEEDED')).id}`, 'The budget that refused it');
      const text = await main();
      expect(text).toContain('two-a-day');
      expect(text).toContain('2 of 2 calls');
      expect(text).toMatch(/Returns\s+\d{4}-\d\d-\d\d/);
      expect(text).toContain('tollgate budgets reset two-a-day agent');
      expect(text).not.toContain('No small change');
    },
  );

  it('shows rules as a table, and says what lifts a suspension' + verifies('AD-131'), async () => {
    await visit(`/calls/${(await newest('--outcome', 'deny', '--rule', 'no-secrets')).id}`, 'Every rule');
    await page.getByText('Every rule that matched').click();
    const row = page.locator('tr', { hasText: 'no-secrets' });
    expect(await row.innerText()).toMatch(/no-secrets\s+deny\s+yes\s+rules\.yaml:2/);
    await visit(`/calls/${(await newest('--code', 'SUSPENDED')).id}`, 'tollgate resume agent');
    expect(await main()).not.toContain('Set audit.facts: full');
  });

  it('leads to other calls of the principal around its time' + verifies('AD-134'), async () => {
    await visit(`/calls/${(await newest('--code', 'BUDGET_EXCEEDED')).id}`, 'around this time');
    await page.getByRole('link', { name: 'other calls of this principal' }).click();
    await page.locator('main', { hasText: '6 records' }).waitFor();
  });

  it('of another record has its own title and fields' + verifies('AD-132'), async () => {
    await visit(`/calls/${(await newest('--type', 'switch', '--all')).hash}`, 'Suspension');
    const text = await main();
    expect(text).not.toMatch(/^Call /);
    for (const part of ['Principal', 'agent', 'By', 'admin', 'User of the machine']) expect(text).toContain(part);
    await visit(`/calls/${(await newest('--type', 'config', '--all')).hash}`, 'Configuration');
    expect(await main()).toContain('Revision');
  });
});

describe('the console', () => {
  it('says every time with its date and zone' + verifies('AD-133'), async () => {
    for (const to of ['/calls', `/calls/${(await newest('--code', 'DENIED')).id}`, '/agents', '/proof']) {
      await visit(to, TIME);
      const times = await page.locator('time').allInnerTexts();
      expect(times.filter((time) => !TIME.test(time))).toEqual([]);
    }
    await visit('/calls?code=SUSPENDED', '1 record');
    expect(await main()).not.toContain('1 records');
  });

  it('shows a suspension as what it is, by the owner who made it' + verifies('AD-135'), async () => {
    await visit('/calls?type=switch', 'suspended');
    expect(await page.locator('tbody tr', { hasText: 'suspended' }).innerText()).not.toContain('deny');
    await visit('/agents/agent', 'Recent calls');
    await page.getByText('2 of 2 calls').waitFor();
    await page.getByText('not suspended').waitFor();
    await page.getByRole('button', { name: 'Suspend' }).click();
    const dialog = page.getByRole('dialog', { name: 'Suspend agent?' });
    await dialog.getByText('tollgate suspend --as=admin agent').waitFor();
    await dialog.getByLabel(/For how long/).fill('2h');
    await dialog.getByText('tollgate suspend --as=admin --for=2h agent').waitFor();
    await dialog.getByRole('button', { name: 'Suspend' }).click();
    await page.getByText('Done.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByText('suspended by admin').waitFor();
    await visit('/', 'agent is suspended by admin');
    await page.getByRole('link', { name: 'Review' }).first().waitFor();
    expect(await page.locator('a[href="/agents/agent"]', { hasText: 'Review' }).count()).toBe(2);
    await bench.run(['resume', 'agent', '--as', 'admin']);
  });

  it('warns an owner who is about to suspend themself' + verifies('AD-135'), async () => {
    await visit('/agents/admin', 'Recent calls');
    await page.getByRole('button', { name: 'Suspend' }).click();
    await page.getByText('This is you.').waitFor();
  });
});

describe('the page Now', () => {
  it('cuts no latency at 1300 px, and says when nothing was counted' + verifies('AD-136'), async () => {
    await page.setViewportSize({ width: 1300, height: 800 });
    const tool = { name: `${'long-name.'.repeat(12)}tool`, count: 3, errors: 0, p50: 12_345, p95: 123_456 };
    const now = {
      attention: [],
      running: [],
      servers: [],
      series: { times: [1], outcomes: { allow: [1] } },
      tools: [tool],
      kept: { shown: 0, without: 0 },
    };
    await page.route('**/api/now', (route) => route.fulfill({ body: `${JSON.stringify(now)}\n` }));
    await visit('/', 'No agent has had a session');
    expect(await main()).not.toContain('0 B');
    const table = page.getByRole('region', { name: 'Tools, last hour' });
    expect(await table.evaluate(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)).toBe(0);
    await table.getByText('123456 ms').waitFor();
    await page.unroute('**/api/now');
    await page.setViewportSize({ width: 1200, height: 800 });
  });

  it('names no beginning of an item that has none' + verifies('AD-136'), async () => {
    await visit('/', 'next to the log');
    const item = page.locator('.items li', { hasText: 'next to the log' });
    expect(await item.locator('time').count()).toBe(0);
  });
});

describe('the search', () => {
  it('says how to see more, and that arguments are not searched' + verifies('AD-137'), async () => {
    await page.route('**/api/records**', async (route) => {
      const response = await route.fetch();
      const answer = (await response.json()) as object;
      const isFirst = !route.request().url().includes('before=');
      await route.fulfill({ response, json: { ...answer, ...(isFirst && { next: 'older' }) } });
    });
    await visit('/calls', 'scroll for more');
    await page.unroute('**/api/records**');
    await page.route('**/api/records?*before=older', (route) => route.fulfill({ json: { records: [], remarks: [] } }));
    await page.getByRole('button', { name: 'Load older records' }).click();
    await page.getByRole('button', { name: 'Load older records' }).waitFor({ state: 'detached' });
    await page.unroute('**/api/records?*before=older');
    await visit('/calls?text=absent', 'Recorded arguments and results are not searched');
  });

  it.each([400, 600, 1200])('leaves Sign out in view at %i px' + verifies('AD-137'), async (width) => {
    await page.setViewportSize({ width, height: 700 });
    await visit('/calls', 'record');
    const box = await page.getByRole('button', { name: 'Sign out' }).boundingBox();
    expect((box?.x ?? width) + (box?.width ?? 0)).toBeLessThanOrEqual(width);
    expect((box?.y ?? 700) + (box?.height ?? 0)).toBeLessThanOrEqual(700);
    await page.setViewportSize({ width: 1200, height: 800 });
  });
});

describe('a draft of one file', () => {
  const press = async (name: string): Promise<void> => page.getByRole('button', { name, exact: true }).click();
  const save = async (text: string): Promise<void> => {
    await visit('/policy?source=rules.yaml', 'Replay recorded calls');
    await page.locator('textarea').fill(text);
    await press('Save');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  };

  it('is checked, tested and saved with the rest of the policy' + verifies('AD-139'), async () => {
    const file = path.join(bench.folder, 'rules.yaml');
    await visit('/policy?source=rules.yaml', 'Replay recorded calls');
    await page.locator('textarea').fill(RULES.replace('no-secrets', 'no-deletes'));
    await press('Check');
    await page.getByText(/rules\.yaml:\d+:\d+/).waitFor();
    await press('Test the draft');
    await page.getByText('no-deletes').last().waitFor();
    await save(RULES.replace('no-secrets', 'no-deletes'));
    await page.getByRole('alert').getByText('errors with the draft').waitFor();
    expect(readFileSync(file, 'utf8')).toBe(RULES);
  });

  it('is saved if it corrects its file, although another file has errors' + verifies('AD-139'), async () => {
    const file = path.join(bench.folder, 'rules.yaml');
    writeFileSync(path.join(bench.folder, 'more.yaml'), 'rules: [{id: other, when: {verbs: [rea]}, outcome: deny}]\n');
    writeFileSync(path.join(bench.folder, 'tollgate.yaml'), CONFIG.replace('[rules.yaml]', '[rules.yaml, more.yaml]'));
    writeFileSync(file, RULES.replace('outcome: ask', 'outcome: perhaps'));
    await save(RULES);
    await page.getByText('Done.').waitFor();
    expect(readFileSync(file, 'utf8')).toBe(RULES);
    writeFileSync(path.join(bench.folder, 'tollgate.yaml'), CONFIG);
  });
});

/** Adds markup to every text of an answer, as if each name were hostile. Only types of records stay: Tollgate sets them. */
function hostile(value: unknown): unknown {
  if (typeof value === 'string') return `${value}${MARKUP}`;
  if (Array.isArray(value)) return value.map(hostile);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, key === 'type' ? one : hostile(one)]));
}

describe('markup in the name of a principal, a server, a rule and everything else', () => {
  it.each([
    ['/calls?all=true', 'record'],
    ['/calls/ID', 'Rules that fired'],
    ['/sessions/SESSION', 'Session'],
    ['/approvals', 'Approvals'],
    ['/servers', 'Servers'],
    ['/servers/workspace', 'Server'],
    ['/policy?source=rules.yaml', 'Edit'],
    ['/agents', 'Principals'],
    ['/agents/agent', 'Recent calls'],
    ['/proof', 'Witness'],
  ] as const)('runs nothing on %s' + verifies('AD-138'), async (to, text) => {
    const call = (await newest('--code', 'BUDGET_EXCEEDED')) as Found & { readonly session: string };
    await page.route('**/api/**', async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: hostile(await response.json()) });
    });
    try {
      await visit(to.replace('ID', call.id).replace('SESSION', call.session), text);
      await page.locator('main', { hasText: '<img src=x' }).waitFor({ timeout: 20_000 });
      await page.waitForLoadState('networkidle');
      expect(await page.locator('main img').count()).toBe(0);
      expect(await page.evaluate(() => 'attacked' in window)).toBe(false);
      expect(opened.violations).toEqual([]);
    } finally {
      await page.unroute('**/api/**');
    }
  });

  it('runs nothing on the page Now, whose answer is a stream' + verifies('AD-138'), async () => {
    const item = {
      id: 'a',
      kind: 'suspended',
      rank: 3,
      title: 'x 2026-99-99T99:99:99Z',
      detail: 'x',
      next: 'x',
      page: '/agents',
      since: 'x',
    };
    const now = {
      attention: [item],
      running: [{ id: 'a', ts: 'x', exposed: 'x', principal: 'x', server: 'x' }],
      servers: [{ name: 'x', state: 'x', reason: 'x' }],
      series: { times: [1], outcomes: { allow: [1] } },
      tools: [{ name: 'x', count: 1, errors: 0 }],
      kept: { shown: 0, without: 0 },
    };
    await page.route('**/api/now', (route) => route.fulfill({ body: `${JSON.stringify(hostile(now))}\n` }));
    await visit('/', '<img src=x');
    expect(await page.locator('main img').count()).toBe(0);
    expect(await page.evaluate(() => 'attacked' in window)).toBe(false);
    expect(opened.violations).toEqual([]);
    await page.unroute('**/api/now');
  });
});
