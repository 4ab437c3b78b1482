/** Tests what commands say to bad input, each with its code, its place and its exit code, and never with a stack. */
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import Libsql from 'libsql';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ErrorCode } from '../../catalogs/errors/error-table.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import { Project } from '../config/project.ts';
import { type Answer, cli, dataOf, server } from './terminal.ts';

const PLAIN = 'version: 1\nworkspace: ./workspace\n';
const RULES = `${PLAIN}policies: [policies/rules.yaml]\n`;
const REGO = `${PLAIN}policies: [rego]\n`;

let project: Project;

beforeEach(() => {
  project = new Project();
  mkdirSync(path.join(project.folder, 'workspace'));
});
afterEach(() => project.remove());

function expectRefusal({ code, out, err }: Answer, name: ErrorCode, exit: number): void {
  expect([code, out]).toEqual([exit, '']);
  expect(err.startsWith(`${name}: `), err).toBe(true);
  expect(err).not.toMatch(/^ +at /m);
  expect(err).not.toContain(project.root);
}

interface Case {
  readonly says: string;
  readonly file: string;
  readonly files?: Readonly<Record<string, string>>;
  readonly code: ErrorCode;
  /** Every problem as it is printed, or how it begins. */
  readonly problems: readonly RegExp[];
}

const CASES: readonly Case[] = [
  {
    says: 'an unknown key',
    file: `${PLAIN}servres: {}\n`,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:3:1: .*servres.*servers/],
  },
  {
    says: 'several faults at once, in the order of the file',
    file: `versoin: 1\nworkspace: ./nowhere\nlisten: {port: many}\n`,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:1:1: /, /^tollgate\.yaml:2:12: /, /^tollgate\.yaml:3:16: /],
  },
  {
    says: 'YAML that is none',
    file: 'version: 1\nservers: {story: {command: x}\n',
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:\d+:\d+: /],
  },
  { says: 'a list where a map belongs', file: '- 1\n', code: 'CONFIG_INVALID', problems: [/^tollgate\.yaml:1:1: /] },
  {
    says: 'an empty variable',
    file: `${PLAIN}servers: {story: {command: x, env: {KEY: "\${env:TOLLGATE_TEST_MISSING}"}}}\n`,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:3:\d+: .*TOLLGATE_TEST_MISSING/],
  },
  {
    says: 'a server that nothing could start',
    file: `${PLAIN}servers: {story: {isolation: direct}}\n`,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:3:\d+: .*"story" has neither command nor url/],
  },
  {
    says: 'a profile of a server that is missing',
    file: `${PLAIN}profiles: {default: {servers: [story]}}\n`,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:3:\d+: .*story/],
  },
  {
    says: 'a policy file that is missing',
    file: RULES,
    code: 'CONFIG_INVALID',
    problems: [/^tollgate\.yaml:3:12: .*does not exist/],
  },
  {
    says: 'a rules file that is no YAML',
    file: RULES,
    files: { 'policies/rules.yaml': 'rules:\n  - {id: a, outcome: allow\n  - b\n' },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:\d+:\d+: /],
  },
  {
    says: 'an outcome that does not exist',
    file: RULES,
    files: { 'policies/rules.yaml': 'rules:\n  - id: a\n    outcome: permit\n    when: {}\n' },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:3:14: .*allow/],
  },
  {
    says: 'an unknown field of a rule',
    file: RULES,
    files: { 'policies/rules.yaml': 'rules:\n  - {id: a, outcome: deny, when: {tool: [x.y]}}\n' },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:2:\d+: .*tool/],
  },
  {
    says: 'a rule about a server that is missing',
    file: RULES,
    files: { 'policies/rules.yaml': 'rules:\n  - {id: a, outcome: deny, when: {servers: [nowhere]}}\n' },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:2:\d+: .*nowhere/],
  },
  {
    says: 'rules that share an id',
    file: RULES,
    files: {
      'policies/rules.yaml':
        'rules:\n  - {id: a, outcome: deny, when: {}}\n  - {id: a, outcome: deny, when: {verbs: [read]}}\n',
    },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:3:\d+: .*"a"/],
  },
  {
    says: 'a pattern that RE2 does not know',
    file: RULES,
    files: { 'policies/rules.yaml': 'rules:\n  - {id: a, outcome: deny, when: {args: {x: {pattern: "(?=a)"}}}}\n' },
    code: 'POLICY_INVALID',
    problems: [/^policies\/rules\.yaml:2:\d+: .*RE2/],
  },
  {
    says: 'Rego that does not parse',
    file: REGO,
    files: { 'rego/mine.rego': 'package policy.mine\n\ndeny contains {"id" if true\n' },
    code: 'POLICY_INVALID',
    problems: [/^rego\/mine\.rego:3:21: /, /^rego\/mine\.rego:3:21: /],
  },
  {
    says: 'Rego without its package',
    file: REGO,
    files: { 'rego/mine.rego': 'package elsewhere\n\nallow := true\n' },
    code: 'POLICY_INVALID',
    problems: [/^rego\/mine\.rego:3:1: `allow` counts only in a package/],
  },
];

describe('check names the place of every fault, and so does every start', () => {
  it.each(CASES.map((one) => [one.says, one] as const))('%s', async (_, { file, files = {}, code, problems }) => {
    project.write('tollgate.yaml', file);
    for (const [name, text] of Object.entries(files)) project.write(name, text);
    const checked = await cli(project, ['check']);
    expectRefusal(checked, code, EXIT.usage);
    expect(checked.err).toMatch(/^[A-Z_]+: (The configuration|A policy) is refused\.\n/);
    const lines = checked.err.trimEnd().split('\n').slice(1, -1);
    expect(lines).toHaveLength(problems.length);
    for (const [index, expected] of problems.entries()) expect(lines[index]).toMatch(expected);
    const started = await cli(project, ['run']);
    expect(started).toEqual(checked);
    const { error } = dataOf<{
      error: { code: string; next: string; problems: { file: string; line: number; column: number }[] };
    }>((await cli(project, ['tools', '--json'])).err);
    expect(error).toMatchObject({ code, next: expect.stringContaining('tollgate check') });
    expect(error.problems).toHaveLength(problems.length);
  });
});

describe('where files cannot be had', () => {
  it.each([
    ['a missing file', 'nowhere.yaml', /^nowhere\.yaml:1:1: .*there is no such file; write one with: tollgate init$/m],
    ['a folder', 'workspace', /^workspace:1:1: .*it is a folder/m],
  ])('%s is no configuration', async (_, name, expected) => {
    const answer = await cli(project, ['check', '-c', name]);
    expectRefusal(answer, 'CONFIG_INVALID', EXIT.usage);
    expect(answer.err).toMatch(expected);
  });

  it('Rego needs opa, and the ways to get it are named', async () => {
    project.write('tollgate.yaml', REGO);
    project.write('rego/mine.rego', 'package policy.mine\n\nallow contains "all" if true\n');
    const answer = await cli(project, ['check', '--opa', path.join(project.folder, 'no-opa')]);
    expectRefusal(answer, 'OPA_MISSING', EXIT.usage);
    expect(await cli(project, ['check'])).toMatchObject({ code: EXIT.ok });
  });

  it('a state folder that is a file', async () => {
    project.write('in-the-way', '');
    project.write('tollgate.yaml', `${PLAIN}state: ./in-the-way\n`);
    for (const command of [['tools'], ['run'], ['serve']])
      expectRefusal(await cli(project, command), 'STATE_FAILED', EXIT.unexpected);
  });

  it('an audit folder that is a file: nothing starts', async () => {
    project.write('in-the-way', '');
    project.write(
      'tollgate.yaml',
      `${PLAIN}state: ./state\naudit: {folder: ./in-the-way}\nservers: {story: ${server(['story-server.mjs'])}}\n`,
    );
    const answer = await cli(project, ['servers']);
    expectRefusal(answer, 'AUDIT_FAILED', EXIT.unexpected);
  });

  it('a state of a newer Tollgate', async () => {
    project.write('tollgate.yaml', `${PLAIN}state: ./state\n`);
    mkdirSync(path.join(project.folder, 'state'));
    const database = new Libsql(path.join(project.folder, 'state', 'state.db'));
    database.exec('PRAGMA user_version = 99');
    database.close();
    const answer = await cli(project, ['run']);
    expectRefusal(answer, 'STATE_TOO_NEW', EXIT.unexpected);
    expect(answer.err).toMatch(/schema version 99.*\nUpgrade, or name another state folder\.\n$/);
  });

  it('a token file that others can read', async () => {
    project.write('tollgate.yaml', `${PLAIN}state: ./state\nlisten: {port: 0}\n`);
    project.write('state/token', 'x');
    const answer = await cli(project, ['serve']);
    expectRefusal(answer, 'STATE_FAILED', EXIT.unexpected);
    expect(answer.err).toContain('Delete the file named token in the state folder');
    expect((await cli(project, ['audit', 'verify', '--json'])).out).toContain('"state": "closed"');
  });
});
