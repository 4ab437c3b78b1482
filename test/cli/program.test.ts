/** Tests the command line: help, version, misuse, and the completion scripts in real shells. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EXIT } from '../../facade/cli/command-io.ts';
import type { Wiring } from '../../facade/cli/wiring.ts';
import { VERSION } from '../../facade/serve/version.ts';
import { Project } from '../config/project.ts';
import { verifies } from '../verifies.ts';
import { cli, dataOf, start } from './terminal.ts';

const COMMANDS = [
  'setup',
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
  'call',
  'approve',
  'revoke',
  'servers',
  'approvals',
  'grants',
  'upgrades',
  'plan',
  'labels',
  'budgets',
  'off',
  'on',
  'kill',
  'suspend',
  'resume',
  'policy',
  'secret',
  'login',
  'logout',
  'knowledge',
  'state',
  'status',
  'console',
  'audit',
  'explain',
  'incident',
  'stats',
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

describe('completion install', () => {
  const install = (shell: string, ...words: readonly string[]) =>
    cli(project, ['completion', 'install', shell, ...words]);
  const placed = {
    bash: '.local/share/bash-completion/completions/tollgate',
    zsh: '.local/share/zsh/site-functions/_tollgate',
    fish: '.config/fish/completions/tollgate.fish',
  };
  const fileOf = (shell: keyof typeof placed): string => path.join(project.home, placed[shell]);

  it.each(['bash', 'zsh', 'fish'] as const)(
    'for %s writes, keeps and removes one file' + verifies('FH-64'),
    async (shell) => {
      expect(await install(shell, '--dry-run')).toMatchObject({ code: EXIT.ok, out: '' });
      expect(existsSync(fileOf(shell))).toBe(false);
      const refused = await install(shell);
      expect([refused.code, refused.err]).toEqual([
        EXIT.usage,
        expect.stringContaining('is a new file\nUSAGE: There is no'),
      ]);
      const { code, err } = await install(shell, '--yes');
      expect([code, err]).toEqual([
        EXIT.ok,
        expect.stringMatching(/is a new file\nWritten\. [^]*\nTo undo: tollgate completion/),
      ]);
      const { out: script } = await cli(project, ['completion', shell]);
      const text = readFileSync(fileOf(shell), 'utf8');
      expect(text.replace('# Written by `tollgate completion install`.\n', '')).toBe(script);
      if (shell === 'zsh') expect(text).toMatch(/^#compdef tollgate\n/);
      // Without a change, nothing has to be permitted.
      expect(await install(shell)).toMatchObject({
        code: EXIT.ok,
        err: expect.stringContaining('is up to date') as string,
      });
      writeFileSync(fileOf(shell), `${text}# of an earlier version\n`);
      expect((await install(shell, '--yes')).err).toContain('is replaced');
      expect(readFileSync(fileOf(shell), 'utf8')).toBe(text);
      const removed = await install(shell, '--undo', '--yes', '--json');
      expect(dataOf(removed.out)).toEqual({ shell, file: fileOf(shell), changed: true, next: null });
      expect(existsSync(fileOf(shell))).toBe(false);
      expect((await install(shell, '--undo')).err).toMatch(/does not exist\nThere is nothing to undo\.\n$/);
    },
  );

  it(
    'is found by a bash with bash-completion, which loads it by the name of the command' + verifies('FH-64'),
    async () => {
      expect((await install('bash', '--yes')).code).toBe(EXIT.ok);
      // bash-completion sources the file that has the name of the command.
      const program = `source '${fileOf('bash')}' && complete -p tollgate`;
      expect(spawnSync('bash', ['--norc', '-c', program], { encoding: 'utf8' })).toMatchObject({
        status: 0,
        stdout: 'complete -o default -F _tollgate tollgate\n',
        stderr: '',
      });
      await install('bash', '--undo', '--yes');
    },
  );

  it('leaves a file of someone else, also at an undo' + verifies('FH-64'), async () => {
    project.write(fileOf('fish'), 'complete -c tollgate -f\n');
    for (const words of [['--yes'], ['--undo', '--yes']]) {
      const { code, err } = await install('fish', ...words);
      expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('did not write it.\nLook at it.')]);
    }
    expect(readFileSync(fileOf('fish'), 'utf8')).toBe('complete -c tollgate -f\n');
    rmSync(fileOf('fish'));
  });

  it(
    'takes the shell of SHELL and the folders of XDG, and names the line that zsh needs' + verifies('FH-64'),
    async () => {
      const env = { SHELL: '/usr/bin/zsh', XDG_DATA_HOME: path.join(project.home, 'a b') };
      const { out } = await start(project, ['completion', 'install', '--dry-run', '--json'], { env }).ended;
      const folder = path.join(project.home, 'a b', 'zsh', 'site-functions');
      expect(dataOf(out)).toEqual({
        shell: 'zsh',
        file: path.join(folder, '_tollgate'),
        changed: false,
        next: `Add this line to ${project.home}/.zshrc, before the line with compinit: fpath=('${folder}' $fpath)`,
      });
      project.write('~/.zshrc', `fpath=('${folder}' $fpath)\n`);
      const again = await start(project, ['completion', 'install', '--dry-run', '--json'], { env }).ended;
      expect(dataOf(again.out)).toMatchObject({ next: null });
      for (const SHELL of ['/bin/tcsh', undefined]) {
        const { code, err } = await start(project, ['completion', 'install'], { env: { SHELL } }).ended;
        expect([code, err]).toEqual([EXIT.usage, expect.stringContaining('Name a shell')]);
      }
    },
  );
});
