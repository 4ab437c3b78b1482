/** Calculates windows and remaining amounts of the counter of a budget. */
import { elapsed, type Instant, isSameBoot } from './budget-clock.ts';
import type {
  Amounts,
  BudgetClaim,
  BudgetUnit,
  CallsAhead,
  CounterName,
  Reservation,
  ReservationRefusal,
  ReservedClaim,
} from './state-port.ts';

/** A counter: what has been reserved or used since its window began. */
export interface BudgetCounter {
  readonly since: Instant;
  readonly amounts: Amounts;
}

/** All units of budgets. */
export const BUDGET_UNITS = ['calls', 'argBytes', 'outputBytes', 'wallMs'] as const satisfies readonly BudgetUnit[];

/** The amounts of a new counter. */
export const EMPTY_COUNTER: Amounts = { calls: 0, argBytes: 0, outputBytes: 0, wallMs: 0 };

/** A process may reserve this part of what is left ahead of its calls. */
export const AHEAD_SHARE = 1 / 64;

/** Returns a text that only the claims on this counter have. Scopes contain no space. */
export function counterKey({ budget, scope, key, counter }: CounterName): string {
  return counter ?? `${scope} ${budget.length} ${budget}${key}`;
}

/** Returns whether the window of a counter has ended. The next use begins another one. */
export function isWindowOver({ windowMs }: Pick<BudgetClaim, 'windowMs'>, since: Instant, now: Instant): boolean {
  return windowMs !== undefined && elapsed(since, now) >= windowMs;
}

/** Returns the counter at `now`. Windows are fixed; one begins with the first use after the last one ended. */
export function currentCounter(claim: BudgetClaim, stored: BudgetCounter | undefined, now: Instant): BudgetCounter {
  if (stored === undefined) return { since: now, amounts: EMPTY_COUNTER };
  if (claim.windowMs === undefined) return stored;
  // The clock was set back over a reboot. The window begins again and keeps what was spent. Otherwise it would be
  // longer by the difference of the clocks.
  if (!isSameBoot(stored.since, now) && now.wall < stored.since.wall) return { since: now, amounts: stored.amounts };
  return isWindowOver(claim, stored.since, now) ? { since: now, amounts: EMPTY_COUNTER } : stored;
}

/** Takes the demands of a claim from its counter, all or none. */
export function drawFromCounter(
  claim: BudgetClaim,
  counter: BudgetCounter,
  now: Instant,
): { readonly taken: ReservedClaim } | { readonly refused: ReservationRefusal } {
  const amounts = emptyAmounts();
  for (const { unit, limit, most, least } of claim.demands) {
    const left = Math.max(0, limit - counter.amounts[unit]);
    if (left < least) {
      const resets =
        claim.windowMs === undefined ? {} : { resetsAt: now.wall + claim.windowMs - elapsed(counter.since, now) };
      return { refused: { claim, unit, limit, left, ...resets } };
    }
    amounts[unit] = Math.min(most, left);
  }
  return { taken: { claim, since: counter.since, amounts } };
}

/** Returns for how many further calls with the same demands amounts may be reserved. */
export function callsAhead({ demands }: BudgetClaim, used: Amounts, { most, held }: CallsAhead): number {
  return demands.reduce((fewest, { unit, limit, most: size }) => {
    if (size === 0) return fewest;
    const share = Math.floor(((limit - used[unit] - size) * AHEAD_SHARE) / size);
    return Math.max(0, Math.min(fewest, share - held));
  }, most);
}

/** Returns whether `settle` changes anything: an amount that differs, or a slot that becomes free. */
export function needsSettle({ taken }: Reservation, used: Partial<Amounts>): boolean {
  for (const { claim, amounts } of taken)
    if (claim.concurrent !== undefined || isChange(changeOf(amounts, used))) return true;
  return false;
}

/** Returns what a settled counter changes by. A unit that was not reserved, or whose use is not given, stays. */
export function changeOf(reserved: Amounts, used: Partial<Amounts>): Amounts {
  const change = emptyAmounts();
  for (const unit of BUDGET_UNITS)
    if (reserved[unit] > 0) change[unit] = (used[unit] ?? reserved[unit]) - reserved[unit];
  return change;
}

/** Returns whether any amount is not 0. */
export function isChange({ calls, argBytes, outputBytes, wallMs }: Amounts): boolean {
  return calls !== 0 || argBytes !== 0 || outputBytes !== 0 || wallMs !== 0;
}

/** Returns amounts of 0, to be filled. */
export function emptyAmounts(): Record<BudgetUnit, number> {
  return { calls: 0, argBytes: 0, outputBytes: 0, wallMs: 0 };
}

/** Returns `amounts` plus `factor` times `others`. */
export function addAmounts(amounts: Amounts, others: Amounts, factor = 1): Amounts {
  return {
    calls: amounts.calls + factor * others.calls,
    argBytes: amounts.argBytes + factor * others.argBytes,
    outputBytes: amounts.outputBytes + factor * others.outputBytes,
    wallMs: amounts.wallMs + factor * others.wallMs,
  };
}
