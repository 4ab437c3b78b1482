/** Owns what a call reserves of its budgets and gives back; refuses what is spent at once, and what is busy at the deadline. */
import { canComeBack, claimsOf, grantOf, keyOf, spentError, type LeaseRequest } from './budget/claims.ts';
import { createLine, type Attempt } from './budget/line.ts';
import type { Held, State } from './state/state.ts';

export type { LeaseRequest } from './budget/claims.ts';
export { createGate, type Gate, type Leave } from './budget/gate.ts';

/** What a call has used, or may use. */
export interface Use {
  readonly outputBytes: number;
  readonly wallMs: number;
}

/** What one call has reserved: the asked maximum, or the rest of a budget where that is less. The call must keep to it. */
export interface Lease extends Use {
  /** Replaces the reservation by the real use. Idempotent, never throws: while it fails, the reservation stays spent. */
  settle(used: Use): void;
}

/** The budgets of every scope. */
export interface Budgets {
  /**
   * Reserves the worst case of a call on all its budgets, or nothing; a crash before `settle` leaves it spent.
   * Calls that want the same budget are served first come first served, over processes by chance.
   * Throws BUDGET_EXCEEDED or RATE_LIMITED with `data` {budget, scope, unit, limit, left, resetsAt?}, CANCELLED, STATE_FAILED.
   */
  reserve(request: LeaseRequest): Promise<Lease> | Lease;
  /** Forgets what a run or a session has spent. */
  end(scope: 'run' | 'session', key: string): Promise<void>;
  /** Leases whose settling failed; each is tried again before the next reservation. */
  readonly unsettled: number;
}

/** Budgets over shared state. `now` in ms since 1970. */
export function createBudgets(state: State, now: () => number = Date.now): Budgets {
  /** Counter → calls of this process that hold some of it. */
  const running = new Map<string, number>();
  const unsettled: { readonly held: Held; readonly used: Use }[] = [];

  const settle = async (held: Held, used: Use): Promise<boolean> => {
    try {
      await state.settle(held, used);
      return true;
    } catch {
      // Not swallowed: it is counted, and tried again before the next reservation.
      unsettled.push({ held, used });
      return false;
    }
  };
  const settleOld = async (): Promise<void> => {
    for (const { held, used } of unsettled.splice(0)) await settle(held, used);
  };
  const attempt = async (request: LeaseRequest): Promise<Attempt<Lease>> => {
    if (unsettled.length > 0) await settleOld();
    // Remembered from before the answer: a call that ends meanwhile has given back what this one may have.
    const shared = new Set<string>();
    const claims = claimsOf(request, (key) => running.has(key) && Boolean(shared.add(key)));
    const answer = await state.reserve(claims, now());
    if ('held' in answer) return { got: open(request, answer.held) };
    const { refused } = answer;
    const isHeld = refused.unit === 'concurrent' || shared.has(keyOf(refused.claim));
    if (canComeBack(refused.unit) && isHeld) return { busy: refused };
    throw spentError(refused);
  };
  const line = createLine<Lease>({ attempt, now, giveBack: (lease) => lease.settle({ outputBytes: 0, wallMs: 0 }) });

  const open = (request: LeaseRequest, held: Held): Lease => {
    const keys = held.taken.map((taken) => keyOf(taken.claim));
    for (const key of keys) running.set(key, (running.get(key) ?? 0) + 1);
    const granted = grantOf(request, held);
    let settled = false;
    return {
      ...granted,
      settle: (used) => {
        if (settled) return;
        settled = true;
        for (const key of keys) countDown(running, key);
        const real = { outputBytes: whole(used.outputBytes, granted.outputBytes), wallMs: whole(used.wallMs, granted.wallMs) };
        void settle(held, real).then(line.callNext);
      },
    };
  };
  return {
    reserve: (request) => {
      // The usual call has no budget and costs no database.
      if (request.budgets.length === 0) return { ...grantOf(request, undefined), settle: () => undefined };
      return reserve(request);
    },
    end: async (scope, key) => state.endScope(scope, key),
    get unsettled() {
      return unsettled.length;
    },
  };

  async function reserve(request: LeaseRequest): Promise<Lease> {
    const keys = claimsOf(request, () => false).map(keyOf);
    if (!line.wants(keys)) {
      const answer = await attempt(request);
      if ('got' in answer) return answer.got;
    }
    return line.join(request, keys);
  }
}

function countDown(counts: Map<string, number>, key: string): void {
  const left = (counts.get(key) ?? 1) - 1;
  if (left > 0) counts.set(key, left);
  else counts.delete(key);
}

/** A whole amount of what a caller measured; what cannot be read as one counts as everything that was reserved. */
function whole(measured: number, reserved: number): number {
  return Number.isFinite(measured) && measured >= 0 ? Math.ceil(measured) : Math.ceil(reserved);
}
