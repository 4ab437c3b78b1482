/** Attacks on the programs that Tollgate runs, and through code that repositories and servers load. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { sandboxedShell } from '../../adapters/primitives/shell/sandboxed-shell.ts';
import { createWorkspace } from '../../adapters/primitives/workspace/workspace-server.ts';
import { findProgram } from '../../adapters/sandbox/program-files.ts';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import { startPlaces } from '../../adapters/stdio/start-places.ts';
import { HELPER_NAMES, locateHelper, useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { formatProblems } from '../../facade/config/config-problems.ts';
import { useProgramsOf } from '../../facade/config/servers/helper-program-settings.ts';
import {
  type StartFacts,
  type StartSettings,
  startDifferences,
  startFacts,
  startHash,
} from '../../facade/consent/servers/start-facts.ts';
import { controlRule } from '../../facade/runtime/policy-parts.ts';
import { runOpa } from '../../policies/rego/opa-program.ts';
import { withProject } from '../config/project.ts';
import { own } from '../sandbox/probe-targets.ts';
import { callText, sandboxOf } from '../sandbox/sandbox-fixture.ts';
import { verifies } from '../verifies.ts';
import { makeOwnedBench } from '../workspace/workspace-harness.ts';

const PATH = process.env.PATH;
let folder: string;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-programs-')));
  chmodSync(folder, 0o755);
});

afterEach(() => {
  process.env.PATH = PATH;
  useHelpers({ programs: {}, writable: [] });
  rmSync(folder, { recursive: true, force: true });
});

/** Writes a program that appends to the file `mark` when it runs. */
function plant(file: string, mark: string): string {
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, `#!/bin/sh\necho ran >> '${mark}'\nexit 0\n`, { mode: 0o755 });
  return file;
}

describe('C: a program of the agent early in PATH', () => {
  it('is never run as a helper of Tollgate' + verifies('TR-20'), async () => {
    const bench = makeOwnedBench({ 'a.txt': 'needle\n' });
    const [bin, mark] = [path.join(bench.root, 'node_modules', '.bin'), path.join(folder, 'mark')];
    for (const name of [...HELPER_NAMES, 'git', 'systemd-run', 'sh', 'mount']) plant(path.join(bin, name), mark);
    process.env.PATH = `${bin}:${PATH ?? ''}`;
    expect(await bench.text('read', { action: 'search', path: '.', pattern: 'needle' })).toBe('a.txt:1:needle');
    expect(await bench.text('bash', { command: 'echo "$0"' })).toBe('/usr/bin/bash');
    for (const name of HELPER_NAMES) expect(locateHelper(name).file ?? '/usr/bin/none', name).toMatch(/^\/usr\//);
    expect(existsSync(mark)).toBe(false);
  });

  it('is not found by helpers, which get a clean environment' + verifies('TR-20'), async () => {
    const program = path.join(folder, 'opa');
    writeFileSync(program, '#!/bin/sh\nenv\n', { mode: 0o755 });
    Object.assign(process.env, {
      PATH: `${folder}:${PATH}`,
      LD_PRELOAD_TEST: 'x',
      NODE_OPTIONS: process.env.NODE_OPTIONS ?? '',
    });
    delete process.env.LD_PRELOAD_TEST;
    const { stdout } = await runOpa({ program }, [], folder);
    expect(
      stdout
        .split('\n')
        .map((line) => line.split('=')[0])
        .sort()
        .join(' ')
        .trim(),
    ).toBe('GOGC HOME PATH PWD');
    expect(stdout).not.toContain(`PATH=${folder}`);
  });

  it('is not run as the command of a server, unless its owner wrote the path' + verifies('TR-25'), () => {
    const bin = path.join(folder, 'workspace', 'node_modules', '.bin');
    plant(path.join(bin, 'sh'), path.join(folder, 'mark'));
    process.env.PATH = `${bin}:/usr/bin:/bin`;
    expect(findProgram('sh', '/')).toBe(path.join(bin, 'sh'));
    useHelpers({ programs: {}, writable: [path.join(folder, 'workspace')] });
    expect(findProgram('sh', '/')).toMatch(/^\/(?:usr\/)?bin\/sh$/);
    symlinkSync(bin, path.join(folder, 'link'));
    process.env.PATH = `${path.join(folder, 'link')}:/usr/bin:/bin`;
    expect(findProgram('sh', '/')).toMatch(/^\/(?:usr\/)?bin\/sh$/);
  });

  it(
    'is refused if the settings name it in a folder that agents may write, or through a link to one' +
      verifies('TR-20'),
    () => {
      const inside = plant(path.join(folder, 'workspace', 'rg'), path.join(folder, 'mark'));
      symlinkSync(inside, path.join(folder, 'rg'));
      for (const file of [inside, path.join(folder, 'rg')]) {
        useHelpers({ programs: { rg: file }, writable: [path.join(folder, 'workspace')] });
        expect(locateHelper('rg')).toEqual({ refused: `${file} is in a folder that agents may write` });
      }
      useHelpers({ programs: { rg: path.join(folder, 'nothing') }, writable: [] });
      expect(locateHelper('rg')).toEqual({ refused: `${path.join(folder, 'nothing')} is not a program` });
    },
  );
});

describe('O: a module that an approved server imports', () => {
  const factsOf = async (
    settings: { command: string; args: readonly string[]; cwd?: string } & Partial<
      Pick<StartSettings, 'isolation' | 'sandbox'>
    >,
  ): Promise<StartFacts> =>
    startFacts(
      { name: 'one', transport: 'stdio', env: {}, headers: {}, ...settings },
      { folder: path.join(folder, 'w'), inspect: inspectStart, digest: (text) => text },
    );
  const put = (name: string, text = ''): string => {
    const file = path.join(folder, 'w', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    return file;
  };
  beforeEach(() => {
    put('tools/server.mjs', "import './lib/helper.mjs';");
    put('tools/lib/helper.mjs', 'export {};');
    put('tools/serve.py', 'import helper');
    put('package.json', '{}');
    useHelpers({ programs: {}, writable: [path.join(folder, 'w')] });
  });

  it.each([
    ['an overwritten one', 'node', ['tools/server.mjs'], 'tools/lib/helper.mjs'],
    ['a new one next to the script', 'node', ['tools/server.mjs'], 'tools/lib/other.mjs'],
    ['one in a new node_modules of a folder above', 'node', ['tools/server.mjs'], 'node_modules/helper/index.js'],
    ['a preloaded one', 'node', ['--import', './tools/lib/helper.mjs', 'tools/server.mjs'], 'tools/lib/helper.mjs'],
    ['one in the folder of a Python script', 'python3', ['tools/serve.py'], 'tools/helper.py'],
    ['one chosen by settings of npm', 'npx', ['some-server@1.0.0'], '.npmrc'],
    ['one among the programs of the project', 'npx', ['some-server@1.0.0'], 'node_modules/.bin/some-server'],
    ['one chosen by a lock file', 'npm', ['start'], 'package-lock.json'],
  ])('voids the approval if it changes: %s' + verifies('TR-26'), async (_title, command, args, changed) => {
    const before = await factsOf({ command, args });
    expect(before.exposed).toBeUndefined();
    expect(startHash(await factsOf({ command, args }))).toBe(startHash(before));
    put('src/notes.txt', 'what agents write elsewhere changes nothing');
    expect(startHash(await factsOf({ command, args }))).toBe(startHash(before));
    put(changed, 'evil()');
    const after = await factsOf({ command, args });
    expect(startHash(after)).not.toBe(startHash(before));
    expect(startDifferences(before, after).join()).toMatch(/^(?:scripts\[\d\]\.sha256,)?places/);
  });

  it('makes a start impossible if the script is directly in the workspace' + verifies('TR-26'), async () => {
    put('server.mjs', "import './lib.mjs';");
    expect((await factsOf({ command: 'node', args: ['server.mjs'] })).exposed).toBe(
      'server.mjs lies directly in a folder that agents may write',
    );
    useHelpers({ programs: {}, writable: [path.join(folder, 'other')] });
    const outside = await factsOf({ command: 'node', args: ['server.mjs'] });
    expect([outside.exposed, outside.places]).toEqual([undefined, undefined]);
  });

  it.each([
    [
      'by a path out of the folder of the script',
      'node',
      ['tools/server.mjs'],
      'shared/x.mjs',
      "import '../shared/x.mjs';",
      'shared/y.mjs',
    ],
    [
      'by such a path in a module next to the script',
      'node',
      ['tools/server.mjs'],
      'shared/x.js',
      "const x = require('../shared/x');",
      'shared/x.js',
    ],
    [
      'by a shell script, from its own folder',
      'sh',
      ['tools/run.sh'],
      'shared/x.js',
      'exec node "$(dirname "$0")/../shared/x.js"',
      'shared/x.js',
    ],
    [
      'by a shell script, from its working folder',
      'sh',
      ['tools/run.sh'],
      'shared/x.js',
      'node ./shared/x.js',
      'shared/x.js',
    ],
  ])(
    'that is loaded %s voids the approval if it changes, and is closed to agents' + verifies('TR-26', 'TR-27'),
    async (_title, command, args, file, text, changed) => {
      put(file);
      put(command === 'sh' ? 'tools/run.sh' : 'tools/lib/other.mjs', text);
      if (command !== 'sh') put('tools/server.mjs', file.endsWith('.mjs') ? text : "import './lib/other.mjs';");
      if (file.endsWith('.js') && command === 'node') put('tools/lib/other.mjs', "require('../../shared/x');");
      const before = await factsOf({ command, args });
      put(changed, 'evil()');
      expect(startHash(await factsOf({ command, args }))).not.toBe(startHash(before));
      expect(startPlaces({ command, args, isolation: 'sandbox' }, path.join(folder, 'w')).own).toContain(
        path.join(folder, 'w', 'shared'),
      );
    },
  );

  it(
    'in a folder that a container can read voids the approval, unlike in other folders' + verifies('TR-26', 'TR-27'),
    async () => {
      const at = (name: string): string => path.join(folder, 'w', name);
      const filesystem = { allowRead: [at('tools')], allowWrite: [], denyRead: [] };
      const sandbox = {
        image: 'x',
        filesystem,
        network: { allowedDomains: [] },
        limits: { memoryMb: 64, processes: 8, fileMb: 8 },
      };
      const start = { command: 'node', args: [at('tools/server.mjs')], isolation: 'container' as const, sandbox };
      const before = await factsOf(start);
      put('tools/lib/helper.mjs', 'evil()');
      expect(startDifferences(before, await factsOf(start)).join()).toMatch(/^places/);
      expect(startPlaces(start, at('.')).own).toEqual([at('tools')]);
      expect(
        startPlaces({ ...start, sandbox: { ...sandbox, filesystem: { ...filesystem, allowRead: [] } } }, at('.')),
      ).toEqual({ own: [], shared: [], running: [] });
      expect(startPlaces({ ...start, command: 'npm', args: ['start'] }, at('.'))).toEqual({
        own: [],
        shared: [],
        running: [],
      });
    },
  );

  it(
    'behind a link in node_modules voids the approval, such as a package of the same project' + verifies('TR-26'),
    async () => {
      put('packages/helper/index.js', '');
      mkdirSync(path.join(folder, 'w', 'node_modules'));
      symlinkSync('../packages/helper', path.join(folder, 'w', 'node_modules', 'helper'));
      symlinkSync('..', path.join(folder, 'w', 'packages', 'helper', 'circle'));
      const start = { command: 'node', args: ['tools/server.mjs'] };
      const before = await factsOf(start);
      put('packages/helper/index.js', 'evil()');
      expect(startDifferences(before, await factsOf(start)).join()).toMatch(/^places/);
    },
  );

  it.each([
    ['python3', ['-m', 'some_server']],
    ['python3', ['-um', 'some_server']],
    ['/usr/bin/env', ['python3', '-m', 'some_server']],
    ['npm', ['start']],
    ['pnpm', ['run', 'x']],
    ['make', ['x']],
    ['nice', ['npm', 'test']],
    ['uv', ['run', 'x']],
    ['sh', ['-c', 'cd x && npm start']],
    ['bun', ['run', 'x']],
    ['docker', ['compose', 'up']],
    ['node', ['--run', 'x']],
  ])(
    'that %s %j searches in the working folder: refused in the workspace itself, protected in its own folder' +
      verifies('TR-26', 'TR-27'),
    async (command, args) => {
      const at = (name: string): string => path.join(folder, 'w', name);
      const refusal = new RegExp(
        '^(?:(?:python3|make|env|npm|pnpm|nice|uv|sh|bun|docker|node) runs code of its working folder, which|' +
          'package\\.json lies directly in a folder that) agents may write$',
      );
      expect((await factsOf({ command, args, cwd: at('.') })).exposed).toMatch(refusal);
      expect(startPlaces({ command, args, isolation: 'direct' }, at('.')).exposed).toMatch(refusal);
      // In a sandbox without this folder, the program does not see it.
      expect(startPlaces({ command, args, isolation: 'sandbox' }, at('.')).exposed).toBeUndefined();
      const start = { command, args, cwd: at('tools') };
      const before = await factsOf(start);
      expect([before.exposed, startPlaces({ ...start, isolation: 'sandbox' }, at('.')).own]).toEqual([
        undefined,
        [at('tools')],
      ]);
      put('tools/json.py', 'evil()');
      expect(startDifferences(before, await factsOf(start)).join()).toMatch(/places/);
    },
  );

  it.each([
    ['python3', ['-P', '-m', 'x']],
    ['python3', ['-Im', 'x']],
    ['npx', ['x@1.0.0']],
    ['npm', ['exec', 'x@1.0.0']],
    ['uvx', ['x@1.0.0']],
    ['uv', ['tool', 'run', 'x@1.0.0']],
    ['bun', ['x', 'y@1.0.0']],
    ['bun', ['run', '/opt/x.ts']],
    ['docker', ['run', 'x']],
    ['node', ['/opt/x.js', 'go make it']],
  ])('is not searched in the working folder by %s %j', (command, args) => {
    expect(startPlaces({ command, args, isolation: 'direct' }, path.join(folder, 'w')).exposed).toBeUndefined();
  });

  it('that a running server loads later is closed to agents' + verifies('TR-27'), () => {
    const at = (name: string): string => path.join(folder, 'w', name);
    const runningOf = (
      command: string,
      args: readonly string[],
      isolation: 'sandbox' | 'direct' = 'sandbox',
    ): readonly string[] => startPlaces({ command, args, isolation }, at('.')).running;
    expect(runningOf('node', ['tools/server.mjs'])).toEqual([at('node_modules'), at('package.json')]);
    put('tools/package.json', '{}');
    put('node_modules/.bin/some-server');
    put('packages/helper/index.js');
    symlinkSync('../packages/helper', at('node_modules/helper'));
    expect(runningOf('node', ['tools/server.mjs'])).toEqual([at('node_modules'), at('packages/helper')]);
    expect(runningOf('npx', ['some-server@1.0.0'], 'direct')).toEqual([
      at('node_modules'),
      at('package.json'),
      at('packages/helper'),
    ]);
    expect([runningOf('npx', ['some-server@1.0.0']), runningOf('npx', ['other-server@1.0.0'], 'direct')]).toEqual([
      [],
      [],
    ]);
    put('node_modules/foreign/index.js');
    expect(
      startPlaces({ command: 'node', args: ['node_modules/foreign/index.js'], isolation: 'sandbox' }, at('.')),
    ).toMatchObject({ own: [at('node_modules')], running: [at('packages/helper')] });
  });

  it(
    'in a Python environment voids the approval and is closed, even if its python is a link to outside' +
      verifies('TR-26', 'TR-27'),
    async () => {
      const at = (name: string): string => path.join(folder, 'w', name);
      put('.venv/pyvenv.cfg');
      put('.venv/lib/python3/site-packages/helper.py');
      put('.venv/bin/pip');
      symlinkSync(process.execPath, at('.venv/bin/python'));
      const start = { command: at('.venv/bin/python'), args: ['tools/serve.py'] };
      const before = await factsOf(start);
      expect(startPlaces({ ...start, isolation: 'sandbox' }, at('.'))).toMatchObject({
        own: [at('.venv'), at('tools')],
        running: [],
      });
      put('.venv/lib/python3/site-packages/helper.py', 'evil()');
      expect(startDifferences(before, await factsOf(start)).join()).toMatch(/^places/);
    },
  );

  it(
    'behind a link that agents may change is closed with the folder, or refused directly in the workspace' +
      verifies('TR-26', 'TR-27'),
    () => {
      const at = (name: string): string => path.join(folder, 'w', name);
      writeFileSync(path.join(folder, 'outside.mjs'), '');
      put('links/.keep');
      for (const name of ['links/one.mjs', 'two.mjs']) symlinkSync(path.join(folder, 'outside.mjs'), at(name));
      symlinkSync(folder, at('around'));
      const places = (command: string, args: readonly string[]): ReturnType<typeof startPlaces> =>
        startPlaces({ command, args, isolation: 'direct' }, at('.'));
      expect(places('node', ['links/one.mjs'])).toMatchObject({ own: [at('links')] });
      for (const [name, script] of [
        ['two.mjs', 'two.mjs'],
        ['around', 'around/outside.mjs'],
      ] as const)
        expect(places('node', [script]).exposed).toBe(`${name} is a link directly in a folder that agents may write`);
      writeFileSync(at('server'), '#!/bin/sh\n', { mode: 0o755 });
      expect(places('./server', []).running).toContain(at('server'));
    },
  );

  it.each([
    ['ruby', ['-Itools', '/opt/x.rb']],
    ['perl', ['-I', 'tools', '/opt/x.pl']],
    ['java', ['-cp', '/opt/x.jar:tools/*', 'Main']],
    ['java', ['--class-path=tools', 'Main']],
  ])('in a folder that %s %j searches is closed' + verifies('TR-27'), (command, args) => {
    const places = (options: readonly string[]): ReturnType<typeof startPlaces> =>
      startPlaces({ command, args: options, isolation: 'direct' }, path.join(folder, 'w'));
    expect(places(args).own).toEqual([path.join(folder, 'w', 'tools')]);
    expect(places(args.map((word) => word.replace('tools', '.'))).exposed).toBe(
      'its code is searched in a folder that agents may write',
    );
  });

  it('that is missing does not void the approval while a placeholder has its name' + verifies('TR-26'), async () => {
    const before = await factsOf({ command: 'node', args: ['tools/server.mjs'] });
    mkdirSync(path.join(folder, 'w', 'node_modules'));
    expect(startHash(await factsOf({ command: 'node', args: ['tools/server.mjs'] }))).toBe(startHash(before));
  });

  it('is closed to agents' + verifies('TR-27'), () =>
    withProject((project) => {
      project.write('tools/server.mjs', '');
      project.write('work.mjs', '');
      const config = project.config('version: 1\nservers: {a: {command: node, args: [tools/server.mjs]}}\n');
      useProgramsOf(config);
      expect(controlRule(config).value.rules.find(({ id }) => id === 'start-files')?.when.paths).toEqual([
        'tools',
        'tools/**',
        'node_modules',
        'node_modules/**',
        'package.json',
        'package.json/**',
      ]);
    }),
  );
});

describe('programs in tollgate.yaml', () => {
  it.each([
    ['work/bin/rg', /tollgate\.yaml:3:16: the path of rg is relative/],
    ['WORK/bin/rg', /tollgate\.yaml:3:16: the program "[^"]+" is in a folder that agents may write/],
    ['CACHE/rg', /tollgate\.yaml:3:16: the program "[^"]+" is in a folder that agents may write/],
    ['SHARED/rg', /tollgate\.yaml:3:16: the program "[^"]+" is in a folder that agents may write/],
    ['LINK', /tollgate\.yaml:3:16: the program "[^"]+" is in a folder that agents may write/],
  ])('refuses %s with its place' + verifies('TR-21'), (written, expected) =>
    withProject((project) => {
      const at = (name: string): string => path.join(project.folder, name);
      for (const name of ['work', 'cache', 'shared']) mkdirSync(at(name));
      symlinkSync(path.join(at('work'), 'rg'), at('link'));
      const file = written
        .replace('WORK', at('work'))
        .replace('CACHE', at('cache'))
        .replace('SHARED', at('shared'))
        .replace('LINK', at('link'));
      const { problems = [] } = project.load(`version: 1
workspace: work
programs: {rg: ${file}}
bash: {filesystem: {allowWrite: ['.', ../cache]}}
servers: {a: {command: node, sandbox: {filesystem: {allowWrite: [../shared]}}}}
`);
      expect(formatProblems(problems)).toMatch(expected);
    }),
  );
});

/** A fake ripgrep that reports what it can access as matches. */
const PROBE = `#!/bin/sh
say() { printf '{"type":"match","data":{"path":{"text":"./seen"},"line_number":1,"lines":{"text":"%s"}}}\\n' "$1"; }
say "root $(ls / | tr '\\n' ' ')"
say "here $(ls . | tr '\\n' ' ')"
say "user $(id -u)"
say "write $( (echo x > ./made) 2>/dev/null && echo yes || echo no)"
say "env $(env | cut -d= -f1 | sort | tr '\\n' ' ')"
say "net $(cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' \\n')"
say "fds $(ls -l /proc/1/fd /proc/self/fd 2>/dev/null | grep -c '${'/'}secrets')"
say "above $(ls /proc/self/fd/4/.. 2>/dev/null | wc -l)"
`;

describe('ripgrep on files of agents', () => {
  it(
    'runs in a sandbox with one read-only folder, no network and no descriptor that leads outside' + verifies('TR-22'),
    async () => {
      const program = path.join(folder, 'rg');
      writeFileSync(program, PROBE, { mode: 0o755 });
      useHelpers({ programs: { rg: program }, writable: [] });
      const bench = makeOwnedBench({ 'src/a.txt': 'x\n', 'secrets/b.txt': 'y\n' });
      const output = await bench.text('read', { action: 'search', path: 'src', pattern: 'x' });
      const reported = (name: string): string | undefined =>
        new RegExp(`seen:1:${name} (.*)`).exec(output)?.[1]?.trim();
      expect(reported('here')).toBe('a.txt');
      expect(
        reported('root')
          ?.split(' ')
          .filter((name) => !['bin', 'lib', 'lib32', 'lib64', 'libx32', 'sbin', 'usr'].includes(name)),
      ).toEqual(['etc', 'proc', 'tmp', 'view']);
      expect(reported('user')).not.toBe('0');
      expect(reported('write')).toBe('no');
      expect(reported('env')).toBe('LC_ALL PATH PWD');
      expect(reported('net')).toBe('lo');
      expect(reported('fds')).toBe('0');
      expect(reported('above')).toBe('0');
    },
  );

  it('does not run without a sandbox, and the built-in search is used' + verifies('TR-22'), async () => {
    const [program, mark] = [path.join(folder, 'rg'), path.join(folder, 'mark')];
    plant(program, mark);
    const bench = makeOwnedBench({ 'a.txt': 'needle\n' });
    for (const bwrap of ['/nonexistent/bwrap', '/usr/bin/false']) {
      useHelpers({ programs: { rg: program, bwrap }, writable: [] });
      expect(await bench.text('read', { action: 'search', path: '.', pattern: 'needle' })).toBe('a.txt:1:needle');
      expect(await bench.text('read', { action: 'search', path: 'a.txt', pattern: 'needle' })).toBe('a.txt:1:needle');
    }
    expect(existsSync(mark)).toBe(false);
  });
});

describe('L: settings of a repository', () => {
  const repository = path.join('work', 'repo');
  const SETTINGS = [
    'fsmonitor',
    'pager',
    'editor',
    'sshCommand',
    'askPass',
    'hooksPath',
    'alternateRefsCommand',
  ] as const;
  const attackIn = (root: string, mark: string): void => {
    const [repo, program] = [path.join(root, repository), plant(path.join(root, 'evil'), mark)];
    mkdirSync(repo, { recursive: true });
    execFileSync('git', ['init', '-q', repo]);
    // An agent can write all of this with the write tool.
    const config = [
      '[core]',
      '\trepositoryformatversion = 0',
      ...SETTINGS.map((key) => `\t${key} = ${key === 'hooksPath' ? root : program}`),
      '[credential]',
      `\thelper = ${program}`,
      '[gpg]',
      `\tprogram = ${program}`,
      '[commit]',
      '\tgpgSign = true',
      '[sequence]',
      `\teditor = ${program}`,
      '[protocol "ext"]',
      '\tallow = always',
      '',
    ];
    writeFileSync(path.join(repo, '.git', 'config'), config.join('\n'));
    for (const hook of ['pre-commit', 'post-checkout', 'post-index-change', 'reference-transaction'])
      plant(path.join(repo, '.git', 'hooks', hook), mark);
    for (const hook of ['pre-commit', 'post-checkout', 'post-index-change', 'reference-transaction'])
      plant(path.join(root, hook), mark);
    writeFileSync(path.join(repo, 'a.txt'), 'one\n');
    const bare = path.join(root, 'work', 'bare');
    mkdirSync(bare);
    execFileSync('git', ['init', '-q', '--bare', bare]);
    writeFileSync(
      path.join(bare, 'config'),
      `[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ${bare}\n\tfsmonitor = ${program}\n`,
    );
  };
  const COMMANDS = [
    'git status',
    'git add .',
    'git -c user.name=a -c user.email=a@b commit -m one',
    'echo two > a.txt; git diff',
    'git log -p',
    'git commit -a --amend -C HEAD',
    'git checkout -q -b other',
    'git tag -a -m x v1',
    'git rebase -i --root',
    'git clone ext::../../evil x',
    'git ls-remote git@127.0.0.1:x',
    'git stash',
    'git config --list',
  ];

  it.each(['direct', 'sandbox'] as const)(
    'run no program of git in a %s shell' + verifies('TR-24'),
    async (isolation) => {
      const root = path.join(folder, 'w');
      mkdirSync(root);
      // A sandbox can write only in the workspace.
      const mark = path.join(root, 'mark');
      attackIn(root, mark);
      execFileSync('chmod', ['-R', 'a+rwX', root]);
      own(root);
      if (process.getuid?.() === 0) execFileSync('chown', ['-R', `${statSync(root).uid}`, root]);
      const shell =
        isolation === 'direct'
          ? {}
          : {
              shell: sandboxedShell(() => ({
                workspace: root,
                sandbox: sandboxOf([root], { memoryMb: 1024, fileMb: 64 }),
                hidden: [],
                fixed: [],
              })),
            };
      const server = createWorkspace({ root, ...shell });
      const bash = (command: string): Promise<string> => callText(server, 'bash', { command });
      try {
        const trust = isolation === 'direct' ? 'chown -R $(id -u) .; ' : '';
        const outputs: string[] = [];
        for (const command of COMMANDS) outputs.push(await bash(`${trust}cd ${repository} && ${command}`));
        expect(outputs[0]).toContain('a.txt');
        expect(outputs[3]).toContain('+two');
        expect(await bash(`${trust}cd work/bare && git status`)).toContain('safe.bareRepository');
        expect(existsSync(mark)).toBe(false);
        // The attack works: without Tollgate's environment, git runs the program.
        await bash(`${trust}cd ${repository} && env -u GIT_CONFIG_COUNT git status`);
        expect(existsSync(mark)).toBe(true);
      } finally {
        await server.stop();
      }
    },
  );
});
