/** Tests the end of processes that left the group of their program, while they still start others. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { killMarked, MARK_VARIABLE, newProcessMark } from '../../adapters/stdio/orphans.ts';
import { verifies } from '../verifies.ts';

describe('the end of processes with a mark' + verifies('PF-15'), () => {
  it.each([
    ['are started during a scan', 10, 'for count in $(seq 200); do setsid sleep 60 & done; wait'],
    [
      'replace their program all the time, and have no environment meanwhile',
      10,
      `again='exec sh -c "$again"'; export again; for count in $(seq 40); do setsid sh -c "$again" & done; wait`,
    ],
  ])('kills those that %s', { timeout: 60_000 }, async (_what, rounds, script) => {
    for (let round = 0; round < rounds; round += 1) {
      const mark = newProcessMark('test-orphans');
      const program = start(script, mark);
      const ended = new Promise((resolve) => program.once('exit', resolve));
      try {
        await expect.poll(() => running(mark), { interval: 1 }).toBeGreaterThan(20);
        expect(killMarked((found) => found === mark)).toBeGreaterThan(20);
        await ended;
        await expect.poll(() => running(mark)).toBe(0);
      } finally {
        while (running(mark) > 0) killMarked((found) => found === mark);
      }
    }
  });
});

function start(script: string, mark: string): ChildProcess {
  return spawn('/bin/sh', ['-c', script], {
    detached: true,
    stdio: 'ignore',
    env: { PATH: process.env.PATH, [MARK_VARIABLE]: mark },
  });
}

/** Returns how many processes have the mark. One that has ended, and that nobody waited for, has no environment. */
function running(mark: string): number {
  return readdirSync('/proc').filter((pid) => {
    try {
      return Number(pid) !== process.pid && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark);
    } catch {
      return false;
    }
  }).length;
}
