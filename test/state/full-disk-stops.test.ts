/** Tests that stops work on a full disk. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KillSwitch } from '../../facade/consent/switch/kill-switch.ts';
import { SharedConnections } from '../../facade/runtime/servers/shared-connections.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { Stops } from '../../facade/state/stop-file.ts';
import { inFull } from '../harness/full-tests.ts';
import { verifies } from '../verifies.ts';
import { canMountDisks, empty, fill, mountSmallDisk, NO_DISKS, unmount } from './small-disk.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tollgate-full-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const ACT = { since: '2026-11-22T00:00:00.000Z', by: 'boss' };
const stops = (): string => path.join(folder, 'stopped');

describe('on a full disk', () => {
  beforeEach(({ skip }) => {
    skip(!canMountDisks(), NO_DISKS);
    mountSmallDisk(folder);
  });
  afterEach(() => unmount(folder));

  it(
    'stops are set, apply to the next call of every process, and are lifted' + verifies('HA-19', 'ST-02'),
    async () => {
      const running = openState(folder);
      const watched = new KillSwitch(running);
      expect([watched.offRefusal(), watched.refusalOf('one')]).toEqual([undefined, undefined]);
      const before = running.stops.stamp();
      fill(folder);
      expect(() => running.put('labels', 'x', 'y'.repeat(9000))).toThrow(
        expect.objectContaining({ code: 'STATE_FAILED' }) as Error,
      );
      // In another process, as a command does it.
      const stops = new Stops(folder);
      const killSwitch = new KillSwitch({ stops });
      for (const server of ['two', 'one']) killSwitch.throw({ server, ...ACT });
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect(running.stops.stamp()).not.toBe(before);
      expect(watched.refusalOf('one')).toMatchObject({ code: 'SERVER_UNAVAILABLE', data: { killed: true } });
      expect([watched.offRefusal(), watched.refusalOf('three')]).toEqual([undefined, undefined]);
      killSwitch.throw(ACT);
      expect(killSwitch.list()).toEqual([ACT, { server: 'one', ...ACT }, { server: 'two', ...ACT }]);
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect([watched.offRefusal()?.code, watched.refusalOf('three')?.code]).toEqual(['SWITCHED_OFF', 'SWITCHED_OFF']);
      expect([killSwitch.turnOn(), killSwitch.turnOn(), killSwitch.lift()]).toEqual([true, false, ['one', 'two']]);
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect([watched.offRefusal(), watched.refusalOf('one'), running.stops.list().size]).toEqual([
        undefined,
        undefined,
        0,
      ]);
      empty(folder);
      stops.close();
      running.close();
    },
  );

  it('a connection that cannot be returned is returned when there is space' + verifies('ST-16'), async () => {
    const state = openState(folder);
    const faults: unknown[] = [];
    const connections = new SharedConnections(state, { limit: 1, onFault: (thrown) => faults.push(thrown) });
    const giveBack = await connections.take();
    fill(folder);
    giveBack?.();
    await expect.poll(() => faults).toHaveLength(1);
    await connections.retryReturns();
    empty(folder);
    expect(await connections.take()).toBeUndefined();
    await connections.retryReturns();
    expect(await connections.take()).toBeDefined();
    state.close();
  });
});

describe('the stop file', () => {
  const kill = (file: Stops, name: string): void => file.put(name, ACT);

  it('always has a slot for the stop of everything, and reports when no other slot is free' + verifies('ST-02'), () => {
    const file = new Stops(folder);
    const names = Array.from({ length: 254 }, (_, n) => `server-${n}`);
    for (const name of names) kill(file, name);
    expect(() => kill(file, 'one-more')).toThrow(
      expect.objectContaining({
        code: 'STATE_FAILED',
        next: expect.stringContaining('tollgate off') as string,
      }) as Error,
    );
    kill(file, '*');
    expect([...file.list().keys()]).toEqual(['*', ...names].sort());
    expect([file.remove('server-7'), file.remove('server-7')]).toEqual([true, false]);
    kill(file, 'one-more');
    expect(file.list().size).toBe(255);
    file.close();
  });

  it('keeps the writes of two processes, and cuts a user name that does not fit' + verifies('ST-02'), async () => {
    const files = [new Stops(folder), new Stops(folder)] as const;
    for (let n = 0; n < 60; n += 1) kill(files[n % 2] as Stops, `server-${n}`);
    files[0].put('long', { since: ACT.since, by: 'ü'.repeat(300) });
    await new Promise((resolve) => setTimeout(resolve, 2));
    expect(files[1].list().size).toBe(61);
    expect(files[1].list().get('long')?.by).toMatch(/^ü{50,}$/);
    expect(() => files[0].put('x'.repeat(300), ACT)).toThrow(
      expect.objectContaining({ code: 'STATE_FAILED' }) as Error,
    );
    for (const file of files) file.close();
  });

  inFull(
    'is not treated as empty if it cannot be read, and is not opened through a link' + verifies('HA-19', 'ST-02'),
    async () => {
      const state = openState(folder);
      const good = readFileSync(stops());
      const slot = (text: string): Buffer =>
        Buffer.concat([good.subarray(0, 256), Buffer.from(text.padEnd(256)), good.subarray(512)]);
      for (const bytes of [
        Buffer.alloc(0),
        good.subarray(0, 300),
        Buffer.from('x'.repeat(70_000)),
        slot('{"one":'),
        slot('[]'),
        slot('{"name":"a"}'),
      ]) {
        writeFileSync(stops(), bytes);
        await new Promise((resolve) => setTimeout(resolve, 1_100));
        expect(() => new KillSwitch(state).refusalOf('one')).toThrow(
          expect.objectContaining({ code: 'STATE_FAILED' }) as Error,
        );
        expect(() => new KillSwitch(state).offRefusal()).toThrow(
          expect.objectContaining({ code: 'STATE_FAILED' }) as Error,
        );
      }
      writeFileSync(stops(), good);
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect(new KillSwitch(state).offRefusal()).toBeUndefined();
      rmSync(stops());
      await new Promise((resolve) => setTimeout(resolve, 2));
      expect(() => new KillSwitch(state).offRefusal()).toThrow(
        expect.objectContaining({ code: 'STATE_LOST' }) as Error,
      );
      state.close();
      execFileSync('ln', ['-s', '/etc/hostname', stops()]);
      expect(() => openState(folder)).toThrow(expect.objectContaining({ code: 'STATE_FAILED' }) as Error);
    },
  );
});
