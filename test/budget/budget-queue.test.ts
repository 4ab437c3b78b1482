/**
 * Tests calls that wait for budgets, in one process and in two.
 * Covers: facade/budget.
 */
import { describe, expect, it } from 'vitest';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { createBudgets, type Lease } from '../../facade/budget/budgets.ts';
import { createConcurrencyLimit } from '../../facade/budget/concurrency-limit.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import type { State } from '../../facade/state/state-port.ts';
import type { BudgetObligation } from '../../policies/port.ts';
import { startFixture, temporaryFolder } from '../state/temporary-folder.ts';
import { verifies } from '../verifies.ts';
import { KEYS, NOTHING, request } from './budget-request.ts';

const TWO: BudgetObligation = { id: 'slots', scope: 'origin', concurrent: 2 };

/** Handles a rejection at once, so that it does not count as unhandled while the test waits for something else. */
const codeOf = async (lease: Lease | Promise<Lease>): Promise<string> =>
  Promise.resolve(lease).then(
    () => 'granted',
    (error: TollgateError) => error.code,
  );

describe('concurrent calls on a budget', () => {
  it(
    'wait for one of two calls of their origin to end, in the order of their arrival' + verifies('HB-05'),
    async () => {
      const budgets = createBudgets(openState(temporaryFolder()));
      const running = [await budgets.reserve(request([TWO])), await budgets.reserve(request([TWO]))];
      const order: number[] = [];
      const waiting = [1, 2, 3].map(async (n) => {
        const lease = await budgets.reserve(request([TWO]));
        order.push(n);
        return lease;
      });
      await budgets.reserve(request([TWO], { keys: { ...KEYS, origin: 'another' } }));
      expect(order).toEqual([]);
      running[0]?.settle(NOTHING);
      const first = await waiting[0];
      first?.settle(NOTHING);
      running[1]?.settle(NOTHING);
      await Promise.all(waiting);
      expect(order).toEqual([1, 2, 3]);
    },
  );

  it('get RATE_LIMITED if no call ends before the deadline' + verifies('HB-05'), async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    for (const _ of [1, 2]) await budgets.reserve(request([TWO]));
    const late = await Promise.allSettled(
      [1, 2].map(async () => budgets.reserve(request([TWO], { deadline: Date.now() + 60 }))),
    );
    for (const reason of late.map((one) => (one as PromiseRejectedResult).reason as TollgateError)) {
      expect(reason).toMatchObject({
        code: 'RATE_LIMITED',
        row: { retryable: true },
        data: { budget: 'slots', scope: 'origin', unit: 'concurrent', limit: 2, left: 0 },
      });
    }
    await expect(budgets.reserve(request([TWO], { deadline: Date.now() - 1 }))).rejects.toMatchObject({
      code: 'RATE_LIMITED',
    });
  });

  it('leave the queue when they are cancelled, and the others keep their order', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const running = await Promise.all([1, 2].map(async () => budgets.reserve(request([TWO]))));
    const gone = new AbortController();
    const first = Promise.resolve(budgets.reserve(request([TWO], { signal: gone.signal })));
    const second = Promise.resolve(budgets.reserve(request([TWO])));
    gone.abort();
    await expect(first).rejects.toMatchObject({ code: 'CANCELLED' });
    running[0]?.settle(NOTHING);
    await second;
    await expect(budgets.reserve(request([TWO], { signal: gone.signal }))).rejects.toMatchObject({ code: 'CANCELLED' });
  });

  it('wait for output bytes that a running call may give back, but not for spent ones', async () => {
    const budgets = createBudgets(openState(temporaryFolder()));
    const bytes: BudgetObligation = { id: 'b', scope: 'run', outputBytes: 50_000 };
    const first = await budgets.reserve(request([bytes]));
    const second = Promise.resolve(budgets.reserve(request([bytes])));
    first.settle({ outputBytes: 10_000, wallMs: 0 });
    expect(await second).toMatchObject({ outputBytes: 30_000 });
    (await second).settle({ outputBytes: 40_000, wallMs: 0 });
    await expect(budgets.reserve(request([bytes]))).rejects.toMatchObject({ code: 'BUDGET_EXCEEDED' });
  });

  it('get the error while they wait, if the budget is spent or the state fails', async () => {
    const state = openState(temporaryFolder());
    const budgets = createBudgets(state);
    const both: BudgetObligation[] = [
      { ...TWO, concurrent: 1 },
      { id: 'calls', scope: 'run', calls: 1 },
    ];
    const first = await budgets.reserve(request(both));
    const other = { keys: { ...KEYS, run: 'other' } };
    const second = Promise.resolve(budgets.reserve(request(both, other)));
    const third = codeOf(budgets.reserve(request(both, other)));
    const fourth = Promise.resolve(budgets.reserve(request(both, { keys: { ...KEYS, run: 'third' } })));
    first.settle(NOTHING);
    (await second).settle(NOTHING);
    expect(await third).toBe('BUDGET_EXCEEDED');
    const fifth = codeOf(budgets.reserve(request(both, { keys: { ...KEYS, run: 'fourth' } })));
    await fourth;
    await state.close();
    expect(await fifth).toBe('STATE_FAILED');
  });

  it('give back what was granted after the caller had left, also with a slow state', async () => {
    const fast = openState(temporaryFolder());
    let answered = Promise.resolve();
    const reserve: State['reserve'] = async (...given) => {
      const answer = await fast.reserve(...given);
      await answered;
      return answer;
    };
    const budgets = createBudgets({ ...fast, reserve });
    const one = [{ ...TWO, concurrent: 1 }];
    const first = await budgets.reserve(request(one));
    const gone = new AbortController();
    const left = Promise.resolve(budgets.reserve(request(one, { signal: gone.signal })));
    await new Promise((resolve) => setTimeout(resolve, 50));
    let answer = (): void => undefined;
    answered = new Promise((resolve) => (answer = resolve));
    first.settle(NOTHING);
    await new Promise((resolve) => setTimeout(resolve, 50));
    gone.abort();
    await expect(left).rejects.toMatchObject({ code: 'CANCELLED' });
    answer();
    await budgets.reserve(request(one));
  });

  it('get the slots of a killed process, and none of a living one', async () => {
    const folder = temporaryFolder();
    const { child, line } = startFixture('budget-taker.ts', [folder, '2', 'hold']);
    await line();
    child.stdin?.write('go\n');
    expect(await line()).toBe('granted 2');
    const budgets = createBudgets(openState(folder));
    await expect(budgets.reserve(request([TWO], { deadline: Date.now() + 100 }))).rejects.toMatchObject({
      code: 'RATE_LIMITED',
    });
    const waits = Promise.resolve(budgets.reserve(request([TWO])));
    child.kill('SIGKILL');
    await waits;
  });
});

describe('the concurrency limit of a session', () => {
  const signal = new AbortController().signal;
  const soon = (ms: number): { signal: AbortSignal; deadline: number } => ({ signal, deadline: Date.now() + ms });

  it(
    'admits 16 calls, queues the others in order, and frees each place once' + verifies('HB-05', 'CY-17'),
    async () => {
      const gate = createConcurrencyLimit(16);
      const inside = Array.from({ length: 16 }, () => gate.enter(soon(1000)));
      expect(inside.every((leave) => typeof leave === 'function')).toBe(true);
      const order: string[] = [];
      const queued = ['a', 'b'].map(async (name) => {
        const leave = await gate.enter(soon(1000));
        order.push(name);
        return leave;
      });
      const leave = inside[0] as () => void;
      leave();
      leave();
      await queued[0];
      expect(order).toEqual(['a']);
      (await queued[0])?.();
      await queued[1];
      expect(order).toEqual(['a', 'b']);
    },
  );

  it('refuses with RATE_LIMITED at the deadline, and skips cancelled calls', async () => {
    const gate = createConcurrencyLimit(1);
    const leave = gate.enter(soon(0)) as () => void;
    await expect(gate.enter(soon(20))).rejects.toMatchObject({ code: 'RATE_LIMITED', data: { limit: 1 } });
    const gone = new AbortController();
    const left = Promise.resolve(gate.enter({ signal: gone.signal, deadline: Date.now() + 1000 }));
    const next = Promise.resolve(gate.enter(soon(1000)));
    gone.abort();
    leave();
    await expect(left).rejects.toMatchObject({ code: 'CANCELLED' });
    (await next)();
    expect(typeof gate.enter(soon(0))).toBe('function');
  });
});

describe('two processes with one budget', () => {
  it('never grant more than 10 of 100 parallel calls together' + verifies('CY-17'), async () => {
    const folder = temporaryFolder();
    const takers = [1, 2].map(() => startFixture('budget-taker.ts', [folder, '50']));
    await Promise.all(takers.map((taker) => taker.line()));
    const answers = takers.map((taker) => taker.line());
    for (const taker of takers) taker.child.stdin?.write('go\n');
    const granted = (await Promise.all(answers)).map((answer) => Number(/^granted (\d+)$/.exec(answer)?.[1]));
    expect(granted.reduce((sum, n) => sum + n, 0)).toBe(10);
    expect(
      await codeOf(createBudgets(openState(folder)).reserve(request([{ id: 'calls', scope: 'run', calls: 10 }]))),
    ).toBe('BUDGET_EXCEEDED');
  });

  it('refuse on a full disk, grant no more than was stored, and continue when there is room', async () => {
    const folder = temporaryFolder();
    await openState(folder).close();
    const full = startFixture('budget-taker.ts', [folder, '20'], 33_000);
    await full.line();
    full.child.stdin?.write('go\n');
    const [, granted, fault] = /^granted (\d+) faults TollgateError: (.*)$/.exec(await full.line()) ?? [];
    expect(Number(granted)).toBeLessThan(10);
    expect(fault).toMatch(/^The state database failed \(SQLITE_[A-Z_0-9]+\)\.$/);
    const roomy = startFixture('budget-taker.ts', [folder, '20']);
    await roomy.line();
    roomy.child.stdin?.write('go\n');
    expect(await roomy.line()).toBe(`granted ${10 - Number(granted)}`);
  });
});
