/** Tests the clock of processor time: it tells a working thread from a waiting one. */
import { once } from 'node:events';
import vm from 'node:vm';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { openThreadClock, ownThread, runWithinMs, threadMs } from '../../catalogs/text/thread-clock.ts';

const INSIDE = `const { parentPort } = require('node:worker_threads');
parentPort.on('message', (ms) => { const end = performance.now() + ms; while (performance.now() < end); parentPort.postMessage('done'); });
parentPort.postMessage(Number(require('node:fs').readlinkSync('/proc/thread-self').split('/').at(-1)));`;

describe('the clock of a thread', () => {
  it('advances while its thread works, stops while it waits, and is unknown once it is closed', async () => {
    const worker = new Worker(INSIDE, { eval: true });
    const [thread] = (await once(worker, 'message')) as [number];
    const clock = openThreadClock(thread);
    const at = (): number => clock.ms() ?? NaN;
    const began = at();
    expect(began).toBeGreaterThan(0);
    await new Promise((resolve) => setTimeout(resolve, 60));
    const waited = at() - began;
    // The work continues until the thread had 40 ms more, however long that takes.
    const before = at();
    for (let rounds = 0; rounds < 200 && at() - before < 40; rounds++) {
      worker.postMessage(20);
      await once(worker, 'message');
    }
    expect(at() - before).toBeGreaterThanOrEqual(40);
    expect(waited).toBeLessThan(40);
    clock.close();
    clock.close();
    expect(clock.ms()).toBeUndefined();
    await worker.terminate();
  });

  it('is unknown for a missing thread, and without a thread id', () => {
    expect(openThreadClock(undefined).ms()).toBeUndefined();
    expect(openThreadClock(999_999_999).ms()).toBeUndefined();
    expect(ownThread()).toBeGreaterThan(0);
  });
});

describe('a limit of processor time', () => {
  it('ends a script that works too long, after about that time', () => {
    const began = threadMs();
    expect(() => runWithinMs(60, (timeout) => vm.runInNewContext('for (;;);', {}, { timeout }))).toThrow('timed out');
    expect(threadMs() - began).toBeGreaterThanOrEqual(50);
  });

  it('starts a script again that got no processor time, each time with twice the timeout', () => {
    const timeouts: number[] = [];
    const sleep = new Int32Array(new SharedArrayBuffer(4));
    const run = (timeout: number): string => {
      timeouts.push(timeout);
      // A script that waits stands for one that is not scheduled: both use real time and no processor time.
      const code = timeouts.length < 3 ? 'Atomics.wait(sleep, 0, 0, 60_000)' : '"done"';
      return vm.runInNewContext(code, { sleep, Atomics }, { timeout }) as string;
    };
    expect(runWithinMs(40, run)).toBe('done');
    expect(timeouts).toEqual([40, 80, 160]);
  });

  it('does not hide other errors', () => {
    expect(() => runWithinMs(40, () => JSON.parse('{'))).toThrow(SyntaxError);
  });
});
