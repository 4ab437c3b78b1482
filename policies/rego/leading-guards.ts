/** Finds the part of a rule that a list can decide although the rest of the rule reads the call. */

import type { ReadAnalysis } from './read-analysis.ts';
import type { SetName, SetRule } from './rego-facts.ts';
import { type Expression, isRef, type Module, sourceOf, type Term } from './syntax-tree.ts';

const APPROVALS = ['call', 'group', 'server'];

/**
 * Returns the first expressions of a body, as far as they read nothing of a call. If they are false, no call can match
 * the rule. An expression after one that reads the call is not included, because the call must be able to fail first.
 * An expression that needs a variable of a later one is not included either.
 */
export function leadingGuard({ rule, file }: SetRule, analysis: ReadAnalysis): readonly Expression[] {
  const bound = new Set<string>();
  const end = rule.body.findIndex((expression) => {
    if (
      analysis.of(expression, file.module) === 'call' ||
      sourceOf(expression.location) === undefined ||
      isDeclaration(expression)
    )
      return true;
    const { declared, used } = variablesOf(expression);
    if (![...used].every((name) => bound.has(name) || isGlobal(name, { analysis, module: file.module }))) return true;
    for (const name of declared) bound.add(name);
    return false;
  });
  return end < 0 ? rule.body : rule.body.slice(0, end);
}

/**
 * Returns the outcomes that a rule of this set can cause. A member that is not a reason is a fault, and a fault denies.
 */
export function outcomesOf({ rule: { head }, facts: { set } }: SetRule): readonly SetName[] {
  return set === 'deny' || isPlainReason(head.key) ? [set] : [set, 'deny'];
}

/** Whether a member is a literal: a string, or an object of strings. */
function isPlainReason(key: Term | undefined): boolean {
  if (key?.type === 'string') return true;
  const pairs = key?.type === 'object' ? (key.value as readonly (readonly [Term, Term])[]) : [];
  const fields = new Map(pairs.map(([name, value]) => [name.value, value]));
  const approval = fields.get('approval');
  return (
    fields.get('id')?.type === 'string' &&
    fields.get('message')?.type === 'string' &&
    (approval === undefined || (approval.type === 'string' && APPROVALS.some((known) => known === approval.value)))
  );
}

function isGlobal(
  name: string,
  { analysis, module }: { readonly analysis: ReadAnalysis; readonly module: Module },
): boolean {
  return name.startsWith('$') || analysis.isGlobal(name, module);
}

/** Whether this is `some x`. Its variables get values in later expressions, and may have the names of rules. */
function isDeclaration({ terms }: Expression): boolean {
  const { symbols } = terms as { readonly symbols?: readonly Term[] };
  return symbols?.some(({ type }) => type === 'var') === true;
}

/** Returns the variables that an expression assigns (`:=`, `some … in`), and those that it needs. */
function variablesOf({ terms, negated = false, with: mocks = [] }: Expression): {
  readonly declared: ReadonlySet<string>;
  readonly used: ReadonlySet<string>;
} {
  if (!negated && Array.isArray(terms) && isRef(terms[0], 'assign'))
    return { declared: namesIn([terms[1]]), used: namesIn([...terms.slice(2), mocks]) };
  const [some] = (terms as { readonly symbols?: readonly Term[] }).symbols ?? [];
  if (some?.type === 'call') {
    const [, ...parts] = some.value as readonly Term[];
    return { declared: namesIn(parts.slice(0, -1)), used: namesIn([parts.at(-1), mocks]) };
  }
  return { declared: new Set(), used: namesIn([Array.isArray(terms) ? terms.slice(1) : terms, mocks]) };
}

/**
 * Returns every variable below a part, including those at the start of references, without the functions that are
 * called.
 */
function namesIn(part: unknown, found = new Set<string>()): Set<string> {
  if (Array.isArray(part)) for (const item of part) namesIn(item, found);
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return found;
  const { type, value } = part as Partial<Term>;
  if (type === 'var') return found.add(String(value));
  // The first term of a call, and of an expression that is a call, is the function.
  if (type === 'call') return namesIn((value as readonly Term[]).slice(1), found);
  for (const [key, child] of Object.entries(part)) {
    if (key !== 'location') namesIn(key === 'terms' && Array.isArray(child) ? child.slice(1) : child, found);
  }
  return found;
}
