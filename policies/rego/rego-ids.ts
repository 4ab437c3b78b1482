/** The ids of rules in Rego: their form, and that no two rules have the same id, in Rego and YAML together. */

import type { LocatedRule } from '../rules/configured-names.ts';
import { type PolicyProblem, problemAt } from '../rules/policy-problems.ts';
import { RESERVED_RULE_IDS } from '../rules/rule-compiler.ts';

import type { RegoFacts, RegoPlace, SetRule } from './rego-facts.ts';
import type { Rule } from './syntax-tree.ts';

/** The same as in policies/schemas/rules.json for YAML. */
export const RULE_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;
/** `RULE_ID` in words. */
export const RULE_ID_WORDS = 'a string of lower-case letters, digits, ".", "_" and "-", 64 at most';

/** Returns the problems of ids that are invalid, or that Tollgate uses itself. */
export function findIdFaults(rules: readonly SetRule[]): readonly PolicyProblem[] {
  return rules.flatMap((one) =>
    writtenIds(one.rule).flatMap((id) => {
      if (!RULE_ID.test(id)) return [faultOf(one, `the id "${id.slice(0, 40)}" must be ${RULE_ID_WORDS}`)];
      return RESERVED_RULE_IDS.has(id) ? [faultOf(one, reservedIdMessage(id))] : [];
    }),
  );
}

/** Returns the message for an id that Tollgate uses for its own reasons. */
export function reservedIdMessage(id: string): string {
  return `"${id}" is an id that Tollgate uses itself; choose another id`;
}

/**
 * Returns the problems of ids that two rules have, in a member or in METADATA: a refusal could not tell them apart.
 * Rules with equal heads are one rule with several bodies.
 */
export function findSharedIds(rules: readonly SetRule[]): readonly PolicyProblem[] {
  const first = new Map<string, SetRule>();
  return rules.flatMap((one) => {
    const own = [
      ...writtenIds(one.rule),
      ...(one.rule.annotations ?? [])
        .filter(({ scope }) => scope === 'rule')
        .flatMap(({ custom }) => (typeof custom?.id === 'string' ? [custom.id] : [])),
    ];
    return own.flatMap((id) => {
      const before = first.get(id);
      if (before === undefined) first.set(id, one);
      return before === undefined || isSameHead(before, one)
        ? []
        : [
            faultOf(
              one,
              `the id "${id}" is already used at ${before.facts.file}:${before.facts.line}; choose another id`,
            ),
          ];
    });
  });
}

/**
 * Returns the ids of reasons in Rego and their places: ids of rules and packages, and names of packages without an id.
 */
export function regoReasonIds({ rules, places }: Pick<RegoFacts, 'rules' | 'places'>): ReadonlyMap<string, RegoPlace> {
  return new Map([
    ...rules.map(({ id, package: name, file, line }) => [id ?? `policy.${name}`, { file, line }] as const),
    ...Object.entries(places),
  ]);
}

/** Returns the problems of YAML rules whose id a reason in Rego also has. */
export function findTakenIds(
  rules: readonly LocatedRule[],
  { rules: rego, places }: Pick<RegoFacts, 'rules' | 'places'>,
): readonly PolicyProblem[] {
  const regoIds = regoReasonIds({ rules: rego, places });
  return rules
    .filter(({ mode }) => mode !== 'off')
    .flatMap(({ rule: { id }, at }) => {
      const there = regoIds.get(id);
      return there === undefined
        ? []
        : problemAt(
            at(['id']),
            `the id "${id}" is already used at ${there.file}:${there.line}; ids are unique across ` + 'YAML and Rego',
          );
    });
}

function faultOf({ rule, facts }: SetRule, message: string): PolicyProblem {
  return { file: facts.file, line: rule.head.location.row, column: rule.head.location.col, message };
}

function isSameHead(one: SetRule, other: SetRule): boolean {
  const headOf = ({ rule, facts }: SetRule): string =>
    JSON.stringify([facts.package, facts.set, rule.head.key], (key, value: unknown) =>
      key === 'location' ? undefined : value,
    );
  return headOf(one) === headOf(other);
}

/** Returns the ids that the members of a rule contain as literals. */
export function writtenIds({ head }: Rule): readonly string[] {
  const pairs =
    head.key?.type === 'object'
      ? (head.key.value as readonly (readonly [{ value: unknown }, { type: string; value: unknown }])[])
      : [];
  return pairs
    .filter(([key, value]) => key.value === 'id' && value.type === 'string')
    .map(([, value]) => String(value.value));
}
