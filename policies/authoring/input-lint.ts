/**
 * Checks how Rego compares fields of the input: names of the configuration, tools, arguments, and words of the schema.
 */
import { readFileSync } from 'node:fs';
import type { OfferedTool } from '../port.ts';
import type { ParsedFile } from '../rego/rego-facts.ts';
import { INPUT_SCHEMA } from '../rego/rego-files.ts';
import {
  type Aliases,
  aliasesOf,
  type Expression,
  elseChain,
  groundPath,
  nameOfRef,
  type Rule,
  type SourceLocation,
  type Term,
  termsIn,
} from '../rego/syntax-tree.ts';
import { findTestFaults, type SchemaNode, schemasAt } from '../rules/argument-schemas.ts';
import type { ConfiguredNames } from '../rules/configured-names.ts';
import { type OfferedTools, withInternalTools } from '../rules/offered-tools.ts';
import { suggest } from '../rules/policy-problems.ts';

/** The names to check against. Without `known` there is no configuration, and names are not checked. */
interface InputLintContext {
  readonly known?: ConfiguredNames;
  /** Tools by server. Tools of a server that is absent are not checked. */
  readonly offered: ReadonlyMap<string, OfferedTools>;
}

/** A fault and its place in the file. */
interface InputFault {
  readonly where: SourceLocation | undefined;
  readonly message: string;
  /** Set if the comparison may become true with another server. */
  readonly isDoubt?: true;
}

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

function inputSchema(): SchemaNode {
  return (schema ??= JSON.parse(readFileSync(INPUT_SCHEMA, 'utf8')) as SchemaNode);
}

/** Returns the faults of every rule of a file, including helpers. */
export function lintInput({ module }: ParsedFile, context: InputLintContext): readonly InputFault[] {
  const aliases = aliasesOf(module);
  return (module.rules ?? []).flatMap((rule) => [
    ...undefinedFields(rule, aliases),
    ...elseChain(rule).flatMap(({ body }) => lintBody(body, aliases, context)),
  ]);
}

/** Uses the message of opa, which does not report these if it stops at an unknown function first. */
function undefinedFields(rule: Rule, aliases: Aliases): readonly InputFault[] {
  return [...termsIn(rule)].flatMap((term): readonly InputFault[] => {
    const [root, ...names] = term.type === 'ref' ? (groundPath(term, aliases)?.names ?? []) : [];
    const message = root === 'input' ? undefinedField(names) : undefined;
    return message === undefined ? [] : [{ where: term.location, message }];
  });
}

function undefinedField(names: readonly string[]): string | undefined {
  let node = inputSchema();
  for (const [at, name] of names.entries()) {
    const properties = node.properties as Readonly<Record<string, SchemaNode>> | undefined;
    if (properties === undefined) return undefined;
    const next = Object.hasOwn(properties, name) ? properties[name] : undefined;
    if (next === undefined)
      return (
        `undefined ref: input.${names.slice(0, at + 1).join('.')}; known names: ` +
        `${Object.keys(properties).sort().join(', ')}`
      );
    node = next;
  }
  return undefined;
}

function lintBody(body: readonly Expression[], aliases: Aliases, context: InputLintContext): readonly InputFault[] {
  const tests = body.flatMap((expression) => readInputTest(expression, aliases) ?? []);
  // Prompts and methods are no tools.
  const isAboutTools = tests.every(({ path, operator }) => path !== 'effect.kind' || operator !== 'is');
  const tools = isAboutTools ? relevantTools(tests, context) : undefined;
  return [
    ...body.flatMap(lintLiteralComparison),
    ...tests.flatMap((test) => [...lintNames(test, context), ...lintWords(test)]),
    ...(tools === undefined ? [] : [...lintTools(tests, tools), ...lintArguments(body, tests, { aliases, tools })]),
  ];
}

/** Finds comparisons that are always false, such as `1 == 2` and `x != x`. */
function lintLiteralComparison({ terms, negated = false, with: mocks, location }: Expression): readonly InputFault[] {
  if (!Array.isArray(terms) || terms.length !== 3 || mocks !== undefined) return [];
  const [operator, left, right] = terms as unknown as readonly [Term, Term, Term];
  const name = nameOfRef(operator);
  if (name !== 'equal' && name !== 'neq') return [];
  const isSame = shapeOf(left) === shapeOf(right);
  if (!isSame && !(isLiteral(left) && isLiteral(right))) return [];
  return (isSame === (name === 'equal')) === !negated
    ? []
    : [
        {
          where: location ?? operator.location,
          message: `this rule can never match: both sides are ${isSame ? 'equal' : 'different literals'}`,
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
      message: `there is no ${noun} "${text}".${suggest(text, names) || listed(' Known names:', names)}`,
    }));
}

function namesOf(
  path: string,
  { servers, profiles, labels, principals, subjects }: ConfiguredNames,
): ReadonlySet<string> | undefined {
  if (path === 'effect.server') return new Set(servers.keys());
  if (path === 'principal.profiles') return new Set(profiles.keys());
  if (path === 'labels') return labels;
  if (principals === undefined) return undefined;
  if (path === 'principal.role') return new Set([...principals.map(({ role }) => role), ...(subjects?.roles ?? [])]);
  // The ids of subjects are not known here.
  if (path === 'principal.id') return subjects === undefined ? new Set(principals.map(({ id }) => id)) : undefined;
  return new Set([...principals.flatMap(({ groups }) => groups), ...(subjects?.groups ?? [])]);
}

/** Checks fields that can only be one of a few words. */
function lintWords(test: InputTest): readonly InputFault[] {
  const node = test.path
    .split('.')
    .reduce<SchemaNode | undefined>(
      (at, name) => (at?.properties as Readonly<Record<string, SchemaNode>> | undefined)?.[name],
      inputSchema(),
    );
  const words = node?.enum as readonly string[] | undefined;
  if (words === undefined) return [];
  return textsOf(test)
    .filter(({ text }) => !words.includes(text))
    .map(({ text, where }) => ({
      where: where ?? test.where,
      message:
        `a ${test.path.split('.').at(-1) ?? ''} is one of ${words.join(', ')}, ` +
        `never "${text}".${suggest(text, words)}`,
    }));
}

/** Returns the tools of the servers that a body is about; undefined if one of these servers is unknown. */
function relevantTools(
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
  const pairs = servers?.map((server) => [server, withInternalTools(offered).get(server)] as const);
  return pairs === undefined || pairs.some(([, tools]) => tools === undefined || tools === 'any')
    ? undefined
    : new Map(pairs as readonly (readonly [string, readonly OfferedTool[]])[]);
}

function lintTools(
  tests: readonly InputTest[],
  tools: ReadonlyMap<string, readonly OfferedTool[]>,
): readonly InputFault[] {
  const names = new Set([...tools.values()].flat().map(({ name }) => name));
  // If the body does not name a server, its rule may be about a server that will be added later.
  const isOpen = !tests.some(({ path }) => path === 'effect.server');
  const owner = isOpen ? 'no server' : [...tools.keys()].join(', ');
  return tests
    .filter(({ path, operator }) => path === 'effect.tool' && operator === 'is')
    .flatMap((test) =>
      textsOf(test)
        .filter(({ text }) => !names.has(text))
        // rego-lint.ts reports a tool that is written with its server.
        .filter(({ text }) => !text.includes('.'))
        .map(({ text, where }) => ({
          where: where ?? test.where,
          message:
            `${owner} ${isOpen ? 'has a' : 'has no'} tool ` +
            `"${text}".${suggest(text, names) || listed(' Its tools are', names)}`,
          ...(isOpen ? { isDoubt: true } : {}),
        })),
    );
}

/** Checks arguments if the body says which tool it is about. */
function lintArguments(
  body: readonly Expression[],
  tests: readonly InputTest[],
  { aliases, tools }: { readonly aliases: Aliases; readonly tools: ReadonlyMap<string, readonly OfferedTool[]> },
): readonly InputFault[] {
  const stated = tests.find(({ path, operator, negated }) => path === 'effect.tool' && operator === 'is' && !negated);
  const named = new Set(stated === undefined ? [] : textsOf(stated).map(({ text }) => text));
  const targets = [...tools.values()].flat().filter(({ name }) => named.has(name));
  if (targets.length === 0) return [];
  const schemasOf = (path: readonly string[]): readonly SchemaNode[] =>
    targets.flatMap(({ inputSchema }) => schemasAt(inputSchema, path, { root: inputSchema, depth: 0 }));
  const known = new Set(targets.flatMap(({ inputSchema }) => Object.keys((inputSchema.properties ?? {}) as object)));
  const unknown = [...termsIn(body)].flatMap((term): readonly InputFault[] => {
    const [, effect, kind, ...path] = term.type === 'ref' ? (groundPath(term, aliases)?.names ?? []) : [];
    if (effect !== 'effect' || kind !== 'arguments' || path.length === 0 || schemasOf(path).length > 0) return [];
    return [
      {
        where: term.location,
        message:
          `${[...named].join(', ')} ${named.size === 1 ? 'has' : 'have'} no argument ` +
          `"${path.join('.')}".${suggest(path.join('.'), known) || listed(' Known arguments:', known)}`,
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
        : findTestFaults(argument, { in: test.values.map(({ value }) => value) }, found).map(({ message }) => ({
            where: test.where,
            message,
          }));
    });
  return [...unknown, ...values];
}

function listed(intro: string, names: ReadonlySet<string>): string {
  return names.size === 0 || names.size > MAX_LISTED ? '' : `${intro} ${[...names].join(', ')}.`;
}

/** One comparison of an input field. `has`: the field is a list that must contain the value. */
interface InputTest {
  /** Path below `input`, with dots. */
  readonly path: string;
  readonly operator: 'is' | 'has';
  /** True for `!=` or `not`. */
  readonly negated: boolean;
  /** For `is`, one of them must be equal. */
  readonly values: readonly Term[];
  readonly where: SourceLocation | undefined;
}

const LITERALS: ReadonlySet<string> = new Set(['string', 'number', 'boolean', 'null']);

/**
 * Returns the comparison that an expression makes; undefined for other expressions, and if `with` changes the input.
 */
export function readInputTest(
  { terms, negated = false, with: mocks, location }: Expression,
  aliases: Aliases,
): InputTest | undefined {
  if (!Array.isArray(terms) || terms.length !== 3 || mocks !== undefined) return undefined;
  const [operator, left, right] = terms as unknown as readonly [Term, Term, Term];
  const name = nameOfRef(operator);
  const [leftPath, rightPath] = [fieldPath(left, aliases), fieldPath(right, aliases)];
  const make = (operator: 'is' | 'has', path: string | undefined, values: readonly Term[]): InputTest | undefined =>
    path !== undefined && values.length > 0 && values.every(isLiteral)
      ? { path, operator, negated: negated !== (name === 'neq'), values, where: location ?? terms[0]?.location }
      : undefined;
  if (name === 'equal' || name === 'eq' || name === 'neq')
    return leftPath === undefined ? make('is', rightPath, [left]) : make('is', leftPath, [right]);
  if (name !== 'internal.member_2') return undefined;
  if (leftPath === undefined) return make('has', rightPath, [left]);
  return right.type === 'set' || right.type === 'array'
    ? make('is', leftPath, right.value as readonly Term[])
    : undefined;
}

/** Returns the path of an input reference without computed parts, below `input`. */
function fieldPath(term: Term, aliases: Aliases): string | undefined {
  const path = term.type === 'ref' || term.type === 'var' ? groundPath(term, aliases) : undefined;
  return path?.whole === true && path.names[0] === 'input' && path.names.length > 1
    ? path.names.slice(1).join('.')
    : undefined;
}

/** Whether a term is a literal that is not a list. */
export function isLiteral({ type }: Term): boolean {
  return LITERALS.has(type);
}
