/** Owns what Rego says of fields of the input whose values are known: names of the configuration, tools and arguments, words of the schema; refuses what no call can have. */
import { readFileSync } from 'node:fs';
import type { OfferedTool } from '../port.ts';
import type { ParsedFile } from '../rego/rego-facts.ts';
import { INPUT_SCHEMA } from '../rego/rego-files.ts';
import {
  aliasesOf,
  type Expression,
  groundPath,
  type Rule,
  type SourceLocation,
  type Term,
  termsIn,
} from '../rego/syntax-tree.ts';
import { findTestFaults, type SchemaNode, schemasAt } from '../rules/argument-schemas.ts';
import type { ConfiguredNames } from '../rules/configured-names.ts';
import { INTERNAL_TOOLS, type OfferedTools } from '../rules/offered-tools.ts';
import { suggest } from '../rules/policy-problems.ts';

/** What names are judged against. Without `known` there is no configuration, and none is judged. */
export interface InputLintContext {
  readonly known?: ConfiguredNames;
  /** By server; one that is absent cannot be judged. */
  readonly offered: ReadonlyMap<string, OfferedTools>;
}

/** A fault at a place of the file. */
export interface InputFault {
  readonly where: SourceLocation | undefined;
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
let schema: SchemaNode | undefined;

/** The faults of every rule of a file, its helpers too. */
export function lintInput({ module }: ParsedFile, world: InputLintContext): readonly InputFault[] {
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
    let node: SchemaNode | undefined = (schema ??= JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as SchemaNode);
    for (const [at, name] of names.slice(1).entries()) {
      const properties = node.properties as Readonly<Record<string, SchemaNode>> | undefined;
      if (properties === undefined) return [];
      const next: SchemaNode | undefined = Object.hasOwn(properties, name) ? properties[name] : undefined;
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

function lintBody(body: readonly Expression[], aliases: Aliases, world: InputLintContext): readonly InputFault[] {
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

function textsOf({
  values,
}: InputTest): readonly { readonly text: string; readonly where: SourceLocation | undefined }[] {
  return values
    .filter(({ type }) => type === 'string')
    .map(({ value, location }) => ({ text: String(value), where: location }));
}

function lintNames(test: InputTest, { known }: InputLintContext): readonly InputFault[] {
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

function namesOf(
  path: string,
  { servers, profiles, labels, principals }: ConfiguredNames,
): ReadonlySet<string> | undefined {
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
    .reduce<SchemaNode | undefined>(
      (at, name) => (at?.properties as Readonly<Record<string, SchemaNode>> | undefined)?.[name],
      (schema ??= JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as SchemaNode),
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
  { known, offered }: InputLintContext,
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
  const schemasOf = (path: readonly string[]): readonly SchemaNode[] =>
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
        : findTestFaults({ argument, tests: { in: test.values.map(({ value }) => value) }, found }).map(
            ({ message }) => ({
              where: test.where,
              message,
            }),
          );
    });
  return [...unknown, ...values];
}

function listed(intro: string, names: ReadonlySet<string>): string {
  return names.size === 0 || names.size > MAX_LISTED ? '' : `${intro} ${[...names].join(', ')}.`;
}

/** One comparison. `has`: the field is a list, and the value is looked for in it. */
export interface InputTest {
  /** Below `input`, joined by dots. */
  readonly path: string;
  readonly operator: 'is' | 'has';
  /** `!=`, or `not`: the other way round. */
  readonly negated: boolean;
  /** Of `is` one suffices. */
  readonly values: readonly Term[];
  readonly where: SourceLocation | undefined;
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
  const [leftPath, rightPath] = [fieldPath(left, aliases), fieldPath(right, aliases)];
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
export function fieldPath(term: Term, aliases: ReadonlyMap<string, readonly string[]>): string | undefined {
  const path = term.type === 'ref' || term.type === 'var' ? groundPath(term, aliases) : undefined;
  return path?.whole === true && path.names[0] === 'input' && path.names.length > 1
    ? path.names.slice(1).join('.')
    : undefined;
}

/** True for what is written out and is no list. */
export function isLiteral({ type }: Term): boolean {
  return LITERALS.has(type);
}
