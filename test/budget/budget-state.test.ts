/** Tests the reservation and settlement of budgets, with a failing state too. */
import { describe, expect, it } from 'vitest';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Budgets, createBudgets, type Lease } from '../../facade/budget/budgets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { OUTCOME_UNKNOWN, type State } from '../../facade/state/state-port.ts';
import type { BudgetObligation } from '../../policies/port.ts';
import { momentAt, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { KEYS, NOTHING, request } from './budget-request.ts';

const take = async (budgets: Budgets, ...given: Parameters<typeof request>): Promise<Lease> =>
  budgets.reserve(request(...given));

describe('a budget', () => {
  it('that does not apply opens no database', () => {
    const untouchable = new Proxy({}, { get: () => expect.fail('the state was touched') }) as State;
    const lease = createBudgets(untouchable).reserve(request([])) as Lease;
    expect(lease).toMatchObject({ outputBytes: 30_000, wallMs: 30_000 });
    lease.settle(NOTHING);
  });

  it(
    'of 5 calls per run refuses the sixth, reports what is left, and counts each run separately' +
      verifies('HB-05', 'CY-17'),
    async () => {
      const budgets = createBudgets(openState(temporaryFolder()));
      const five: BudgetObligation = { id: 'harbor-calls', scope: 'run', calls: 5 };
      for (let n = 0; n < 5; n += 1) (await take(budgets, [five])).settle(NOTHING);
      await expect(take(budgets, [five])).rejects.toMatchObject({
        code: 'BUDGET_EXCEEDED',
        message: 'Budget "harbor-calls" allows 5 calls per run; 0 left.',
        data: { budget: 'harbor-calls', scope: 'run', unit: 'calls', limit: 5, left: 0 },
      });
      await take(budgets, [five], { keys: { ...KEYS, run: 'other' } });
      await budgets.end('run', 'r');
      await take(budgets, [five]);
    },
  );

  it('with a window is available again when the window has ended, which begins with the first use', async () => {
    let now = 1_000_000;
    const budgets = createBudgets(openState(temporaryFolder(), { now }), () => momentAt(now));
    const hourly: BudgetObligation = { id: 'h', scope: 'principal', window: 3600, calls: 1 };
    await take(budgets, [hourly]);
    now += 3_599_999;
    await expect(take(budgets, [hourly])).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      next: expect.stringContaining(new Date(4_600_000).toISOString()),
      data: { resetsAt: new Date(4_600_000).toISOString() },
    });
    now += 1;
    await take(budgets, [hourly]);
  });

  it('stays spent when the clock is set back, and its window does not get longer', async () => {
    let now = 10_000_000;
    const budgets = createBudgets(openState(temporaryFolder(), { now }), () => momentAt(now));
    const minute: BudgetObligation = { id: 'm', scope: 'principal', window: 60, calls: 2 };
    await take(budgets, [minute]);
    now = 1_000_000;
    await take(budgets, [minute]);
    await expect(take(budgets, [minute])).rejects.toMatchObject({
      data: { resetsAt: new Date(1_060_000).toISOString() },
    });
  });

  it('reserves the worst case and gives back what was not used', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const bytes: BudgetObligation = { id: 'b', scope: 'run', outputBytes: 40_000, argBytes: 25 };
    (await take(budgets, [bytes])).settle({ outputBytes: 10_000, wallMs: 1 });
    const second = await take(budgets, [bytes]);
    expect(second.outputBytes).toBe(30_000);
    second.settle({ outputBytes: 29_500, wallMs: 1 });
    await expect(take(budgets, [bytes], { argBytes: 5 })).rejects.toMatchObject({
      data: { unit: 'outputBytes', left: 500 },
    });
    await expect(take(budgets, [bytes])).rejects.toMatchObject({ data: { unit: 'argBytes', left: 5 } });
  });

  it(
    'grants the rest if the worst case is not available, and counts use above the grant' + verifies('HA-09'),
    async () => {
      const budgets = createBudgets(openState(temporaryFolder()));
      const both: BudgetObligation[] = [
        { id: 'a', scope: 'run', outputBytes: 5000 },
        { id: 'b', scope: 'principal', wallMs: 2000, outputBytes: 9000 },
      ];
      const lease = await take(budgets, both);
      expect(lease).toMatchObject({ outputBytes: 5000, wallMs: 2000 });
      lease.settle({ outputBytes: 6000.2, wallMs: 10 });
      await expect(take(budgets, both)).rejects.toMatchObject({ data: { budget: 'a', left: 0 } });
    },
  );

  it('counts everything as used if the use was not measured, and settles once', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const bytes: BudgetObligation = { id: 'b', scope: 'run', outputBytes: 40_000 };
    const lease = await take(budgets, [bytes]);
    lease.settle({ outputBytes: Number.NaN, wallMs: -1 });
    lease.settle(NOTHING);
    expect(await take(budgets, [bytes])).toMatchObject({ outputBytes: 10_000 });
  });

  it('stays spent if the process dies between reserve and settle', async () => {
    const folder = temporaryFolder();
    const state = openState(folder);
    await take(createBudgets(state), [{ id: 'b', scope: 'principal', outputBytes: 30_000 }]);
    await state.close();
    await expect(
      take(createBudgets(openState(folder)), [{ id: 'b', scope: 'principal', outputBytes: 30_000 }]),
    ).rejects.toMatchObject({ code: 'BUDGET_EXCEEDED', data: { left: 0 } });
  });

  it('does not settle in the next window', async () => {
    let now = 0;
    const budgets = createBudgets(openState(temporaryFolder(), { now }), () => momentAt(now));
    const bytes: BudgetObligation = { id: 'b', scope: 'run', window: 1, outputBytes: 30_000 };
    const late = await take(budgets, [bytes]);
    now = 5000;
    const next = await take(budgets, [bytes], { maxOutputBytes: 1000 });
    late.settle(NOTHING);
    next.settle({ outputBytes: 1000, wallMs: 0 });
    expect(await take(budgets, [bytes])).toMatchObject({ outputBytes: 29_000 });
  });

  it('is refused if the policy names it twice, because its one counter would be settled twice', async () => {
    const twice: BudgetObligation = { id: 'b', scope: 'run', outputBytes: 1 };
    await expect(take(createBudgets(openState(temporaryFolder())), [twice, twice])).rejects.toMatchObject({
      code: 'POLICY_FAILED',
    });
  });

  it('that cannot be settled stays spent, is counted, and is settled before the next reservation', async () => {
    const state = openState(temporaryFolder());
    let isBroken = true;
    const flaky: State = {
      ...state,
      settle: (held, used) => {
        if (isBroken) throw new Error('disk');
        return state.settle(held, used);
      },
    };
    const budgets = createBudgets(flaky);
    const one: BudgetObligation = { id: 'b', scope: 'run', outputBytes: 30_000, concurrent: 1 };
    (await take(budgets, [one])).settle(NOTHING);
    await expect.poll(() => budgets.unsettled).toBe(1);
    await expect(take(budgets, [one])).rejects.toMatchObject({ code: 'BUDGET_EXCEEDED' });
    expect(budgets.unsettled).toBe(1);
    isBroken = false;
    expect(await take(budgets, [one])).toMatchObject({ outputBytes: 30_000 });
    expect(budgets.unsettled).toBe(0);
  });

  it('that cannot be settled gives its slot to another process after a later attempt', async () => {
    const state = openState(temporaryFolder());
    let failures = 1;
    const settle: State['settle'] = (held, used) =>
      failures-- > 0 ? Promise.reject(new Error('disk')) : state.settle(held, used);
    const budgets = createBudgets({ ...state, settle });
    const one: BudgetObligation = { id: 'b', scope: 'run', concurrent: 1 };
    (await take(budgets, [one])).settle(NOTHING);
    await expect.poll(() => budgets.unsettled, { interval: 5 }).toBe(1);
    expect(await take(createBudgets(state), [one], { deadline: Date.now() + 20_000 })).toMatchObject({
      outputBytes: expect.any(Number) as number,
    });
    expect(budgets.unsettled).toBe(0);
  });

  it('that may have been settled already gives its amounts back once at most, and its slot', async () => {
    const state = openState(temporaryFolder());
    let failures = 1;
    const settle: State['settle'] = async (held, used) => {
      await state.settle(held, used);
      if (failures-- > 0) throw new TollgateError('STATE_FAILED', { cause: OUTCOME_UNKNOWN });
    };
    const budgets = createBudgets({ ...state, settle });
    const one: BudgetObligation = { id: 'b', scope: 'principal', outputBytes: 40_000, concurrent: 1 };
    (await take(budgets, [one])).settle(NOTHING);
    await expect.poll(() => budgets.unsettled).toBe(1);
    (await take(budgets, [one])).settle({ outputBytes: 30_000, wallMs: 0 });
    expect(await take(budgets, [one])).toMatchObject({ outputBytes: 10_000 });
    expect(budgets.unsettled).toBe(0);
  });

  it('cannot be used while the state is down, so nothing runs', async () => {
    const state = openState(temporaryFolder());
    await state.close();
    await expect(take(createBudgets(state), [{ id: 'b', scope: 'run', calls: 1 }])).rejects.toMatchObject({
      code: 'STATE_FAILED',
    });
  });
});
