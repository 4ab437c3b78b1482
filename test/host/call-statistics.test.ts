/** Tests that the counts for hosts survive the end of a process, and are exact with several processes at once. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { CallTally, countKey } from '../../facade/serve/host/call-statistics.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { ACT, startRaw } from '../properties/raw-facade.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';

function open(folder: string): State {
  const state = openState(folder);
  onTestFinished(() => void state.close());
  return state;
}

const OK = { tool: 'read', origin: 'app', outcome: 'ok' };
const KIND = countKey(OK);

describe('call statistics', () => {
  it('survive a restart of the facade' + verifies('ST-47', 'HB-13'), async () => {
    const first = await startRaw({ web: { tools: [ACT] } });
    const session = first.open('me');
    for (let n = 0; n < 3; n += 1) await first.call(session, 'web_act', {});
    await first.call(session, 'nothing', {});
    const before = first.assembled.deps.metrics.statistics();
    expect(before).toMatchObject({
      calls: 4,
      succeeded: 3,
      failed: 1,
      byTool: { web_act: 3, unknown: 1 },
      byOutcome: { ok: 3, UNKNOWN_TOOL: 1 },
    });
    const text = readFileSync(path.join(first.folder, 'tollgate.yaml'), 'utf8');
    await first.assembled.gateway.close();
    const second = await startFacade(text, { folder: first.folder });
    onTestFinished(() => first.close());
    expect(second.assembled.deps.metrics.statistics()).toEqual(before);
    // The metrics of the process begin again, as Prometheus expects.
    expect(
      second.assembled.gateway.metrics({ ...second.assembled.config.principals[0], owner: true } as never),
    ).not.toContain('tollgate_calls_total{');
    await second.assembled.gateway.close();
  });

  it('add up all processes and count each call once' + verifies('ST-47'), async () => {
    const folder = temporaryFolder();
    const tallies = [open(folder), open(folder), open(folder)].map((state) => new CallTally(state));
    for (let n = 0; n < 50; n += 1) {
      for (const tally of tallies) tally.count(KIND, 10);
      await Promise.all(tallies.map((tally) => tally.flush()));
    }
    tallies[0]?.count(countKey({ ...OK, outcome: 'DENIED' }));
    expect(tallies[0]?.read()).toEqual({
      calls: 151,
      succeeded: 150,
      failed: 1,
      averageMs: 10,
      byTool: { read: 151 },
      byOrigin: { app: 151 },
      byOutcome: { DENIED: 1, ok: 150 },
    });
    expect(tallies[1]?.read().calls).toBe(150);
  });

  it('are written after some seconds, so that a killed process loses little' + verifies('ST-47'), async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const folder = temporaryFolder();
    new CallTally(open(folder)).count(KIND, 10);
    await vi.advanceTimersByTimeAsync(5000);
    expect(new CallTally(open(folder)).read().calls).toBe(1);
  });

  it(
    'are kept while the state fails, begin again if they cannot be read, and stay small' + verifies('ST-47'),
    async () => {
      const state = open(temporaryFolder());
      let isFull = true;
      const tally = new CallTally({
        get: (space, key) => state.get(space, key),
        swap: (...change) => {
          if (isFull) throw new Error('full');
          return state.swap(...change);
        },
      });
      tally.count(KIND, 10);
      await tally.flush();
      tally.count(KIND, 10);
      isFull = false;
      await tally.flush();
      expect(new CallTally(state).read().calls).toBe(2);
      await state.put('statistics', 'calls', '{');
      tally.count(KIND, 10);
      await tally.flush();
      expect(new CallTally(state).read().calls).toBe(1);
      for (let n = 0; n < 3000; n += 1) tally.count(countKey({ ...OK, origin: `https://page-${n}.example` }), 1);
      await tally.flush();
      const { calls, byOrigin } = new CallTally(state).read();
      expect([calls, Object.keys(byOrigin).length]).toEqual([3001, 1001]);
      expect(byOrigin.others).toBe(2001);
    },
  );
});
