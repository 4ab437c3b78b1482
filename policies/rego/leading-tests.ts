/** Chooses, for each rule, the first test of its body by which the build groups the rules of a set. */
import { type Aliases, aliasesOf, type Expression, groundPath, isRef, type Module, type Term } from './syntax-tree.ts';

/** A test that a rule requires: the text at `path` of the input must be one of `values`. */
interface LeadingTest {
  readonly path: string;
  readonly values: readonly string[];
}

/** Returns for each body the test with the most different values, among the tests that the body begins with. */
export function chooseLeadingTests(
  bodies: readonly { readonly body: readonly Expression[]; readonly module: Module }[],
): readonly (LeadingTest | undefined)[] {
  const all = bodies.map(({ body, module }) => testsOf(body, aliasesOf(module)));
  const values = new Map<string, Set<string>>();
  for (const { path, values: own } of all.flat()) values.set(path, new Set([...(values.get(path) ?? []), ...own]));
  const weight = ({ path }: LeadingTest): number => values.get(path)?.size ?? 0;
  return all.map((tests) =>
    tests.reduce<LeadingTest | undefined>(
      (best, test) => (best === undefined || weight(test) > weight(best) ? test : best),
      undefined,
    ),
  );
}

/**
 * Returns the tests of input texts against literals at the start of a body. A test after another expression does not
 * count.
 */
function testsOf(body: readonly Expression[], aliases: Aliases): readonly LeadingTest[] {
  const tests: LeadingTest[] = [];
  for (const expression of body) {
    const test = testOf(expression, aliases);
    if (test === undefined) break;
    tests.push(test);
  }
  return tests;
}

function testOf({ terms, negated, with: mocks }: Expression, aliases: Aliases): LeadingTest | undefined {
  if (!Array.isArray(terms) || terms.length !== 3 || negated === true || mocks !== undefined) return undefined;
  const [operator, left, right] = terms as [Term, Term, Term];
  if (isRef(operator, 'equal') || isRef(operator, 'eq'))
    return literalTest(left, [right], aliases) ?? literalTest(right, [left], aliases);
  const isList = right.type === 'set' || right.type === 'array';
  return isList && isRef(operator, 'internal', 'member_2')
    ? literalTest(left, right.value as readonly Term[], aliases)
    : undefined;
}

function literalTest(field: Term, literals: readonly Term[], aliases: Aliases): LeadingTest | undefined {
  const path = groundPath(field, aliases);
  if (path?.names[0] !== 'input' || !path.whole) return undefined;
  if (literals.length === 0 || !literals.every(({ type }) => type === 'string')) return undefined;
  return {
    path: path.names
      .slice(1)
      .map((name) => `[${JSON.stringify(name)}]`)
      .join(''),
    values: [...new Set(literals.map(({ value }) => String(value)))],
  };
}
