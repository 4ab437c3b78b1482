/** Tests that a server gets the checked paths and runs the inspected file, even if an attack moved files since. */
import { chmodSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import { type LaunchedProcess, type LaunchHost, launch } from '../../adapters/stdio/launch.ts';
import { inspectStart } from '../../adapters/stdio/start-inspection.ts';
import type { ServerSettings } from '../../adapters/supervisor/server-settings.ts';
import { startScreen } from '../../facade/cli/server-consent/consent-screens.ts';
import type { ServerConfig } from '../../facade/config/config.ts';
import { imageRemarks } from '../../facade/config/servers/sandbox-settings.ts';
import { startFacts, startHash } from '../../facade/consent/servers/start-facts.ts';
import { openWorkspace, own } from './probe-targets.ts';
import { sandboxOf, specOf, stdioSettings } from './sandbox-fixture.ts';

const { HOME, PATH } = process.env;
const remove: string[] = [];
const started: LaunchedProcess[] = [];
let workspace: string;
let outside: string;

beforeEach(() => {
  [workspace, outside] = [openWorkspace(), openWorkspace()];
  remove.push(workspace, outside);
});

afterEach(() => {
  Object.assign(process.env, { HOME, PATH });
  for (const one of started.splice(0)) one.kill();
  for (const one of remove.splice(0)) rmSync(one, { recursive: true, force: true });
});

interface Options extends Partial<ServerSettings> {
  readonly given?: Partial<NonNullable<ServerSettings['sandbox']>['filesystem']>;
}

function settings(words: readonly string[], { given = {}, ...more }: Options = {}): ServerSettings {
  const sandbox = sandboxOf();
  return stdioSettings(words, {
    sandbox: { ...sandbox, filesystem: { ...sandbox.filesystem, ...given } },
    ...more,
  });
}

async function outputOf(one: ServerSettings, more: Partial<LaunchHost> = {}): Promise<string> {
  const launched = await launch(one, {
    workspace,
    hidden: [],
    secrets: () => Promise.reject(new Error('none')),
    ...more,
  });
  started.push(launched);
  let out = '';
  for (const stream of [launched.child.stdout, launched.child.stderr])
    stream.on('data', (text: Buffer) => (out += text.toString('utf8')));
  await new Promise((resolve) => launched.child.once('close', resolve));
  return out.trim();
}

function program(file: string, text: string): void {
  writeFileSync(file, `#!/bin/sh\necho ${text}\n`);
  chmodSync(file, 0o755);
}

describe('a checked folder that a link replaced before the start', () => {
  const swap = (name: string): string => {
    const folder = path.join(workspace, name);
    mkdirSync(folder);
    rmdirSync(folder);
    symlinkSync(outside, folder);
    return folder;
  };
  it.each(['allowRead', 'allowWrite', 'denyRead'] as const)('is refused by name in %s', async (list) => {
    const one = settings(['sh', '-c', 'echo planted >out/.bashrc'], { given: { [list]: [swap('out')] } });
    await expect(outputOf(one)).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining(
        '"out" leads through a link that did not exist when the configuration was loaded',
      ) as string,
    });
    expect(readdirSync(outside)).toEqual([]);
  });

  it('is refused as the working folder, and if a folder above it was moved', async () => {
    await expect(outputOf(settings(['true'], { cwd: swap('place') }))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
    });
    const inner = path.join(workspace, 'above', 'inner');
    mkdirSync(inner, { recursive: true });
    mkdirSync(path.join(outside, 'inner'));
    renameSync(path.join(workspace, 'above'), path.join(workspace, 'was'));
    symlinkSync(outside, path.join(workspace, 'above'));
    await expect(outputOf(settings(['true'], { given: { allowWrite: [inner] } }))).rejects.toMatchObject({
      message: expect.stringContaining('"above/inner"') as string,
    });
  });

  it('is refused before anything runs, if it is replaced while the sandbox is set up', async () => {
    const folder = path.join(workspace, 'out');
    mkdirSync(folder);
    const command = ['sh', '-c', `echo planted >${folder}/.bashrc`];
    const starting = startSandboxed(specOf(workspace, command, { write: [folder] }));
    rmdirSync(folder);
    symlinkSync(outside, folder);
    await expect(starting).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('"out" leads through a link') as string,
    });
    expect(readdirSync(outside)).toEqual([]);
  });

  it('is refused in a container before its client is called', async () => {
    const one = settings(['true'], { isolation: 'container', given: { allowWrite: [swap('out')] } });
    await expect(outputOf({ ...one, sandbox: { ...one.sandbox!, image: 'x' } })).rejects.toMatchObject({
      message: expect.stringContaining('leads through a link') as string,
    });
  });

  it('is left out if it does not exist yet', async () => {
    expect(await outputOf(settings(['echo', 'fine'], { given: { allowRead: [path.join(workspace, 'later')] } }))).toBe(
      'fine',
    );
  });
});

describe('the files that a server sees', () => {
  it('do not include the home folder: as cwd it is refused at the start, like a missing folder', async () => {
    process.env.HOME = outside;
    for (const cwd of [outside, path.dirname(outside), '/'])
      await expect(outputOf(settings(['true'], { cwd }))).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringContaining('too many files because of its cwd') as string,
      });
    await expect(outputOf(settings(['true'], { cwd: path.join(outside, 'gone') }))).rejects.toMatchObject({
      code: 'INIT_FAILED',
    });
  });

  it('include a file of another project among the arguments, but not the project', async () => {
    const [mine, other] = [path.join(workspace, 'mine'), path.join(outside, 'other')];
    for (const folder of [mine, other]) {
      mkdirSync(folder);
      writeFileSync(path.join(folder, 'package.json'), '{}');
      writeFileSync(path.join(folder, '.env'), 'KEY=planted');
    }
    writeFileSync(path.join(other, 'index.js'), '');
    writeFileSync(
      path.join(mine, 'server.js'),
      `const fs = require('node:fs'); const path = require('node:path');
for (const file of [__filename, ...process.argv.slice(2)]) console.log(fs.readdirSync(path.dirname(file)).join());`,
    );
    expect(
      (await outputOf(settings([process.execPath, path.join(mine, 'server.js'), path.join(other, 'index.js')]))).split(
        '\n',
      ),
    ).toEqual(['.env,package.json,server.js', 'index.js']);
  });

  it('do not include a home folder as a package, even if it contains package.json, bin or pyvenv.cfg', async () => {
    process.env.HOME = outside;
    mkdirSync(path.join(outside, 'bin'));
    for (const file of ['package.json', 'pyvenv.cfg', 'secret']) writeFileSync(path.join(outside, file), '{}');
    program(path.join(outside, 'bin', 'server'), `"$(ls -A ${outside})"`);
    expect(await outputOf(settings([path.join(outside, 'bin', 'server')]))).toBe('bin');
  });
});

describe('the inspected file', () => {
  it('is the one that starts without isolation too, even if PATH names a relative folder', async () => {
    const [good, evil] = [path.join(outside, 'good'), path.join(workspace, 'evil')];
    for (const folder of [good, evil]) {
      mkdirSync(folder);
      program(path.join(folder, 'tool'), path.basename(folder));
    }
    process.env.PATH = `evil:${good}:${PATH}`;
    const one = settings(['tool'], { isolation: 'direct', cwd: workspace });
    const { program: inspected } = await inspectStart(one, workspace);
    expect([inspected?.path, await outputOf(one)]).toEqual([path.join(good, 'tool'), 'good']);
    expect(await outputOf(settings(['sh', '-c', 'tool; echo "$PATH"'], { isolation: 'direct', cwd: workspace }))).toBe(
      `good\n${good}:${PATH}`,
    );
  });

  it('starts from its working folder, and never a file of the same name in the workspace', async () => {
    writeFileSync(path.join(outside, 'server.js'), "console.log('inspected')");
    writeFileSync(path.join(workspace, 'server.js'), "console.log('of the same name')");
    for (const file of [path.join(outside, 'server.js'), path.join(workspace, 'server.js')]) own(file);
    const given = { allowRead: [workspace] };
    expect(await outputOf(settings([process.execPath, 'server.js'], { given }), { folder: outside })).toBe('inspected');
    const out = await outputOf(settings([process.execPath, 'server'], { given }), { folder: outside });
    expect(out).not.toContain('of the same name');
    expect(await outputOf(settings(['sh', '-c', 'pwd; ls -A'], { given }), { folder: outside })).toBe(outside);
  });
});

describe('the approval screen', () => {
  const screenOf = async (one: ServerSettings): Promise<string> => {
    const facts = await startFacts(one, { folder: workspace, inspect: inspectStart, digest: (text) => text });
    return startScreen({ ...one, source: 'tollgate.yaml' } as ServerConfig, {
      facts,
      hash: startHash(facts),
      changed: [],
      changes: [],
      remarks: [],
    });
  };

  it('names every folder that a server sees, also those that its settings do not name', async () => {
    const [mine, place, out] = ['mine', 'place', 'out'].map((name) => path.join(workspace, name)) as [
      string,
      string,
      string,
    ];
    for (const folder of [mine, place, out]) mkdirSync(folder);
    for (const file of ['package.json', 'server.js']) writeFileSync(path.join(mine, file), '{}');
    const words = ['node', path.join(mine, 'server.js')];
    expect(await screenOf(settings(words, { cwd: place, given: { allowWrite: [out] } }))).toMatch(
      new RegExp(`writes "${out}"\n *reads [^\n]*"${place}"[^\n]*, its own program, and the system's`),
    );
    expect(await screenOf(settings(words, { cwd: place }))).toContain(`"${mine}"`);
    expect(await screenOf(settings(words, { isolation: 'direct', cwd: place }))).not.toContain('reads');
  });

  it('has another hash if the same command shows more files, because of a package.json above its script', async () => {
    writeFileSync(path.join(workspace, 'server.js'), '');
    const one = settings(['node', path.join(workspace, 'server.js')]);
    const hash = async (): Promise<string> =>
      startHash(await startFacts(one, { folder: outside, inspect: inspectStart, digest: (text) => text }));
    const before = await hash();
    expect(await hash()).toBe(before);
    writeFileSync(path.join(workspace, 'package.json'), '{}');
    expect(await hash()).not.toBe(before);
  });

  it('warns about an image without a digest', () => {
    const remarks = (image: string, isolation = 'container'): readonly string[] =>
      imageRemarks({ isolation, sandbox: { image } });
    expect(remarks('mcp/files:latest')).toEqual([expect.stringContaining('no digest')]);
    expect([remarks(`mcp/files@sha256:${'0a'.repeat(32)}`), remarks('mcp/files', 'sandbox')]).toEqual([[], []]);
    expect([remarks('0a'.repeat(32)), remarks(`sha256:${'0a'.repeat(32)}`)]).toEqual([[], []]);
    for (const image of ['mcp/files@sha256:0a', `mcp/${'0a'.repeat(32)}`]) expect(remarks(image)).toHaveLength(1);
  });
});
