/**
 * Reserves budgets for a call and gives back what it did not use. A spent budget refuses at once, a busy one at the
 * deadline.
 */

import { type Instant, instant } from '../state/budget-clock.ts';
import type { Reservation, State } from '../state/state-port.ts';
import { budgetKeyOf, claimsOf, grantOf, isReleasable, type LeaseRequest, spentError } from './budget-claims.ts';
import { createSettler } from './budget-settler.ts';
import { createPrincipalQueue, type QueueAttempt } from './principal-queue.ts';

/** What a call has used, or may use. */
export interface BudgetUse {
  readonly outputBytes: number;
  readonly wallMs: number;
}

/** The reservation of one call: its worst case, or the rest of a budget if that is less. The call must not use more. */
export interface Lease extends BudgetUse {
  /**
   * Replaces the reservation by the measured use. It can be called again and never throws. If it fails, the reserved
   * amounts stay spent until it succeeds.
   */
  settle(used: BudgetUse): void;
}

/** The budgets of every scope. */
export interface Budgets {
  /**
   * Reserves the worst case of a call on all its budgets, or nothing. If the process ends before `settle`, the amounts
   * stay spent. Calls of one process for the same budget are served in order. The order between processes is not
   * defined.
   * Throws BUDGET_EXCEEDED or RATE_LIMITED with `data` {budget, scope, unit, limit, left, resetsAt?}, CANCELLED,
   * STATE_FAILED.
   */
  reserve(request: LeaseRequest): Promise<Lease> | Lease;
  /** Deletes what a run or a session has spent. */
  end(scope: 'run' | 'session', key: string): Promise<void>;
  /**
   * The number of leases that could not be settled. Each is tried again every second, and before the next reservation.
   */
  readonly unsettled: number;
}

/** Returns budgets over shared state. Tests replace `clock`. */
export function createBudgets(state: State, clock: () => Instant = instant): Budgets {
  const now = (): number => clock().wall;
  /** Counter → number of calls of this process that have reserved some of it. */
  const running = new Map<string, number>();
  const settler = createSettler(state, () => line.callNext());

  const attempt = async (request: LeaseRequest): Promise<QueueAttempt<Lease>> => {
    if (settler.failed > 0) await settler.retry();
    // Read before the answer: a call that ends meanwhile may give back what this call needs.
    const shared = new Set<string>();
    const claims = claimsOf(request, (key) => running.has(key) && Boolean(shared.add(key)));
    const answer = await state.reserve(claims, clock());
    if ('reservation' in answer) return { got: open(request, answer.reservation) };
    const { refused } = answer;
    const mayBeFreed = refused.unit === 'concurrent' || shared.has(budgetKeyOf(refused.claim));
    if (isReleasable(refused.unit) && mayBeFreed) return { busy: refused };
    throw spentError(refused);
  };
  const line = createPrincipalQueue<Lease>({
    attempt,
    now,
    giveBack: (lease) => lease.settle({ outputBytes: 0, wallMs: 0 }),
  });

  const open = (request: LeaseRequest, reservation: Reservation): Lease => {
    const keys = reservation.taken.map((taken) => budgetKeyOf(taken.claim));
    for (const key of keys) running.set(key, (running.get(key) ?? 0) + 1);
    const granted = grantOf(request, reservation);
    let settled = false;
    return {
      ...granted,
      settle: (used) => {
        if (settled) return;
        settled = true;
        for (const key of keys) countDown(running, key);
        void settler.settle(reservation, wholeUse(used, granted)).then(line.callNext);
      },
    };
  };
  const reserve = async (request: LeaseRequest): Promise<Lease> => {
    const keys = claimsOf(request, () => false).map(budgetKeyOf);
    if (!line.wants(keys)) {
      const answer = await attempt(request);
      if ('got' in answer) return answer.got;
    }
    return line.join(request, keys);
  };
  return {
    // Most calls have no budget and need no database.
    reserve: (request) =>
      request.budgets.length > 0
        ? reserve(request)
        : { outputBytes: request.maxOutputBytes, wallMs: request.maxWallMs, settle: () => undefined },
    end: async (scope, key) => state.endScope(scope, key),
    get unsettled() {
      return settler.failed;
    },
  };
}

function countDown(counts: Map<string, number>, key: string): void {
  const left = (counts.get(key) ?? 1) - 1;
  if (left > 0) counts.set(key, left);
  else counts.delete(key);
}

/** Returns a measured amount as an integer. An amount that is not a number counts as everything that was reserved. */
function wholeUse(used: BudgetUse, reserved: BudgetUse): BudgetUse {
  const whole = (measured: number, otherwise: number): number =>
    Math.ceil(Number.isFinite(measured) && measured >= 0 ? measured : otherwise);
  return { outputBytes: whole(used.outputBytes, reserved.outputBytes), wallMs: whole(used.wallMs, reserved.wallMs) };
}
