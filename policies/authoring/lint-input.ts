/** Owns what Rego says of fields of the input whose values are known: names of the configuration, tools and arguments, words of the schema; refuses what no call can have. */
import { readFileSync } from 'node:fs';
import { findValues, type Schema, schemasAt } from '../argument-schemas.ts';
import { aliasesOf, type Expression, groundPath, type Location, type Rule, type Term, termsIn } from '../ast.ts';
import { type InputTest, isLiteral, operatorOf, readInputTest } from '../input-tests.ts';
import type { Known } from '../known.ts';
import { INTERNAL_TOOLS, type Offered } from '../offered.ts';
import type { OfferedTool } from '../port.ts';
import { suggest } from '../problems.ts';
import type { ParsedFile } from '../rego.ts';
import { INPUT_SCHEMA } from '../stage.ts';

/** What names are judged against. Without `known` there is no configuration, and none is judged. */
export interface InputWorld {
  readonly known?: Known;
  /** By server; one that is absent cannot be judged. */
  readonly offered: ReadonlyMap<string, Offered>;
}

/** A fault at a place of the file. */
export interface InputFault {
  readonly where: Location | undefined;
  readonly message: string;
  /** What may come true with another server. */
  readonly isDoubt?: true;
}

type Aliases = ReadonlyMap<string, readonly string[]>;

const MAX_LISTED = 12;
const ARGUMENTS = 'effect.arguments.';
const NOUNS: Readonly<Record<string, string>> = {
  'effect.server': 'server',
  'principal.role': 'principal with the role',
  'principal.id': 'principal',
  'principal.groups': 'principal in the group',
  'principal.profiles': 'profile',
  labels: 'label',
};
let schema: Schema | undefined;

/** The faults of every rule of a file, its helpers too. */
export function lintInput({ module }: ParsedFile, world: InputWorld): readonly InputFault[] {
  const aliases = aliasesOf(module);
  return (module.rules ?? []).flatMap((rule) => [
    ...undefinedFields(rule, aliases),
    ...chainOf(rule).flatMap(({ body }) => lintBody(body, aliases, world)),
  ]);
}

function chainOf(rule: Rule): readonly Rule[] {
  return rule.else === undefined ? [rule] : [rule, ...chainOf(rule.else)];
}

/** As opa says it. It stops before this where a function is not there, and a second round would tell it. */
function undefinedFields(rule: Rule, aliases: Aliases): readonly InputFault[] {
  return [...termsIn(rule)].flatMap((term): readonly InputFault[] => {
    const names = term.type === 'ref' ? (groundPath(term, aliases)?.names ?? []) : [];
    if (names[0] !== 'input') return [];
    let node: Schema | undefined = (schema ??= JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as Schema);
    for (const [at, name] of names.slice(1).entries()) {
      const properties = node.properties as Readonly<Record<string, Schema>> | undefined;
      if (properties === undefined) return [];
      const next: Schema | undefined = Object.hasOwn(properties, name) ? properties[name] : undefined;
      if (next === undefined)
        return [
          {
            where: term.location,
            message: `undefined ref: ${names.slice(0, at + 2).join('.')}; known here: ${Object.keys(properties).sort().join(', ')}`,
          },
        ];
      node = next;
    }
    return [];
  });
}

function lintBody(body: readonly Expression[], aliases: Aliases, world: InputWorld): readonly InputFault[] {
  const tests = body.flatMap((expression) => readInputTest(expression, aliases) ?? []);
  const tools = toolsMeant(tests, world);
  return [
    ...body.flatMap(neverHolds),
    ...tests.flatMap((test) => [...lintNames(test, world), ...lintWords(test)]),
    ...(tools === undefined ? [] : [...lintTools(tests, tools), ...lintArguments(body, tests, { aliases, tools })]),
  ];
}

/** `1 == 2`, and `x != x`. */
function neverHolds({ terms, negated = false, with: mocks, location }: Expression): readonly InputFault[] {
  if (!Array.isArray(terms) || terms.length !== 3 || mocks !== undefined) return [];
  const [operator, left, right] = terms as unknown as readonly [Term, Term, Term];
  const name = operatorOf(operator);
  if (name !== 'equal' && name !== 'neq') return [];
  const isSame = shapeOf(left) === shapeOf(right);
  if (!isSame && !(isLiteral(left) && isLiteral(right))) return [];
  return (isSame === (name === 'equal')) === !negated
    ? []
    : [
        {
          where: location ?? operator.location,
          message: `this rule can never fire: both sides are ${isSame ? 'the same' : 'written out, and differ'}`,
        },
      ];
}

function shapeOf(term: Term): string {
  return JSON.stringify(term, (key, value: unknown) => (key === 'location' ? undefined : value));
}

function textsOf({ values }: InputTest): readonly { readonly text: string; readonly where: Location | undefined }[] {
  return values
    .filter(({ type }) => type === 'string')
    .map(({ value, location }) => ({ text: String(value), where: location }));
}

function lintNames(test: InputTest, { known }: InputWorld): readonly InputFault[] {
  const noun = NOUNS[test.path];
  const names = known === undefined ? undefined : namesOf(test.path, known);
  if (noun === undefined || names === undefined) return [];
  return textsOf(test)
    .filter(({ text }) => !names.has(text))
    .map(({ text, where }) => ({
      where: where ?? test.where,
      message: `there is no ${noun} "${text}".${suggest(text, names) || listed(' Known are', names)}`,
    }));
}

function namesOf(path: string, { servers, profiles, labels, principals }: Known): ReadonlySet<string> | undefined {
  if (path === 'effect.server') return new Set(servers.keys());
  if (path === 'principal.profiles') return new Set(profiles.keys());
  if (path === 'labels') return labels;
  if (principals === undefined) return undefined;
  if (path === 'principal.role') return new Set(principals.map(({ role }) => role));
  return new Set(path === 'principal.id' ? principals.map(({ id }) => id) : principals.flatMap(({ groups }) => groups));
}

/** Fields that have one of a few words. */
function lintWords(test: InputTest): readonly InputFault[] {
  const node = test.path
    .split('.')
    .reduce<Schema | undefined>(
      (at, name) => (at?.properties as Readonly<Record<string, Schema>> | undefined)?.[name],
      (schema ??= JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as Schema),
    );
  const words = node?.enum as readonly string[] | undefined;
  if (words === undefined) return [];
  return textsOf(test)
    .filter(({ text }) => !words.includes(text))
    .map(({ text, where }) => ({
      where: where ?? test.where,
      message: `a ${test.path.split('.').at(-1) ?? ''} is one of ${words.join(', ')}, never "${text}"`,
    }));
}

/** The tools of the servers that a body is about; undefined where one of them cannot be judged. */
function toolsMeant(
  tests: readonly InputTest[],
  { known, offered }: InputWorld,
): ReadonlyMap<string, readonly OfferedTool[]> | undefined {
  const stated = tests.find(({ path, operator, negated }) => path === 'effect.server' && operator === 'is' && !negated);
  const servers =
    stated === undefined
      ? known === undefined
        ? undefined
        : [...known.servers.keys()]
      : textsOf(stated).map(({ text }) => text);
  const pairs = servers?.map((server) => [server, INTERNAL_TOOLS.get(server) ?? offered.get(server)] as const);
  return pairs === undefined || pairs.some(([, tools]) => tools === undefined || tools === 'any')
    ? undefined
    : new Map(pairs as readonly (readonly [string, readonly OfferedTool[]])[]);
}

function lintTools(
  tests: readonly InputTest[],
  tools: ReadonlyMap<string, readonly OfferedTool[]>,
): readonly InputFault[] {
  const names = new Set([...tools.values()].flat().map(({ name }) => name));
  // Without a word about the server a rule may wait for one that is still to come.
  const isOpen = !tests.some(({ path }) => path === 'effect.server');
  const whose = isOpen ? 'no server' : [...tools.keys()].join(', ');
  return tests
    .filter(({ path, operator }) => path === 'effect.tool' && operator === 'is')
    .flatMap((test) =>
      textsOf(test)
        .filter(({ text }) => !names.has(text))
        // A tool with its server in front is told with what to write instead.
        .filter(({ text }) => !text.includes('.'))
        .map(({ text, where }) => ({
          where: where ?? test.where,
          message: `${whose} ${isOpen ? 'has a' : 'has no'} tool "${text}".${suggest(text, names) || listed(' Its tools are', names)}`,
          ...(isOpen ? { isDoubt: true } : {}),
        })),
    );
}

/** Arguments are judged where the tool is stated. */
function lintArguments(
  body: readonly Expression[],
  tests: readonly InputTest[],
  { aliases, tools }: { readonly aliases: Aliases; readonly tools: ReadonlyMap<string, readonly OfferedTool[]> },
): readonly InputFault[] {
  const stated = tests.find(({ path, operator, negated }) => path === 'effect.tool' && operator === 'is' && !negated);
  const named = new Set(stated === undefined ? [] : textsOf(stated).map(({ text }) => text));
  const meant = [...tools.values()].flat().filter(({ name }) => named.has(name));
  if (meant.length === 0) return [];
  const schemasOf = (path: readonly string[]): readonly Schema[] =>
    meant.flatMap(({ inputSchema }) => schemasAt(inputSchema, path, { root: inputSchema, depth: 0 }));
  const known = new Set(meant.flatMap(({ inputSchema }) => Object.keys((inputSchema.properties ?? {}) as object)));
  const unknown = [...termsIn(body)].flatMap((term): readonly InputFault[] => {
    const [, effect, kind, ...path] = term.type === 'ref' ? (groundPath(term, aliases)?.names ?? []) : [];
    if (effect !== 'effect' || kind !== 'arguments' || path.length === 0 || schemasOf(path).length > 0) return [];
    return [
      {
        where: term.location,
        message: `${[...named].join(', ')} ${named.size === 1 ? 'has' : 'have'} no argument "${path.join('.')}".${suggest(path.join('.'), known) || listed(' Known are', known)}`,
      },
    ];
  });
  const values = tests
    .filter(({ path, operator }) => path.startsWith(ARGUMENTS) && operator === 'is')
    .flatMap((test) => {
      const argument = test.path.slice(ARGUMENTS.length);
      const found = schemasOf(argument.split('.'));
      return found.length === 0
        ? []
        : findValues({ argument, tests: { in: test.values.map(({ value }) => value) }, found }).map(({ message }) => ({
            where: test.where,
            message,
          }));
    });
  return [...unknown, ...values];
}

function listed(intro: string, names: ReadonlySet<string>): string {
  return names.size === 0 || names.size > MAX_LISTED ? '' : `${intro} ${[...names].join(', ')}.`;
}
