/** Owns the search for the smallest change that flips a decision: fewest facts first, each proved by deciding anew; tells nothing that it did not prove. */

import type { CallInput } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';
import type { CandidateChange } from './candidate-changes.ts';
import type { Flip } from './explanation-format.ts';

/** What a search needs. `decide` answers undefined where the policy gives no decision. */
export interface FlipSearch {
  readonly input: CallInput;
  readonly outcome: RuleOutcome;
  readonly atoms: readonly CandidateChange[];
  readonly decide: (input: CallInput) => Promise<RuleOutcome | undefined>;
  /** Most decisions. */
  readonly budget: number;
}

const MOST_CHANGES = 3;
const MOST_FLIPS = 3;
/** What one would rather have. */
const WANTED: Readonly<Record<RuleOutcome, readonly RuleOutcome[]>> = {
  deny: ['allow', 'ask'],
  ask: ['allow'],
  allow: ['deny', 'ask'],
};

/** The smallest flips; where these do not lead to the first outcome that one would want, also the smallest that do. */
export async function findFlips(search: FlipSearch): Promise<readonly Flip[]> {
  const atoms = distinct(search.atoms);
  const wanted = WANTED[search.outcome];
  const flips: Flip[] = [];
  let left = search.budget;
  for (let size = 1; size <= MOST_CHANGES; size += 1) {
    const found: (Flip & { readonly rules: string })[] = [];
    for (const changes of combinations(atoms, size)) {
      if (left <= 0 || found.filter(({ outcome }) => outcome === wanted[0]).length >= MOST_FLIPS) break;
      left -= 1;
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

function distinct(atoms: readonly CandidateChange[]): readonly CandidateChange[] {
  const real = atoms.filter(({ from, to }) => JSON.stringify(from) !== JSON.stringify(to));
  return [...new Map(real.map((atom) => [JSON.stringify([atom.fact, atom.to]), atom])).values()];
}

/** No two changes of one fact. */
function* combinations(
  atoms: readonly CandidateChange[],
  size: number,
  from = 0,
): Generator<readonly CandidateChange[]> {
  if (size === 0) return void (yield []);
  for (let at = from; at <= atoms.length - size; at += 1) {
    const first = atoms[at];
    if (first === undefined) return;
    for (const rest of combinations(atoms, size - 1, at + 1))
      if (!rest.some(({ fact }) => fact === first.fact)) yield [first, ...rest];
  }
}
