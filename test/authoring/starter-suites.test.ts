/**
 * Tests the starter policies by their own suites, alone and with external servers, in opa and in the built WebAssembly.
 */

import { readdirSync, readFileSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CLIENTS } from '../../facade/clients/client-formats.ts';
import { packageRoot } from '../../policies/rego/opa-program.ts';
import { cli } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

const FOLDER = path.join(packageRoot(), 'policies', 'starter');
const STARTERS = readdirSync(FOLDER)
  .filter((name) => !name.endsWith('_suite.yaml'))
  .map((name) => name.replace('.yaml', ''))
  .sort();
const SERVERS = `
servers:
  tracker: {url: "https://tracker.example/mcp", semantics: {get_*: read, create_*: write}}
profiles: {default: {servers: [tracker]}}
expose: {tools: [tracker.*]}
`;
const PAGE = readFileSync(path.join(packageRoot(), 'docs', 'starters.md'), 'utf8');

/** Returns the rows of the table in a starter's section as cases, so that the page is tested. */
function casesOnPage(name: string): readonly { readonly call: string; readonly line: string }[] {
  const section = PAGE.split(/^## /m).find((one) => one.startsWith(`${name}\n`)) ?? '';
  return [...section.matchAll(/^\| `(.+)` \| (allow|ask|deny) \| `(.+)` \|$/gm)].map(
    ([, call = '', expect_ = '', reason = '']) => ({ call, line: lineOf(call, { expect: expect_, reason }) }),
  );
}

/** Returns the rows of the table of labels for a starter. */
function labelCasesOnPage(name: string): readonly string[] {
  return [...PAGE.matchAll(/^\| ([a-z-]+) \| `(\w+)` \| `(.+)` \| (allow|ask|deny) \| `(.+)` \|$/gm)]
    .filter(([, starter]) => starter === name)
    .map(([, , label = '', call = '', expect_ = '', reason = '']) =>
      lineOf(call, { expect: expect_, reason, labels: [label] }),
    );
}

function lineOf(
  call: string,
  wanted: { readonly expect: string; readonly reason: string; readonly labels?: readonly string[] },
): string {
  const [tool = '', ...rest] = call.split(' ');
  const text = rest.join(' ');
  const args =
    {
      read: { path: text },
      write: { path: text, content: 'x' },
      edit: { path: text, old_string: 'a', new_string: 'b' },
      bash: { command: text },
    }[tool] ?? {};
  return `  - ${JSON.stringify({ name: `${call} ${wanted.labels?.join() ?? ''}`, call: { tool, args }, ...wanted })}\n`;
}

let project: Project;
beforeAll(() => void (project = new Project()));
afterAll(() => project.remove());

function prepare(name: string, config = ''): void {
  for (const [target, source] of [
    ['rules.yaml', `${name}.yaml`],
    ['rules_suite.yaml', `${name}_suite.yaml`],
  ] as const)
    project.write(`policies/${target}`, readFileSync(path.join(FOLDER, source), 'utf8'));
  project.write('tollgate.yaml', `policies: [policies/rules.yaml]\n${config}`);
}

describe('starter policies', () => {
  it('are five, each with its suite and its page', () => {
    expect(STARTERS).toEqual(['ci', 'no-leaving', 'reviewer', 'strict', 'workspace']);
    for (const name of STARTERS) {
      const calls = casesOnPage(name).map(({ call }) => call);
      expect(calls.length, name).toBeGreaterThan(7);
      expect(calls).toEqual(expect.arrayContaining(['tracker.get_issue', 'tracker.create_issue', 'tracker.wipe']));
    }
  });

  inFull.each(partOf(STARTERS, 1))('%s passes its suite, alone in a project', async (name) => {
    prepare(name);
    const { code, out, err } = await cli(project, ['policy', 'test', 'policies/rules_suite.yaml']);
    expect([code, out.split('\n').filter((line) => line.startsWith('FAIL')), err]).toEqual([0, [], '']);
    expect(out).not.toContain('Not covered');
  });

  it.each(partOf(STARTERS, 2))('%s has no rule without effect, and decides as its page says', async (name) => {
    prepare(name, SERVERS);
    project.write(
      'policies/others_suite.yaml',
      `cases:\n${[...casesOnPage(name).map(({ line }) => line), ...labelCasesOnPage(name)].join('')}`,
    );
    const { code, out, err } = await cli(project, ['policy', 'test', '--threshold', '100']);
    expect([code, out.split('\n').filter((line) => line.startsWith('FAIL')), err]).toEqual([0, [], '']);
  });

  it('use labels if data may leave; the page has a case for each such rule' + verifies('PF-07', 'ST-97'), () => {
    for (const name of STARTERS) {
      const ids = [
        ...readFileSync(path.join(FOLDER, `${name}.yaml`), 'utf8').matchAll(
          /- id: (\S+)\n(?: {4}.*\n)*? {4}when: .*labels:/g,
        ),
      ].map(([, id = '']) => id);
      const onPage = labelCasesOnPage(name).join('');
      expect([name, ids.filter((id) => !onPage.includes(`"${id}"`))]).toEqual([name, []]);
      expect([name, ids.length > 0]).toEqual([name, ['workspace', 'no-leaving', 'strict'].includes(name)]);
    }
  });

  it.each(partOf(['workspace', 'no-leaving'], 1))(
    '%s asks before it writes a file in which another client finds programs to start' + verifies('TR-57'),
    async (name) => {
      prepare(name);
      const files = CLIENTS.flatMap(({ places }) =>
        places.flatMap(([root, ...place]) => (root === 'project' ? [place.join('/')] : [])),
      );
      expect(files).toEqual(
        expect.arrayContaining(['.mcp.json', '.gemini/settings.json', '.codex/config.toml', 'opencode.json']),
      );
      const cases = files
        .flatMap((file) => [file, `app/${file}`])
        .map(
          (file) =>
            '  - ' +
            `${JSON.stringify({ name: file, call: { tool: 'write', args: { path: file, content: 'x' } }, expect: 'ask', reason: 'ask-before-automation' })}\n`,
        );
      project.write('policies/clients_suite.yaml', `cases:\n${cases.join('')}`);
      const { out } = await cli(project, ['policy', 'test', 'policies/clients_suite.yaml']);
      expect(out.split('\n').filter((line) => line.startsWith('FAIL'))).toEqual([]);
      expect(out).toMatch(new RegExp(`^${cases.length} passed`));
    },
  );

  it.each(partOf(STARTERS, 1))('%s follows a link before it compares a path', async (name) => {
    prepare(name);
    project.write('.env', 'KEY=1');
    project.write('src/a.ts', '');
    const link = path.join(project.folder, 'src', `${name}.ts`);
    symlinkSync('../.env', link);
    project.write(
      'policies/link_suite.yaml',
      `cases:
  - {name: a link to .env, call: {tool: read, args: {path: src/${name}.ts}}, expect: deny, reason: no-secret-files}
`,
    );
    const { code, out } = await cli(project, ['policy', 'test', 'policies/link_suite.yaml']);
    expect([code, out]).toEqual([0, expect.stringMatching(/^1 passed/)]);
  });
});
