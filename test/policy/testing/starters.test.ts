/** Tests the starter policies by their own suites, alone and with servers that are not Tollgate's, in opa and in the built wasm. */
import { readdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packageRoot } from '../../../policies/opa.ts';
import { cli } from '../../cli/terminal.ts';
import { Project } from '../../config/project.ts';

const FOLDER = path.join(packageRoot(), 'policies', 'starter');
const STARTERS = readdirSync(FOLDER).filter((name) => !name.endsWith('_suite.yaml')).map((name) => name.replace('.yaml', '')).sort();
const SERVERS = `
servers:
  tracker: {url: "https://tracker.example/mcp", semantics: {get_*: read, create_*: write}}
profiles: {default: {servers: [tracker]}}
expose: {tools: [tracker.*]}
`;
/** What each says to a tool of another server that reads, that writes, and that nobody has classified. */
const OTHERS: Readonly<Record<string, readonly [string, string, string]>> = {
  workspace: ['allow read-other-servers', 'ask ask-other-servers', 'ask ask-other-servers'],
  reviewer: ['ask ask-other-servers', 'deny only-reading', 'deny only-reading'],
  'no-leaving': ['ask ask-other-servers', 'ask ask-other-servers', 'ask ask-other-servers'],
  ci: ['deny no-other-servers', 'deny no-other-servers', 'deny no-other-servers'],
  strict: ['deny no-other-servers', 'deny no-other-servers', 'deny no-destruction'],
};
/** No rule may be decoration: each decides a case of the suites, its own or the one for other servers. */
const othersSuite = ([get, create, wipe]: readonly [string, string, string]): string => `cases:\n${Object.entries({ get_issue: get, create_issue: create, wipe })
  .map(([tool, said]) => `  - {name: ${tool}, call: {tool: tracker.${tool}}, expect: ${said.split(' ')[0] ?? ''}, reason: ${said.split(' ')[1] ?? ''}}\n`).join('')}`;

let project: Project;
beforeAll(() => void (project = new Project()));
afterAll(() => project.remove());

function prepare(name: string, config = ''): void {
  for (const [target, source] of [['rules.yaml', `${name}.yaml`], ['rules_suite.yaml', `${name}_suite.yaml`]] as const) project.write(`policies/${target}`, readFileSync(path.join(FOLDER, source), 'utf8'));
  project.write('tollgate.yaml', `policies: [policies/rules.yaml]\n${config}`);
}

describe('starter policies', () => {
  it('are five, each with its suite and its section of the page', () => {
    expect(STARTERS).toEqual(Object.keys(OTHERS).sort());
    const page = readFileSync(path.join(packageRoot(), 'docs', 'starters.md'), 'utf8');
    expect([...page.matchAll(/^## (.+)$/gm)].map((found) => found[1])).toEqual(expect.arrayContaining(STARTERS));
  });

  it.each(STARTERS)('%s holds by its suite, alone in a project', async (name) => {
    prepare(name);
    const { code, out, err } = await cli(project, ['policy', 'test', 'policies/rules_suite.yaml']);
    expect([code, out.split('\n').filter((line) => line.startsWith('FAIL')), err]).toEqual([0, [], '']);
  });

  it.each(STARTERS)('%s has no rule that decides nothing, and closes other servers as it says', async (name) => {
    prepare(name, SERVERS);
    project.write('policies/others_suite.yaml', othersSuite(OTHERS[name] ?? ['', '', '']));
    const { code, out, err } = await cli(project, ['policy', 'test', '--threshold', '100']);
    expect([code, out.split('\n').filter((line) => line.startsWith('FAIL')), err]).toEqual([0, [], '']);
  });

  it.each(STARTERS)('%s follows a link before it judges a path', async (name) => {
    prepare(name);
    project.write('.env', 'KEY=1');
    project.write('src/a.ts', '');
    const link = path.join(project.folder, 'src', `${name}.ts`);
    symlinkSync('../.env', link);
    project.write('policies/link_suite.yaml', `cases:\n  - {name: a link to .env, call: {tool: read, args: {path: src/${name}.ts}}, expect: deny, reason: no-secret-files}\n`);
    const { code, out } = await cli(project, ['policy', 'test', 'policies/link_suite.yaml']);
    expect([code, out]).toEqual([0, expect.stringMatching(/^1 passed/)]);
  });
});
