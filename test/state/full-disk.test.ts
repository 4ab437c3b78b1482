/** Tests that switches are thrown, read and lifted where a disk takes nothing more. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/servers/kill-switch.ts';
import { InPlace } from '../../facade/state/in-place.ts';
import { openState } from '../../facade/state/sqlite.ts';
import { verifies } from '../verifies.ts';
import { empty, fill, mountSmallDisk, unmount } from './small-disk.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-full-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const ACT = { since: '2026-11-22T00:00:00.000Z', by: 'boss' };
const stops = (): string => path.join(folder, 'stops');

describe('on a full disk', () => {
  beforeEach(() => mountSmallDisk(folder));
  afterEach(() => unmount(folder));

  it('switches are thrown and hold at the next question of every process, and are lifted again' + verifies('HA-19'), async () => {
    const running = openState(folder);
    const watched = new KillSwitch(running);
    expect([watched.offRefusal(), watched.refusalOf('one')]).toEqual([undefined, undefined]);
    const before = running.stamp();
    fill(folder);
    expect(() => running.put('labels', 'x', 'y'.repeat(9000))).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    // As a command in a process of its own: its state is opened on the full disk.
    const typed = openState(folder, Date.now() + 1e11);
    const killSwitch = new KillSwitch(typed);
    for (const server of ['two', 'one']) await killSwitch.throw({ server, ...ACT });
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect(running.stamp()).not.toBe(before);
    expect(watched.refusalOf('one')).toMatchObject({ code: 'SERVER_UNAVAILABLE', data: { killed: true } });
    expect([watched.offRefusal(), watched.refusalOf('three')]).toEqual([undefined, undefined]);
    await killSwitch.throw(ACT);
    expect(await killSwitch.list()).toEqual([ACT, { server: 'one', ...ACT }, { server: 'two', ...ACT }]);
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect([watched.offRefusal()?.code, watched.refusalOf('three')?.code]).toEqual(['SWITCHED_OFF', 'SWITCHED_OFF']);
    expect([await killSwitch.turnOn(), await killSwitch.lift()]).toEqual([true, ['one', 'two']]);
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect([watched.offRefusal(), watched.refusalOf('one'), running.get('kill', 'one')]).toEqual([undefined, undefined, undefined]);
    // With room again the database keeps them, and both places are one.
    empty(folder);
    await killSwitch.throw({ server: 'one', ...ACT });
    expect([(await watched.list()).length, await watched.lift(), await killSwitch.list()]).toEqual([1, ['one'], []]);
    typed.close();
    running.close();
  });
});

describe('the file of switches', () => {
  it('always has room for the one that stops everything', () => {
    const file = new InPlace(stops());
    const rows = new Map<string, string>();
    const kill = (name: string): void => {
      file.write(new Map([...rows, [name, JSON.stringify(ACT)]]));
      rows.set(name, JSON.stringify(ACT));
    };
    expect(() => { for (let n = 0; n < 200; n += 1) kill(`server-${n}`); }).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    expect(rows.size).toBeGreaterThan(30);
    kill('*');
    expect(new Map(file.rows())).toEqual(rows);
    file.close();
  });

  it('that cannot be read is not taken for an empty one, and a link is not followed' + verifies('HA-19'), async () => {
    const state = openState(folder);
    for (const text of ['', '{"one":', 'x'.repeat(9000), '[]'.padEnd(4096), '"one"'.padEnd(4096), 'true'.padEnd(4096), 'null'.padEnd(4096)]) {
      writeFileSync(stops(), text);
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect(() => new KillSwitch(state).refusalOf('one')).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
      expect(() => new KillSwitch(state).offRefusal()).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    }
    state.close();
    rmSync(stops());
    execFileSync('ln', ['-s', '/etc/hostname', stops()]);
    expect(() => openState(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
  });
});
