/**
 * Tests that labels of runs do not accumulate in the state: they are deleted with their run, or after a time without
 * use.
 */
import { expect, it } from 'vitest';
import { createBudgets } from '../../facade/budget/budgets.ts';
import type { OpenSession } from '../../facade/call/identify.ts';
import { createLabels } from '../../facade/call/run-labels.ts';
import { createPlans, listPlans } from '../../facade/consent/plan-mode.ts';
import { RunExpiry } from '../../facade/runtime/run-expiry.ts';
import { createRuns, labelSpace, runKey } from '../../facade/serve/host/host-runs.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import { temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

const DAY = 86_400_000;
const ANN = { id: 'ann', role: 'dev', groups: [], profiles: [], origin: 'app' };
const session = (): OpenSession => ({ id: 's1', principal: ANN, labels: new Set<string>() }) as unknown as OpenSession;

it(
  "labels of a host's run are deleted when the run ends or is too old, and others stay" + verifies('TR-90', 'ST-42'),
  async () => {
    const state = openState(temporaryFolder());
    let now = 1_000;
    const runs = createRuns(
      { principals: [], runs: { keepMs: DAY } },
      { state, budgets: createBudgets(state) },
      () => now,
    );
    const labels = createLabels({ state, runs, sticky: ['secret'], now: () => now });
    const open = async (): Promise<string> => {
      const run = await runs.open({ principal: 'ann', origin: 'app', owned: true });
      await labels.join(session(), runKey(run), ['untrusted', 'internal', 'secret']);
      expect([...labels.of(session(), runKey(run))].sort()).toEqual(['internal', 'secret', 'untrusted']);
      return run.name;
    };
    const kept = (name: string): number => state.list(labelSpace(`ann/${name}`)).size;
    try {
      const [ended, forgotten] = [await open(), await open()];
      await labels.join(session(), 'ann/mine', ['untrusted']);
      const run = runs.find(ended);
      if (run !== undefined) await runs.end(run);
      expect([kept(ended), kept(forgotten), kept('mine')]).toEqual([0, 2, 1]);
      now += DAY + 1;
      expect(runs.find(forgotten)).toBeUndefined();
      const last = await open();
      await runs.sweep(new AbortController().signal);
      expect([kept(forgotten), kept('mine'), kept(last)]).toEqual([0, 1, 2]);
      // A sticky label does not belong to a run.
      expect(labels.of(session(), 's1')).toEqual(['secret']);
    } finally {
      await state.close();
    }
  },
);

it('labels of a run name that was not used for 30 days are deleted at the next start' + verifies('TR-90'), async () => {
  const folder = temporaryFolder();
  const first = openState(folder, { now: 0 });
  await first.put(labelSpace('ann/old'), 'untrusted', String(1));
  await first.put(labelSpace('ann/new'), 'untrusted', String(2 * DAY));
  await first.close();
  const second = openState(folder, { now: 31 * DAY });
  try {
    expect([second.list(labelSpace('ann/old')).size, second.list(labelSpace('ann/new')).size]).toEqual([0, 1]);
  } finally {
    await second.close();
  }
});

it(
  'labels of old runs are deleted in the background, so opening a run reads no others' + verifies('ST-42'),
  async () => {
    const state = openState(temporaryFolder());
    let now = 1_000;
    let listed = 0;
    const list: typeof state.list = (space, prefix) => {
      const rows = state.list(space, prefix);
      listed += rows.size;
      return rows;
    };
    const listing = { state: { ...state, list }, budgets: createBudgets(state) };
    const runs = createRuns({ principals: [], runs: { keepMs: DAY } }, listing, () => now);
    try {
      for (let n = 0; n < 200; n += 1) await runs.open({ principal: 'ann', origin: 'app', maxCalls: 5 });
      now += DAY;
      const last = await runs.open({ principal: 'ann', origin: 'app' });
      expect([runs.find(last.name)?.name, listed]).toEqual([last.name, 0]);
      await writeOldPlan(state);
      const expiry = new RunExpiry(
        [(signal) => runs.sweep(signal), (signal) => listPlans(state, 3 * DAY, signal)],
        (thrown) => expect.unreachable(String(thrown)),
        0,
      );
      await expect.poll(() => [state.list('runs').size, state.list('plan').size]).toEqual([1, 0]);
      await expiry.close();
    } finally {
      await state.close();
    }
  },
);

async function writeOldPlan(state: State): Promise<void> {
  const careful = { ...ANN, profiles: ['careful'] };
  await createPlans(
    { profiles: new Map([['careful', { plan: true }]]) } as unknown as Parameters<typeof createPlans>[0],
    state,
    () => DAY,
  ).of(careful, 'ann/old');
  expect(state.list('plan').size).toBe(1);
}
