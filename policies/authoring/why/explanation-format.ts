/** Owns the shape of an answer to "why": what decided, what was near, and what would have changed it; holds values as they were, so that who prints it redacts. */

import type { CallDecision, Mode } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';

/** Something the policy was told: `principal.role`, `path`, `arguments.amount`. */
export interface CallFact {
  readonly name: string;
  readonly value: unknown;
}

/** One condition of a YAML rule as it is written under `when`. */
export interface ConditionWhy {
  /** `paths`, `args.amount`. */
  readonly field: string;
  readonly written: unknown;
  readonly line: number;
  readonly holds: boolean;
  readonly facts: readonly CallFact[];
}

/** A YAML rule that fired, or that nearly did: its conditions in the order of the file. */
export interface RuleWhy {
  readonly id: string;
  readonly outcome: RuleOutcome;
  readonly mode: Mode;
  readonly message: string;
  readonly file: string;
  readonly line: number;
  readonly fired: boolean;
  readonly conditions: readonly ConditionWhy[];
}

/** The first expression that failed in a rule of Rego. */
export interface ExpressionWhy {
  /** `policy.hours.deny`. */
  readonly rule: string;
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

/** One fact that is otherwise. `text` says the condition: `path matched src/**`. */
export interface FactChange {
  readonly fact: string;
  readonly from: unknown;
  readonly to: unknown;
  readonly text: string;
}

/** Changes that together flip the decision, proved by deciding anew. */
export interface Flip {
  readonly outcome: RuleOutcome;
  readonly changes: readonly FactChange[];
}

/** Why a call is decided as it is. */
export interface Explanation {
  readonly decision: CallDecision;
  readonly revision: string;
  /** Rules that fired, then the nearest others. */
  readonly rules: readonly RuleWhy[];
  /** YAML rules that neither fired nor were near. */
  readonly others: number;
  readonly expressions: readonly ExpressionWhy[];
  /** Why `expressions` is empty although there may be Rego: `opa` is missing, or the policy came as a bundle. */
  readonly unexplained?: 'opa' | 'bundle';
  /** The smallest first; of each size at most three. Empty: none of up to three changes was found. */
  readonly flips: readonly Flip[];
}
