/** Tests the end of processes that left the group of their program, while they still start others. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { killMarked, MARK_VARIABLE, newProcessMark } from '../../adapters/stdio/orphans.ts';
import { verifies } from '../verifies.ts';

describe('the end of processes with a mark' + verifies('PF-15'), () => {
  it('takes those with it that were started while it looked', async () => {
    for (let round = 0; round < 10; round += 1) {
      const mark = newProcessMark('test-strays');
      const left = (): number =>
        readdirSync('/proc').filter((pid) => {
          try {
            // The environment of a process that has ended, and is not reaped, is empty.
            return Number(pid) !== process.pid && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark);
          } catch {
            return false;
          }
        }).length;
      const forker = spawn('/bin/sh', ['-c', 'for count in $(seq 200); do setsid sleep 60 & done; wait'], {
        detached: true,
        stdio: 'ignore',
        env: { PATH: process.env.PATH, [MARK_VARIABLE]: mark },
      });
      const ended = new Promise((resolve) => forker.once('exit', resolve));
      await expect.poll(left, { interval: 1 }).toBeGreaterThan(20);
      expect(killMarked((found) => found === mark)).toBeGreaterThan(20);
      await ended;
      await sleep(20);
      await expect.poll(left).toBe(0);
    }
  });
});
