/** Owns the part of a rule that a list can judge where the rest reads the call, and what such a rule may come to; gives the empty part where there is none. */

import type { ReadAnalysis } from './read-analysis.ts';
import type { SetName, SetRule } from './rego-facts.ts';
import { type Expression, type Module, sourceOf, type Term } from './syntax-tree.ts';

const APPROVALS = ['call', 'group', 'server'];

/**
 * The expressions that a body begins with and that read nothing of a call: where they do not hold, no call fires the rule.
 * None behind one that reads the call, for that could fail first, and must; none that needs a variable from behind.
 */
export function leadingGuard({ rule, file }: SetRule, marks: ReadAnalysis): readonly Expression[] {
  const bound = new Set<string>();
  const end = rule.body.findIndex((expression) => {
    if (
      marks.of(expression, file.module) === 'call' ||
      sourceOf(expression.location) === undefined ||
      isDeclaration(expression)
    )
      return true;
    const { declared, used } = variablesOf(expression);
    if (![...used].every((name) => bound.has(name) || isGlobal(name, { marks, module: file.module }))) return true;
    for (const name of declared) bound.add(name);
    return false;
  });
  return end < 0 ? rule.body : rule.body.slice(0, end);
}

/** Outcomes of a call that a rule of this set may have a part in: a member that is none is a fault of the policy, and that denies. */
export function outcomesOf({ rule: { head }, facts: { set } }: SetRule): readonly SetName[] {
  return set === 'deny' || isPlainReason(head.key) ? [set] : [set, 'deny'];
}

/** Written out whole: a text, or an object of texts. */
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

function isGlobal(name: string, { marks, module }: { readonly marks: ReadAnalysis; readonly module: Module }): boolean {
  return name.startsWith('$') || marks.isGlobal(name, module);
}

/** True for `some x`: its variables get their values behind it, and may have the names of rules. */
function isDeclaration({ terms }: Expression): boolean {
  const { symbols } = terms as { readonly symbols?: readonly Term[] };
  return symbols?.some(({ type }) => type === 'var') === true;
}

/** Variables that an expression gives a value, with `:=` or `some … in`, and those that it needs. */
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

/** Every variable below a part, those that references begin with too; not the functions that are called. */
function namesIn(part: unknown, found = new Set<string>()): Set<string> {
  if (Array.isArray(part)) for (const item of part) namesIn(item, found);
  if (typeof part !== 'object' || part === null || Array.isArray(part)) return found;
  const { type, value } = part as Partial<Term>;
  if (type === 'var') return found.add(String(value));
  // A call begins with its function, and so does an expression that is one.
  if (type === 'call') return namesIn((value as readonly Term[]).slice(1), found);
  for (const [key, child] of Object.entries(part)) {
    if (key !== 'location') namesIn(key === 'terms' && Array.isArray(child) ? child.slice(1) : child, found);
  }
  return found;
}

function isRef(term: unknown, name: string): boolean {
  const { type, value } = term as Partial<Term>;
  return type === 'ref' && (value as readonly Term[]).length === 1 && (value as readonly Term[])[0]?.value === name;
}
