/** Tests `tollgate policy mode`: what it shows, and that it changes one mode and nothing else in the file. */
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseJsonDoc } from '../../adapters/rpc/message-parser.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { setMode } from '../../facade/cli/policy-commands/policy-mode-edit.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { principalForStdio } from '../../facade/config/stdio-identity.ts';
import { assembleOnDemand } from '../../facade/main.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';

let project: Project;
beforeEach(() => {
  project = new Project();
  project.write('workspace/a.txt', 'a');
  project.write('policies/rules.yaml', 'rules: [{id: all, outcome: allow, when: {}}]\n');
  project.write('policies/soon.yaml', 'rules: [{id: soon, outcome: deny, message: Soon., when: {paths: ["*.txt"]}}]\n');
});
afterEach(() => project.remove());

const CONFIG = `# Our policies.
version: 1
workspace: ./workspace
profiles: {ci: {}}
policies:
  - policies/rules.yaml   # the rules of everybody
  - path: policies/soon.yaml # not yet
    modes:
      - {profile: ci, mode: dryrun}
`;
const written = (): string => readFileSync(project.file, 'utf8');

describe('policy mode', () => {
  it('shows the mode of each source, and the callers for whom it differs', async () => {
    project.write('tollgate.yaml', `${CONFIG}rules: [{id: own, outcome: ask, when: {verbs: [execute]}}]\n`);
    const { code, out, err } = await cli(project, ['policy', 'mode']);
    expect(code).toBe(EXIT.ok);
    expect(out).toBe(
      `SOURCE               MODE     FOR SOME CALLERS
policies/rules.yaml  enforce
policies/soon.yaml   enforce  profile ci shadow
`,
    );
    expect(err).toBe(
      `1 rule in tollgate.yaml itself: each rule names its own mode.
No rule in warn or shadow has fired in the last 7 days.
`,
    );
    expect(dataOf((await cli(project, ['policy', 'mode', 'soon.yaml', '--json'])).out)).toEqual({
      sources: [{ source: 'policies/soon.yaml', mode: 'enforce', modes: [{ profile: 'ci', mode: 'shadow' }] }],
      days: 7,
      fired: [],
    });
  });

  it('changes one mode, keeps every comment, and shows the line', async () => {
    project.write('tollgate.yaml', CONFIG);
    chmodSync(project.file, 0o640);
    const first = await cli(project, ['policy', 'mode', 'policies/rules.yaml', 'warn']);
    expect(first).toMatchObject({
      code: EXIT.ok,
      out: 'tollgate.yaml:6: - {path: policies/rules.yaml, mode: warn}   # the rules of everybody\n',
      err: 'policies/rules.yaml: enforce → warn. A running Tollgate applies it without a restart.\n',
    });
    const second = await cli(project, ['policy', 'mode', 'soon.yaml', 'dryrun']);
    expect(second.out).toBe('tollgate.yaml:8: mode: shadow\n');
    expect(second.err).toContain('Its modes for some callers stay: profile ci shadow.');
    expect(written()).toBe(
      CONFIG.replace('- policies/rules.yaml', '- {path: policies/rules.yaml, mode: warn}').replace(
        '# not yet\n',
        '# not yet\n    mode: shadow\n',
      ),
    );
    expect(statSync(project.file).mode & 0o777).toBe(0o640);
    expect(dataOf((await cli(project, ['policy', 'mode', 'soon.yaml', 'off', '--json'])).out)).toEqual({
      source: 'policies/soon.yaml',
      mode: 'off',
      was: 'shadow',
      lines: [{ file: 'tollgate.yaml', line: 8, text: 'mode: off' }],
    });
    expect((await cli(project, ['policy', 'mode', 'soon.yaml', 'off'])).err).toContain('is already in off');
    project.write('own.yaml', 'rules:\n  - {id: tried, outcome: deny, mode: shadow, when: {}}\n');
    project.write('tollgate.yaml', readFileSync(project.file, 'utf8').replace('policies:', 'policies:\n  - own.yaml'));
    expect((await cli(project, ['policy', 'mode', 'own.yaml', 'enforce'])).err).toContain(
      'of their own, which wins: tried.',
    );
  });

  it('counts how often rules that are not enforced would have decided', async () => {
    project.write('tollgate.yaml', CONFIG.replace('# not yet', '\n    mode: warn'));
    const config = loadConfig(project.file, { env: {}, home: project.home });
    const { gateway } = await assembleOnDemand(config, {});
    const session = gateway.openSession(principalForStdio(config, { user: 'x' }), 'stdio');
    for (let times = 0; times < 3; times += 1)
      await gateway.perform(session, {
        name: 'read',
        args: parseJsonDoc('{"path": "a.txt"}'),
        signal: new AbortController().signal,
      });
    await gateway.close();
    expect((await cli(project, ['policy', 'mode'])).out).toMatch(
      /\nFired in warn or shadow in the last 7 days\nRULE +MODE +WOULD +TIMES +LAST \(UTC\)\nsoon +warn +deny +3 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n$/,
    );
    expect(
      dataOf<{ fired: unknown }>((await cli(project, ['policy', 'mode', '--json', '--days', '1'])).out).fired,
    ).toMatchObject([{ id: 'soon', mode: 'warn', would: 'deny', times: 3 }]);
  });

  it.each([
    [
      ['nowhere.yaml'],
      'USAGE: nowhere.yaml is not a source of the policy.\nName one of: policies/rules.yaml, policies/soon.yaml.',
    ],
    [['rules.yaml', 'wran'], 'USAGE: wran is not a mode.\nWrite one of enforce, warn, shadow, off, deny, dryrun.'],
    [['--days', '0'], 'It is a whole number from 1'],
  ])('refuses %j', async (argv, said) => {
    project.write('tollgate.yaml', CONFIG);
    const { code, err } = await cli(project, ['policy', 'mode', ...argv]);
    expect(code).toBe(EXIT.usage);
    expect(err).toContain(said);
    expect(written()).toBe(CONFIG);
  });

  it('refuses a file that does not load', async () => {
    project.write('tollgate.yaml', `${CONFIG}polices: []\n`);
    expect(await cli(project, ['policy', 'mode', 'rules.yaml', 'warn'])).toMatchObject({
      code: EXIT.usage,
      err: expect.stringContaining('unknown key') as string,
    });
    expect(written()).toBe(`${CONFIG}polices: []\n`);
  });
});

describe('the change of the text', () => {
  it.each([
    ['policies: [a.yaml, b.yaml]', 1, 'policies: [a.yaml, {path: b.yaml, mode: warn}]'],
    ["policies:\n- 'a.yaml'\n", 0, "policies:\n- {path: 'a.yaml', mode: warn}\n"],
    ['policies:\n  - a, b.yaml\n', 0, 'policies:\n  - {path: "a, b.yaml", mode: warn}\n'],
    ['policies: [{path: a.yaml}]', 0, 'policies: [{path: a.yaml, mode: warn}]'],
    ['policies: [{mode: shadow, path: a.yaml}] # x', 0, 'policies: [{mode: warn, path: a.yaml}] # x'],
    ['policies:\n  - path: a.yaml', 0, 'policies:\n  - path: a.yaml\n    mode: warn'],
    [
      'policies:\n  -   url: "https://a.example/b" # fleet\n      poll: 5m\n',
      0,
      'policies:\n  -   url: "https://a.example/b" # fleet\n      mode: warn\n      poll: 5m\n',
    ],
    ['x: &m shadow\npolicies: [{path: a.yaml, mode: *m}]', 0, 'x: &m shadow\npolicies: [{path: a.yaml, mode: warn}]'],
    [
      '# päth ✓\npolicies:\n  - {path: "ä.yaml", mode: "off"}\n',
      0,
      '# päth ✓\npolicies:\n  - {path: "ä.yaml", mode: warn}\n',
    ],
  ])('%j', (before, index, after) => {
    expect(setMode(before, index, 'warn')).toBe(after);
  });

  it.each([
    ['policies: [&a a.yaml, *a]', 1],
    ['policies: 3', 0],
    ['policies: [a.yaml]', 4],
    ['policies: [{poll: 5m}]', 0],
  ])('does not change what it does not understand: %s', (text, index) => {
    expect(() => setMode(text, index, 'warn')).toThrow('The mode cannot be set');
  });
});
