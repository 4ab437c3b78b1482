/** Tests the command line: help, version, misuse, and the completion scripts in real shells. */
import { spawnSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { VERSION } from '../../facade/serve/version.ts';
import { Project } from '../config/project.ts';
import { cli, dataOf, start } from './terminal.ts';

const COMMANDS = [
  'init',
  'doctor',
  'known',
  'search',
  'connect',
  'import',
  'export',
  'run',
  'serve',
  'reload',
  'check',
  'tools',
  'try',
  'approve',
  'revoke',
  'servers',
  'approvals',
  'grants',
  'upgrades',
  'plan',
  'labels',
  'off',
  'on',
  'kill',
  'policy',
  'secret',
  'login',
  'logout',
  'knowledge',
  'state',
  'audit',
  'completion',
  'version',
];
let project: Project;

beforeAll(() => {
  project = new Project();
  project.write('tollgate.yaml', 'version: 1\n');
});
afterAll(() => project.remove());

describe('the help', () => {
  it('lists every command, with examples and exit codes, on stdout', async () => {
    const { code, out, err } = await cli(project, ['--help']);
    expect([code, err]).toEqual([EXIT.ok, '']);
    for (const name of COMMANDS) expect(out).toMatch(new RegExp(`^ {2}${name}\\b`, 'm'));
    expect(out).toContain('$ tollgate init');
    for (const exit of [0, 2, 3, 4, 5, 7]) expect(out).toMatch(new RegExp(`\\b${exit} [a-z]`));
  });

  it('goes to stderr with exit code 2 if no command is given', async () => {
    const { code, out, err } = await cli(project, []);
    expect([code, out]).toEqual([EXIT.usage, '']);
    expect(err).toContain('Usage: tollgate');
  });

  it.each(COMMANDS)(
    'of %s is the same by --help and by help, fits a terminal of 80, and starts nothing',
    async (name) => {
      const asked = await cli(project, [name, '--help']);
      expect(asked).toMatchObject({ code: EXIT.ok, err: '' });
      expect(await cli(project, ['help', name])).toEqual(asked);
      expect(asked.out).toContain(`Usage: tollgate ${name}`);
      expect(asked.out.split('\n').filter((line) => line.length > 80)).toEqual([]);
    },
  );

  it('of a group lists its commands, and each command has its own help', async () => {
    expect((await cli(project, ['audit', '--help'])).out).toMatch(/^ {2}verify /m);
    expect((await cli(project, ['audit', 'verify', '--help'])).out).toContain('--expect-head');
    expect(await cli(project, ['audit', 'help'])).toMatchObject({
      code: EXIT.ok,
      err: '',
      out: expect.stringContaining('Usage: tollgate audit'),
    });
    expect(await cli(project, ['audit'])).toMatchObject({
      code: EXIT.usage,
      out: '',
      err: expect.stringContaining('Usage: tollgate audit'),
    });
  });
});

describe('the version', () => {
  it.each([[['version']], [['--version']], [['-V']]])('is printed by %j', async (argv) => {
    expect(await cli(project, argv)).toEqual({ code: EXIT.ok, out: `tollgate ${VERSION}\n`, err: '' });
  });

  it('is data with --json', async () => {
    const { out } = await cli(project, ['version', '--json']);
    expect(dataOf(out)).toEqual({ version: VERSION, node: process.version });
  });
});

describe('a wrong command line', () => {
  const cases: readonly (readonly [readonly string[], RegExp])[] = [
    [['nonsense'], /^USAGE: unknown command 'nonsense'\nRead `tollgate --help`\.\n$/],
    [['chek'], /^USAGE: unknown command 'chek' \(Did you mean check\?\)\n/],
    [['run', '--bogus'], /^USAGE: unknown option '--bogus'\nRead `tollgate run --help`\.\n$/],
    [['check', 'extra'], /^USAGE: too many arguments/],
    [['try'], /^USAGE: missing required argument 'tool'\nRead `tollgate try --help`\.\n$/],
    [['run', '--as'], /^USAGE: option '--as <principal>' argument missing\n/],
    [['serve', '--port', 'abc'], /^USAGE: .*A port is a whole number from 0 to 65535\.\n/],
    [['serve', '--port', '65536'], /^USAGE: .*'65536' is invalid/],
    [['serve', '--port', '-1'], /^USAGE: /],
    [['completion', 'pwsh'], /^USAGE: .*bash, zsh, fish\.\n/],
    [['audit', 'nonsense'], /^USAGE: unknown command 'nonsense'\nRead `tollgate audit --help`\.\n$/],
    [['audit', 'show'], /^USAGE: missing required argument 'id'\nRead `tollgate audit --help`\.\n$/],
    [['audit', 'list', '--limit', 'x'], /^USAGE: .*'x' is invalid\. It is a whole number from 1 to 9999999\.\n/],
  ];

  it.each(cases)(
    '%j gets one line with the error and one with the next step, with exit code 2',
    async (argv, expected) => {
      const { code, out, err } = await cli(project, argv);
      expect([code, out]).toEqual([EXIT.usage, '']);
      expect(err).toMatch(expected);
      expect(err.trimEnd().split('\n')).toHaveLength(2);
    },
  );

  it('gets an error as JSON with --json', async () => {
    const { code, out, err } = await cli(project, ['tools', '--json', '--bogus']);
    expect([code, out]).toEqual([EXIT.usage, '']);
    expect(dataOf(err)).toEqual({
      error: { code: 'USAGE', message: "unknown option '--bogus'", next: 'Read `tollgate tools --help`.' },
    });
  });

  it('cannot control the terminal by its arguments', async () => {
    const { err } = await cli(project, ['\u001B[2J\u202E']);
    expect(err).toContain('\\u{1b}[2J\\u{202e}');
    expect(err).not.toMatch(/[\u001B\u202E]/);
  });
});

describe('an internal error', () => {
  const broken = {
    assemble: async () => Promise.reject(new RangeError('inside')),
    check: async () => Promise.reject(new RangeError('inside')),
    authoring: {},
  } as unknown as Wiring;

  it('is printed without details and stack, with a way to see more', async () => {
    project.write('tollgate.yaml', 'version: 1\n');
    for (const argv of [['check'], ['servers']]) {
      expect(await start(project, argv, {}, broken).ended).toEqual({
        code: EXIT.unexpected,
        out: '',
        err:
          'INTERNAL: Something went wrong inside Tollgate.\n' +
          'Run it again with TOLLGATE_LOG=debug, and report what it says.\n',
      });
    }
    expect(dataOf((await start(project, ['check', '--json'], {}, broken).ended).err)).toMatchObject({
      error: { code: 'INTERNAL' },
    });
  });

  it('is printed in full with TOLLGATE_LOG=debug', async () => {
    const { err } = await start(project, ['check'], { env: { TOLLGATE_LOG: 'debug' } }, broken).ended;
    expect(err).toMatch(/^RangeError: inside\n +at /);
  });
});

describe('completion', () => {
  /** Returns what bash completes at the end of a line. */
  const bash = (script: string, line: string): readonly string[] => {
    const words = line.split(' ');
    const program = `${script}\nCOMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _tollgate; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { status, stdout, stderr } = spawnSync('bash', ['--norc', '-c', program], { encoding: 'utf8' });
    expect([status, stderr]).toEqual([0, '']);
    return stdout.split('\n').filter((word) => word !== '');
  };

  it('for bash offers commands, their options and their operands', async () => {
    const { code, out, err } = await cli(project, ['completion', 'bash']);
    expect([code, err]).toEqual([EXIT.ok, '']);
    expect(bash(out, 'tollgate ')).toEqual(COMMANDS);
    expect(bash(out, 'tollgate t')).toEqual(['tools', 'try']);
    expect(bash(out, 'tollgate run --')).toEqual(['--config', '--json', '--opa', '--as', '--help']);
    expect(bash(out, 'tollgate completion ')).toEqual(expect.arrayContaining(['bash', 'zsh', 'fish']));
    expect(bash(out, 'tollgate audit ver')).toEqual(['verify']);
    expect(bash(out, 'tollgate audit list --un')).toEqual(['--until', '--unknown']);
    expect(bash(out, 'tollgate nonsense ')).toEqual(COMMANDS);
  });

  it('for bash leaves paths to the shell', async () => {
    const { out } = await cli(project, ['completion', 'bash']);
    expect(bash(out, 'tollgate run --config ')).toEqual([]);
    expect(bash(out, 'tollgate audit verify --folder ')).toEqual([]);
    expect(out).toContain('complete -o default -F _tollgate tollgate');
  });

  it.each([
    ['zsh', /^#compdef tollgate$/m],
    ['fish', /^complete -c tollgate -n __fish_use_subcommand -a run -d '/m],
  ] as const)('for %s names every command', async (shell, expected) => {
    const { out } = await cli(project, ['completion', shell]);
    expect(out).toMatch(expected);
    for (const name of COMMANDS) expect(out).toContain(name);
    // A quote or a colon in a description would end its word in the script.
    for (const [, about = ''] of out.matchAll(/'\w+:([^']*)'$/gm)) expect(about).not.toContain(':');
  });
});
