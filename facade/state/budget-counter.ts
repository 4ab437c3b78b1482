/** Calculates windows and remaining amounts of the counter of a budget. */
import { elapsed, type Instant, isSameBoot } from './budget-clock.ts';
import type { Amounts, BudgetClaim, BudgetUnit, Reservation, ReservationRefusal, ReservedClaim } from './state-port.ts';

/** A stored counter: what has been reserved or used since its window began. */
export interface BudgetCounter extends Amounts {
  readonly since: Instant;
}

/** The amounts of a new counter. */
export const EMPTY_COUNTER: Amounts = { calls: 0, argBytes: 0, outputBytes: 0, wallMs: 0 };

/** Returns the counter at `now`. Windows are fixed; one begins with the first use after the last one ended. */
export function currentCounter(claim: BudgetClaim, stored: BudgetCounter | undefined, now: Instant): BudgetCounter {
  if (stored === undefined) return { ...EMPTY_COUNTER, since: now };
  if (claim.windowMs === undefined) return stored;
  // The clock was set back over a reboot. The window begins again and keeps what was spent. Otherwise it would be
  // longer by the difference of the clocks.
  if (!isSameBoot(stored.since, now) && now.wall < stored.since.wall) return { ...stored, since: now };
  return elapsed(stored.since, now) < claim.windowMs ? stored : { ...EMPTY_COUNTER, since: now };
}

/** Takes the demands of a claim from its counter, all or none. */
export function drawFromCounter(
  claim: BudgetClaim,
  counter: BudgetCounter,
  now: Instant,
): { readonly taken: ReservedClaim } | { readonly refused: ReservationRefusal } {
  const amounts: Record<BudgetUnit, number> = { ...EMPTY_COUNTER };
  for (const { unit, limit, most, least } of claim.demands) {
    const left = Math.max(0, limit - counter[unit]);
    if (left < least) {
      const resets =
        claim.windowMs === undefined ? {} : { resetsAt: now.wall + claim.windowMs - elapsed(counter.since, now) };
      return { refused: { claim, unit, limit, left, ...resets } };
    }
    amounts[unit] = Math.min(most, left);
  }
  return { taken: { claim, since: counter.since, amounts } };
}

/** Returns whether a reservation needs `settle`. Calls and argument bytes are exact when they are reserved. */
export function needsSettle({ taken }: Reservation): boolean {
  return taken.some(
    ({ claim, amounts }) => claim.concurrent !== undefined || amounts.outputBytes > 0 || amounts.wallMs > 0,
  );
}
