/** Runs all checks of YAML rules in order: schema, patterns, names, contradictions, tools. */

import type { PolicyParts } from '../engine/compiled-parts.ts';
import { ENTRYPOINTS } from '../engine/policy-library.ts';
import { WasmPolicy } from '../engine/wasm/wasm-policy.ts';
import { findDanglingNames, type LocatedRule, readConfiguredNames } from './configured-names.ts';
import { findUnofferedTools, withInternalTools } from './offered-tools.ts';
import { type PolicyProblem, problemAt } from './policy-problems.ts';
import type { CompiledRules } from './rule-compiler.ts';
import { lintRules } from './rule-lint.ts';

/**
 * Returns every fault of the rules of one configuration. `wasm` is any policy with the library's entry point for
 * patterns.
 */
export function findRuleFaults(
  compiled: CompiledRules,
  { settings, offered }: Pick<PolicyParts, 'settings' | 'offered'>,
  wasm: Uint8Array,
): readonly PolicyProblem[] {
  const { rules, problems } = compiled;
  const known = readConfiguredNames(settings, rules);
  const whole = rules.filter(({ isPruned }) => isPruned !== true);
  const unoffered = [...withInternalTools(offered)].flatMap(([server, tools]) =>
    tools === 'any' ? [] : findUnofferedTools(rules, server, tools),
  );
  return [
    ...problems,
    ...findBrokenPatterns(rules, wasm),
    ...findDanglingNames(rules, known),
    ...lintRules(whole, known),
    ...unoffered,
  ];
}

/** Asks the policy engine itself which patterns it cannot compile. In a decision they would silently match nothing. */
function findBrokenPatterns(rules: readonly LocatedRule[], wasm: Uint8Array): readonly PolicyProblem[] {
  const tested = rules.flatMap(({ rule, at }) =>
    Object.entries(rule.when.args ?? {}).flatMap(([path, { pattern }]) =>
      pattern === undefined ? [] : [{ pattern, place: at(['when', 'args', path, 'pattern']) }],
    ),
  );
  if (tested.length === 0) return [];
  const engine = new WasmPolicy(wasm, '{}', { entrypoints: [ENTRYPOINTS.patterns] });
  return tested.flatMap(({ pattern, place }) => {
    const { broken } = engine.evaluate(ENTRYPOINTS.patterns, JSON.stringify({ patterns: [pattern] }));
    return Array.isArray(broken) && broken.length === 0
      ? []
      : problemAt(
          place,
          `${JSON.stringify(pattern)} is not an RE2 regular expression; RE2 has no lookaround and ` +
            'no backreferences',
        );
  });
}
