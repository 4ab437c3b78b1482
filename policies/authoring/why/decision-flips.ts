/**
 * Searches the smallest change of facts that changes the outcome. Each result is proved by deciding the changed call.
 */

import type { CallInput } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';
import type { CandidateChange } from './candidate-changes.ts';
import type { Flip } from './explanation-format.ts';

/** The input of a search. `decide` returns undefined if the policy gives no decision. */
interface FlipSearch {
  readonly input: CallInput;
  readonly outcome: RuleOutcome;
  readonly candidates: readonly CandidateChange[];
  readonly decide: (input: CallInput) => Promise<RuleOutcome | undefined>;
  /** Maximum number of decisions. */
  readonly budget: number;
}

const MOST_CHANGES = 3;
const MOST_FLIPS = 3;
/** The outcomes to look for, most wanted first. */
const WANTED: Readonly<Record<RuleOutcome, readonly RuleOutcome[]>> = {
  deny: ['allow', 'ask'],
  ask: ['allow'],
  allow: ['deny', 'ask'],
};

/** Returns the smallest flips. If none has the most wanted outcome, also returns the smallest flips that have it. */
export async function findFlips(search: FlipSearch): Promise<readonly Flip[]> {
  const candidates = distinct(search.candidates);
  const wanted = WANTED[search.outcome];
  const flips: Flip[] = [];
  let budget = search.budget;
  for (let size = 1; size <= MOST_CHANGES; size += 1) {
    const found: (Flip & { readonly rules: string })[] = [];
    for (const changes of combinations(candidates, size)) {
      if (budget <= 0 || found.filter(({ outcome }) => outcome === wanted[0]).length >= MOST_FLIPS) break;
      budget -= 1;
      const outcome = await search.decide(changes.reduce((input, { apply }) => apply(input), search.input));
      const rules = changes.map(({ of, text }) => of ?? text).join('\n');
      const isNew = !found.some((flip) => flip.outcome === outcome && flip.rules === rules);
      const isMeant = changes.every(({ toward }) => toward === undefined || toward === outcome);
      if (outcome !== undefined && wanted.includes(outcome) && isNew && isMeant)
        found.push({ outcome, rules, changes: changes.map(({ fact, from, to, text }) => ({ fact, from, to, text })) });
    }
    flips.push(
      ...wanted.flatMap((outcome) =>
        flips.some((flip) => flip.outcome === outcome)
          ? []
          : found
              .filter((flip) => flip.outcome === outcome)
              .slice(0, MOST_FLIPS)
              .map(({ changes }) => ({ outcome, changes })),
      ),
    );
    if (flips.some(({ outcome }) => outcome === wanted[0])) break;
  }
  return flips;
}

function distinct(candidates: readonly CandidateChange[]): readonly CandidateChange[] {
  const real = candidates.filter(({ from, to }) => JSON.stringify(from) !== JSON.stringify(to));
  return [...new Map(real.map((change) => [JSON.stringify([change.fact, change.to]), change])).values()];
}

/** Yields combinations that change no fact twice. */
function* combinations(
  candidates: readonly CandidateChange[],
  size: number,
  from = 0,
): Generator<readonly CandidateChange[]> {
  if (size === 0) return void (yield []);
  for (let at = from; at <= candidates.length - size; at += 1) {
    const first = candidates[at];
    if (first === undefined) return;
    for (const rest of combinations(candidates, size - 1, at + 1))
      if (!rest.some(({ fact }) => fact === first.fact)) yield [first, ...rest];
  }
}
