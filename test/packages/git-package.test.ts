/** Connects packages of git repositories, which a server on this machine serves, with the real git and npm. */

import { existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { loadConfig } from '../../facade/config/load-config.ts';
import { APP_MODULE } from '../../facade/main.ts';
import { installPackage, pinPackage, withArchives } from '../../facade/packages/package-source.ts';
import { readPackageSpec } from '../../facade/packages/package-spec.ts';
import type { PinnedPackage } from '../../facade/packages/pinned-package.ts';
import { Place } from '../connect/place.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { connectFully } from './connecting.ts';
import { GitHost } from './git-host.ts';
import { LocalRegistry, PROGRAM, writePackage } from './local-registry.ts';

const NOTES = { name: 'git-notes', version: '1.2.0', bin: './run.cjs' };
const FILES = { 'run.cjs': PROGRAM };
/** For git and npm on a busy machine, ms. */
const REAL = 200_000;

let host: GitHost;
let registry: LocalRegistry;
let place: Place;

beforeAll(async () => {
  [host, registry] = [new GitHost(), new LocalRegistry()];
  await Promise.all([host.open(), registry.open()]);
});
afterAll(() => {
  host.close();
  registry.close();
});
beforeEach(() => {
  place = new Place();
  const text = readFileSync(place.file, 'utf8');
  place.project.write('tollgate.yaml', text.replace(/^programs: .*\n/m, ''));
  useHelpers({ programs: {}, writable: [] });
});
afterEach(() => place.project.remove());

const env = (): Record<string, string> => ({
  ...place.env,
  ...host.environment,
  ...registry.environment(path.join(place.project.root, 'cache')),
});
const ran = (): string => path.join(host.folder, 'ran');

/** Pins a commit, and installs it into a folder, which is returned. */
function install(name: string, commit: string): Promise<{ readonly pinned: PinnedPackage; readonly folder: string }> {
  const world = { env: env(), say: () => undefined, containerClient: APP_MODULE.containerClient };
  const spec = readPackageSpec(`git:${host.url(name)}#${commit}`, { cwd: '/', home: '/' });
  if (spec === undefined) throw new Error('names no package');
  return withArchives(async (into) => {
    const pinned = await pinPackage(spec, { into }, world);
    const folder = path.join(place.state, 'packages', 'notes', pinned.version);
    await installPackage(pinned, folder, world);
    return { pinned, folder };
  });
}

describe('a repository' + verifies('FH-14'), () => {
  inFull(
    'is fetched at its commit, pinned, installed and started, also after its branch has moved',
    async () => {
      const commit = host.commit('mcp-notes.git', (folder) => writePackage(folder, NOTES, FILES));
      const later = host.commit('mcp-notes.git', (folder) =>
        writePackage(folder, { ...NOTES, version: '6.6.6' }, FILES),
      );
      expect(later).not.toBe(commit);
      const connect = (...words: string[]) => place.run(['connect', ...words], { env: env() });
      const reach = await connectFully(connect, [`git:${host.url('mcp-notes.git')}#${commit}`, '--', '--fast']);
      expect(reach.asks).toEqual(['say']);
      const { args } = loadConfig(place.file, { env: {}, home: place.project.home }).servers.get('notes') ?? {};
      const version = `1.2.0-${commit.slice(0, 12)}`;
      expect(args).toEqual([
        path.join(place.state, 'packages/notes', version, 'node_modules/git-notes/run.cjs'),
        '--fast',
      ]);
    },
    REAL,
  );

  inFull(
    'is taken as it is: none of the programs that it names runs, in it or in what it needs',
    async () => {
      const evil = path.join(host.folder, 'evil.sh');
      writeFileSync(evil, `#!/bin/sh\necho "$0 $@" >> '${ran()}'\nexit 1\n`, { mode: 0o755 });
      const scripts = Object.fromEntries(
        ['preinstall', 'install', 'postinstall', 'prepare', 'prepack', 'build'].map((name) => [name, evil]),
      );
      const hostile = (folder: string, more: Readonly<Record<string, unknown>>): void => {
        writePackage(folder, { ...NOTES, scripts, ...more }, FILES);
        writeFileSync(path.join(folder, '.npmrc'), `git=${evil}\nignore-scripts=false\nscript-shell=${evil}\n`);
        writeFileSync(path.join(folder, '.gitattributes'), '* filter=evil\n');
        writeFileSync(
          path.join(folder, '.gitconfig'),
          `[filter "evil"]\nsmudge = ${evil}\n[core]\nfsmonitor = ${evil}\n`,
        );
      };
      // npm reaches a folder without the certificate of this host.
      const needed = `git+file://${path.join(host.folder, 'needed')}`;
      const commit = host.commit('hostile', (folder) => hostile(folder, { devDependencies: { needed } }));
      host.git(path.join(host.folder, 'hostile'), 'config', 'core.fsmonitor', evil);
      const { pinned, folder } = await install('hostile', commit);
      expect(pinned.notes).toEqual([
        expect.stringContaining('scripts that run when it is installed') as string,
        expect.stringContaining('scripts that build it (prepare, prepack, build)') as string,
      ]);
      expect(existsSync(path.join(folder, 'node_modules/git-notes/run.cjs'))).toBe(true);
      // npm would prepare a dependency that is a repository too.
      host.commit('needed', (other) => hostile(other, { name: 'needed', devDependencies: { needed } }));
      const second = host.commit('needing', (other) => hostile(other, { dependencies: { needed } }));
      const { message } = (await install('needing', second).catch((thrown: unknown) => thrown)) as Error;
      expect(existsSync(ran())).toBe(false);
      // npm 10 only has no git.
      expect(message).toMatch(/"git" have been disabled|spawn \/dev\/null/);
    },
    REAL,
  );

  it.each<[string, string, (folder: string) => void]>([
    [
      'whose program a script would make',
      'has no file dist/run.js, its program. Its scripts (prepare) may make it',
      (folder) => writePackage(folder, { ...NOTES, bin: 'dist/run.js', scripts: { prepare: 'tsc' } }, {}),
    ],
    [
      'with a program outside of it',
      'has no file',
      (folder) => writePackage(folder, { ...NOTES, bin: '../../../evil.cjs' }, FILES),
    ],
    [
      'with a symbolic link out of it',
      'has a symbolic link out of its folder, or to nothing: "notes/keys".',
      (folder) => {
        writePackage(path.join(folder, 'notes'), NOTES, FILES);
        symlinkSync('/etc/hosts', path.join(folder, 'notes', 'keys'));
      },
    ],
    [
      'with a submodule',
      'has a submodule, "part", which the commit does not contain.',
      (folder) => {
        writePackage(folder, NOTES, FILES);
        const commit = '0123456789abcdef0123456789abcdef01234567';
        host.git(folder, 'update-index', '--add', '--cacheinfo', `160000,${commit},part`);
        // `git add --all` would drop a submodule without a folder.
        host.git(folder, 'init', '--quiet', 'part');
        host.git(path.join(folder, 'part'), 'commit', '--quiet', '--allow-empty', '--message', 'Part');
      },
    ],
    [
      'without a package',
      'has no package.json, so npm cannot install it.',
      (folder) => writeFileSync(path.join(folder, 'a'), ''),
    ],
  ])(
    '%s is refused',
    async (what, message, write) => {
      const name = what.replaceAll(' ', '-');
      const commit = host.commit(name, write);
      await expect(install(name, commit)).rejects.toMatchObject({
        code: 'INSTALL_FAILED',
        message: expect.stringContaining(message) as string,
      });
      expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
    },
    REAL,
  );

  it('that does not have the commit, or does not exist, is refused', async () => {
    const absent = 'f'.repeat(40);
    host.commit('other', (folder) => writePackage(folder, NOTES, FILES));
    await expect(install('other', absent)).rejects.toMatchObject({
      message: expect.stringContaining(`does not give the commit ${absent}.`) as string,
    });
    await expect(install('nothing', absent)).rejects.toMatchObject({
      message: expect.stringMatching(/git ended with 128 \(.*not found/) as string,
    });
  });
});
