/** Tests read-only disks: nothing runs that cannot be recorded, until the disk is writable again. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cli, dataOf } from '../cli/terminal.ts';
import { canMountDisks, mountSmallDisk, NO_DISKS, remount, unmount } from '../state/small-disk.ts';
import { verifies } from '../verifies.ts';
import { callOnce, codeOf, Ground } from './gateway-load.ts';

const KIBIBYTES = '4096';

let ground: Ground;
beforeEach(({ skip }) => {
  ground = new Ground();
  skip(!canMountDisks(), NO_DISKS);
});
afterEach(async () => {
  await ground.remove().catch(() => undefined);
  unmount(ground.state);
  ground.project.remove();
});

describe('a state folder on a read-only disk' + verifies('ST-13'), () => {
  it('prevents every start and says why, and is unchanged when the disk is writable again', async () => {
    mountSmallDisk(ground.state, 4);
    expect(await ground.type(['kill', 'b'])).toMatchObject({ code: 0 });
    remount(ground.state, 'ro');
    const type = async (args: readonly string[]): ReturnType<Ground['type']> => {
      const { code, out, err } = await cli(ground.project, args);
      return { code, output: `${out}${err}` };
    };
    for (const args of [['run'], ['off'], ['kill', '--lift', 'b'], ['servers', 'disable', 'a']]) {
      const { code, output } = await (args[0] === 'run' ? ground.type(args) : type(args));
      expect([args, code, output]).toEqual([
        args,
        1,
        expect.stringMatching(/^(STATE_FAILED|AUDIT_FAILED): [^\n]+\n([^\n]+\n)+$/),
      ]);
    }
    expect(await type(['on'])).toMatchObject({
      code: 0,
      output: expect.stringContaining('It was already on') as string,
    });
    remount(ground.state, 'rw');
    await ground.project.approve();
    const gateway = await ground.gateway();
    expect(codeOf(await callOnce(gateway, { tool: 'a_echo', token: 'x' }))).toBe('ok');
    expect(codeOf(await callOnce(gateway, { tool: 'b_echo', token: 'x' }))).toBe('SERVER_UNAVAILABLE');
  });
});

/** Mounts a disk image, which a fault can make read-only while files are open. Returns false without loop devices. */
function mountImage(image: string, folder: string): boolean {
  try {
    execFileSync('mount', ['-o', 'loop', image, folder], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

describe('a disk that becomes read-only while a gateway runs, as after a disk fault' + verifies('ST-13'), () => {
  it('makes the gateway refuse every call, and is consistent for the next gateway', async ({ skip }) => {
    const image = path.join(ground.project.folder, 'image');
    mkdirSync(ground.state);
    execFileSync('mkfs.ext4', ['-q', '-O', '^has_journal', image, KIBIBYTES]);
    skip(!mountImage(image, ground.state), 'There are no loop devices here.');
    await ground.project.approve();
    const gateway = await ground.gateway();
    for (let n = 0; n < 5; n += 1)
      expect(codeOf(await callOnce(gateway, { tool: 'a_echo', token: `before-${n}` }))).toBe('ok');
    execFileSync('sync', ['-f', ground.state]);
    execFileSync('mount', ['-o', 'remount,abort', ground.state]);
    const codes = await Promise.all(
      Array.from({ length: 20 }, async (_, n) =>
        codeOf(await callOnce(gateway, { tool: 'a_echo', token: `during-${n}` })),
      ),
    );
    expect([...new Set(codes)].filter((code) => !['AUDIT_FAILED', 'STATE_FAILED'].includes(code))).toEqual([]);
    expect(ground.ran('a').filter((token) => token.startsWith('during'))).toEqual([]);
    await gateway.end();
    unmount(ground.state);
    // A copy, because a file system with a fault stays read-only while any file on it is open.
    copyFileSync(image, `${image}-again`);
    expect(mountImage(`${image}-again`, ground.state)).toBe(true);
    const next = await ground.gateway();
    expect(codeOf(await callOnce(next, { tool: 'a_echo', token: 'after' }))).toBe('ok');
    await next.end();
    expect(dataOf((await cli(ground.project, ['audit', 'verify', '--json'])).out)).toMatchObject({
      ok: true,
      faults: [],
    });
  });
});
