/** Tests that each time slice runs in its own turn of the event loop, and that large inputs wait for each other. */
import { describe, expect, it } from 'vitest';
import {
  LARGE_INPUT_BYTES,
  MAX_INPUT_BYTES,
  ownEventLoopTurn,
  runWithinBounds,
  TimeSlices,
} from '../../catalogs/text/time-slices.ts';
import { verifies } from '../verifies.ts';

/** Counts turns of the event loop until it is stopped. */
function countTurns(): { readonly count: () => number; readonly stop: () => void } {
  let [turns, ended] = [0, false];
  const next = (): void => {
    if (ended) return;
    turns += 1;
    setImmediate(next);
  };
  setImmediate(next);
  return { count: () => turns, stop: () => (ended = true) };
}

describe('time slices' + verifies('TR-44'), () => {
  it('of sixteen calls run in sixteen turns of the event loop', async () => {
    const turns = countTurns();
    const seen = await Promise.all(Array.from({ length: 16 }, () => ownEventLoopTurn().then(() => turns.count())));
    turns.stop();
    expect(new Set(seen).size).toBe(16);
  });

  it('of one call end with its signal', async () => {
    const pace = new TimeSlices(AbortSignal.abort(new Error('given up')));
    await expect(pace.rest()).rejects.toThrow('given up');
  });
});

describe('large inputs' + verifies('TR-44'), () => {
  it('are processed four of the largest at a time, in order, and small ones at once', async () => {
    const [running, order]: [Set<number>, number[]] = [new Set(), []];
    let most = 0;
    const ends: (() => void)[] = [];
    const works = Array.from({ length: 16 }, (_, at) =>
      runWithinBounds(MAX_INPUT_BYTES, async () => {
        running.add(at);
        order.push(at);
        most = Math.max(most, running.size);
        await new Promise<void>((resolve) => ends.push(resolve));
        running.delete(at);
        return at;
      }),
    );
    while (order.length < 4) await ownEventLoopTurn();
    expect(await runWithinBounds(LARGE_INPUT_BYTES, () => running.size)).toBe(4);
    for (let ended = 0; ended < 16; ended += 1) {
      while (ends.length === 0) await ownEventLoopTurn();
      ends.shift()?.();
    }
    expect(await Promise.all(works)).toEqual(Array.from({ length: 16 }, (_, at) => at));
    expect(order).toEqual(Array.from({ length: 16 }, (_, at) => at));
    expect(most).toBe(4);
  });

  it('larger than the limit are processed alone, and a failure frees their bytes', async () => {
    await expect(runWithinBounds(100 * MAX_INPUT_BYTES, () => Promise.reject(new Error('broken')))).rejects.toThrow(
      'broken',
    );
    expect(await runWithinBounds(100 * MAX_INPUT_BYTES, () => 'done')).toBe('done');
  });

  it('that are aborted while they wait never start, and the next one starts', async () => {
    let end: (() => void) | undefined;
    const first = runWithinBounds(4 * MAX_INPUT_BYTES, () => new Promise<void>((resolve) => (end = resolve)));
    const stop = new AbortController();
    let begun = false;
    const second = runWithinBounds(4 * MAX_INPUT_BYTES, () => (begun = true), stop.signal);
    const third = runWithinBounds(LARGE_INPUT_BYTES + 1, () => 'third');
    while (end === undefined) await ownEventLoopTurn();
    stop.abort(new Error('given up'));
    await expect(second).rejects.toThrow('given up');
    (end as () => void)();
    await first;
    expect(await third).toBe('third');
    expect(begun).toBe(false);
  });
});
