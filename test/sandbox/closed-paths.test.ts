/** Tests the search for paths that rules close, and the mounts that close them. */
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Allowlist } from '../../adapters/egress/allowlist.ts';
import { findClosedPaths } from '../../adapters/sandbox/closed-paths/closed-paths.ts';
import { outermostPaths, overlayClosedPaths } from '../../adapters/sandbox/closed-paths/closure-mounts.ts';
import { readFolderEntries } from '../../adapters/sandbox/closed-paths/folder-entries.ts';
import { type Confinement, NO_CONFINEMENT } from '../../catalogs/readers/confinement.ts';
import { parseAuthority } from '../../catalogs/readers/hosts.ts';
import { TimeSlices } from '../../catalogs/text/time-slices.ts';
import { verifies } from '../verifies.ts';

let root: string;
const at = (name: string): string => path.join(root, name);

beforeEach(() => {
  root = realpathSync(mkdtempSync(path.join(tmpdir(), 'tollgate-closed-')));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function put(...names: readonly string[]): void {
  for (const name of names) {
    mkdirSync(path.dirname(at(name)), { recursive: true });
    writeFileSync(at(name), 'x');
  }
}

const closing = (
  hidden: readonly string[],
  fixed: readonly string[] = [],
  outside: readonly string[] = [],
): Confinement => ({ hidden: { inside: hidden, outside }, fixed: { inside: fixed, outside: [] }, closedHosts: [] });

async function found(
  confinement: Confinement,
  { roots = [root], workspace = root }: { roots?: readonly string[]; workspace?: string } = {},
): Promise<Record<string, string>> {
  return Object.fromEntries(
    [...(await findClosedPaths(confinement, { roots, workspace })).closed].map(([file, closure]) => [
      path.relative(root, file) || '.',
      closure,
    ]),
  );
}

describe('findClosedPaths', () => {
  it('finds closed files and folders, and does not search hidden folders', async () => {
    put('.env', 'a/.env', 'a/keys/one', 'a/keys/.env', 'docs/x', 'docs/.env', 'b');
    expect(await found(closing(['**/.env', '**/keys/**'], ['docs/**', 'docs/x']))).toEqual({
      '.env': 'hidden',
      'a/.env': 'hidden',
      'a/keys': 'hidden',
      docs: 'fixed',
      'docs/.env': 'hidden',
    });
  });

  it('does not follow links, and does not close a link that has a closed name', async () => {
    put('real/.env');
    symlinkSync(at('real'), at('link'));
    symlinkSync(at('real/.env'), at('.env'));
    expect(await found(closing(['**/.env', 'link/**']))).toEqual({ 'real/.env': 'hidden' });
  });

  it(
    'closes a file under each of its hard links, also if its folder or the settings make it read-only' +
      verifies('TR-12'),
    async () => {
      put('.env', '.git/hooks/pre-commit', 'rules.yaml', 'src/a');
      linkSync(at('.env'), at('src/notes'));
      linkSync(at('.git/hooks/pre-commit'), at('src/hook'));
      linkSync(at('rules.yaml'), at('src/copy'));
      linkSync(at('src/a'), at('src/b'));
      const { closed } = await findClosedPaths(closing(['**/.env'], ['**/.git/hooks/**']), {
        roots: [root],
        workspace: root,
        fixed: [at('rules.yaml')],
      });
      expect(
        Object.fromEntries([...closed].map(([file, closure]) => [path.relative(root, file), closure])),
      ).toMatchObject({
        '.env': 'hidden',
        'src/notes': 'hidden',
        '.git/hooks': 'fixed',
        'src/hook': 'fixed',
        'src/copy': 'fixed',
      });
      expect([...closed.keys()]).not.toContain(at('src/a'));
    },
  );

  it('matches whole paths, with the globs for inside or outside of the workspace', async () => {
    put('ws/a/.env', 'other/.env', 'ws/secret/x');
    const workspace = at('ws');
    expect(await found(closing(['a/**', 'secret/*']), { roots: [at('ws/a'), at('ws/secret')], workspace })).toEqual({
      'ws/a': 'hidden',
      'ws/secret/x': 'hidden',
    });
    expect(await found(closing(['a/.env'], [], [`${root}/other/*`]), { workspace })).toEqual({
      'ws/a/.env': 'hidden',
      'other/.env': 'hidden',
    });
    expect(await found(closing(['**']), { workspace })).toEqual({ ws: 'hidden' });
    expect(await found(closing([], [], [`${root}/ws/**`]), { roots: [at('ws/a')], workspace })).toEqual({});
  });

  it('does not read folders that no glob can match', async () => {
    mkdirSync(at('shut'), { mode: 0o000 });
    expect(await found(NO_CONFINEMENT)).toEqual({});
    expect(await found(closing(['a/b']))).toEqual({});
  });

  it('hides a folder that it cannot list', async () => {
    put('shut/.env');
    chmodSync(at('shut'), 0o000);
    chmodSync(root, 0o755);
    // Root lists any folder.
    const isRoot = process.getuid?.() === 0;
    if (isRoot) process.seteuid?.(12_345);
    try {
      expect(await found(closing(['**/.env']))).toEqual({ shut: 'hidden' });
    } finally {
      if (isRoot) process.seteuid?.(0);
    }
  });

  it('refuses more closed files than it can mount, and says how to write the rule', async () => {
    put(...Array.from({ length: 401 }, (_, index) => `keys/${index}`));
    await expect(findClosedPaths(closing(['keys/*']), { roots: [root], workspace: root })).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringMatching(/more than 400/) as string,
      next: expect.stringMatching(/folder\/\*\*/) as string,
    });
    expect(await found(closing(['keys/**']))).toEqual({ keys: 'hidden' });
  });

  it('refuses a folder whose name is not UTF-8, because it cannot search it', async () => {
    mkdirSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0xff, 0x61])]));
    await expect(findClosedPaths(closing(['**/.env']), { roots: [root], workspace: root })).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringMatching(/UTF-8/) as string,
    });
  });
});

describe('readFolderEntries', () => {
  const read = (folder: string): ReturnType<typeof readFolderEntries> =>
    readFolderEntries(at(folder), new TimeSlices());

  it('caches the entries, and reads them again after a rename, even if the times were set back', async () => {
    put('a/one');
    const old = new Date(Date.now() - 60_000);
    utimesSync(at('a'), old, old);
    expect((await read('a')).files).toEqual(['one']);
    // Not cached yet: a second change could have the same time.
    expect(await read('a')).not.toBe(await read('a'));
    await new Promise((resolve) => setTimeout(resolve, 2100));
    const kept = await read('a');
    expect(await read('a')).toBe(kept);
    renameSync(at('a/one'), at('a/two'));
    utimesSync(at('a'), old, old);
    expect((await read('a')).files).toEqual(['two']);
  });

  it('does not follow a link in the place of the folder', async () => {
    put('a/one');
    symlinkSync(at('a'), at('b'));
    await expect(read('b')).rejects.toMatchObject({ code: 'ENOTDIR' });
  });
});

describe('overlayClosedPaths', () => {
  const mount = (to: string, writable = true): { from: string; to: string; writable: boolean } => ({
    from: to,
    to,
    writable,
  });

  it('mounts the folders above a closed path on themselves, in writable mounts only', () => {
    const closed = new Map([
      ['/w/a/b/.env', 'hidden'],
      ['/w/a/docs', 'fixed'],
      ['/r/a/.env', 'hidden'],
    ] as const);
    expect(overlayClosedPaths({ mounts: [mount('/w'), mount('/r', false)], masks: [] }, closed)).toEqual({
      mounts: [mount('/w'), mount('/r', false), mount('/w/a'), mount('/w/a/b'), mount('/w/a/docs', false)],
      masks: ['/r/a/.env', '/w/a/b/.env'],
    });
  });

  it('overrides writable mounts below a read-only path, and masks each path once', () => {
    const closed = new Map([
      ['/w/docs', 'fixed'],
      ['/w/keys', 'hidden'],
    ] as const);
    expect(
      overlayClosedPaths({ mounts: [mount('/w'), mount('/w/docs/out')], masks: ['/w/keys/one', '/w/state'] }, closed),
    ).toEqual({
      mounts: [mount('/w'), mount('/w/docs', false), mount('/w/docs/out', false)],
      masks: ['/w/keys', '/w/state'],
    });
    expect(outermostPaths(['/a/b', '/a', '/ab', '/a'])).toEqual(['/a', '/ab']);
  });

  it('also protects paths that settings hide or make read-only from being moved with their folder', () => {
    expect(
      overlayClosedPaths(
        { mounts: [mount('/w'), mount('/w/rules/own.yaml', false)], masks: ['/w/config/keys'] },
        new Map(),
      ).mounts,
    ).toEqual([mount('/w'), mount('/w/rules'), mount('/w/config'), mount('/w/rules/own.yaml', false)]);
  });
});

describe('Allowlist with closed hosts', () => {
  it.each([
    ['a.example', 'a.example:443', false],
    ['a.example', 'b.a.example:443', true],
    ['*.a.example', 'b.a.example:443', false],
    ['*.a.example', 'a.example:443', true],
    ['*', 'a.example:443', false],
    ['a.example:80', 'a.example:443', true],
    ['a.example:443', 'a.example:443', false],
    ['*:443', 'a.example:443', false],
    ['[::1]', '[::1]:443', false],
    ['[::1]:80', '[::1]:443', true],
  ])('with %s closed, decides %s: %s', (closed, target, allowed) => {
    const list = new Allowlist(['a.example', '*.a.example', '[::1]:443'], [closed]);
    const parsed = parseAuthority(target);
    expect(parsed !== undefined && list.allows(parsed)).toBe(allowed);
  });
});
