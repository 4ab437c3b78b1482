/**
 * The answer to "why": which rules decided, which almost matched, and what would have changed the decision. Not
 * redacted.
 */

import type { CallDecision, Mode } from '../../port.ts';
import type { RuleOutcome } from '../../rules/rule-conditions.ts';

/** A fact that the policy read: `principal.role`, `path`, `arguments.amount`. */
export interface CallFact {
  readonly name: string;
  readonly value: unknown;
}

/** One condition of a YAML rule, as it is written under `when`. */
export interface ConditionWhy {
  /** `paths`, `args.amount`. */
  readonly field: string;
  readonly written: unknown;
  readonly line: number;
  readonly holds: boolean;
  readonly facts: readonly CallFact[];
}

/** A YAML rule that matched, or almost did. Its conditions are in the order of the file. */
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

/** The first expression that failed in a Rego rule. */
export interface ExpressionWhy {
  /** `policy.hours.deny`. */
  readonly rule: string;
  readonly file: string;
  readonly line: number;
  readonly text: string;
}

/**
 * A changed fact. `text` states the condition: `path matched src/**`. The fact `approval` stands for an owner who
 * approves the call, and `rule` for an exception of the rule `from`.
 */
export interface FactChange {
  readonly fact: string;
  readonly from: unknown;
  readonly to: unknown;
  readonly text: string;
}

/** Changes that together change the outcome. Proved by deciding the changed call, or the call under changed rules. */
export interface Flip {
  readonly outcome: RuleOutcome;
  readonly changes: readonly FactChange[];
}

/** Why a call was decided as it was. */
export interface Explanation {
  readonly decision: CallDecision;
  readonly revision: string;
  /** Rules that matched, then the nearest others. */
  readonly rules: readonly RuleWhy[];
  /** Number of all other YAML rules. */
  readonly others: number;
  readonly expressions: readonly ExpressionWhy[];
  /** Why `expressions` is empty although there may be Rego: `opa` is missing, or the policy is a bundle. */
  readonly unexplained?: 'opa' | 'bundle';
  /** Smallest first, at most three of each size. Empty for an allowed call. */
  readonly flips: readonly Flip[];
}
