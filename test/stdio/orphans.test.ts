/** Tests that processes which left the process group of their server are killed while they start others. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { killMarked, MARK_VARIABLE, newProcessMark } from '../../adapters/stdio/orphans.ts';
import { TIMES } from '../faults/fault-seed.ts';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';

/** How often processes of each kind are started and killed. `npm run faults` does it more often. */
const ROUNDS = roundsOf(4, 1) * TIMES;

describe('killMarked' + verifies('PF-15'), () => {
  it.each([
    ['start during a scan', ROUNDS, 'for count in $(seq 200); do setsid sleep 60 & done; wait'],
    [
      'call execve repeatedly, and have no environment in between',
      ROUNDS,
      `ulimit -t 60; again='exec sh -c "$again"'; export again; for count in $(seq 40); do setsid sh -c "$again" & done; wait`,
    ],
  ])('kills marked processes that %s', { timeout: 240_000 }, async (_title, rounds, script) => {
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

/** Returns how many processes have the mark. A zombie has no environment. */
function running(mark: string): number {
  return readdirSync('/proc').filter((pid) => {
    try {
      return Number(pid) !== process.pid && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(mark);
    } catch {
      return false;
    }
  }).length;
}
