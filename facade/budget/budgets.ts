/**
 * Reserves budgets for a call and gives back what it did not use. A spent budget refuses at once, a busy one at the
 * deadline.
 */

import { cancelReason } from '../../adapters/rpc/cancellation.ts';
import { type Instant, instant } from '../state/budget-clock.ts';
import { counterKey, EMPTY_COUNTER } from '../state/budget-counter.ts';
import { createMemoryLedger } from '../state/budget-ledger.ts';
import type { Reservation, ReservationRefusal, State } from '../state/state-port.ts';
import {
  claimsOf,
  grantOf,
  isReleasable,
  type KeyedBudget,
  type LeaseRequest,
  mayGiveBack,
  spentError,
} from './budget-claims.ts';
import { createSettler, type Settler } from './budget-settler.ts';
import { createPrincipalQueue, type PrincipalQueue, type QueueAttempt } from './principal-queue.ts';
import { SharedBudgets, type SharedHolding } from './shared-budgets.ts';

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

/** A budget that counts the calls of one key. */
export type CallBudget = KeyedBudget & { readonly key: string; readonly calls: number };

/** The budgets of every scope. */
export interface Budgets {
  /**
   * Reserves the worst case of a call on all its budgets, or nothing. Returns the lease at once if the budgets are
   * those of its session, or if enough of them is reserved ahead. If the process ends before `settle`, the amounts stay
   * spent. Calls of one process for the same budget are served in order. The order between processes is not defined.
   * Throws BUDGET_EXCEEDED or RATE_LIMITED with `data` {budget, scope, unit, limit, left, window?, resetsAt?},
   * CANCELLED, STATE_FAILED.
   */
  reserve(request: LeaseRequest): Promise<Lease> | Lease;
  /** Deletes what a run or a session has spent. */
  end(scope: 'run' | 'session', key: string): Promise<void>;
  /** Resets the counters of a budget that sessions of this process have for themselves. */
  reset(budget: string, isReset: (session: string) => boolean): void;
  /** Returns how many calls a budget has left. What this process has reserved ahead is left. Throws STATE_FAILED. */
  left(budget: CallBudget): Promise<number>;
  /** Gives back what is reserved ahead. Later calls reserve nothing ahead. Never throws. */
  close(): Promise<void>;
  /**
   * The number of leases that could not be settled. Each is tried again every second, and before the next reservation.
   */
  readonly unsettled: number;
}

/** Returns budgets over shared state. Tests replace `clock`. */
export function createBudgets(state: State, clock: () => Instant = instant): Budgets {
  return new ProcessBudgets(state, clock);
}

class ProcessBudgets implements Budgets {
  readonly #state: Pick<State, 'endScope'>;
  readonly #clock: () => Instant;
  readonly #settler: Settler;
  readonly #sessions = createMemoryLedger();
  readonly #shared: SharedBudgets;
  readonly #line: PrincipalQueue<Lease>;
  /** Counter → number of calls of this process that may give some of it back. */
  readonly #running = new Map<string, number>();
  /** Reservations of session counters that are withdrawn if the shared state refuses the call. */
  readonly #undecided = new Map<Reservation, Promise<unknown>>();

  constructor(state: State, clock: () => Instant) {
    this.#clock = clock;
    this.#state = state;
    this.#settler = createSettler(state, () => this.#line.callNext());
    this.#shared = new SharedBudgets(state, this.#settler);
    this.#line = createPrincipalQueue<Lease>({
      attempt: (request) => this.#attempt(request),
      now: () => clock().wall,
      giveBack: (lease) => lease.settle({ outputBytes: 0, wallMs: 0 }),
    });
  }

  get unsettled(): number {
    return this.#settler.failed;
  }

  reserve(request: LeaseRequest): Promise<Lease> | Lease {
    // Most calls have no budget.
    if (request.budgets.length === 0)
      return { outputBytes: request.maxOutputBytes, wallMs: request.maxWallMs, settle: () => undefined };
    const isFirst = this.#settler.failed === 0 && this.#line.isEmpty;
    return (isFirst ? this.#takeAtOnce(request) : undefined) ?? this.#reserveLater(request);
  }

  async end(scope: 'run' | 'session', key: string): Promise<void> {
    this.#sessions.endScope(scope, key);
    if (scope === 'session') return;
    await this.#state.endScope(scope, key);
    // After all earlier requests, because what they reserved ahead belongs to the deleted counter.
    this.#shared.forget(scope, key);
  }

  reset(budget: string, isReset: (session: string) => boolean): void {
    this.#sessions.reset(budget, isReset);
  }

  async left({ id: budget, scope, key, calls: limit }: CallBudget): Promise<number> {
    // This asks for more than the limit, so the refusal says what is left.
    const demands = [{ unit: 'calls' as const, limit, most: 0, least: limit + 1 }];
    const refused = await this.#shared.findSpent([{ budget, scope, key, demands }], this.#clock());
    return refused?.left ?? 0;
  }

  close(): Promise<void> {
    return this.#shared.close();
  }

  async #reserveLater(request: LeaseRequest): Promise<Lease> {
    const { own, shared } = claimsOf(request, () => false);
    const keys = [...own, ...shared].map(counterKey);
    if (!this.#line.wants(keys)) {
      const answer = await this.#attempt(request);
      if ('got' in answer) return answer.got;
    }
    return this.#line.join(request, keys);
  }

  async #attempt(request: LeaseRequest): Promise<QueueAttempt<Lease>> {
    if (this.#settler.failed > 0) await this.#settler.retry();
    for (;;) {
      // The counter of a session that has ended must not come back, because no one would remove it.
      if (request.signal.aborted) throw cancelReason(request.signal);
      const answer = await this.#tryOnce(request);
      if (answer !== undefined) return answer;
    }
  }

  /** Tries to reserve. Returns undefined if the answer may be another one now. */
  async #tryOnce(request: LeaseRequest): Promise<QueueAttempt<Lease> | undefined> {
    const lease = this.#takeAtOnce(request);
    if (lease !== undefined) return { got: lease };
    // Read before the answer: a call that ends meanwhile may give back what this call needs.
    const inUse = new Set<string>();
    const claims = claimsOf(request, (key) => this.#running.has(key) && Boolean(inUse.add(key)));
    const arriving = this.#shared.arriving(claims.shared);
    if (arriving !== undefined) return arriving.then(() => undefined);
    const now = this.#clock();
    const own = this.#sessions.reserve(claims.own, now);
    if ('refused' in own) {
      const undecided = this.#undecidedOn(own.refused);
      if (undecided !== undefined) return undecided.then(tryAgain, tryAgain);
      // Spent budgets are named before busy ones.
      const spent = own.refused.unit === 'concurrent' ? await this.#shared.findSpent(claims.shared, now) : undefined;
      return busyOrThrow(spent ?? own.refused, inUse, now.wall);
    }
    const answer = await this.#decide(own.reservation, this.#shared.reserve(claims.shared, now));
    if ('holding' in answer) return { got: this.#open(request, own.reservation, answer.holding) };
    // What another request reserved ahead may have arrived before this refusal.
    const late = this.#takeAtOnce(request);
    return late === undefined ? busyOrThrow(answer.refused, inUse, now.wall) : { got: late };
  }

  /** Reserves without the shared state, or returns undefined. */
  #takeAtOnce(request: LeaseRequest): Lease | undefined {
    if (request.signal.aborted) return undefined;
    const claims = claimsOf(request, (key) => this.#running.has(key));
    const now = this.#clock();
    const own = this.#sessions.reserve(claims.own, now);
    if ('refused' in own) return undefined;
    const holding = this.#shared.take(claims.shared, now);
    if (holding !== undefined) return this.#open(request, own.reservation, holding);
    this.#sessions.settle(own.reservation, EMPTY_COUNTER);
    return undefined;
  }

  /** Withdraws the reservation of session counters if the shared state gives none. */
  async #decide<T extends object>(own: Reservation, asking: Promise<T>): Promise<T> {
    let answer: T | undefined;
    this.#undecided.set(own, asking);
    try {
      answer = await asking;
      return answer;
    } finally {
      this.#undecided.delete(own);
      if (answer === undefined || 'refused' in answer) this.#sessions.settle(own, EMPTY_COUNTER);
    }
  }

  #undecidedOn({ claim }: ReservationRefusal): Promise<unknown> | undefined {
    const key = counterKey(claim);
    for (const [{ taken }, asking] of this.#undecided)
      if (taken.some((reserved) => counterKey(reserved.claim) === key)) return asking;
    return undefined;
  }

  #open(request: LeaseRequest, own: Reservation, holding: SharedHolding): Lease {
    const taken = own.taken.length === 0 ? holding.taken : [...own.taken, ...holding.taken];
    const keys: string[] = [];
    for (const { claim } of taken) if (mayGiveBack(claim)) keys.push(counterKey(claim));
    for (const key of keys) this.#running.set(key, (this.#running.get(key) ?? 0) + 1);
    const granted = grantOf(request, taken);
    const { outputBytes, wallMs } = granted;
    let settled = false;
    return {
      outputBytes,
      wallMs,
      settle: (used) => {
        if (settled) return;
        settled = true;
        for (const key of keys) countDown(this.#running, key);
        const whole = wholeUse(used, granted);
        this.#sessions.settle(own, whole);
        const settling = holding.settle(whole);
        if (settling === undefined) this.#line.callNext();
        else void settling.then(this.#line.callNext);
      },
    };
  }
}

/** Returns the refusal if a running call may end it. Throws for a spent budget. `inUse`: counters of running calls. */
function busyOrThrow(
  refused: ReservationRefusal,
  inUse: ReadonlySet<string>,
  now: number,
): { readonly busy: ReservationRefusal } {
  const { unit, claim } = refused;
  if (unit === 'concurrent' || (isReleasable(unit) && inUse.has(counterKey(claim)))) return { busy: refused };
  throw spentError(refused, now);
}

function tryAgain(): undefined {
  return undefined;
}

function countDown(counts: Map<string, number>, key: string): void {
  const left = (counts.get(key) ?? 1) - 1;
  if (left > 0) counts.set(key, left);
  else counts.delete(key);
}

/** Returns a measured amount as an integer. An amount that is not a number counts as everything that was reserved. */
function wholeUse(used: BudgetUse, reserved: BudgetUse): BudgetUse {
  return {
    outputBytes: wholeAmount(used.outputBytes, reserved.outputBytes),
    wallMs: wholeAmount(used.wallMs, reserved.wallMs),
  };
}

function wholeAmount(measured: number, otherwise: number): number {
  return Math.ceil(Number.isFinite(measured) && measured >= 0 ? measured : otherwise);
}
