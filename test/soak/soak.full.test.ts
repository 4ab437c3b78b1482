/** Tests the soak with few calls, and that it finds growth. `npm run soak` makes enough calls to find a small leak. */
import { describe, expect, it } from 'vitest';
import { roundsOf } from '../harness/slices.ts';
import { verifies } from '../verifies.ts';
import { growthIn, type Sample, soak } from './soak.ts';

const MIB = 1_048_576;

function samples(grow: { readonly heap?: number; readonly descriptors?: number }): readonly Sample[] {
  return Array.from({ length: 21 }, (_, at) => ({
    calls: at * 1000,
    heap: (20 + (at % 2) + at * (grow.heap ?? 0)) * MIB,
    rss: 100 * MIB,
    cpuUs: at,
    descriptors: 30 + (at % 2) + at * (grow.descriptors ?? 0),
  }));
}

describe('a soak' + verifies('ST-15'), () => {
  it('reports a heap and descriptors that grow, and no noise', () => {
    expect(growthIn(samples({}))).toEqual([]);
    expect(growthIn(samples({ heap: 0.5 }))).toEqual([
      expect.stringMatching(/^the heap grew from \d+\.\d to \d+\.\d MB$/),
    ]);
    expect(growthIn(samples({ descriptors: 1 }))).toEqual([
      expect.stringMatching(/^descriptors grew from \d+ to \d+$/),
    ]);
  });

  it.each([
    { transport: 'stdio', calls: roundsOf(2_000, 300), sessions: 1, inFlight: 8 },
    { transport: 'http', calls: roundsOf(600, 100), sessions: roundsOf(20, 10), inFlight: 8 },
  ] as const)('over $transport answers every call, and stays flat', async (plan) => {
    const lines: string[] = [];
    expect(await soak(plan, (line) => lines.push(line)), lines.join('\n')).toEqual([]);
    expect(lines).toHaveLength(20);
    expect(lines.at(-1)).toMatch(
      new RegExp(
        `^${plan.transport}: ${plan.calls} calls, heap [\\d.]+ MB, resident [\\d.]+ MB, \\d+ descriptors, \\d+ ` +
          'µs of processor time a call, \\d+ calls/s$',
      ),
    );
  });
});
