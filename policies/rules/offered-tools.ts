/** Checks rules about one server against the tools that it offers: names, verbs, facts, arguments and pins. */

import { ARGUMENT_SCHEMAS } from '../../catalogs/primitives/primitive-schemas.ts';
import { PRIMITIVE_SEMANTICS } from '../../catalogs/primitives/primitive-semantics.ts';
import { SHIPPED } from '../../catalogs/servers/shipped-servers.ts';
import { groupBy } from '../../catalogs/text/collections.ts';
import type { Semantics } from '../../catalogs/tools/tool-definition.ts';
import { argumentValueFault } from '../../catalogs/validation/validator.ts';
import type { OfferedTool } from '../port.ts';
import { findTestFaults, type SchemaNode, schemasAt } from './argument-schemas.ts';
import { type LocatedRule, serversOfTools } from './configured-names.ts';
import { type PolicyProblem, problemAt, suggest } from './policy-problems.ts';
import { kindsOf, oneOrMore } from './rule-conditions.ts';
import { patternCovers } from './rule-patterns.ts';

/** The tools of a server that are known without starting it. `any`: the user accepts whatever it lists. */
export type OfferedTools = readonly OfferedTool[] | 'any';

/** The primitives. `edit` accepts `edits` although its schema does not list it. */
const WORKSPACE_TOOLS: readonly OfferedTool[] = [...PRIMITIVE_SEMANTICS].map(([name, semantics]) => {
  const schema = ARGUMENT_SCHEMAS.get(name);
  const step = { type: 'object', properties: { old_string: {}, new_string: {} } };
  return {
    name,
    semantics,
    inputSchema: {
      ...schema,
      properties: { ...schema?.properties, ...(name === 'edit' ? { edits: { type: 'array', items: step } } : {}) },
    },
  };
});

const NO_MEANING: Semantics = { verb: 'read' };

/** Returns what servers offer, with the tools of Tollgate's own servers. An owner adds tools to one of these. */
export function withInternalTools(
  offered: ReadonlyMap<string, OfferedTools> = new Map(),
): ReadonlyMap<string, OfferedTools> {
  const own = [...INTERNAL_TOOLS].map(([server, tools]) => {
    const added = offered.get(server) ?? [];
    return [server, added === 'any' ? added : [...tools, ...added]] as const;
  });
  return new Map([...offered, ...own]);
}

/** The tools of each of Tollgate's own servers. */
const INTERNAL_TOOLS: ReadonlyMap<string, readonly OfferedTool[]> = new Map([
  ['workspace', WORKSPACE_TOOLS],
  ...[...SHIPPED].map(
    ([server, { tools, semantics }]) =>
      [
        server,
        tools.map(
          ({ name, inputSchema }): OfferedTool => ({ name, inputSchema, semantics: semantics.get(name) ?? NO_MEANING }),
        ),
      ] as const,
  ),
]);

/** Each condition, and the meaning that an argument of the tool must have so that a call carries such a fact. */
const FACTS = [
  ['paths', 'paths'],
  ['insideWorkspace', 'paths'],
  ['hosts', 'urls'],
  ['schemes', 'urls'],
  ['urls', 'urls'],
  ['commands', 'command'],
  ['exceptCommands', 'command'],
  ['opaque', 'command'],
  ['readable', 'command'],
] as const;

/**
 * Returns the problems of rules about this server alone. If a rule is about several servers, another may have the tool.
 */
export function findUnofferedTools(
  rules: readonly LocatedRule[],
  server: string,
  tools: readonly OfferedTool[],
): readonly PolicyProblem[] {
  return rules.filter((located) => serverOf(located) === server).flatMap(offeredToolCheck(server, tools));
}

/** Groups the rules that are about one server alone by the name of that server. */
export function groupByServer(rules: readonly LocatedRule[]): ReadonlyMap<string, readonly LocatedRule[]> {
  const groups = groupBy(rules, serverOf);
  groups.delete(undefined);
  return groups as ReadonlyMap<string, readonly LocatedRule[]>;
}

/** Returns a function that finds the problems of one rule about this server alone. */
export function offeredToolCheck(
  server: string,
  tools: readonly OfferedTool[],
): (located: LocatedRule) => readonly PolicyProblem[] {
  const offered = new Map<string, OfferedTool>(tools.map((tool) => [`${server}.${tool.name}`, tool]));
  const known = [...offered.keys()];
  return (located) => {
    const { kind } = located.rule.when;
    // Prompts and methods are no tools, so rules about other kinds are not checked.
    if (kind !== undefined && oneOrMore(kind).some((one) => one !== 'tool')) return [];
    const patterns = (located.rule.when.tools ?? known).map((pattern) => ({
      pattern,
      matches: pattern.includes('*')
        ? known.filter((tool) => patternCovers(pattern, tool))
        : offered.has(pattern)
          ? [pattern]
          : [],
    }));
    const excepted = (located.rule.when.exceptTools ?? []).flatMap((tool, index) =>
      tool.includes('*') || !tool.startsWith(`${server}.`) || offered.has(tool)
        ? []
        : problemAt(
            located.at(['when', 'exceptTools', index]),
            `${server} has no tool "${tool}", so this leaves out nothing.${suggest(tool, known)}`,
          ),
    );
    if (excepted.length > 0) return excepted;
    const missing =
      located.rule.when.tools === undefined
        ? []
        : patterns.flatMap(({ pattern, matches }, index) => {
            if (pattern.startsWith('*') || matches.length > 0) return [];
            return problemAt(
              located.at(['when', 'tools', index]),
              `${server} has no tool ` + `"${pattern}".${suggest(pattern, known) || inWords('Its tools are', known)}`,
            );
          });
    const named = new Set(patterns.flatMap(({ matches }) => matches));
    const targets = [...offered].flatMap(([name, tool]) => (named.has(name) ? [tool] : []));
    return missing.length > 0 || targets.length === 0
      ? missing
      : [
          ...(isAboutRequestsToo(located, server)
            ? []
            : [...findVerbs(located, targets), ...findFacts(located, targets)]),
          ...findArguments(located, targets),
          ...findPinned(located, targets),
        ];
  };
}

/** Whether a rule that denies or asks also covers the resources of an external server, which have verbs and facts. */
function isAboutRequestsToo({ rule: { when, outcome } }: LocatedRule, server: string): boolean {
  const isExact = when.tools?.every((tool) => !tool.includes('*')) === true;
  return !INTERNAL_TOOLS.has(server) && !isExact && kindsOf(when, outcome) === undefined;
}

/** For each server whose tools are unknown: returns the first rule that names its tools or arguments. */
export function findUncheckedRules(
  rules: readonly LocatedRule[],
  servers: readonly string[],
): readonly PolicyProblem[] {
  return servers.flatMap((server) => {
    const first = rules.find(
      ({ rule, mode }) =>
        serverOf({ rule, mode }) === server &&
        oneOrMore(rule.when.kind ?? 'tool').includes('tool') &&
        (rule.when.args !== undefined || (rule.when.tools ?? []).some((tool) => tool !== `${server}.*`)),
    );
    if (first === undefined) return [];
    const field = first.rule.when.tools === undefined ? 'args' : 'tools';
    return problemAt(
      first.at(['when', field], 'key'),
      `${server} is not approved yet, so rules about its tools and arguments cannot be checked; ` +
        'approve it, and check again',
    );
  });
}

/** Returns the server that a rule is about, if it is only one and the rule is not off. */
function serverOf({
  rule: {
    when: { tools, servers },
  },
  mode,
}: Pick<LocatedRule, 'rule' | 'mode'>): string | undefined {
  const [first, ...others] = mode === 'off' ? [] : (serversOfTools(tools) ?? servers ?? []);
  return others.every((server) => server === first) ? first : undefined;
}

function findVerbs({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly PolicyProblem[] {
  const { verbs } = rule.when;
  const all = new Set(
    tools.flatMap(({ semantics: { verb, byArgument } }) => [verb, ...Object.values(byArgument?.verbs ?? {})]),
  );
  if (verbs === undefined || verbs.some((verb) => all.has(verb))) return [];
  return problemAt(
    at(['when', 'verbs'], 'key'),
    `no call of ${namesOf(tools)} is ${verbs.join(' or ')}, so the rule can never match; its verbs ` +
      `are ${[...all].join(', ')}`,
  );
}

function findFacts({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly PolicyProblem[] {
  return FACTS.flatMap(([field, meaning]) => {
    if (rule.when[field] === undefined || tools.some(({ semantics }) => semantics[meaning] !== undefined)) return [];
    return problemAt(
      at(['when', field], 'key'),
      `no argument of ${namesOf(tools)} is known as ${meaning}, so the rule can never match; add ` +
        `it to \`semantics\` of the server, or remove ${field}`,
    );
  });
}

function findArguments({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly PolicyProblem[] {
  return Object.entries(rule.when.args ?? {}).flatMap(([dotted, tests]): readonly PolicyProblem[] => {
    const found = tools.flatMap(({ inputSchema }) =>
      schemasAt(inputSchema, dotted.split('.'), { root: inputSchema, depth: 0 }),
    );
    if (found.length > 0)
      return findTestFaults(dotted, tests, found).map(({ path, message }) => ({
        ...at(['when', 'args', dotted, ...path]),
        message,
      }));
    return [unknownArgument(at(['when', 'args', dotted], 'key'), dotted, tools)];
  });
}

function unknownArgument(
  place: Omit<PolicyProblem, 'message'>,
  name: string,
  tools: readonly OfferedTool[],
): PolicyProblem {
  const known = [
    ...new Set(tools.flatMap(({ inputSchema }) => Object.keys((inputSchema.properties ?? {}) as SchemaNode))),
  ];
  return {
    ...place,
    message:
      `${namesOf(tools)} ${tools.length === 1 ? 'has' : 'have'} no argument ` +
      `"${name}".${suggest(name, known) || inWords('Known arguments:', known)}`,
  };
}

/**
 * A pin on an unknown argument would not limit the call. A pin to a value that no tool accepts would refuse every call.
 */
function findPinned({ rule, at }: LocatedRule, tools: readonly OfferedTool[]): readonly PolicyProblem[] {
  return Object.entries(rule.obligations?.pins ?? {}).flatMap(([name, value]): readonly PolicyProblem[] => {
    const having = tools.filter(
      ({ inputSchema }) => schemasAt(inputSchema, [name], { root: inputSchema, depth: 0 }).length > 0,
    );
    const faults = having.map(({ inputSchema }) => argumentValueFault(inputSchema, name, value));
    const [fault] = faults;
    if (fault !== undefined && faults.every((one) => one !== undefined))
      return problemAt(
        at(['obligations', 'pins', name], 'value'),
        `${namesOf(having)} ${having.length === 1 ? 'does' : 'do'} not accept the value that is ` +
          `pinned to "${name}": ${fault}`,
      );
    return having.length > 0 ? [] : [unknownArgument(at(['obligations', 'pins', name], 'key'), name, tools)];
  });
}

function namesOf(tools: readonly OfferedTool[]): string {
  const names = tools.slice(0, 3).map(({ name }) => name);
  return names.join(', ') + (tools.length > names.length ? ` and ${tools.length - names.length} more` : '');
}

function inWords(intro: string, names: readonly string[]): string {
  return names.length === 0 ? '' : ` ${intro} ${names.slice(0, 12).join(', ')}${names.length > 12 ? ', …' : ''}.`;
}
