/** Owns the reading of expressions of Rego that compare one field of the input with what is written: `==`, `!=` and `in`; reads no other, and judges none. */
import { type Expression, groundPath, type Location, type Term } from './ast.ts';

/** One comparison. `has`: the field is a list, and the value is looked for in it. */
export interface InputTest {
  /** Below `input`, joined by dots. */
  readonly path: string;
  readonly operator: 'is' | 'has';
  /** `!=`, or `not`: the other way round. */
  readonly negated: boolean;
  /** Of `is` one suffices. */
  readonly values: readonly Term[];
  readonly where: Location | undefined;
}

const LITERALS: ReadonlySet<string> = new Set(['string', 'number', 'boolean', 'null']);

/** The comparison that an expression is; undefined for every other, and where `with` changes the input. */
export function readInputTest(
  { terms, negated = false, with: mocks, location }: Expression,
  aliases: ReadonlyMap<string, readonly string[]>,
): InputTest | undefined {
  if (!Array.isArray(terms) || terms.length !== 3 || mocks !== undefined) return undefined;
  const [operator, left, right] = terms as unknown as readonly [Term, Term, Term];
  const name = operatorOf(operator);
  const [leftPath, rightPath] = [pathOf(left, aliases), pathOf(right, aliases)];
  const made = (operator: 'is' | 'has', path: string | undefined, values: readonly Term[]): InputTest | undefined =>
    path !== undefined && values.length > 0 && values.every(isLiteral)
      ? { path, operator, negated: negated !== (name === 'neq'), values, where: location ?? terms[0]?.location }
      : undefined;
  if (name === 'equal' || name === 'eq' || name === 'neq')
    return leftPath === undefined ? made('is', rightPath, [left]) : made('is', leftPath, [right]);
  if (name !== 'internal.member_2') return undefined;
  if (leftPath === undefined) return made('has', rightPath, [left]);
  return right.type === 'set' || right.type === 'array'
    ? made('is', leftPath, right.value as readonly Term[])
    : undefined;
}

/** The name of the function that an expression calls. */
export function operatorOf(term: Term | undefined): string {
  return term?.type === 'ref' ? (term.value as readonly Term[]).map(({ value }) => String(value)).join('.') : '';
}

/** The path below `input` of a reference that is known to its end. */
export function pathOf(term: Term, aliases: ReadonlyMap<string, readonly string[]>): string | undefined {
  const path = term.type === 'ref' || term.type === 'var' ? groundPath(term, aliases) : undefined;
  return path?.whole === true && path.names[0] === 'input' && path.names.length > 1
    ? path.names.slice(1).join('.')
    : undefined;
}

/** True for what is written out and is no list. */
export function isLiteral({ type }: Term): boolean {
  return LITERALS.has(type);
}
