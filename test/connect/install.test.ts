/**
 * Tests the installation of packages: from the real registry, and with an npm that lies, fails, is killed or is
 * missing.
 */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { useHelpers } from '../../catalogs/programs/helper-programs.ts';
import { type KnownPackage, loadKnown } from '../../catalogs/servers/known-server.ts';
import { APP_MODULE } from '../../facade/main.ts';
import type { InstallWorld } from '../../facade/packages/installer.ts';
import { installPackage } from '../../facade/packages/package-source.ts';
import { type PinnedPackage, packageFolder } from '../../facade/packages/pinned-package.ts';
import { partOf, RUNS_ALL } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { verify } from '../verify/servers.ts';
import { Place } from './place.ts';

const pinned = (pkg: KnownPackage, asOf = '2026-11-22'): PinnedPackage => ({ ...pkg, kind: 'npm', asOf, notes: [] });
const worldOf = (env: Record<string, string | undefined>): InstallWorld => ({
  env,
  say: () => undefined,
  containerClient: APP_MODULE.containerClient,
});

describe(
  'real installations, started and listed in a sandbox without a network' + verifies('PF-13', 'HA-29', 'FH-21'),
  () => {
    it.each(partOf(['memory', 'git', 'tavily'], 1))(
      '%s',
      async (name) => {
        const known = loadKnown(name);
        const { tools, ...found } = await verify(known, () => undefined);
        expect([found, tools?.map((tool) => tool.name)]).toEqual([{ name, installs: true }, known.verified?.tools]);
      },
      180_000,
    );

    // In `npm test`, test/packages/any-package.test.ts lets the real npm refuse another archive.
    if (RUNS_ALL)
      it('attack, another archive: is refused if its digest differs from the catalog, and leaves no files', async () => {
        const state = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-install-')));
        const { package: pkg } = loadKnown('memory');
        if (pkg === undefined) throw new Error('no package');
        const folder = packageFolder(state, 'memory', pkg.version);
        try {
          const other = pinned({ ...pkg, integrity: `sha512-${'A'.repeat(86)}==` });
          await expect(installPackage(other, folder, worldOf(process.env))).rejects.toMatchObject({
            code: 'INSTALL_FAILED',
            message: expect.stringContaining('is not the one that was verified') as string,
          });
          expect(existsSync(path.dirname(folder))).toBe(false);
        } finally {
          rmSync(state, { recursive: true });
        }
      }, 180_000);
  },
);

describe('an installation' + verifies('PF-13'), () => {
  const known = loadKnown('notion');
  const pkg = known.package ?? { name: '', version: '', integrity: '', bin: '' };
  let place: Place;
  let folder: string;
  const install = (env: Record<string, string | undefined> = place.env, asOf = '2026-11-22'): Promise<boolean> =>
    installPackage(pinned(pkg, asOf), folder, worldOf(env));

  beforeEach(() => {
    place = new Place();
    folder = packageFolder(place.state, 'notion', pkg.version);
  });
  afterEach(() => place.project.remove());

  it('runs npm once, without scripts, with the dependencies of the verified date, in its own folder', async () => {
    place.fakeNpm(known);
    expect([await install(), await install()]).toEqual([true, false]);
    const [cwd = '', args = ''] = readFileSync(place.calls, 'utf8').split('\n');
    expect(cwd.startsWith(path.join(place.state, 'packages', 'notion', '.part-'))).toBe(true);
    expect(args).toContain('install --ignore-scripts --save-exact');
    expect(args).toContain('--before=2026-11-22T23:59:59Z');
    expect(readFileSync(place.calls, 'utf8').match(/--ignore-scripts/g)).toHaveLength(1);
    expect(readdirSync(folder).sort()).toEqual(['node_modules', 'package-lock.json', 'package.json']);
  });

  it('passes npm the variables that it needs, and no secret', async () => {
    place.fakeNpm(known);
    await install({
      ...place.env,
      NOTION_TOKEN: 'value-of-the-token',
      npm_config_registry: 'https://registry.example.org',
      'npm_config_//x/:_authToken': 'value-of-auth',
      HTTPS_PROXY: 'http://proxy:1',
    });
    const calls = readFileSync(place.calls, 'utf8');
    expect(calls).toContain('npm_config_registry=https://registry.example.org');
    expect(calls).toContain('HTTPS_PROXY=http://proxy:1');
    expect(calls).not.toMatch(/value-of/);
  });

  it.each([
    [
      'another digest',
      (): void => place.fakeNpm(known, { integrity: `sha512-${'B'.repeat(86)}==` }),
      /is not the one that was verified/,
    ],
    ['no lock file', (): void => place.npm('true'), /is not the one that was verified/],
    [
      'no program in it',
      (): void => {
        const { name, version, integrity } = pkg;
        const lock = JSON.stringify({ packages: { [`node_modules/${name}`]: { version, integrity } } });
        place.npm(`mkdir -p node_modules/${name}; printf '%s' '${lock}' > package-lock.json`);
      },
      /it has no bin\/cli\.mjs/,
    ],
    [
      'an npm that fails',
      (): void => place.npm('echo "npm error code E404" >&2; exit 1'),
      /npm ended with 1 \(code E404\)/,
    ],
    ['an npm that is killed', (): void => place.npm('kill -9 $$'), /npm ended with a signal/],
  ])('is refused with %s, and leaves nothing', async (_name, prepare, words) => {
    prepare();
    await expect(install()).rejects.toMatchObject({
      code: 'INSTALL_FAILED',
      message: expect.stringMatching(words) as string,
    });
    expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
  });

  it('ends as cancelled after a signal, and leaves nothing', async () => {
    place.npm('sleep 30');
    const stop = new AbortController();
    const running = installPackage(pinned(pkg), folder, { ...worldOf(place.env), signal: stop.signal });
    await expect.poll(() => existsSync(place.calls)).toBe(true);
    stop.abort();
    await expect(running).rejects.toMatchObject({
      code: 'CANCELLED',
      message: 'Stopped by a signal. Nothing was kept.',
    });
    expect(existsSync(path.join(place.state, 'packages'))).toBe(false);
  });

  it('tells if there is no npm', async () => {
    useHelpers({ programs: { npm: path.join(place.bin, 'no-npm') }, writable: [] });
    await expect(install({ PATH: place.bin })).rejects.toMatchObject({
      code: 'INSTALL_FAILED',
      message: expect.stringContaining('there is no npm next to Node.js') as string,
    });
  });

  it('removes the files of a killed installation, and keeps those of a running one', async () => {
    place.fakeNpm(known);
    const parent = path.dirname(folder);
    const [left, running] = ['.part-left', '.part-running'].map((name) => path.join(parent, name)) as [string, string];
    for (const part of [left, running]) {
      mkdirSync(part, { recursive: true });
      writeFileSync(path.join(part, 'half'), '');
    }
    utimesSync(left, new Date(), new Date(Date.now() - 2 * 86_400_000));
    await install();
    expect([left, running].map((part) => existsSync(part))).toEqual([false, true]);
  });

  it('gives one folder if two processes install at the same time', async () => {
    place.fakeNpm(known);
    expect(await Promise.all([install(), install()])).toEqual([true, true]);
    expect(readdirSync(path.dirname(folder))).toEqual([pkg.version]);
  });

  it('is checked again when the server is connected again', async () => {
    place.fakeNpm(known);
    await install();
    rmSync(path.join(folder, 'node_modules', pkg.name, pkg.bin));
    await expect(install()).rejects.toMatchObject({ code: 'INSTALL_FAILED' });
  });

  it('ignores a date that is not valid', async () => {
    place.fakeNpm(known);
    await install(place.env, 'yesterday; rm');
    expect(readFileSync(place.calls, 'utf8')).not.toContain('--before');
  });
});
