/**
 * Checks members of Rego sets that contain more than a reason: their keys, and their obligations by the schema of YAML
 * rules.
 */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isJsonObject } from '../../catalogs/schemas/json-schema.ts';
import { type PolicyProblem, suggest } from '../rules/policy-problems.ts';
import { findObligationFaults } from '../rules/rule-schema.ts';
import type { SetRule } from './rego-facts.ts';
import type { Term } from './syntax-tree.ts';

/** The keys that a member may have. */
const KEYS = ['id', 'message', 'approval', 'obligations'] as const;

/** Throws POLICY_FAILED, with key and place, for the first invalid member. */
export function checkMembers(extended: readonly unknown[]): void {
  for (const entry of extended) {
    const {
      place = {},
      package: name,
      set,
      member,
    } = entry as {
      readonly place?: { readonly file?: string; readonly line?: number };
      readonly package: string;
      readonly set: string;
      readonly member: unknown;
    };
    const [fault] = faultsOf(set, member);
    const where = place.file === undefined ? `package policy.${name}` : `${place.file}:${place.line ?? 1}`;
    if (fault !== undefined)
      throw new TollgateError('POLICY_FAILED', {
        detail: `${where}: a member of \`${set}\` cannot be used: ${fault}`,
        next: 'Tell the owner of the policy. `tollgate policy check` finds such members.',
      });
  }
}

/** Returns the faults of members with literal keys, which can be found without a call. */
export function findMemberFaults(rules: readonly SetRule[]): readonly PolicyProblem[] {
  return rules.flatMap(({ rule: { head }, facts }) => {
    const member = head.key === undefined ? UNKNOWN_VALUE : valueOfTerm(head.key);
    const { row: line, col: column } = head.location;
    return faultsOf(facts.set, member).map(
      (message): PolicyProblem => ({
        file: facts.file,
        line,
        column,
        message: `a member of \`${facts.set}\` cannot be used: ${message}`,
      }),
    );
  });
}

function faultsOf(set: string, member: unknown): readonly string[] {
  if (!isJsonObject(member)) return [];
  const unknown = Object.keys(member).filter((key) => !(KEYS as readonly string[]).includes(key));
  const faults = unknown.map(
    (key) => `unknown key "${key.slice(0, 40)}".${suggest(key, KEYS)} Known keys: ${KEYS.join(', ')}.`,
  );
  const { obligations = UNKNOWN_VALUE, approval } = member;
  if (set === 'deny' && Object.hasOwn(member, 'obligations'))
    return [...faults, 'a rule that denies cannot have obligations; remove `obligations`.'];
  if (set !== 'ask' && approval !== undefined)
    faults.push(`a rule with outcome ${set} does not ask; remove \`approval\`.`);
  return [
    ...faults,
    ...(isKnownValue(obligations)
      ? findObligationFaults(obligations).map(
          ({ path, message }) => `${['obligations', ...path].join('.')}: ${message}`,
        )
      : []),
  ];
}

/** Stands for a value that is known only when the rule is evaluated. */
export const UNKNOWN_VALUE = Symbol('unknown');

/** Whether all parts of a value are known. */
export function isKnownValue(value: unknown): boolean {
  if (value === UNKNOWN_VALUE) return false;
  return typeof value !== 'object' || value === null || Object.values(value).every(isKnownValue);
}

/** Returns the value of a term with literal keys. Parts of it may be unknown. */
export function valueOfTerm({ type, value }: Term): unknown {
  if (type === 'string' || type === 'boolean' || type === 'null') return type === 'null' ? null : value;
  if (type === 'number') return Number(value);
  if (type === 'array') return (value as readonly Term[]).map(valueOfTerm);
  if (type !== 'object') return UNKNOWN_VALUE;
  const pairs = value as readonly (readonly [Term, Term])[];
  if (!pairs.every(([key]) => key.type === 'string')) return UNKNOWN_VALUE;
  return Object.fromEntries(pairs.map(([key, inner]) => [String(key.value), valueOfTerm(inner)]));
}
