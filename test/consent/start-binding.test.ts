/**
 * Tests that the files that a command will run are bound to its approval, however the command is written, or that the
 * screen says that they are not.
 * Covers: facade/consent.
 */
import { mkdirSync, mkdtempSync, realpathSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { StartFiles, StartInspector } from '../../adapters/port.ts';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import { verifies } from '../verifies.ts';

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-bound-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const put = (name: string, text = ''): string => {
  const file = path.join(folder, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
  return file;
};
const look = (
  command: string,
  args: readonly string[],
  more: Partial<Parameters<StartInspector>[0]> = {},
): Promise<StartFiles> => inspectStart({ command, args, cwd: folder, isolation: 'direct', ...more }, folder);
const names = ({ scripts }: StartFiles): readonly string[] => scripts.map((fact) => path.relative(folder, fact.path));

/** Commands, and the files that each of them runs. */
const FORMS: readonly (readonly [string, readonly string[]])[] = [
  ['node --require ./hook server', ['hook.js', 'server.js']],
  ['node -r ./hook -r ./hook2 server.js', ['hook.js', 'hook2.js', 'server.js']],
  ['node -r./hook server.js', ['hook.js', 'server.js']],
  ['node --import=./hook.js server.js', ['hook.js', 'server.js']],
  ['node --stack-size 900 server', ['server.js']],
  ['node --env-file a.conf server', ['a.conf', 'server.js']],
  ['node --env-file=a.conf server', ['a.conf', 'server.js']],
  ['node pkg', ['pkg/package.json', 'pkg/dist/x.js']],
  ['python3 -W ignore main', ['main']],
  ['python3 -X dev main', ['main']],
  ['python3 -mmod', ['mod.py']],
  ['python3 -u -m mod', ['mod.py']],
  ['python3 -m deep.er', ['deep/__init__.py', 'deep/er.py']],
  ['bash -o pipefail run', ['run']],
  ['bash --rcfile x run', ['x', 'run']],
  ['env node server', ['server.js']],
  ['env -i A=b python3 main', ['main']],
  ['timeout 60 python3 main', ['main']],
  ['nice -n 5 nohup xvfb-run node server', ['server.js']],
  ['nodejs server', ['server.js']],
  ['deno run -A main', ['main']],
  ['tsx watch index', ['index.ts']],
  ['bun run index', ['index.ts']],
  ['node comp', ['comp/index.ts']],
  ['java -cp lib Main', ['lib/Main.class']],
  ['java -cp other:lib Main', ['lib/Main.class']],
  ['java @opts.txt', ['opts.txt']],
  ['make -f build.mk', ['build.mk']],
  ['npm --prefix other start', ['other/package.json']],
  ['npm -C other start', ['other/package.json']],
  ['rake x', ['Rakefile']],
  ['dotnet app.dll', ['app.dll']],
  ['perl -I lib main', ['main']],
  ['ruby -r ./mod2 main', ['mod2.rb', 'main']],
  ['pypy3 main', ['main']],
  ['poetry run python main', ['main']],
  ['uv run main', ['main']],
  ['php -d auto_prepend_file=opts.txt main', ['opts.txt', 'main']],
  ['unknown-program --settings a.conf', ['a.conf']],
];

describe('the approval of a command', () => {
  beforeEach(() => {
    for (const name of [
      'hook.js',
      'hook2.js',
      'server.js',
      'main',
      'run',
      'x',
      'a.conf',
      'lib/Main.class',
      'build.mk',
      'pkg/dist/x.js',
      'mod.py',
      'mod2.rb',
      'deep/__init__.py',
      'deep/er.py',
      'app.dll',
      'opts.txt',
      'index.ts',
      'comp/index.ts',
      'Rakefile',
    ])
      put(name, name);
    put('pkg/package.json', '{"main":"dist/x.js"}');
    put('other/package.json', '{"scripts":{"start":"evil"}}');
  });

  it.each(FORMS)('binds the files that it runs: %s' + verifies('HA-15'), async (line, files) => {
    const [command = '', ...args] = line.split(' ');
    expect(names(await look(command, args))).toEqual(expect.arrayContaining([...files]));
  });

  it('binds a file that is named in code among its words' + verifies('HA-15'), async () => {
    const file = put('deep/hook.mjs');
    expect(names(await look('node', [`--import=data:text/javascript,import("${file}")`, 'server.js']))).toEqual(
      expect.arrayContaining(['deep/hook.mjs', 'server.js']),
    );
    expect(names(await look('bash', ['-c', 'node "./server.js" && ./run']))).toEqual(
      expect.arrayContaining(['server.js', 'run']),
    );
  });

  it('binds code that a variable loads, and not data that a variable names', async () => {
    expect(
      names(await look('node', ['server'], { env: { NODE_OPTIONS: '--require ./hook.js', NOTES: 'a.conf' } })),
    ).toEqual(['server.js', 'hook.js']);
  });

  it('binds the program that a wrapper runs', async () => {
    const { scripts } = await look('env', ['sh', 'run']);
    expect(scripts.map((fact) => fact.path)).toContain(realpathSync('/bin/sh'));
  });

  it('needs no remark for an interpreter with a file', async () => {
    for (const line of ['node server', 'python3 -mmod', 'make -f build.mk', 'deno run -A main']) {
      const [command = '', ...args] = line.split(' ');
      expect([line, (await look(command, args)).unbound]).toEqual([line, undefined]);
    }
  });
});

describe('the inspection of a command', () => {
  it.each([
    ['python3 -m installed', 'python3'],
    ['python3 -m installed a.conf', 'python3'],
    ['node -e 1', 'node'],
    ['bash -c run', 'bash'],
    ['env node nowhere', 'node'],
    ['npx tool', 'npx'],
    ['uvx tool', 'uvx'],
    ['npm start', 'npm'],
    ['java -cp /usr/share/java Main', 'java'],
  ])('reports a program that is not bound: %s' + verifies('HA-16'), async (line, program) => {
    put('a.conf');
    put('run');
    put('package.json', '{}');
    const [command = '', ...args] = line.split(' ');
    expect((await look(command, args)).unbound).toBe(program);
  });
});

describe('a missing script', () => {
  it('is reported as missing if it surely would run', async () => {
    expect(await look('node', ['nowhere.js', 'x'])).toMatchObject({ gone: 'nowhere.js', scripts: [] });
    expect((await look('node', ['nowhere.js'])).unbound).toBe(undefined);
    expect((await look('bash', ['./nowhere.sh'])).gone).toBe('./nowhere.sh');
    // Each of these may run something else.
    for (const line of ['bash nowhere.sh', 'node -e 1 nowhere.js', 'npx nowhere.js', 'node nowhere']) {
      const [command = '', ...args] = line.split(' ');
      expect([line, await look(command, args)]).toEqual([line, expect.objectContaining({ unbound: command })]);
    }
    put('server.js');
    expect(await look('node', ['server.js', 'nowhere.js'])).not.toHaveProperty('gone');
  });
});

describe('data among the arguments of a server', () => {
  const box = (...allowWrite: string[]): Partial<Parameters<StartInspector>[0]> => ({
    isolation: 'sandbox',
    sandbox: {
      filesystem: { allowRead: [], allowWrite, denyRead: [] },
      network: { allowedDomains: [] },
      limits: { memoryMb: 1, processes: 1, fileMb: 1 },
    },
  });

  it(
    'is named and not read if the sandbox lets the server write it, but code there is bound' + verifies('HA-15'),
    async () => {
      const [server, notes, plugin] = [put('server.js'), put('work/notes.json'), put('work/plugin.js')];
      const found = await look('node', [server, notes, plugin], box(path.join(folder, 'work')));
      expect(found.data).toEqual([notes]);
      expect(found.scripts.map((fact) => fact.path)).toEqual([server, plugin]);
    },
  );

  it('is recognized by its name for a server without a sandbox, but settings are bound', async () => {
    const [server, notes, settings] = [put('server.js'), put('notes.db'), put('settings.json')];
    const found = await look('node', [server, '--db', notes, settings]);
    expect(found.data).toEqual([notes]);
    expect(found.scripts.map((fact) => fact.path)).toEqual([server, settings]);
  });

  it('is bound if it is run, whatever its name' + verifies('HA-15'), async () => {
    put('server.js');
    const evil = put('evil.log');
    for (const args of [[evil], ['-r', evil, 'server.js'], ['--require', './evil.log', 'server.js']])
      expect(names(await look('node', args, box(folder)))).toContain('evil.log');
  });

  it('may be a folder that the server works in, whose content is not bound', async () => {
    const server = put('server.js');
    put('project/package.json', '{}');
    put('project/index.js');
    expect(names(await look('node', [server, path.join(folder, 'project')]))).toEqual(['server.js']);
  });

  it('that is very large counts by its size and times', async () => {
    put('server.js');
    const model = put('model.bin');
    truncateSync(model, 65 * 1024 * 1024);
    const [, before] = (await look('node', ['server.js', model])).scripts;
    expect(before).toMatchObject({ path: model, large: true });
    truncateSync(model, 66 * 1024 * 1024);
    const [, after] = (await look('node', ['server.js', model])).scripts;
    expect(after?.sha256).not.toBe(before?.sha256);
  });
});
