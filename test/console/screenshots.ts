/**
 * Makes the pictures of docs/console.md: starts a project with calls, requests and a server, opens each page in Chromium,
 * and writes one PNG for each to docs/console/. Run by `npm run screenshots`.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import { PROGRAM } from '../../catalogs/programs/own-code.ts';
import { installPrograms } from '../servers/system.ts';
import { approveServer, type ConsoleBench, openConsoleBench } from './console-bench.ts';

const ROOT = path.join(PROGRAM, '..');
const [WIDTH, HEIGHT] = [1180, 760];

/** The pages, by the name of the picture. `ID` and `ASKED` stand for a call and a request of the project. */
const PICTURES = {
  now: '/',
  calls: '/calls',
  call: '/calls/ID',
  approvals: '/approvals',
  approval: '/approvals/ASKED',
  servers: '/servers',
  server: '/servers/everything',
  policy: '/policy?source=rules.yaml&line=4',
  agents: '/agents',
  proof: '/proof',
} as const;

const SERVER = path.join(ROOT, 'test/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js');
const CONFIG = `version: 1
workspace: ./work
principals:
  - {id: admin, owner: true, profiles: [default]}
  - {id: reviewer, profiles: [default]}
  - {id: builder, profiles: [default]}
profiles:
  default: {servers: [everything]}
servers:
  everything: {command: ${process.execPath}, args: [${SERVER}], isolation: direct, semantics: {get-sum: read}}
policies: [rules.yaml]
expose: {primitives: workspace, tools: [everything.*]}
budgets:
  - {id: calls-a-day, scope: principal, window: 1d, calls: 40}
approvals: {waitMs: 0}
audit: {facts: full}
`;
const RULES = `rules:
  - {id: no-secrets, when: {paths: ["**/.env"]}, outcome: deny, message: Secrets stay here.}
  - {id: read-files, when: {verbs: [read]}, outcome: allow}
  - {id: ask-writes, when: {verbs: [write]}, outcome: ask, message: A person decides about writes.}
`;

async function fill({ run, folder }: ConsoleBench): Promise<{ readonly id: string; readonly asked: string }> {
  const call = (as: string, ...words: readonly string[]): Promise<string> =>
    run(['call', ...words, '--as', as, '--by', 'admin'], true);
  await call('builder', 'everything.get-sum', 'a=2', 'b=3');
  writeFileSync(path.join(folder, 'work', 'deploy.sh'), 'echo deployed\n');
  for (let times = 0; times < 4; times += 1) {
    await call('builder', 'read', 'path=notes.txt');
    await call('reviewer', 'read', 'path=deploy.sh');
  }
  await call('builder', 'read', 'path=.env');
  await call('builder', 'write', JSON.stringify({ path: 'deploy.sh', content: 'set -e\necho deployed\n' }));
  const [refused] = JSON.parse(await run(['audit', 'list', '--outcome', 'deny', '--json'])) as { id: string }[];
  const { approvals } = JSON.parse(await run(['approvals', 'list', '--as', 'admin', '--json'])) as {
    approvals: { id: string }[];
  };
  return { id: refused?.id ?? '', asked: approvals[0]?.id ?? '' };
}

installPrograms([['chromium', 'chromium']], (line) => process.stderr.write(`${line}\n`));
const bench = await openConsoleBench(CONFIG, RULES);
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  await approveServer(bench, 'everything');
  const { id, asked } = await fill(bench);
  const folder = path.join(ROOT, 'docs', 'console');
  mkdirSync(folder, { recursive: true });
  const page = await browser.newPage({ viewport: { width: WIDTH, height: HEIGHT } });
  await page.goto(`${bench.url}#${bench.code}`);
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  for (const [name, to] of Object.entries(PICTURES)) {
    await page.goto(`${bench.url.slice(0, -1)}${to.replace('ID', id).replace('ASKED', asked)}`);
    await page.waitForLoadState('networkidle').catch(() => undefined);
    await page.getByText('Loading …').first().waitFor({ state: 'detached' });
    await page.screenshot({ path: path.join(folder, `${name}.png`) });
    process.stderr.write(`${name}.png\n`);
  }
} finally {
  await browser.close();
  await bench.close();
}
