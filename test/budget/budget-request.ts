/** Requests of the tests of budgets. */
import type { LeaseRequest } from '../../facade/budget/budget-claims.ts';

export const KEYS = { run: 'r', session: 's', sessions: 'p', principal: 'p', server: 'v', tool: 'v.t', origin: 'o' };
export const NOTHING = { outputBytes: 0, wallMs: 0 };

/** Returns the request of a call with these budgets. */
export function request(budgets: LeaseRequest['budgets'], more: Partial<LeaseRequest> = {}): LeaseRequest {
  return {
    budgets,
    keys: KEYS,
    argBytes: 10,
    maxOutputBytes: 30_000,
    maxWallMs: 30_000,
    signal: new AbortController().signal,
    deadline: Date.now() + 5000,
    ...more,
  };
}
