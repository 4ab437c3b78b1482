/** Compares budgets with a simple model, over random histories. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createBudgets, type Lease } from '../../facade/budget/budgets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { momentAt, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';

/** A simple model: what was granted to whom in which window. */
interface Model {
  now: number;
  windowEnds: number;
  calls: number;
  bytes: number;
  readonly open: { readonly lease: Lease; readonly granted: number; readonly windowEnds: number }[];
}

const LIMIT = { calls: 6, outputBytes: 10_000 };
const WINDOW_S = 10;

const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('take' as const), most: fc.integer({ min: 0, max: 6000 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      which: fc.nat(),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 12_000 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('restart' as const) }) },
);

describe('budgets, compared with a model', () => {
  it(
    'grant exactly what is left, over windows and restarts, and never exceed a limit' + verifies('CY-17'),
    async () => {
      const folder = temporaryFolder();
      let runs = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
          const model: Model = { now: 0, windowEnds: -1, calls: 0, bytes: 0, open: [] };
          const budget = { id: `b${(runs += 1)}`, scope: 'principal' as const, window: WINDOW_S, ...LIMIT };
          let state = openState(folder, { now: 0 });
          let budgets = createBudgets(state, () => momentAt(model.now));
          const take = async (most: number): Promise<Lease | undefined> => {
            try {
              // The deadline is over, so a call that would wait is refused at once.
              return await budgets.reserve({
                budgets: [budget],
                keys: { run: '', session: '', sessions: 'p', principal: 'p', server: '', tool: '', origin: '' },
                argBytes: 0,
                maxOutputBytes: most,
                maxWallMs: 0,
                signal: new AbortController().signal,
                deadline: 0,
              });
            } catch {
              return undefined;
            }
          };
          for (const one of steps) {
            if (one.kind === 'wait') model.now += one.ms;
            if (one.kind === 'settle') settleOne(model, one);
            if (one.kind === 'restart') {
              // Killed with open leases, so the reserved amounts stay spent.
              await state.close();
              model.open.length = 0;
              state = openState(folder, { now: 0 });
              budgets = createBudgets(state, () => momentAt(model.now));
            }
            if (one.kind === 'take') checkTake(model, await take(one.most), one.most);
            expect(model.calls).toBeLessThanOrEqual(LIMIT.calls);
            expect(model.bytes).toBeLessThanOrEqual(LIMIT.outputBytes);
          }
          await state.close();
        }),
        { numRuns: 60 },
      );
    },
  );
});

function checkTake(model: Model, lease: Lease | undefined, most: number): void {
  if (model.now >= model.windowEnds) Object.assign(model, { calls: 0, bytes: 0, windowEnds: -1 });
  const left = LIMIT.outputBytes - model.bytes;
  const least = Math.min(most, model.open.length > 0 ? Math.min(most, LIMIT.outputBytes) : 1000);
  const mayRun = model.calls < LIMIT.calls && left >= least;
  expect(lease !== undefined).toBe(mayRun);
  if (lease === undefined) return;
  const granted = Math.min(most, left);
  expect(lease.outputBytes).toBe(granted);
  if (model.windowEnds < 0) model.windowEnds = model.now + WINDOW_S * 1000;
  model.calls += 1;
  model.bytes += granted;
  model.open.push({ lease, granted, windowEnds: model.windowEnds });
}

function settleOne(model: Model, { which, share }: { which: number; share: number }): void {
  const [one] = model.open.splice(which % Math.max(1, model.open.length), 1);
  if (one === undefined) return;
  const used = Math.ceil(one.granted * share);
  one.lease.settle({ outputBytes: used, wallMs: 0 });
  if (one.windowEnds === model.windowEnds) model.bytes -= one.granted - used;
}
