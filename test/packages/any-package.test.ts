/** Connects packages of a registry of npm and an index of PyPI on this machine, with the real npm and pip. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { EXIT } from '../../facade/cli/command-io.ts';
import type { PinWorld } from '../../facade/clients/package-copies.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { installPackage, pinPackage } from '../../facade/packages/package-source.ts';
import { readPackageSpec } from '../../facade/packages/package-spec.ts';
import type { PinnedPackage } from '../../facade/packages/pinned-package.ts';
import type { Answer } from '../cli/terminal.ts';
import { holders, Place } from '../connect/place.ts';
import { partOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { connectFully } from './connecting.ts';
import { LocalRegistry, PROGRAM, writePackage } from './local-registry.ts';

const NOTES = { name: '@local/notes-mcp', version: '1.2.0', bin: 'run.cjs' };
/** For npm and pip on a busy machine, ms. */
const REAL = 400_000;

let registry: LocalRegistry;
let place: Place;

beforeAll(async () => {
  registry = new LocalRegistry();
  await registry.open();
  registry.npm(NOTES, { 'run.cjs': PROGRAM });
  registry.npm(
    { name: 'scripted', version: '2.0.0', bin: 'run.cjs', scripts: { postinstall: 'echo ran > ran' } },
    { 'run.cjs': PROGRAM },
  );
  registry.npm(
    { name: 'twins', version: '1.0.0', bin: { one: 'one.cjs', two: 'two.cjs' } },
    {
      'one.cjs': PROGRAM,
      'two.cjs': PROGRAM,
    },
  );
  registry.npm(
    { name: 'forged', version: '1.0.0', bin: 'run.cjs' },
    { 'run.cjs': PROGRAM },
    `sha512-${'A'.repeat(86)}==`,
  );
  registry.npm({ name: 'library', version: '1.0.0' }, {});
  registry.pypi('local-notes', '1.0.0');
  registry.pypi('local-notes', '1.1.0', { yanked: 'it loses notes' });
  registry.pypi('sources', '1.0.0', { isSource: true });
  registry.pypi('other-bytes', '1.0.0', { hash: '0'.repeat(64) });
  registry.pypi('two-tools', '1.0.0', {
    programs: ['first', 'second'],
    needs: ['Provides-Extra: fast', 'Requires-Dist: local-notes; extra == "fast"'],
  });
});
afterAll(() => registry.close());
beforeEach(() => {
  place = new Place();
  const text = readFileSync(place.file, 'utf8');
  place.project.write('tollgate.yaml', text.replace(/^programs: .*\n/m, ''));
});
afterEach(() => place.project.remove());

const env = (): Record<string, string> => ({
  ...place.env,
  ...registry.environment(path.join(place.project.root, 'cache')),
  THE_TOKEN: 'value-of-the-token',
});
const connect = (...words: string[]): Promise<Answer> => place.run(['connect', ...words], { env: env() });
const server = (name: string) => loadConfig(place.file, { env: {}, home: place.project.home }).servers.get(name);

describe('a package of npm' + verifies('FH-10'), () => {
  it(
    'is pinned, installed and started with its arguments, variables, hosts and secrets',
    async () => {
      mkdirSync(path.join(place.project.folder, 'work', 'notes'));
      const folder = path.join(place.project.folder, 'work', 'notes');
      const reach = await connectFully(connect, [
        ...['npm:@local/notes-mcp', '--env', 'GREETING=hello $you', '--host', 'api.example.org'],
        ...['--credential', 'NOTES_KEY=env:THE_TOKEN', '--', '--folder', folder, '-x'],
      ]);
      expect(reach.asks).toEqual(['say']);
      expect(server('notes')).toMatchObject({
        command: 'node',
        args: [
          path.join(place.state, 'packages/notes/1.2.0/node_modules/@local/notes-mcp/run.cjs'),
          '--folder',
          folder,
          '-x',
        ],
        env: { GREETING: 'hello $you', NOTES_KEY: '${secret:notes.NOTES_KEY}' },
        labels: ['untrusted'],
        sandbox: {
          network: { allowedDomains: ['api.example.org'] },
          limits: { memoryMb: 512 },
          filesystem: { allowRead: [folder] },
        },
      });
      const text = readFileSync(path.join(place.project.folder, 'servers', 'notes.yaml'), 'utf8');
      expect(text).toMatch(/^# @local\/notes-mcp 1\.2\.0, sha512-\S+==\. Written by/);
      expect(holders(place.project.root, 'value-of-the-token')).toEqual([]);
      expect((await connect('--undo', 'notes')).code).toBe(EXIT.ok);
      expect([existsSync(path.join(place.state, 'packages')), server('notes')]).toEqual([false, undefined]);
    },
    REAL,
  );
});

describe('a package of PyPI' + verifies('FH-11'), () => {
  it(
    'is installed from wheels with their hashes, and started with its arguments and variables',
    async () => {
      const reach = await connectFully(connect, ['pypi:local-notes', '--env', 'GREETING=hello', '--', '--fast']);
      expect(reach.asks).toEqual(['say']);
      const folder = path.join(place.state, 'packages', 'local-notes', '1.0.0');
      expect(server('local-notes')).toMatchObject({
        command: path.join(folder, 'bin', 'local-notes'),
        args: ['--fast'],
      });
      expect(readFileSync(path.join(folder, 'requirements.txt'), 'utf8')).toMatch(
        /^local-notes==1\.0\.0 --hash=sha256:[0-9a-f]{64}\n$/,
      );
    },
    REAL,
  );
});

describe('a package that cannot be connected as it is' + verifies('FH-12'), () => {
  const world = (): PinWorld => ({
    env: env(),
    say: () => undefined,
    into: place.project.root,
    containerClient: APP_MODULE.containerClient,
  });
  const pin = (text: string, bin?: string, run = world()): Promise<PinnedPackage> => {
    useHelpers({ programs: {}, writable: [] });
    const spec = readPackageSpec(text, { cwd: place.project.root, home: place.project.home });
    if (spec === undefined) throw new Error(`${text} names no package`);
    return pinPackage(spec, { into: place.project.root, ...(bin !== undefined && { bin }) }, run);
  };

  const REFUSED = [
    ['npm:twins', 'twins has several programs: one, two.'],
    ['npm:library', 'library has no program (bin in its package.json)'],
    ['npm:twins@9.9.9', 'npm ended with 1 (404 No match found for version 9.9.9)'],
    ['npm:not-there', 'Looking up not-there@latest: npm ended with 1 (404 Not Found'],
    ['./nothing', 'nothing has no package.json, so npm cannot install it.'],
  ] as const;
  it.each(partOf(REFUSED, 4))(
    '%s is refused',
    async (text, message) => {
      await expect(pin(text)).rejects.toMatchObject({
        code: 'INSTALL_FAILED',
        message: expect.stringContaining(message) as string,
      });
    },
    REAL,
  );

  it(
    'is pinned with the program that --bin names, and with a note about its scripts',
    async () => {
      expect(await pin('npm:twins', 'two')).toMatchObject({ version: '1.0.0', bin: 'two.cjs' });
      expect((await pin('npm:scripted')).notes).toEqual([
        'It has scripts that run when it is installed. They do not run here, and it may miss them.',
      ]);
    },
    REAL,
  );

  it(
    'is not installed if its archive has another digest, and leaves nothing',
    async () => {
      const folder = path.join(place.state, 'packages', 'forged', '1.0.0');
      await expect(installPackage(await pin('npm:forged'), folder, world())).rejects.toMatchObject({
        code: 'INSTALL_FAILED',
      });
      expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
    },
    REAL,
  );

  it(
    'is refused if it is a package of PyPI that is withdrawn, without a wheel, of other bytes, or without the extra',
    async () => {
      const run = world();
      const refusal = (text: string): Promise<unknown> =>
        pin(text, undefined, run).catch(({ message }: Error) => message);
      const names = ['local-notes@1.1.0', 'sources', 'other-bytes', 'two-tools[slow]'];
      expect(await Promise.all(names.map((name) => refusal(`pypi:${name}`)))).toEqual([
        'Its authors have withdrawn local-notes 1.1.0 (yanked): it loses notes.',
        'The index has no sources with a wheel for this machine and its Python.',
        expect.stringContaining('DO NOT MATCH THE HASHES'),
        'two-tools 1.0.0 has no extra slow.',
      ]);
    },
    REAL,
  );

  it(
    'is installed from PyPI with the program that --bin names and with its extras, again if these are others',
    async () => {
      const folder = path.join(place.state, 'packages', 'two', '1.0.0');
      const run = world();
      const [fast, plain] = await Promise.all(
        ['pypi:two-tools[fast]', 'pypi:two-tools'].map((name) => pin(name, 'second', run)),
      );
      if (fast === undefined || plain === undefined) throw new Error('two packages were pinned');
      const install = (pinned: PinnedPackage) => installPackage(pinned, folder, run);
      const names = () => readFileSync(path.join(folder, 'requirements.txt'), 'utf8').match(/^\S+/gm);
      expect([await install(fast), names()]).toEqual([true, ['local-notes==1.0.0', 'two-tools==1.0.0']]);
      expect([await install(plain), names()]).toEqual([true, ['two-tools==1.0.0']]);
      expect(await install(plain)).toBe(false);
      await expect(install({ ...plain, bin: 'two-tools' })).rejects.toMatchObject({
        message: 'two-tools 1.0.0 has no program two-tools; it and what it needs have first, second.',
      });
    },
    REAL,
  );

  it(
    'is pinned from a folder, and its scripts do not run' + verifies('FH-13'),
    async () => {
      const scripts = { prepare: 'echo ran > ran', prepack: 'echo ran > ran' };
      writePackage(path.join(place.project.root, 'own'), { ...NOTES, scripts }, { 'run.cjs': PROGRAM });
      const pinned = await pin('./own');
      const folder = path.join(place.state, 'packages', 'own', pinned.version);
      expect(pinned).toMatchObject({ kind: 'folder', name: NOTES.name, bin: 'run.cjs' });
      expect(await installPackage(pinned, folder, world())).toBe(true);
      expect(readFileSync(path.join(folder, 'node_modules', NOTES.name, 'run.cjs'), 'utf8')).toBe(PROGRAM);
      expect(existsSync(path.join(place.project.root, 'own', 'ran'))).toBe(false);
    },
    REAL,
  );
});
