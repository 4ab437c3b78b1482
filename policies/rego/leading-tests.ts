/** Owns the choice of the test that rules are grouped by, of those that their bodies begin with; finds none behind what could fail first. */
import { aliasesOf, type Expression, groundPath, type Module, type Term } from './syntax-tree.ts';

/** A rule that holds only where the text at `path` of the input is one of `values`. */
export interface LeadingTest {
  readonly path: string;
  readonly values: readonly string[];
}

/** For each body the test that parts it from most others, of those that its body begins with. */
export function chooseLeadingTests(
  bodies: readonly { readonly body: readonly Expression[]; readonly module: Module }[],
): readonly (LeadingTest | undefined)[] {
  const all = bodies.map(({ body, module }) => testsOf(body, aliasesOf(module)));
  const values = new Map<string, Set<string>>();
  for (const { path, values: some } of all.flat()) values.set(path, new Set([...(values.get(path) ?? []), ...some]));
  const weight = ({ path }: LeadingTest): number => values.get(path)?.size ?? 0;
  return all.map((tests) =>
    tests.reduce<LeadingTest | undefined>(
      (best, test) => (best === undefined || weight(test) > weight(best) ? test : best),
      undefined,
    ),
  );
}

/** The tests of texts of the input against literals that a body begins with. Behind anything else it could fail first, and must. */
function testsOf(body: readonly Expression[], aliases: ReadonlyMap<string, readonly string[]>): readonly LeadingTest[] {
  const tests: LeadingTest[] = [];
  for (const expression of body) {
    const test = testOf(expression, aliases);
    if (test === undefined) break;
    tests.push(test);
  }
  return tests;
}

function testOf(
  { terms, negated, with: mocks }: Expression,
  aliases: ReadonlyMap<string, readonly string[]>,
): LeadingTest | undefined {
  if (!Array.isArray(terms) || terms.length !== 3 || negated === true || mocks !== undefined) return undefined;
  const [operator, left, right] = terms as [Term, Term, Term];
  const sides =
    isRef(operator, ['equal']) || isRef(operator, ['eq'])
      ? ([
          [left, right],
          [right, left],
        ] as const)
      : isRef(operator, ['internal', 'member_2'])
        ? ([[left, right]] as const)
        : [];
  for (const [asked, answer] of sides) {
    const path = groundPath(asked, aliases);
    const literals =
      answer.type === 'set' || answer.type === 'array'
        ? sides.length === 1
          ? (answer.value as readonly Term[])
          : []
        : sides.length === 2
          ? [answer]
          : [];
    if (
      path?.names[0] !== 'input' ||
      !path.whole ||
      literals.length === 0 ||
      !literals.every(({ type }) => type === 'string')
    )
      continue;
    return {
      path: path.names
        .slice(1)
        .map((name) => `[${JSON.stringify(name)}]`)
        .join(''),
      values: [...new Set(literals.map(({ value }) => String(value)))],
    };
  }
  return undefined;
}

/** Whether a term is a reference of exactly these names. */
export function isRef(term: Term, names: readonly string[]): boolean {
  const parts = term.type === 'ref' ? (term.value as readonly Term[]) : [];
  return parts.length === names.length && parts.every(({ value }, at) => value === names[at]);
}
