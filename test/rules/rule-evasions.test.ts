/**
 * Tests attacks on rules: calls with the same effect as a denied call, in another spelling. Every attack has a name.
 */
import { symlinkSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { Project } from '../config/project.ts';

const CONFIG = `
servers:
  bank: {url: "https://bank.example/mcp", semantics: {transfer: write, balance: read}}
  web: {url: "https://web.example/mcp", semantics: {fetch: {verb: read, urls: [url]}}}
  fs: {url: "https://fs.example/mcp", semantics: {read_file: {verb: read, paths: [path]}, run: {verb: execute, command: command}}}
profiles: {default: {servers: [bank, web, fs]}, guest: {servers: [bank]}, ci: {servers: [bank]}}
expose: {tools: [bank.*, web.*, fs.*, {tool: bank.transfer, name: pay}]}
principals:
  - {id: dev, role: developer, profiles: [default]}
  - {id: both, role: developer, profiles: [guest, ci]}
policies: [rules.yaml, {path: guests.yaml, modes: [{profile: ci, mode: enforce}, {profile: guest, mode: shadow}]}]
`;
const RULES = `rules:
  - {id: everything, outcome: allow, when: {}}
  - {id: no-env, outcome: deny, when: {paths: ["**/.env"]}}
  - {id: no-evil, outcome: deny, when: {hosts: [evil.example]}}
  - {id: no-night, outcome: deny, when: {tools: [bank.balance], time: {from: "22:00", to: "06:00", zone: Europe/Berlin}}}
  - {id: no-commands, outcome: deny, when: {commands: [rm, git push]}}
  - {id: no-secret-out, outcome: deny, when: {labels: [secret], servers: [web]}}
  - {id: big, outcome: deny, when: {tools: [bank.transfer], args: {amount: {min: 1000.01}}}}
`;
const GUESTS = 'rules:\n  - {id: no-guest, outcome: deny, when: {tools: [bank.transfer], profiles: [ci]}}\n';

let project: Project;
beforeAll(() => {
  project = new Project();
  project.write('rules.yaml', RULES);
  project.write('guests.yaml', GUESTS);
  project.write('tollgate.yaml', CONFIG);
  project.write('.env', 'KEY=x');
  symlinkSync('.env', path.join(project.folder, 'notes.txt'));
});
afterAll(() => project.remove());

interface Attack {
  readonly rule: string;
  readonly tool: string;
  readonly args?: Readonly<Record<string, unknown>>;
  readonly more?: Readonly<Record<string, unknown>>;
}

const path_ = (name: string): Attack => ({ rule: 'no-env', tool: 'read', args: { path: name } });
const url = (value: unknown): Attack => ({ rule: 'no-evil', tool: 'web.fetch', args: { url: value } });
const bash = (command: string): Attack => ({ rule: 'no-commands', tool: 'bash', args: { command } });
const amount = (value: unknown): Attack => ({ rule: 'big', tool: 'bank.transfer', args: { amount: value } });
const night = (time: string): Attack => ({ rule: 'no-night', tool: 'bank.balance', more: { time } });

const ATTACKS: Readonly<Record<string, Attack>> = {
  'path by a symlink': path_('notes.txt'),
  'path with dots': path_('src/../.env'),
  'path with slashes': path_('.//./.env/'),
  'path as a file URL': { rule: 'no-env', tool: 'fs.read_file', args: { path: 'file:///home/me/.env' } },
  'path in a list': { rule: 'no-env', tool: 'fs.read_file', args: { path: ['a.txt', ['.env']] } },
  'path in an object': { rule: 'no-env', tool: 'fs.read_file', args: { path: { name: '.env' } } },
  'URL with the name of a friend as its user': url('https://good.example@evil.example/'),
  'URL in capitals with a dot at the end': url('HTTPS://EVIL.example./'),
  'URL with backslashes': url('https:\\\\evil.example\\x'),
  'URL in wide letters': url('https://ｅvil.example/'),
  'URL with a tab in its host': url('https://ev\til.example/'),
  'URL without a scheme': url('//evil.example/'),
  'URL inside another': url('jar:https://evil.example/!/'),
  'URL in a list': url(['https://evil.example/']),
  'URL in an object': url({ href: 'https://evil.example/' }),
  'number as text': amount('5000'),
  'number in a list': amount([5000]),
  'number in an object': amount({ value: 1 }),
  'number as large as can be': amount(1e300),
  'the same tool by its alias': { ...amount(5000), tool: 'pay' },
  'program by its path': bash('/bin/rm x'),
  'program behind a variable': bash('X=1 rm x'),
  'program spelled with a backslash': bash('r\\m x'),
  'program through another': bash('timeout 5 rm x'),
  'program in a second line': bash('ls\nrm x'),
  'program in a function': bash('f() { rm x; }; f'),
  'program in braces': bash('{rm,x}'),
  'program of a search': bash('find . -exec rm {} +'),
  'subcommand behind an option': bash('git -C . push'),
  'subcommand behind an option with a value': bash('git -c http.proxy=x push origin'),
  'command as a list of words': { rule: 'no-commands', tool: 'fs.run', args: { command: ['rm', '-rf', '/'] } },
  'the minute at which the night begins, in winter': night('2026-01-07T21:00:00Z'),
  'the last moment of the night, in summer': night('2026-07-01T03:59:59.999Z'),
  'the hour that comes twice': night('2026-10-25T01:30:00Z'),
  'a time with an offset': night('2026-01-07T23:30:00+01:00'),
  'a label among others': {
    rule: 'no-secret-out',
    tool: 'web.fetch',
    args: { url: 'https://a.example/' },
    more: { labels: ['public', 'secret'] },
  },
  'a second profile in which the rule is on trial': { rule: 'no-guest', tool: 'bank.transfer', more: { as: 'both' } },
};

describe('a denied call', () => {
  it('is denied in every spelling', async () => {
    const cases = Object.entries(ATTACKS).map(([name, { rule, tool, args, more }]) => ({
      name,
      as: 'dev',
      call: { tool, ...(args === undefined ? {} : { args }) },
      expect: 'deny',
      reason: rule,
      ...more,
    }));
    project.write('evasions_suite.yaml', JSON.stringify({ cases }));
    const { out, err } = await cli(project, ['policy', 'test', 'evasions_suite.yaml', '--json']);
    const report = dataOf<{ cases: readonly { name: string; faults: readonly string[] }[] }>(out === '' ? err : out);
    expect(report.cases.filter(({ faults }) => faults.length > 0)).toEqual([]);
    expect(report.cases).toHaveLength(Object.keys(ATTACKS).length);
  }, 60_000);

  it('is not confused with a call that only looks similar', async () => {
    const others = [
      ['bash', { command: 'git commit -m push' }],
      ['bash', { command: 'git pull' }],
      ['bash', { command: 'ls rm' }],
      ['read', { path: 'src/.env.example' }],
      ['web.fetch', { url: 'https://notevil.example/' }],
      ['web.fetch', { url: 'https://a.example/?u=https://evil.example/' }],
    ] as const;
    project.write(
      'others_suite.yaml',
      JSON.stringify({
        as: 'dev',
        cases: others.map(([tool, args]) => ({ name: JSON.stringify(args), call: { tool, args }, expect: 'allow' })),
      }),
    );
    expect((await cli(project, ['policy', 'test', 'others_suite.yaml'])).out).toMatch(/^6 passed, 0 failed/);
  }, 60_000);
});
