/** Tests that a refusal by a budget names its window, to the agent and in the record. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { createBudgets } from '../../facade/budget/budgets.ts';
import { openState } from '../../facade/state/sqlite-state.ts';
import { momentAt, temporaryFolder } from '../state/temporary-folder.ts';
import { startFacade, type TestFacade } from '../stories/facade.ts';
import { verifies } from '../verifies.ts';
import { request } from './budget-request.ts';

let facade: TestFacade | undefined;
afterEach(() => facade?.close());

describe('the refusal by a budget', () => {
  it(`names the window and the time until the next call, also in the record${verifies('FH-43')}`, async () => {
    const folder = temporaryFolder();
    writeFileSync(path.join(folder, 'a'), 'x');
    facade = await startFacade(
      `version: 1
budgets: [{id: few, scope: principal, window: 3600, calls: 1}]
rules: [{id: all, outcome: allow, when: {}}]
`,
      { folder },
    );
    const session = facade.open('local');
    await facade.call(session, 'read', { path: 'a' });
    const { text } = await facade.call(session, 'read', { path: 'a' });
    expect(text).toMatch(
      /^Budget "few" allows 1 calls? per hour per principal; 0 left\.\nThe next is possible in \d+ min/,
    );
    expect(facade.callRecords().at(-1)).toMatchObject({
      type: 'budget',
      budget: 'few',
      window: 3600,
      resetsAt: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    });
  });

  it.each([
    [60, 0, 'per minute per principal', 'in 60 s'],
    [60, 26_500, 'per minute per principal', 'in 34 s'],
    [90, 89_999, 'per 90 seconds per principal', 'in 1 s'],
    [7200, 0, 'per 2 hours per principal', 'in 120 min'],
    [86_400, 0, 'per day per principal', 'in 24 h'],
  ])('of %i seconds after %i ms says "%s" and "%s"', async (window, later, limit, wait) => {
    let now = 1_000_000;
    const budgets = createBudgets(openState(temporaryFolder(), { now }), () => momentAt(now));
    const budget = { id: 'b', scope: 'principal' as const, window, calls: 1 };
    await budgets.reserve(request([budget]));
    now += later;
    await expect(Promise.resolve(budgets.reserve(request([budget])))).rejects.toMatchObject({
      message: expect.stringContaining(limit) as string,
      next: expect.stringContaining(wait) as string,
      data: { window },
    });
  });
});
