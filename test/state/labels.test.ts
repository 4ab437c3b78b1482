/** Tests that labels of runs do not pile up in the state: they go with their run, and those of names that nobody uses any more with time. */
import { expect, it } from 'vitest';
import { createLabels } from '../../facade/labels.ts';
import { createRuns, labelSpace, runKey } from '../../facade/runs.ts';
import type { OpenSession } from '../../facade/session.ts';
import { openState } from '../../facade/state/sqlite.ts';
import { verifies } from '../verifies.ts';
import { temporaryFolder } from './place.ts';

const DAY = 86_400_000;
const ANN = { id: 'ann', role: 'dev', groups: [], profiles: [], origin: 'app' };
const session = (): OpenSession => ({ id: 's1', principal: ANN, labels: new Set<string>() }) as unknown as OpenSession;

it('of a run of a host go when it ends, or when the next one is opened after its life; others stay' + verifies('TR-90'), async () => {
  const state = openState(temporaryFolder());
  let now = 1_000;
  const runs = createRuns({ principals: [] }, state, () => now);
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
    const last = await open();
    expect([kept(forgotten), kept('mine'), kept(last)]).toEqual([0, 1, 2]);
    // A sticky label is no label of a run.
    expect(labels.of(session(), 's1')).toEqual(['secret']);
  } finally {
    await state.close();
  }
});

it('of a name that nobody has used for 30 days go at the next start' + verifies('TR-90'), async () => {
  const folder = temporaryFolder();
  const first = openState(folder, 0);
  await first.put(labelSpace('ann/old'), 'untrusted', String(1));
  await first.put(labelSpace('ann/new'), 'untrusted', String(2 * DAY));
  await first.close();
  const second = openState(folder, 31 * DAY);
  try {
    expect([second.list(labelSpace('ann/old')).size, second.list(labelSpace('ann/new')).size]).toEqual([0, 1]);
  } finally {
    await second.close();
  }
});
