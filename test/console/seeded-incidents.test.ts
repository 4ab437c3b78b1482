/** Solves the three incidents of docs/incident.md with the commands that it shows, and checks what they answer. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { verifies } from '../verifies.ts';
import type { ConsoleBench } from './console-bench.ts';
import { openIncidentBench, TOOL_WORDS } from './incident-seed.ts';

const PAGE = readFileSync(path.join(import.meta.dirname, '..', '..', 'docs', 'incident.md'), 'utf8');
let bench: ConsoleBench;

/** Runs a command that the page shows. `ID` stands for the id of the first record in the answer before. */
function run(command: string, id = ''): string {
  expect(PAGE, command).toContain(command);
  return bench.run(command.replace('ID', id).replaceAll("'", '').split(' ').slice(1), true).replace(/\s+/g, ' ');
}

const firstId = (answer: string): string => /\b[0-9a-f]{8}-[0-9a-f]{4}\b/.exec(answer)?.[0] ?? 'none';

beforeAll(async () => {
  bench = await openIncidentBench();
}, 60_000);
afterAll(() => bench.close());

describe('seeded incidents' + verifies('AD-105'), () => {
  test('a key was read by a command: who, when, how and by which rule', () => {
    const found = run("tollgate audit list --path 'deploy/*'");
    expect(found).toContain('builder');
    expect(found.match(/ builder /g)).toHaveLength(1);
    const explained = run('tollgate explain ID', firstId(found));
    expect(explained).toContain('base64');
    expect(explained).toContain('deploy/production.key');
    expect(explained).toContain('run-commands');
    expect(run('tollgate audit show ID --args', firstId(found))).toContain('base64 deploy/production.key');
  });

  test('a tool changed: when it was noticed, which words, and what was refused', () => {
    expect(run('tollgate status')).toContain('Tools of notes differ from what was approved');
    const found = run('tollgate audit list --server notes --outcome error');
    expect(found).toContain('reviewer');
    expect(found).toContain('PIN_MISMATCH');
    const shown = run('tollgate approve notes --as admin --own-isolation');
    expect(shown).toContain(`- ${TOOL_WORDS.approved}`);
    expect(shown).toContain(`+ ${TOOL_WORDS.changed}`);
  });

  test('a loop used up a budget: whose, how much, until when, and with which calls', () => {
    const status = run('tollgate status');
    expect(status).toContain('Budget reads-a-day of crawler: 6 of 6 calls are spent');
    expect(run('tollgate budgets --as admin')).toMatch(/reads-a-day principal crawler calls 6 of 6 0/);
    const found = run('tollgate audit list --principal crawler');
    expect(found.match(/notes\.txt/g)?.length).toBe(8);
    expect(found.match(/BUDGET_EXCEEDED/g)?.length).toBe(2);
  });
});
