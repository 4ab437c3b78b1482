/** Owns the arithmetic of one budget's counter: windows and what may still be taken; refuses nothing by itself but says so. */
import type { Amounts, Claim, Refused, Taken, Unit } from './state.ts';

/** A counter as stored: what has been reserved or used since the window began, ms since 1970. */
export interface Counter extends Amounts {
  readonly since: number;
}

const NOTHING: Amounts = { calls: 0, argBytes: 0, outputBytes: 0, wallMs: 0 };

/**
 * The counter as it stands at `now`. Windows are fixed and begin with the first use after the last one ended.
 * A clock that was set back restarts the window and keeps what was spent, else the window would last for the whole jump.
 */
export function currentCounter(claim: Claim, stored: Counter | undefined, now: number): Counter {
  if (stored === undefined) return { ...NOTHING, since: now };
  if (claim.windowMs === undefined) return stored;
  if (now < stored.since) return { ...stored, since: now };
  return now < stored.since + claim.windowMs ? stored : { ...NOTHING, since: now };
}

/** Takes the demands of a claim from its counter, all or none. */
export function draw(claim: Claim, counter: Counter): { readonly taken: Taken } | { readonly refused: Refused } {
  const amounts: Record<Unit, number> = { ...NOTHING };
  for (const { unit, limit, most, least } of claim.demands) {
    const left = Math.max(0, limit - counter[unit]);
    if (left < least) {
      const resets = claim.windowMs === undefined ? {} : { resetsAt: counter.since + claim.windowMs };
      return { refused: { claim, unit, limit, left, ...resets } };
    }
    amounts[unit] = Math.min(most, left);
  }
  return { taken: { claim, since: counter.since, amounts } };
}
