/** Owns the check of rules about one server against the tools that it offers; refuses names, arguments and values that none of them has. */
import { ARGUMENT_SCHEMAS } from '../catalogs/primitives/schemas.ts';
import { PRIMITIVE_SEMANTICS } from '../catalogs/primitives/semantics.ts';
import { SHIPPED } from '../catalogs/shipped.ts';
import type { Semantics } from '../catalogs/tool.ts';
import type { ArgumentTests } from './arguments.ts';
import type { When } from './conditions.ts';
import { serversOfTools } from './known.ts';
import { covers } from './patterns.ts';
import type { OfferedTool } from './port.ts';
import { suggest, type Problem } from './problems.ts';
import type { LocatedRule } from './rules.ts';

type Schema = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 16;

/** `edits` is taken though it is not advertised. */
const WORKSPACE_TOOLS: readonly OfferedTool[] = [...PRIMITIVE_SEMANTICS].map(([name, semantics]) => {
  const schema = ARGUMENT_SCHEMAS.get(name);
  const step = { type: 'object', properties: { old_string: {}, new_string: {} } };
  return { name, semantics, inputSchema: { ...schema, properties: { ...schema?.properties, ...(name === 'edit' ? { edits: { type: 'array', items: step } } : {}) } } };
});

const NO_MEANING: Semantics = { verb: 'read' };

/** The tools of each server of Tollgate itself, known without asking it. */
export const INTERNAL_TOOLS: ReadonlyMap<string, readonly OfferedTool[]> = new Map([
  ['workspace', WORKSPACE_TOOLS],
  ...[...SHIPPED].map(([server, { tools, semantics }]) => [server, tools.map(({ name, inputSchema }): OfferedTool => ({ name, inputSchema, semantics: semantics.get(name) ?? NO_MEANING }))] as const),
]);

/** What a condition reads, and the meaning of an argument without which no call of a tool carries it. */
const FACTS = [['paths', 'paths'], ['insideWorkspace', 'paths'], ['hosts', 'urls'], ['urls', 'urls'], ['commands', 'command'], ['opaque', 'command']] as const;

/** Problems of the rules that are about this server alone. Rules about several servers are not judged: another one may have what is asked. */
export function findUnoffered(rules: readonly LocatedRule[], server: string, tools: readonly OfferedTool[]): readonly Problem[] {
  return rules.filter(({ rule, mode }) => mode !== 'off' && isAbout(rule.when, server)).flatMap((located) => {
    const names = findTools(located, server, tools);
    const aimed = tools.filter(({ name }) => located.rule.when.tools?.some((pattern) => covers(pattern, `${server}.${name}`)) ?? true);
    return names.length > 0 || aimed.length === 0 ? names : [...findVerbs(located, aimed), ...findFacts(located, aimed), ...findArguments(located, aimed)];
  });
}

function isAbout({ tools, servers }: When, server: string): boolean {
  const named = serversOfTools(tools) ?? servers ?? [];
  return named.length > 0 && named.every((name) => name === server);
}

function findTools({ rule, at }: LocatedRule, server: string, tools: readonly OfferedTool[]): readonly Problem[] {
  const known = tools.map(({ name }) => `${server}.${name}`);
  return (rule.when.tools ?? []).flatMap((pattern, index) => {
    if (pattern.startsWith('*') || known.some((tool) => covers(pattern, tool))) return [];
    return [{ ...at(['when', 'tools', index]), message: `${server} has no tool "${pattern}".${suggest(pattern, known) || inWords('Its tools are', known)}` }];
  });
}

function findVerbs({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly Problem[] {
  const { verbs } = rule.when;
  const all = new Set(tools.flatMap(({ semantics: { verb, byArgument } }) => [verb, ...Object.values(byArgument?.verbs ?? {})]));
  if (verbs === undefined || verbs.some((verb) => all.has(verb))) return [];
  return [{ ...at(['when', 'verbs'], 'key'), message: `no call of ${namesOf(tools)} is ${verbs.join(' or ')}, so the rule can never match; they are ${[...all].join(', ')}` }];
}

function findFacts({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly Problem[] {
  return FACTS.flatMap(([field, meaning]) => {
    if (rule.when[field] === undefined || tools.some(({ semantics }) => semantics[meaning] !== undefined)) return [];
    return [{ ...at(['when', field], 'key'), message: `no argument of ${namesOf(tools)} is known as ${meaning}, so the rule can never match; say so under \`semantics\` of the server, or remove ${field}` }];
  });
}

function findArguments({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly Problem[] {
  return Object.entries(rule.when.args ?? {}).flatMap(([dotted, tests]): readonly Problem[] => {
    const found = tools.flatMap(({ inputSchema }) => schemasAt(inputSchema, dotted.split('.'), { root: inputSchema, depth: 0 }));
    if (found.length > 0) return findValues({ at, path: ['when', 'args', dotted], tests, found });
    const known = [...new Set(tools.flatMap(({ inputSchema }) => argumentNames(inputSchema)))];
    return [{ ...at(['when', 'args', dotted], 'key'), message: `${namesOf(tools)} ${tools.length === 1 ? 'has' : 'have'} no argument "${dotted}".${suggest(dotted, known) || inWords('Known are', known)}` }];
  });
}

function findValues({ at, path, tests, found }: { at: LocatedRule['at']; path: readonly string[]; tests: ArgumentTests; found: readonly Schema[] }): readonly Problem[] {
  const values = found.flatMap((schema) => (Array.isArray(schema['enum']) ? (schema['enum'] as readonly unknown[]) : []));
  if (values.length === 0 || found.some((schema) => !Array.isArray(schema['enum']))) return [];
  const asked = [...('equals' in tests ? [[tests.equals, ['equals']] as const] : []), ...(tests.in ?? []).map((value, index) => [value, ['in', index]] as const)];
  return asked.flatMap(([value, where]) => {
    if (values.includes(value)) return [];
    return [{ ...at([...path, ...where]), message: `${JSON.stringify(value)} is no value of ${String(path.at(-1))}.${suggest(String(value), values.map(String)) || inWords('It takes', values.map(String))}` }];
  });
}

/** Every schema that a value at this path may have; an empty one where the schema leaves open what stands there. */
function schemasAt(schema: unknown, path: readonly string[], { root, depth }: { readonly root: Schema; readonly depth: number }): readonly Schema[] {
  // A schema that refers to itself has no end.
  if (schema === true || depth > MAX_DEPTH) return [{}];
  if (typeof schema !== 'object' || schema === null) return [];
  const { $ref, type, properties, items, additionalProperties, patternProperties, allOf, anyOf, oneOf } = schema as Record<string, unknown>;
  const deeper = (inner: unknown, rest: readonly string[]): readonly Schema[] => schemasAt(inner, rest, { root, depth: depth + 1 });
  const joined = [...[allOf, anyOf, oneOf].flatMap((all) => (Array.isArray(all) ? (all as readonly unknown[]) : [])), ...(typeof $ref === 'string' ? [resolve($ref, root)] : [])];
  const branches = joined.flatMap((inner) => deeper(inner, path));
  const [name, ...rest] = path;
  if (name === undefined) return joined.length === 0 ? [schema as Schema] : branches;
  const own = Object.entries((properties ?? {}) as Schema).find(([key]) => key === name)?.[1];
  if (own !== undefined) return [...branches, ...deeper(own, rest)];
  const isOpen = patternProperties !== undefined || (typeof additionalProperties === 'object' && additionalProperties !== null) || additionalProperties === true;
  const isFree = properties === undefined && items === undefined && joined.length === 0 && [type ?? 'object'].flat().some((one) => one === 'object' || one === 'array');
  return [...branches, ...(items === undefined ? [] : deeper(items, path)), ...(isOpen || isFree ? [{}] : [])];
}

/** `#/$defs/x` only; what lies elsewhere is left open. */
function resolve(ref: string, root: Schema): unknown {
  if (!ref.startsWith('#/')) return true;
  const steps = ref.slice(2).split('/').map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return steps.reduce<unknown>((node, step) => (node as Record<string, unknown> | undefined)?.[step], root) ?? true;
}

function argumentNames({ properties }: Schema): readonly string[] {
  return Object.keys((properties ?? {}) as Schema);
}

function namesOf(tools: readonly OfferedTool[]): string {
  const names = tools.slice(0, 3).map(({ name }) => name);
  return names.join(', ') + (tools.length > names.length ? ` and ${tools.length - names.length} more` : '');
}

function inWords(intro: string, names: readonly string[]): string {
  return names.length === 0 ? '' : ` ${intro} ${names.slice(0, 12).join(', ')}${names.length > 12 ? ', …' : ''}.`;
}
