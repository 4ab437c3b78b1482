/** Attacks on the mounts of a sandbox: a running program replaces a folder by a link while the sandbox is set up. */
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ControlGroups } from '../../adapters/sandbox/bubblewrap/control-group.ts';
import { checkMounts, parseMounts } from '../../adapters/sandbox/bubblewrap/mount-check.ts';
import { startSandboxed } from '../../adapters/sandbox/bubblewrap/sandbox-start.ts';
import { reserveNames } from '../../adapters/sandbox/closed-paths/placeholders.ts';
import type { Confinement } from '../../catalogs/readers/confinement.ts';
import { cpuMs, limitNow } from '../bench/growth.ts';
import { openWorkspace, own } from '../sandbox/probe-targets.ts';
import { specOf } from '../sandbox/sandbox-fixture.ts';
import { verifies } from '../verifies.ts';

const NOWHERE = { inside: [], outside: [] };
const RULES: Confinement = {
  hidden: NOWHERE,
  fixed: { inside: ['**/.git/hooks/**', '**/.git/config', '**/.git/info/attributes', '**/.husky/**'], outside: [] },
  closedHosts: [],
};

let workspace: string;
beforeEach(() => {
  workspace = openWorkspace();
});
afterEach(() => rmSync(workspace, { recursive: true, force: true }));

/** Returns fake control groups that call `act` when one is made: after the plan, before bubblewrap starts. */
function meanwhile(act: () => void): () => Promise<ControlGroups> {
  const group = {
    commandPrefix: [],
    moveIn: () => () => Promise.resolve(),
    hasKilled: () => false,
    remove: () => undefined,
  };
  return () => Promise.resolve({ parent: { version: 2, folder: '/' }, make: () => (act(), group) });
}

async function run(script: string, act: () => void): Promise<number | null> {
  const started = await startSandboxed(
    specOf(workspace, ['sh', '-c', script], { write: [workspace], confinement: RULES }),
    meanwhile(act),
  );
  return new Promise((resolve) => started.child.once('exit', resolve));
}

describe('a folder around a closed file', () => {
  const plant = (): void => {
    for (const folder of ['.git', '.git/hooks', '.git/.husky', 'a', 'a/b', 'a/b/c', 'a/b/c/.husky']) {
      mkdirSync(path.join(workspace, folder));
      own(path.join(workspace, folder));
    }
  };
  const swap = (target: string) => () => {
    renameSync(path.join(workspace, 'a/b/c'), path.join(workspace, 'a/b/was'));
    symlinkSync(target, path.join(workspace, 'a/b/c'));
  };

  it('that is replaced by a link to .git during the setup does not open the hooks' + verifies('TR-18'), async () => {
    plant();
    await expect(run('echo planted >.git/hooks/post-checkout', swap('../../.git'))).rejects.toMatchObject({
      code: 'SANDBOX_UNAVAILABLE',
      message: expect.stringContaining('was moved or replaced') as string,
    });
    expect(readdirSync(path.join(workspace, '.git/hooks'))).toEqual([]);
  });

  it('that stays in place does not affect the start, and the hooks are closed' + verifies('TR-18'), async () => {
    plant();
    expect(await run('echo planted >.git/hooks/post-checkout', () => undefined)).not.toBe(0);
    expect(await run('echo fine >a/b/c/file', () => undefined)).toBe(0);
    expect(readFileSync(path.join(workspace, 'a/b/c/file'), 'utf8')).toBe('fine\n');
  });
});

describe('the placeholder of a missing closed file', () => {
  let outside: string;
  beforeEach(() => {
    outside = openWorkspace();
    for (const folder of ['x', 'x/.git']) mkdirSync(path.join(workspace, folder));
    mkdirSync(path.join(outside, '.git'));
    for (const folder of ['x', 'x/.git']) own(path.join(workspace, folder));
  });
  afterEach(() => rmSync(outside, { recursive: true, force: true }));
  const swap = (): void => {
    renameSync(path.join(workspace, 'x'), path.join(workspace, 'was'));
    symlinkSync(outside, path.join(workspace, 'x'));
  };
  const names = ['hooks', 'config', 'info/attributes'];

  it('is not created through a link in the place of its folder' + verifies('TR-19'), () => {
    swap();
    for (const name of names)
      expect(() => reserveNames([path.join(workspace, 'x/.git', name)])).toThrow(
        expect.objectContaining({ code: 'ELOOP' }),
      );
    expect(readdirSync(path.join(outside, '.git'))).toEqual([]);
  });

  it('is not removed through such a link' + verifies('TR-19'), () => {
    const { places, release } = reserveNames(names.map((name) => path.join(workspace, 'x/.git', name)));
    expect(places).toHaveLength(names.length);
    expect(statSync(path.join(workspace, 'x/.git/config')).uid).toBe(statSync(path.join(workspace, 'x/.git')).uid);
    swap();
    mkdirSync(path.join(outside, '.git/hooks'));
    writeFileSync(path.join(outside, '.git/config'), '');
    release();
    expect(readdirSync(path.join(outside, '.git')).sort()).toEqual(['config', 'hooks']);
  });

  it(
    'is one of a limited number: a thousand repositories make the start fail quickly' + verifies('TR-19'),
    async () => {
      for (let n = 0; n < 1000; n += 1) mkdirSync(path.join(workspace, `many/${n}/.git`), { recursive: true });
      const before = cpuMs();
      await expect(run('true', () => undefined)).rejects.toMatchObject({
        code: 'SANDBOX_UNAVAILABLE',
        message: expect.stringContaining('nested repositories') as string,
      });
      const took = cpuMs() - before;
      expect(took).toBeLessThan(limitNow(took, 3_000));
      expect(readdirSync(path.join(workspace, 'many/0/.git'))).toEqual([]);
    },
  );
});

describe('checkMounts', () => {
  const line = (id: number, parent: number, root: string, at: string, options = 'rw'): string =>
    `${id} ${parent} 8:1 ${root} ${at} ${options} - ext4 /dev/sda1 rw`;
  const host = parseMounts(
    [
      line(1, 0, '/', '/'),
      line(2, 1, '/srv', '/home/u/w/vol'),
      '3 2 8:2 / /home/u/w/vol/deep rw - ext4 /dev/sdb rw',
    ].join('\n'),
  );
  const plan = {
    mounts: [
      { from: '/home/u/w', to: '/home/u/w', writable: true },
      { from: '/home/u/w/d', to: '/home/u/w/d', writable: true },
      { from: '/home/u/w/h', to: '/home/u/w/h', writable: false },
    ],
    masks: ['/home/u/w/d/x.pem'],
  };
  const good = [
    line(10, 9, '/home/u/w', '/home/u/w'),
    line(11, 10, '/srv', '/home/u/w/vol'),
    '12 11 8:2 / /home/u/w/vol/deep rw - ext4 /dev/sdb rw',
    line(13, 10, '/home/u/w/d', '/home/u/w/d'),
    line(14, 10, '/home/u/w/h', '/home/u/w/h', 'ro,nosuid'),
    '15 13 0:5 /null /home/u/w/d/x.pem ro - devtmpfs dev rw',
  ];
  const check = (lines: readonly string[]) => () => checkMounts(plan, host, parseMounts(lines.join('\n')));
  const withLine = (index: number, replacement: string): readonly string[] =>
    good.map((one, at) => (at === index ? replacement : one));

  it('accepts the mounts of the plan and the mounts of the host inside them' + verifies('TR-18'), () =>
    expect(check(good)).not.toThrow(),
  );

  it.each([
    ['a source outside of the plan', withLine(3, line(13, 10, '/home/u', '/home/u/w/d'))],
    ['the same names on another disk', withLine(3, '13 10 8:2 /home/u/w/d /home/u/w/d rw - ext4 /dev/sdb rw')],
    ['a source that is read-only elsewhere', withLine(3, line(13, 10, '/home/u/w/h', '/home/u/w/d'))],
    ['another mountpoint', withLine(3, line(13, 10, '/home/u/w/d', '/home/u/w/other'))],
    ['a mount over a read-only one', [...good, line(16, 14, '/home/u/w/h', '/home/u/w/h')]],
    ['a mountpoint outside of the plan', withLine(3, line(13, 10, '/home/u/w/d', '/usr/bin'))],
    ['a mask at another mountpoint', withLine(5, '15 13 0:5 /null /home/u/w/d/y.pem ro - devtmpfs dev rw')],
    ['a writable mount that must be read-only', withLine(4, line(14, 10, '/home/u/w/h', '/home/u/w/h'))],
    ['no mount at all', []],
  ])('refuses %s' + verifies('TR-18'), (_, lines) =>
    expect(check(lines)).toThrow(expect.objectContaining({ code: 'SANDBOX_UNAVAILABLE' })),
  );
});
