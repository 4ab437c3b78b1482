/**
 * The decisions of the library that later calls get again. A decision is kept by what it depends on: caller, kind,
 * verb, server, tool, and which of the rules that read the call match.
 */
import { LRUCache } from 'lru-cache';
import type { CallDecision, CallInput, Principal } from '../port.ts';
import type { Weight } from './decision-cost.ts';
import type { DecisionReading } from './decision-reader.ts';
import { pickPrincipal } from './policy-input.ts';

/** The most callers, and the most decisions, that are kept. Those that were not used for the longest time go first. */
const MAX_CALLERS = 1_000;
const MAX_DECISIONS = 4_000;

/** What must be evaluated of a call to find its decision. */
export interface KeptReading extends Pick<DecisionReading, 'rules' | 'parts'> {
  readonly weight: Weight;
}

/** Decisions by what they depend on. */
export class KeptDecisions {
  /** A number for each caller. Callers with equal fields have the same number; no number is used twice. */
  readonly #callers = new LRUCache<string, number>({ max: MAX_CALLERS });
  readonly #known = new WeakMap<Principal, number>();
  readonly #readings = new LRUCache<string, KeptReading>({ max: MAX_DECISIONS });
  readonly #decisions = new LRUCache<string, CallDecision>({ max: MAX_DECISIONS });
  #last = 0;

  /** Returns what calls by this caller of this tool with this verb have in common, as a key of the other methods. */
  keyOf({ principal, effect: { kind = 'tool', verb, server, tool } }: CallInput): string {
    let caller = this.#known.get(principal);
    if (caller === undefined) {
      const fields = JSON.stringify(pickPrincipal(principal));
      caller = this.#callers.get(fields) ?? (this.#last += 1);
      this.#callers.set(fields, caller);
      this.#known.set(principal, caller);
    }
    return `${caller}\0${kind}\0${verb}\0${server}\0${tool}`;
  }

  /** Returns what to evaluate of a call. Undefined if nothing is kept, or if the decisions depend on more. */
  reading(key: string): KeptReading | undefined {
    return this.#readings.get(key);
  }

  /** Returns the decision on a call that matches these rules, and no others of the reading. */
  decision(key: string, matched: readonly number[]): CallDecision | undefined {
    return this.#decisions.get(decisionKey(key, matched));
  }

  /** Keeps a decision on a call that matches some rules of a reading. */
  keep(key: string, { matched, ...reading }: KeptReading & DecisionReading, decision: CallDecision): void {
    this.#readings.set(key, reading);
    this.#decisions.set(decisionKey(key, matched), decision);
  }
}

function decisionKey(key: string, matched: readonly number[]): string {
  return matched.length === 0 ? key : `${key}\0${matched.join()}`;
}
