/** Checks random histories of two processes that share budgets: limits hold, and nothing is lost. */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Budgets, createBudgets, type Lease } from '../../facade/budget/budgets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { Amounts, BudgetUnit, State } from '../../facade/state/state-port.ts';
import { roundsOf } from '../harness/slices.ts';
import { momentAt, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { KEYS, request } from './budget-request.ts';

const WINDOW_S = 60;
const LIMITS = [
  { calls: 3000, argBytes: 60_000, outputBytes: 1_000_000 },
  { calls: 1500, argBytes: 20_000, outputBytes: 400_000 },
  { calls: 100, argBytes: 3000, outputBytes: 30_000 },
];
const PER_SESSION = 900;

const who = fc.integer({ min: 0, max: 1 });
const step = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant('call' as const),
      who,
      times: fc.integer({ min: 1, max: 150 }),
      atOnce: fc.boolean(),
      argBytes: fc.integer({ min: 0, max: 40 }),
      most: fc.integer({ min: 0, max: 2000 }),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      times: fc.integer({ min: 1, max: 300 }),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('reload' as const), who, limits: fc.nat(2) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('idle' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('window' as const) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('end' as const), who }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** What was granted in the present window. An open call counts with what it may use. */
class History {
  now = 1_000_000;
  window = 0;
  used: Record<'calls' | 'argBytes' | 'outputBytes', number> = { calls: 0, argBytes: 0, outputBytes: 0 };
  readonly ofSession = [0, 0];
  readonly limits = [0, 0].map((index) => ({ ...(LIMITS[index] as (typeof LIMITS)[number]) }));
  readonly open: { readonly lease: Lease; readonly window: number }[] = [];
  readonly state: State;
  readonly budgets: readonly Budgets[];

  constructor(state: State) {
    this.state = state;
    this.budgets = [0, 1].map(() => createBudgets(state, () => momentAt(this.now)));
  }

  async run(one: Step): Promise<void> {
    if (one.kind === 'call') await this.#call(one);
    if (one.kind === 'settle') this.settle(one.times, one.share);
    if (one.kind === 'reload') this.limits[one.who] = { ...(LIMITS[one.limits] as (typeof LIMITS)[number]) };
    if (one.kind === 'idle') vi.advanceTimersByTime(1000);
    if (one.kind === 'window') {
      this.now += WINDOW_S * 1000;
      this.window += 1;
      this.used = { calls: 0, argBytes: 0, outputBytes: 0 };
    }
    if (one.kind === 'end') {
      await this.budgets[one.who]?.end('session', `s${one.who}`);
      this.ofSession[one.who] = 0;
    }
  }

  settle(times: number, share: number): void {
    for (const { lease, window } of this.open.splice(0, times)) {
      const used = Math.floor(lease.outputBytes * share);
      lease.settle({ outputBytes: used, wallMs: 0 });
      if (window === this.window) this.used.outputBytes -= lease.outputBytes - used;
    }
  }

  async #call({ who, times, atOnce, argBytes, most }: Extract<Step, { kind: 'call' }>): Promise<void> {
    const all = [];
    for (let n = 0; n < times; n += 1) {
      const made = this.#callOnce(who, argBytes, most);
      if (!atOnce) await made;
      all.push(made);
    }
    await Promise.all(all);
  }

  async #callOnce(who: number, argBytes: number, most: number): Promise<void> {
    const limits = this.limits[who]!;
    try {
      const lease = await this.budgets[who]!.reserve(
        request(
          [
            { id: 'shared', scope: 'principal', window: WINDOW_S, ...limits },
            { id: 'session', scope: 'session', window: 10 * WINDOW_S * 1000, calls: PER_SESSION },
          ],
          // The deadline is over, so a call that would wait is refused at once.
          { keys: { ...KEYS, session: `s${who}`, sessions: `p${who}` }, argBytes, maxOutputBytes: most, deadline: 0 },
        ),
      );
      this.used.calls += 1;
      this.used.argBytes += argBytes;
      this.used.outputBytes += lease.outputBytes;
      this.ofSession[who]! += 1;
      this.open.push({ lease, window: this.window });
      for (const unit of ['calls', 'argBytes', 'outputBytes'] as const)
        expect(this.used[unit], unit).toBeLessThanOrEqual(limits[unit]);
      expect(this.ofSession[who] ?? 0).toBeLessThanOrEqual(PER_SESSION);
    } catch (thrown) {
      expect(thrown).toMatchObject({ code: expect.stringMatching(/^(BUDGET_EXCEEDED|RATE_LIMITED)$/) });
    }
  }

  /** Returns what the state says was used in the present window. */
  async counted(): Promise<Partial<Amounts>> {
    const HUGE = 1e12;
    const read = async (unit: BudgetUnit): Promise<number> => {
      const demands = [{ unit, limit: HUGE, most: 0, least: HUGE + 1 }];
      const claim = { budget: 'shared', scope: 'principal', key: 'p', windowMs: WINDOW_S * 1000, demands };
      const answer = await this.state.reserve([claim], momentAt(this.now));
      return 'refused' in answer ? HUGE - answer.refused.left : Number.NaN;
    };
    return {
      calls: await read('calls'),
      argBytes: await read('argBytes'),
      outputBytes: await read('outputBytes'),
    };
  }
}

describe('two processes that share budgets', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] }));
  afterEach(() => void vi.useRealTimers());

  it('never exceed a limit over calls, settlements, reloads and ends, and lose nothing' +
    verifies('FP-02', 'CY-17'), async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), fc.boolean(), async (steps, isSettledFirst) => {
        const state = openState(temporaryFolder(), { now: 0 });
        const history = new History(state);
        for (const one of steps) await history.run(one);
        if (isSettledFirst) history.settle(Infinity, 0.5);
        await Promise.all(history.budgets.map(async (budgets) => budgets.close()));
        history.settle(Infinity, 0.25);
        expect(await history.counted()).toEqual(history.used);
        await state.close();
      }),
      { numRuns: roundsOf(40, 30) },
    );
  }, 120_000);
});
