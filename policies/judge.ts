/** Owns the order of all checks of YAML rules: form, names, contradictions, reach, tools; gives every fault of all files, and throws none. */
import type { PolicyParts } from './engine.ts';
import { findDangling, readKnown } from './known.ts';
import { ENTRYPOINTS } from './library.ts';
import { lintRules } from './lint.ts';
import { findUnoffered, INTERNAL_TOOLS } from './offered.ts';
import type { Problem } from './problems.ts';
import type { CompiledRules, LocatedRule } from './rules.ts';
import { WasmPolicy } from './wasm.ts';

/** Every fault of the rules of one configuration. `wasm` is any policy with the library's entry point for patterns. */
export function findFaults(
  compiled: CompiledRules,
  { settings, offered = new Map() }: Pick<PolicyParts, 'settings' | 'offered'>,
  wasm: Uint8Array,
): readonly Problem[] {
  const { rules, problems } = compiled;
  const known = readKnown(settings, rules);
  const whole = rules.filter(({ isPruned }) => isPruned !== true);
  const unoffered = [...INTERNAL_TOOLS, ...offered].flatMap(([server, tools]) =>
    tools === 'any' ? [] : findUnoffered(rules, server, tools),
  );
  return [
    ...problems,
    ...findBroken(rules, wasm),
    ...findDangling(rules, known),
    ...lintRules(whole, known),
    ...unoffered,
  ];
}

/** Patterns that the engine cannot compile, asked of the engine itself: in a decision they would silently match nothing. */
function findBroken(rules: readonly LocatedRule[], wasm: Uint8Array): readonly Problem[] {
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
      : [
          {
            ...place,
            message: `${JSON.stringify(pattern)} is no RE2 regular expression (no lookaround, no backreferences)`,
          },
        ];
  });
}
