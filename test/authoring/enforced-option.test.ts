/** Tests `--enforced`: cases and recorded calls are decided as if rules in mode warn or shadow were enforced. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';
import { inFull } from '../harness/full-tests.ts';

const CONFIG = `
profiles: {ci: {}}
policies:
  - policies/rules.yaml
  - {path: policies/shadow.yaml, mode: shadow}
  - {path: policies/some.yaml, modes: [{profile: ci, mode: warn}]}
  - {path: policies/off.yaml, mode: off}
audit: {facts: full}
rules: [{id: own, outcome: deny, mode: dryrun, when: {paths: ["own/**"]}}]
`;
const rule = (id: string, more = ''): string =>
  `rules: [{id: ${id}, outcome: deny, ${more}when: {paths: ["${id}/**"]}}]\n`;

let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('tollgate.yaml', CONFIG);
  project.write(
    'policies/rules.yaml',
    `rules:
  - {id: all, outcome: allow, when: {}}
  - {id: warned, outcome: deny, mode: warn, when: {paths: ["warned/**"]}}
  - {id: dead, outcome: deny, mode: off, when: {paths: ["dead/**"]}}
`,
  );
  for (const id of ['shadow', 'some', 'off']) project.write(`policies/${id}.yaml`, rule(id));
});
afterAll(() => project.remove());

const suite = (expected: Readonly<Record<string, string>>): void => {
  const cases = Object.entries(expected).map(([name, expect_]) => ({
    name,
    as: { id: 'x', profiles: ['ci'] },
    call: { tool: 'read', args: { path: `${name}/a.ts` } },
    expect: expect_,
  }));
  project.write('policies/rules_suite.yaml', JSON.stringify({ cases }));
};

describe('policy test --enforced', () => {
  inFull('enforces sources and rules in mode warn or shadow, but not those that are off', async () => {
    suite({ warned: 'allow', shadow: 'allow', some: 'allow', own: 'allow', off: 'allow', dead: 'allow' });
    expect(await cli(project, ['policy', 'test', 'policies/rules_suite.yaml'])).toMatchObject({ code: EXIT.ok });
    suite({ warned: 'deny', shadow: 'deny', some: 'deny', own: 'deny', off: 'allow', dead: 'allow' });
    expect(await cli(project, ['policy', 'test', 'policies/rules_suite.yaml', '--enforced'])).toMatchObject({
      code: EXIT.ok,
      err: '',
    });
  });

  it('is suggested if a case fails because its rule is not enforced', async () => {
    suite({ warned: 'deny' });
    const { code, out } = await cli(project, ['policy', 'test', 'policies/rules_suite.yaml']);
    expect(code).toBe(EXIT.unexpected);
    expect(out).toMatch(
      /expected deny, got allow by all \(policies\/rules\.yaml:2\)\. warned would deny, but its mode is warn; use --enforced to make it count\n/,
    );
  });

  it('leaves a value that is not a list of rules to the schema', async () => {
    project.write('policies/shadow.yaml', 'rules: {a: 1}\n');
    expect((await cli(project, ['policy', 'test', '--enforced'])).err).toContain('policies/shadow.yaml:1:8');
    project.write('policies/shadow.yaml', rule('shadow'));
  });
});

describe('policy replay', () => {
  it('says that the given rules replace those of the configuration, and that there is nothing to decide', async () => {
    const { code, err } = await cli(project, ['policy', 'replay', '--against', 'policies/off.yaml', '--enforced']);
    expect(code).toBe(EXIT.unexpected);
    expect(err).toContain('policies/off.yaml replaces all rules of tollgate.yaml');
  });
});

describe('policy why', () => {
  it('shows how arguments are written', async () => {
    expect((await cli(project, ['policy', 'why', 'read', '{path: x}'])).err).toContain(
      `tollgate policy why read '{"path": "README.md"}'`,
    );
  });

  it('does not report workspace rules that a list knows less about', async () => {
    project.write(
      'policies/off.yaml',
      'rules: [{id: run, outcome: deny, when: {servers: [workspace], verbs: [execute], opaque: true}}]\n',
    );
    const { err } = await cli(project, ['policy', 'why', 'nothing', '--json']);
    expect(dataOf<{ error: { code: string } }>(err).error.code).toBe('UNKNOWN_TOOL');
  });
});
