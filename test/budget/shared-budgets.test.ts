/**
 * Tests what a process reserves ahead of its calls: how much, when it is given back, and that limits hold.
 * Covers: facade/budget.
 */
import { describe, expect, it } from 'vitest';
import type { LeaseRequest } from '../../facade/budget/budget-claims.ts';
import { type Budgets, createBudgets, type Lease } from '../../facade/budget/budgets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { followState } from '../../facade/state/state-follower.ts';
import type { State } from '../../facade/state/state-port.ts';
import type { BudgetObligation } from '../../policies/port.ts';
import { momentAt, startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { KEYS, NOTHING, request } from './budget-request.ts';

const MANY: BudgetObligation = { id: 'many', scope: 'principal', calls: 1_000_000 };

/** Counts the requests that reach a state. */
function counted(state: State): { readonly state: State; readonly sent: { reserve: number; settle: number } } {
  const sent = { reserve: 0, settle: 0 };
  const reserve: State['reserve'] = (...args) => {
    sent.reserve += 1;
    return state.reserve(...args);
  };
  const settle: State['settle'] = (...args) => {
    sent.settle += 1;
    return state.settle(...args);
  };
  return { sent, state: { ...state, reserve, settle } };
}

async function callOnce(budgets: Budgets, ...asked: Parameters<typeof request>): Promise<void> {
  (await budgets.reserve(request(...asked))).settle({ outputBytes: 100, wallMs: 1 });
}

/** Makes calls until one is refused, and returns how many ran. */
async function spend(budgets: Budgets, ...asked: Parameters<typeof request>): Promise<number> {
  for (let count = 0; ; count += 1) {
    try {
      await callOnce(budgets, ...asked);
    } catch (thrown) {
      expect(thrown).toMatchObject({ code: 'BUDGET_EXCEEDED', data: { left: 0 } });
      return count;
    }
  }
}

/** Returns the calls that all processes together have left. */
const leftOf = async (state: State, { id, scope, calls = 0 }: BudgetObligation, key = 'p'): Promise<number> =>
  createBudgets(state).left({ id, scope, calls, key });

describe('a shared budget', () => {
  it('is reserved ahead in growing steps, so that most calls ask no one' + verifies('FP-02'), async () => {
    const { state, sent } = counted(openState(temporaryFolder()));
    const budgets = createBudgets(state);
    const steps: number[] = [];
    for (let n = 0; n < 3000; n += 1) {
      const before = sent.reserve;
      await callOnce(budgets, [MANY]);
      if (sent.reserve > before) steps.push(n);
    }
    expect(steps.slice(0, 4)).toEqual([0, 1, 3, 7]);
    expect(sent).toEqual({ reserve: expect.toSatisfy((count: number) => count <= 25), settle: 0 });
    const lease = budgets.reserve(request([MANY]));
    expect(lease).not.toBeInstanceOf(Promise);
    (lease as Lease).settle(NOTHING);
    await budgets.close();
    expect(await leftOf(state, MANY)).toBe(1_000_000 - 3001);
  });

  it('covers argument bytes, output bytes and wall time, and what a call did not use', async () => {
    const { state, sent } = counted(openState(temporaryFolder()));
    const budgets = createBudgets(state);
    const all: BudgetObligation = { ...MANY, argBytes: 1e9, outputBytes: 1e9, wallMs: 1e9 };
    for (let n = 0; n < 1000; n += 1) await callOnce(budgets, [all]);
    expect(sent.reserve).toBeLessThan(15);
    expect(sent.settle).toBeLessThan(15);
    const running = budgets.reserve(request([all])) as Lease;
    expect(running).toMatchObject({ outputBytes: 30_000, wallMs: 30_000 });
    await budgets.close();
    running.settle({ outputBytes: 30_100, wallMs: 5 });
    const total = { calls: 1001, argBytes: 10_010, outputBytes: 100_000 + 30_100, wallMs: 1005 };
    await expect
      .poll(async () => {
        const demands = (Object.keys(total) as (keyof typeof total)[]).map((unit) => ({
          unit,
          limit: total[unit],
          most: 1,
          least: 1,
        }));
        const asked = demands.map((demand) => [{ budget: 'many', scope: 'principal', key: 'p', demands: [demand] }]);
        const answers = await Promise.all(asked.map(async (claims) => state.reserve(claims, momentAt(0))));
        return answers.map((answer) => 'refused' in answer && answer.refused.left);
      })
      .toEqual([0, 0, 0, 0]);
    const left = createBudgets(state).left({ ...MANY, key: 'p', calls: 1002 });
    expect(await left).toBe(1);
  });

  it('is exact near its limit, and a refusal says what is left' + verifies('FP-12'), async () => {
    const { state, sent } = counted(openState(temporaryFolder()));
    const [one, other] = [createBudgets(state), createBudgets(state)];
    const few: BudgetObligation = { id: 'few', scope: 'principal', calls: 60, argBytes: 605 };
    for (let n = 0; n < 30; n += 1) {
      await callOnce(one, [few]);
      await callOnce(other, [few]);
    }
    expect(sent.reserve).toBe(60);
    await expect(callOnce(one, [few])).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      message: 'Budget "few" allows 60 calls per principal; 0 left.',
      data: { budget: 'few', scope: 'principal', unit: 'calls', limit: 60, left: 0 },
    });
  });

  it('that ends in what is reserved ahead refuses the next call, and grants no more' + verifies('FP-12'), async () => {
    const state = openState(temporaryFolder());
    const budgets = [createBudgets(state), createBudgets(state)];
    const limited: BudgetObligation = { ...MANY, calls: 1000, argBytes: 1e6 };
    const ran = await Promise.all(budgets.map((one) => spend(one, [limited])));
    expect(ran.reduce((sum, count) => sum + count)).toBe(1000);
    await expect(callOnce(budgets[0] as Budgets, [limited], { argBytes: 2e6 })).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      data: { unit: 'calls', left: 0 },
    });
  });

  it('refuses a large call with what is left, also if some of that is reserved ahead', async () => {
    const state = openState(temporaryFolder());
    const budgets = createBudgets(state);
    const bytes: BudgetObligation = { id: 'bytes', scope: 'principal', argBytes: 100_000 };
    for (let n = 0; n < 20; n += 1) await callOnce(budgets, [bytes]);
    await expect(callOnce(budgets, [bytes], { argBytes: 100_000 })).rejects.toMatchObject({
      data: { unit: 'argBytes', left: 100_000 - 200 },
    });
  });

  it('is given back within about a second in which the process adds nothing' + verifies('FP-02'), async () => {
    const state = openState(temporaryFolder());
    const [idle, busy] = [createBudgets(state), createBudgets(state)];
    const limited: BudgetObligation = { ...MANY, calls: 1000 };
    for (let n = 0; n < 28; n += 1) await callOnce(idle, [limited]);
    const ran = await spend(busy, [limited]);
    expect(ran).toBeGreaterThanOrEqual(1000 - 28 - 1000 / 64);
    expect(ran).toBeLessThan(972);
    await expect.poll(() => leftOf(state, limited), { timeout: 5000 }).toBe(972 - ran);
    expect(await spend(busy, [limited])).toBe(972 - ran);
  });

  it('with a window loses what is reserved ahead when the window ends', async () => {
    let now = 1_000_000;
    const state = openState(temporaryFolder(), { now });
    const budgets = createBudgets(state, () => momentAt(now));
    const windowed: BudgetObligation = { ...MANY, calls: 10_000, window: 60 };
    for (let n = 0; n < 40; n += 1) await callOnce(budgets, [windowed]);
    now += 60_000;
    for (let n = 0; n < 5; n += 1) await callOnce(budgets, [windowed]);
    await budgets.close();
    const demands = [{ unit: 'calls' as const, limit: 10_000, most: 0, least: 10_001 }];
    const claim = { budget: 'many', scope: 'principal', key: 'p', demands, windowMs: 60_000 };
    expect(await state.reserve([claim], momentAt(now))).toMatchObject({ refused: { left: 9_995 } });
  });

  it('with a lower limit after a reload is refused from the next call on' + verifies('FP-02'), async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    for (let n = 0; n < 40; n += 1) await callOnce(budgets, [MANY]);
    await expect(callOnce(budgets, [{ ...MANY, calls: 40 }])).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      data: { limit: 40, left: 0 },
    });
    expect(await spend(budgets, [{ ...MANY, calls: 50 }])).toBe(10);
  });

  it('that the policy no longer names is given back', async () => {
    const state = openState(temporaryFolder());
    const budgets = createBudgets(state);
    for (let n = 0; n < 40; n += 1) await callOnce(budgets, [MANY]);
    expect(await leftOf(state, MANY)).toBeLessThan(999_960);
    for (let n = 0; n < 5; n += 1) await callOnce(budgets, [{ ...MANY, id: 'other' }]);
    await expect.poll(() => leftOf(state, MANY), { timeout: 5000 }).toBe(999_960);
  });

  it('of a run that ended leaves nothing to a run of the same name', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const run: BudgetObligation = { id: 'run', scope: 'run', calls: 1000 };
    for (let n = 0; n < 100; n += 1) await callOnce(budgets, [run]);
    await budgets.end('run', 'r');
    expect(await spend(budgets, [run])).toBe(1000);
  });

  it('says what is left, with what this process has reserved ahead', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    for (let n = 0; n < 100; n += 1) await callOnce(budgets, [MANY]);
    expect(await budgets.left({ id: 'many', scope: 'principal', calls: 1_000_000, key: 'p' })).toBe(999_900);
  });

  it('is not reserved ahead while a slot is needed, and gets its slots back', async () => {
    const { state, sent } = counted(openState(temporaryFolder()));
    const budgets = createBudgets(state);
    const slots: BudgetObligation = { ...MANY, concurrent: 1 };
    for (let n = 0; n < 10; n += 1) await callOnce(budgets, [slots]);
    expect(sent).toEqual({ reserve: 10, settle: 10 });
    expect(await leftOf(state, MANY)).toBe(999_990);
  });

  it('runs what is reserved ahead while the state is down, then refuses', async () => {
    const state = openState(temporaryFolder());
    const budgets = createBudgets(state);
    for (let n = 0; n < 40; n += 1) await callOnce(budgets, [MANY]);
    await state.close();
    let ran = 0;
    for (; ran < 1000; ran += 1)
      try {
        await callOnce(budgets, [MANY]);
      } catch (thrown) {
        expect(thrown).toMatchObject({ code: 'STATE_FAILED' });
        break;
      }
    expect(ran).toBeLessThanOrEqual(64);
  });
});

describe('the budget of a session', () => {
  it('needs no shared state if it is the run of the session' + verifies('FP-02'), async () => {
    const untouchable = new Proxy({}, { get: () => expect.fail('the state was touched') }) as State;
    const budgets = createBudgets(untouchable);
    const own = { keys: { ...KEYS, run: 's' } };
    const run: BudgetObligation = { id: 'run', scope: 'run', calls: 3, concurrent: 2, outputBytes: 70_000 };
    const first = budgets.reserve(request([run], own)) as Lease;
    expect(first.outputBytes).toBe(30_000);
    const second = budgets.reserve(request([run], own)) as Lease;
    const third = budgets.reserve(request([run], own));
    first.settle({ outputBytes: 5000, wallMs: 1 });
    (await third).settle(NOTHING);
    second.settle(NOTHING);
    await expect(budgets.reserve(request([run], own))).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      data: { budget: 'run', unit: 'calls', left: 0 },
    });
    await expect(budgets.end('session', 's')).resolves.toBeUndefined();
    await callOnce(budgets, [{ ...run, id: 'other' }], own);
  });

  it('sends a few messages for a thousand calls, and one of a principal over all its sessions', async () => {
    const { state, sent } = counted(openState(temporaryFolder()));
    const budgets = createBudgets(state);
    const session: BudgetObligation = { id: 'session', scope: 'session', calls: 100_000 };
    for (let n = 0; n < 1000; n += 1) await callOnce(budgets, [session]);
    expect(sent.reserve).toBeLessThan(15);
    expect(sent.settle).toBe(0);
    await budgets.close();
    expect(await leftOf(state, { ...session, scope: 'principal' })).toBe(99_000);
  });

  it('starts again after its end, but not over all sessions of the principal', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const session: BudgetObligation = { id: 'session', scope: 'session', calls: 3 };
    await callOnce(budgets, [session]);
    await callOnce(budgets, [session]);
    await budgets.end('session', 's');
    await callOnce(budgets, [session], { keys: { ...KEYS, session: 't' } });
    await expect(callOnce(budgets, [session], { keys: { ...KEYS, session: 't' } })).rejects.toMatchObject({
      code: 'BUDGET_EXCEEDED',
      data: { scope: 'principal', left: 0 },
    });
  });

  it('gets back what a call reserved that the shared state refused, also for a call that came meanwhile', async () => {
    const fast = openState(temporaryFolder());
    let answered: Promise<void> = Promise.resolve();
    const reserve: State['reserve'] = async (...given) => {
      await answered;
      return fast.reserve(...given);
    };
    const budgets = createBudgets({ ...fast, reserve });
    const own = { keys: { ...KEYS, run: 's' } };
    const once: BudgetObligation = { id: 'once', scope: 'run', calls: 1 };
    const none: BudgetObligation = { id: 'none', scope: 'principal', calls: 0 };
    let answer = (): void => undefined;
    answered = new Promise((resolve) => (answer = resolve));
    const refused = Promise.resolve(budgets.reserve(request([once, none], own)));
    const granted = Promise.resolve(budgets.reserve(request([once], own)));
    answer();
    await expect(refused).rejects.toMatchObject({ data: { budget: 'none' } });
    await expect(granted).resolves.toBeDefined();
  });

  it('does not come back for a call of a session that has ended', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const ended = new AbortController();
    ended.abort();
    const asked: Partial<LeaseRequest> = { keys: { ...KEYS, run: 's' }, signal: ended.signal };
    await expect(budgets.reserve(request([{ id: 'run', scope: 'run', calls: 3 }], asked))).rejects.toMatchObject({
      code: 'CANCELLED',
    });
  });

  it('with a busy slot names a spent shared budget, because waiting would not help', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const own = { keys: { ...KEYS, run: 's' } };
    const both: BudgetObligation[] = [
      { id: 'slot', scope: 'run', concurrent: 1 },
      { id: 'shared', scope: 'principal', calls: 1 },
    ];
    await budgets.reserve(request(both, own));
    await expect(budgets.reserve(request(both, own))).rejects.toMatchObject({ data: { budget: 'shared', left: 0 } });
  });
});

describe('two processes on one budget', () => {
  const spender = (...args: readonly (string | number)[]) => startFixture('budget-spender.ts', args.map(String));
  const granted = async (one: ReturnType<typeof spender>): Promise<number> =>
    Number(/^granted (\d+)$/.exec(await one.line())?.[1]);

  it('grant exactly its limit together' + verifies('FP-02'), async () => {
    const folder = temporaryFolder();
    const spenders = [1, 2].map(() => spender(folder, 2000, 5000));
    await Promise.all(spenders.map((one) => one.line()));
    for (const { child } of spenders) child.stdin?.write('go\n');
    const counts = await Promise.all(spenders.map(granted));
    expect(counts.reduce((sum, count) => sum + count)).toBe(2000);
    expect(Math.min(...counts)).toBeGreaterThan(0);
  });

  it('lose at most what one had reserved ahead when it is killed' + verifies('FP-12'), async () => {
    const folder = temporaryFolder();
    const killed = spender(folder, 2000, 300);
    await killed.line();
    killed.child.stdin?.write('go\n');
    expect(await granted(killed)).toBe(300);
    killed.child.kill('SIGKILL');
    await killed.ended;
    const state = await followState(folder);
    const ran = await spend(createBudgets(state), [{ id: 'calls', scope: 'principal', calls: 2000 }]);
    expect(ran).toBeLessThanOrEqual(1700);
    expect(ran).toBeGreaterThanOrEqual(1700 - 2000 / 64);
    await state.close();
  });
});
