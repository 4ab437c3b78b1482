/** Owns the ids of rules in Rego: how they are spelled, where members write them, and that no two rules share one, be the other in YAML. */

import type { LocatedRule } from '../rules/configured-names.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import { RESERVED_RULE_IDS } from '../rules/rule-compiler.ts';
import type { RegoFacts, SetRule } from './rego-facts.ts';
import type { Rule } from './syntax-tree.ts';

/** As policies/schemas/rules.json has it for YAML. */
export const RULE_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;
/** The same for people. */
export const RULE_ID_WORDS = 'a text of lower-case letters, digits, ".", "_" and "-", 64 at most';

/** Ids of members that are none, or Tollgate's own. */
export function findIdFaults(rules: readonly SetRule[]): readonly PolicyProblem[] {
  return rules.flatMap((one) =>
    writtenIds(one.rule).flatMap((id) => {
      if (!RULE_ID.test(id)) return [faultOf(one, `the id "${id.slice(0, 40)}" must be ${RULE_ID_WORDS}`)];
      return RESERVED_RULE_IDS.has(id)
        ? [faultOf(one, `"${id}" is the id of a reason of Tollgate itself; choose another`)]
        : [];
    }),
  );
}

/** Ids that two rules give themselves, in a member or in METADATA: a refusal would not say which. Rules with the very same head are one rule with several bodies. */
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
        : [faultOf(one, `the id "${id}" stands at ${before.facts.file}:${before.facts.line} already; ids are unique`)];
    });
  });
}

/** The ids that reasons of Rego have, and where: those of rules, of packages, and the names of packages without one. */
export function regoReasonIds({
  rules,
  places,
}: Pick<RegoFacts, 'rules' | 'places'>): ReadonlyMap<string, { readonly file: string; readonly line: number }> {
  return new Map([
    ...rules.map(({ id, package: name, file, line }) => [id ?? `policy.${name}`, { file, line }] as const),
    ...Object.entries(places),
  ]);
}

/** Rules in YAML whose id a reason of Rego has too. */
export function findTakenIds(
  rules: readonly LocatedRule[],
  { rules: rego, places }: Pick<RegoFacts, 'rules' | 'places'>,
): readonly PolicyProblem[] {
  const taken = regoReasonIds({ rules: rego, places });
  return rules
    .filter(({ mode }) => mode !== 'off')
    .flatMap(({ rule: { id }, at }) => {
      const there = taken.get(id);
      return there === undefined
        ? []
        : [
            {
              ...at(['id']),
              message: `the id "${id}" stands at ${there.file}:${there.line} already; ids are unique, in YAML and Rego together`,
            },
          ];
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

/** The ids that a rule writes into its members as plain text. */
export function writtenIds({ head }: Rule): readonly string[] {
  const pairs =
    head.key?.type === 'object'
      ? (head.key.value as readonly (readonly [{ value: unknown }, { type: string; value: unknown }])[])
      : [];
  return pairs
    .filter(([key, value]) => key.value === 'id' && value.type === 'string')
    .map(([, value]) => String(value.value));
}
