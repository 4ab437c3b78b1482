/** Solves the three incidents of docs/incident.md with the commands that it shows, and checks what they answer. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { ConsoleBench } from './console-bench.ts';
import { type ConsoleBrowser, openConsoleBrowser } from './console-browser.ts';
import { openIncidentBench, TOOL_WORDS } from './incident-seed.ts';

const PAGE = readFileSync(path.join(import.meta.dirname, '..', '..', 'docs', 'incident.md'), 'utf8');
let bench: ConsoleBench;
let opened: ConsoleBrowser;

/** Runs a command that the page shows. `ID` stands for the id of the first record in the answer before. */
async function run(command: string, id = ''): Promise<string> {
  expect(PAGE, command).toContain(command);
  const words = command.replace('ID', id).replaceAll("'", '').split(' ').slice(1);
  return (await bench.run(words, true)).replace(/\s+/g, ' ');
}

const firstId = (answer: string): string => /\b[0-9a-f]{8}-[0-9a-f]{4}\b/.exec(answer)?.[0] ?? 'none';

beforeAll(async () => {
  bench = await openIncidentBench();
  opened = await openConsoleBrowser();
  await opened.page.goto(`${bench.url}#${bench.code}`);
  await opened.page.getByRole('heading', { name: 'Now' }).waitFor();
}, 120_000);

afterAll(async () => {
  await opened?.browser.close();
  await bench?.close();
});

describe('seeded incidents' + verifies('AD-105'), () => {
  test('a key was read by a command: who, when, how and by which rule', async () => {
    const found = await run("tollgate audit list --path 'deploy/*'");
    expect(found).toContain('builder');
    expect(found.match(/ builder /g)).toHaveLength(1);
    const explained = await run('tollgate explain ID', firstId(found));
    expect(explained).toContain('base64');
    expect(explained).toContain('deploy/production.key');
    expect(explained).toContain('run-commands');
    expect(await run('tollgate audit show ID --args', firstId(found))).toContain('base64 deploy/production.key');
  });

  test('a tool changed: when it was noticed, which words, and what was refused', async () => {
    expect(await run('tollgate status')).toContain('Tools of notes differ from what was approved');
    const found = await run('tollgate audit list --server notes --outcome error');
    expect(found).toContain('reviewer');
    expect(found).toContain('PIN_MISMATCH');
    const byTool = await bench.run(['audit', 'list', '--tool', 'search_notes', '--outcome', 'error']);
    expect(byTool).toContain('PIN_MISMATCH');
    const shown = await run('tollgate approve notes --as admin --own-isolation');
    expect(shown).toContain(`- ${TOOL_WORDS.approved}`);
    expect(shown).toContain(`+ ${TOOL_WORDS.changed}`);
  });

  test('a loop used up a budget: whose, how much, until when, and with which calls', async () => {
    const status = await run('tollgate status');
    expect(status).toContain('Budget reads-a-day of crawler: 6 of 6 calls are spent');
    expect(await run('tollgate budgets --as admin')).toMatch(/reads-a-day principal crawler calls 6 of 6 0/);
    const found = await run('tollgate audit list --principal crawler');
    expect(found.match(/notes\.txt/g)?.length).toBe(8);
    expect(found.match(/BUDGET_EXCEEDED/g)?.length).toBe(2);
  });

  test('the console shows the old and the new words of a server that needs its own rights', async () => {
    const { page } = opened;
    await page.goto(`${bench.url}servers/notes`);
    await page.getByRole('button', { name: 'Review what it starts and offers' }).click();
    await page.getByRole('button', { name: 'Start it with its own rights' }).click({ timeout: 30_000 });
    await page.getByText(TOOL_WORDS.changed).first().waitFor({ timeout: 30_000 });
    const shown = await page.locator('main').innerText();
    expect(shown).toContain(TOOL_WORDS.approved);
  });

  test('the console names no other records when a filter is wrong', async () => {
    const { page } = opened;
    await page.goto(`${bench.url}calls`);
    await page.getByText('deploy/production.key').waitFor();
    await page.getByLabel('outcome', { exact: true }).fill('refused');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').waitFor();
    expect(await page.locator('main').innerText()).not.toContain('deploy/production.key');
  });
});
