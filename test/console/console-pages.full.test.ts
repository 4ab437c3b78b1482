/** Tests the pages of the console in Chromium: sign-in, every page, keys, actions, accessibility, and hostile texts. */
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { type ConsoleBench, openConsoleBench } from './console-bench.ts';
import { openConsoleBrowser } from './console-browser.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const MARKUP = '<img src=x onerror="window.attacked=1">';
/** A copy, because a test changes it. */
const SERVER = path.join(mkdtempSync(path.join(tmpdir(), 'tollgate-console-server-')), 'markup-server.mjs');
copyFileSync(path.join(import.meta.dirname, '..', 'fixtures', 'markup-server.mjs'), SERVER);

const config = (more = ''): string => `version: 1
workspace: ./work
principals:
  - {id: admin, owner: true, profiles: [default]}
  - {id: agent, profiles: [default]}
profiles:
  default: {servers: [evil]}
servers:
  evil: {command: ${process.execPath}, args: [${SERVER}${more}], isolation: direct, semantics: {markup: read}}
policies: [rules.yaml]
expose: {primitives: workspace, tools: [evil.*]}
budgets:
  - {id: calls-a-day, scope: principal, window: 1d, calls: 100}
approvals: {waitMs: 0}
`;
const RULES = `rules:
  - {id: no-secrets, when: {paths: ["**/.env"]}, outcome: deny, message: '${MARKUP}'}
  - {id: read-files, when: {verbs: [read]}, outcome: allow}
  - {id: ask-writes, when: {verbs: [write]}, outcome: ask, message: A person decides about writes.}
`;

/** Every page, with a text that it shows once it is loaded. */
const PAGES = [
  ['/', 'Calls by outcome'],
  ['/calls', 'newest records|records'],
  ['/approvals', 'Expires'],
  ['/servers', 'evil'],
  ['/servers/evil', 'onerror'],
  ['/policy?source=rules.yaml&line=3', 'Replay recorded calls'],
  ['/agents', 'calls-a-day'],
  ['/proof', 'Records after it'],
] as const;

let bench: ConsoleBench;
let browser: Browser;
let context: BrowserContext;
let page: Page;
let foreign: Server;
let violations: readonly string[];

async function approve(): Promise<void> {
  const hashes: string[] = [];
  for (const part of ['start', 'tools'] as const) {
    const words = ['approve', 'evil', '--as', 'admin', '--json', ...(hashes.length > 0 ? ['--yes', ...hashes] : [])];
    const shown = JSON.parse(await bench.run(words, true)) as Record<typeof part, { hash: string }>;
    hashes.push(shown[part].hash);
  }
  await bench.run(['approve', 'evil', '--as', 'admin', '--yes', ...hashes]);
}

const call = (...words: readonly string[]): Promise<string> =>
  bench.run(['call', ...words, '--as', 'agent', '--by', 'admin'], true);
const visit = async (to: string, text: string): Promise<void> => {
  await page.goto(`${bench.url.slice(0, -1)}${to}`);
  await page.locator('main', { hasText: new RegExp(text) }).waitFor({ timeout: 20_000 });
};
const attacked = (): Promise<boolean> => page.evaluate(() => 'attacked' in window);

beforeAll(async () => {
  bench = await openConsoleBench(config(), RULES);
  await approve();
  await call('read', 'path=notes.txt');
  await call('read', JSON.stringify({ path: `${MARKUP}.txt` }));
  await call('read', 'path=.env');
  await call('write', JSON.stringify({ path: 'a.txt', content: MARKUP }));
  await call('evil.markup');
  ({ browser, context, page, violations } = await openConsoleBrowser());
}, 180_000);

afterAll(async () => {
  await browser?.close();
  foreign?.close();
  await bench?.close();
  rmSync(path.dirname(SERVER), { recursive: true, force: true });
});

describe('the console in a browser', () => {
  it('signs in with the code of the address, which does not stay there' + verifies('AD-80'), async () => {
    await page.goto(`${bench.url}#AAAA-AAAA-AAAA-AAAA`);
    await page.getByRole('alert').getByText('This code is wrong').waitFor();
    await page.goto('about:blank');
    await page.goto(`${bench.url}#${bench.code}`);
    await page.getByRole('heading', { name: 'Now' }).waitFor();
    expect(page.url()).not.toContain(bench.code);
    expect(await page.evaluate(() => document.cookie)).toBe('');
  });

  it.each(PAGES.map(([to, text], at) => [to, text, at] as const))(
    'shows %s, with nothing that axe finds serious, wide and narrow' + verifies('AD-84', 'DC-06'),
    async (to, text, at) => {
      // axe takes seconds, so `npm test` examines every second page wide and light, and the others narrow and dark.
      const [isWide, isNarrow] = RUNS_ALL ? [true, true] : [at % 2 === 0, at % 2 === 1];
      await page.setViewportSize({ width: 1200, height: 800 });
      await visit(to, text);
      const serious = async (): Promise<unknown> => {
        // The page's own policy forbids scripts from elsewhere, so axe is evaluated by the browser itself.
        await page.evaluate(AXE);
        return page.evaluate(async () => {
          const { axe } = window as unknown as {
            axe: { run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }> };
          };
          const found = (await axe.run()).violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
          return found.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
        });
      };
      if (isWide) expect(await serious()).toEqual([]);
      await page.setViewportSize({ width: 400, height: 800 });
      await page.emulateMedia({ colorScheme: 'dark' });
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
      if (isNarrow) expect(await serious()).toEqual([]);
      await page.emulateMedia({ colorScheme: 'light' });
      await page.setViewportSize({ width: 1200, height: 800 });
      expect(await page.getByRole('alert').allInnerTexts()).toEqual([]);
      expect(await attacked()).toBe(false);
      expect(violations).toEqual([]);
    },
  );

  it('goes by keys from page to page, into the search, and into a row' + verifies('AD-84', 'AD-130'), async () => {
    await visit('/', 'Calls by outcome');
    await page.keyboard.press('g');
    await page.keyboard.press('s');
    await page.getByRole('heading', { name: 'Servers' }).waitFor();
    // No letter that follows the key is lost.
    await page.keyboard.press('/');
    await page.keyboard.type('notes');
    await expect.poll(() => new URL(page.url()).searchParams.get('text')).toBe('notes');
    await page.locator('tbody tr', { hasText: 'read' }).first().waitFor();
    await page.getByRole('region', { name: 'Calls' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: /^Call / }).waitFor();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  });

  it('draws few rows of many records, and continues where they end' + verifies('AD-85'), async () => {
    for (let times = 0; times < 2; times += 1)
      await bench.run(['try', 'read', 'path=notes.txt', '--as', 'agent'], true);
    await visit('/calls?all=true', 'records');
    expect(await page.locator('tbody tr').count()).toBeLessThan(80);
  });

  it('shows what a call touched, its rules, and its session' + verifies('AD-85', 'DC-04'), async () => {
    await visit('/calls?path=notes.txt', 'read');
    await page.locator('tbody a').first().click();
    await page.getByRole('heading', { name: 'What it touched' }).waitFor();
    await page.getByText('notes.txt').first().waitFor();
    await page.getByRole('link', { name: 'read-files' }).first().waitFor();
    await page.locator('dd a[href^="/sessions/"]').click();
    await page.locator('ol.timeline li').first().waitFor();
  });

  it('runs no markup of names, arguments, descriptions, logs and policies' + verifies('AD-86'), async () => {
    for (const [to, text] of [
      ['/calls?outcome=deny', 'no-secrets'],
      ['/calls?server=evil', 'evil'],
      ['/servers/evil', 'started <img'],
      ['/approvals', 'a.txt'],
    ] as const)
      await visit(to, text);
    await page.locator('tbody a').first().click();
    await page.getByText('byte for byte').waitFor();
    expect(await page.locator('pre.json').first().innerText()).toContain('<img src=x');
    await visit('/servers/evil', 'Review');
    await page.getByRole('button', { name: 'Review what it starts' }).click();
    await page.getByText('Its tools').waitFor({ timeout: 20_000 });
    // A change of direction is shown as an escape, so that no text reads as another one.
    expect(await page.locator('main').innerText()).not.toContain('\u202e');
    expect(await attacked()).toBe(false);
    expect(violations).toEqual([]);
  });

  it('approves the exact bytes in two steps' + verifies('AD-87'), async () => {
    await visit('/approvals', 'a.txt');
    await page.locator('tbody a').first().click();
    await page.getByRole('button', { name: 'Approve', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Let this call run?' });
    await dialog.getByRole('button', { name: 'Approve' }).click();
    await dialog.getByText('Done.').waitFor();
    await call('write', JSON.stringify({ path: 'a.txt', content: MARKUP }));
    expect(readFileSync(path.join(bench.folder, 'work', 'a.txt'), 'utf8')).toBe(MARKUP);
  });

  it('suspends and resumes an agent, and resets a budget, with records' + verifies('AD-87'), async () => {
    await visit('/agents', 'calls-a-day');
    const agent = page.locator('li', { hasText: /^agent/ });
    await agent.getByRole('button', { name: 'Suspend' }).click();
    await page.getByRole('dialog', { name: 'Suspend agent?' }).getByRole('button', { name: 'Suspend' }).click();
    await page.getByText('Done.').waitFor();
    await page.keyboard.press('Escape');
    await agent.getByText('suspended').first().waitFor();
    expect(
      await bench.run(['call', 'read', 'path=notes.txt', '--as', 'agent', '--by', 'admin', '--json'], true),
    ).not.toContain('hello');
    await agent.getByRole('button', { name: 'Resume' }).click();
    await page.getByRole('dialog', { name: 'Let agent call again?' }).getByRole('button', { name: 'Resume' }).click();
    await page.getByText('Done.').waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Reset' }).first().click();
    await page.getByRole('dialog').getByRole('button', { name: 'Reset' }).click();
    await page.getByText('Done.').waitFor();
    const acts = await bench.run(['audit', 'list', '--all', '--json']);
    for (const event of ['suspended', 'resumed']) expect(acts).toContain(`"event": "${event}"`);
  });

  it('kills a server and lifts the kill' + verifies('AD-87'), async () => {
    await visit('/servers/workspace', 'Kill');
    for (const [button, dialog] of [
      ['Kill', 'Kill workspace?'],
      ['Lift the kill', 'Let workspace run again?'],
    ] as const) {
      await page.getByRole('button', { name: button, exact: true }).click();
      await page.getByRole('dialog', { name: dialog }).getByRole('button', { name: button }).click();
      await page.getByText('Done.').waitFor();
      await page.keyboard.press('Escape');
      const { killed } = JSON.parse(await bench.run(['kill', '--json'])) as { killed: unknown[] };
      expect(killed).toHaveLength(button === 'Kill' ? 1 : 0);
    }
  });

  it('offers for a server only what makes sense in its state' + verifies('AD-125'), async () => {
    const actions = page.getByRole('list', { name: 'Actions' });
    const offered = async (): Promise<readonly string[]> =>
      (await actions.locator('li > button').allInnerTexts()).map((text) => text.trim());
    await visit('/servers/evil', 'Withdraws the approval');
    expect(await offered()).toEqual(['Disable', 'Revoke']);
    for (const [button, dialog, after] of [
      ['Disable', 'Disable evil?', 'Enable'],
      ['Enable', 'Enable evil?', 'Disable'],
    ] as const) {
      await actions.getByRole('button', { name: button, exact: true }).click();
      await page.getByRole('dialog', { name: dialog }).getByRole('button', { name: button }).click();
      await page.getByText('Done.').waitFor();
      await page.keyboard.press('Escape');
      await actions.getByRole('button', { name: after, exact: true }).waitFor();
      expect(await offered()).toEqual([after, 'Revoke']);
    }
  });

  it('leads from the list to what changed in a server, by names, hashes and words' + verifies('AD-124'), async () => {
    const script = readFileSync(SERVER, 'utf8');
    writeFileSync(SERVER, script.replace("isOther = process.argv.includes('--other')", 'isOther = true'));
    await visit('/', 'evil changed since it was approved: markup-server.mjs');
    await page.getByText('server-changed').locator('..').getByRole('link', { name: 'Review' }).click();
    await page.getByText('What changed since it was approved').waitFor();
    expect(await page.locator('.difference').first().innerText()).toMatch(/^- sha256 [0-9a-f]{64}\n\+ sha256 /);
    await page.locator('.badge.warn', { hasText: /^changed$/ }).waitFor();
    expect(await page.locator('main').innerText()).toContain('waits for its owner, because it changed');
    await page.getByRole('button', { name: 'Review what it starts' }).click();
    await page.getByRole('button', { name: 'Approve the start' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Approve the start' }).click();
    await page.getByText('Its tools').waitFor({ timeout: 30_000 });
    expect(await page.locator('.difference').last().innerText()).toMatch(/^- .*\n\+ Now also sends your files/);
    expect(await attacked()).toBe(false);
    writeFileSync(SERVER, script);
    await approve();
  });

  it('checks a draft with the words of the checker, and saves only what it accepts' + verifies('AD-88'), async () => {
    await visit('/policy?source=rules.yaml', 'Replay recorded calls');
    const editor = page.locator('textarea');
    await editor.fill(RULES.replace('outcome: ask', 'outcome: perhaps'));
    await page.getByRole('button', { name: 'Check' }).click();
    await page.getByText('perhaps').last().waitFor();
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').getByText('errors with the draft').waitFor();
    await page.keyboard.press('Escape');
    await editor.fill(RULES.replace('A person decides about writes.', 'Ask about writes.'));
    await page.getByRole('button', { name: 'Save', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.getByText('Done.').waitFor();
    expect(readFileSync(path.join(bench.folder, 'rules.yaml'), 'utf8')).toContain('Ask about writes.');
    writeFileSync(path.join(bench.folder, 'rules.yaml'), RULES);
  });

  it('verifies the log' + verifies('AD-88'), async () => {
    await visit('/proof', 'Records after it');
    await page.getByRole('button', { name: 'Verify the log' }).click();
    await page.getByRole('heading', { name: /^Proven/ }).waitFor({ timeout: 20_000 });
  });

  it('is of no use to another server of this host that gets its cookie' + verifies('AD-80'), async () => {
    const seen: string[] = [];
    foreign = createServer((request, response) => {
      seen.push(request.headers.cookie ?? '');
      response.writeHead(200, { 'content-type': 'text/html' }).end('<p>foreign</p>');
    }).listen(0, '127.0.0.1');
    await new Promise((resolve) => foreign.once('listening', resolve));
    const { port } = foreign.address() as AddressInfo;
    const other = await context.newPage();
    await other.goto(`http://127.0.0.1:${port}/api/steal`);
    expect(seen.join()).toContain(`tollgate-${bench.port}=`);
    const answer = await bench.ask('/api/principals', { headers: { cookie: seen[0] ?? '' } });
    expect(answer.status).toBe(401);
    const fetched = await other.evaluate(
      (url) =>
        fetch(`${url}api/principals`, { credentials: 'include' }).then(
          () => 'read',
          () => 'refused',
        ),
      bench.url,
    );
    expect(fetched).toBe('refused');
    await other.close();
  });

  it('asks for a code again when the session has ended' + verifies('AD-80'), async () => {
    await visit('/agents', 'Principals');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Tollgate' }).waitFor();
    await page.goto(`${bench.url}agents`);
    await page.getByLabel('Code').waitFor();
  });
});
