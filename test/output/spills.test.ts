/**
 * Tests how long spills are kept, and that no step of a call costs more with the number of runs and spills. It counts
 * steps, because clocks differ.
 */

import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Spills } from '../../facade/output/spills.ts';
import { inFull } from '../harness/full-tests.ts';
import { allow, startRaw, tool } from '../properties/raw-facade.ts';
import { verifies } from '../verifies.ts';

const HOUR_MS = 3_600_000;
const SOURCE = {
  effect: { verb: 'read' as const, server: 'web', tool: 'page', paths: [], urls: [] },
  labels: [],
  maxBytes: 10_000,
};

let state: string;
let now: number;
let spills: Spills;
beforeEach(() => {
  state = mkdtempSync(path.join(tmpdir(), 'tollgate-spills-'));
  now = 0;
  spills = new Spills(state, { now: () => now });
});
afterEach(() => {
  spills.close();
  rmSync(state, { recursive: true, force: true });
});

function put(principal: string, run: string): string {
  return spills.put('some text', { principal, run }, SOURCE).handle;
}

function isKept(handle: string, principal: string, run: string): boolean {
  try {
    return spills.source(handle, { principal, run }).effect.spill === true;
  } catch {
    return false;
  }
}

/** Returns the files of all spills. */
function files(): readonly string[] {
  return readdirSync(path.join(state, 'spills'), { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map(({ name }) => name);
}

/** Counts the steps of every built-in iterator while `work` runs. */
async function steps(work: () => unknown): Promise<number> {
  let count = 0;
  const kinds = [new Map().entries(), new Set().values(), [][Symbol.iterator]()].map(
    (one) => Object.getPrototypeOf(one) as { next: () => unknown },
  );
  const before = kinds.map((kind) => kind.next);
  kinds.forEach((kind, at) => {
    kind.next = function next(this: unknown): unknown {
      count += 1;
      return before[at]?.call(this as never);
    };
  });
  try {
    await work();
  } finally {
    kinds.forEach((kind, at) => (kind.next = before[at] as () => unknown));
  }
  return count;
}

describe('the age of spills', () => {
  it('ends them, also while their run continues' + verifies('ST-40'), () => {
    spills.keepFor(2 * HOUR_MS);
    const old = put('ann', 'ann/a');
    now += HOUR_MS;
    const young = put('ann', 'ann/b');
    expect([isKept(old, 'ann', 'ann/a'), isKept(young, 'ann', 'ann/b')]).toEqual([true, true]);
    now += HOUR_MS;
    // Too old from this moment on, even before it is deleted.
    expect([isKept(old, 'ann', 'ann/a'), isKept(young, 'ann', 'ann/b')]).toEqual([false, true]);
    put('ben', 'ben/a');
    expect(files()).toHaveLength(2);
  });

  it('is checked even if no call is made' + verifies('ST-40'), async () => {
    spills.close();
    spills = new Spills(state, { now: () => performance.now() });
    spills.keepFor(200);
    for (let run = 0; run < 20; run += 1) put('ann', `ann/${run}`);
    expect(files()).toHaveLength(20);
    await expect.poll(files).toEqual([]);
  });

  it('is judged by the current setting' + verifies('ST-40'), () => {
    spills.keepFor(5 * HOUR_MS);
    const handle = put('ann', 'ann/a');
    now += 2 * HOUR_MS;
    expect(isKept(handle, 'ann', 'ann/a')).toBe(true);
    spills.keepFor(HOUR_MS);
    expect([isKept(handle, 'ann', 'ann/a'), files()]).toEqual([false, []]);
  });
});

describe('many runs and spills', () => {
  it('do not add steps to storing, finding and deleting' + verifies('ST-41'), async () => {
    const round = (name: string): Promise<number> =>
      steps(() => {
        const handle = put('ann', `ann/${name}`);
        isKept(handle, 'ann', `ann/${name}`);
        spills.forget({ principal: 'ann', run: `ann/${name}` });
      });
    await round('first');
    const few = await round('few');
    for (let run = 0; run < 1500; run += 1) put(run % 2 === 0 ? 'ann' : `p${run}`, `x/${run}`);
    expect(files().length).toBeGreaterThan(1000);
    // Each new one drops the oldest of the principal with the most.
    expect(await round('many')).toBeLessThanOrEqual(few + 5);
  });

  inFull(
    'do not add steps to a call' + verifies('ST-41'),
    async () => {
      const keepFor = vi.spyOn(Spills.prototype, 'keepFor');
      const facade = await startRaw(
        {
          web: {
            tools: [tool('page')],
            settings: { labels: ['untrusted'] },
            answers: { page: { raw: JSON.stringify({ content: [{ type: 'text', text: 'line\n'.repeat(2000) }] }) } },
          },
        },
        {
          principals: [{ id: 'ann', profiles: ['all'], stdio: true }],
          profiles: { all: { servers: ['web'], expose: { primitives: {}, tools: ['web.*'] } } },
          rules: [allow('web')],
          labels: { sticky: ['untrusted'] },
          budgets: [{ id: 'many', scope: 'run', calls: 10_000, outputBytes: 1e9 }],
          caps: { bytes: 2048 },
          runs: { keep: '2h' },
        },
      );
      try {
        expect(keepFor.mock.calls).toEqual([[2 * HOUR_MS]]);
        const session = facade.open('ann');
        const call = async (run: string): Promise<void> => {
          const { text } = await facade.call(session, 'web_page', {}, { meta: { 'tollgate/run': run } });
          expect(text).toContain('spill://');
        };
        const median = async (name: string): Promise<number> => {
          const counts: number[] = [];
          for (let n = 0; n < 9; n += 1) counts.push(await steps(() => call(`${name}-${n}`)));
          return counts.sort((a, b) => a - b)[4] ?? 0;
        };
        for (let n = 0; n < 5; n += 1) await call(`warm-${n}`);
        const few = await median('few');
        for (let n = 0; n < 400; n += 1) await call(`run-${n}`);
        expect(await median('many')).toBeLessThanOrEqual(few + 40);
      } finally {
        keepFor.mockRestore();
        await facade.close();
      }
    },
    120_000,
  );
});
