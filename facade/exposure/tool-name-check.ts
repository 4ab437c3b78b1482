/**
 * Checks the names of tools and arguments in tollgate.yaml against the definitions of a server. It refuses the calls
 * that would run without a restriction because of a wrong name.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { memoize } from '../../catalogs/text/collections.ts';
import { argumentValueFault } from '../../catalogs/validation/validator.ts';
import type { OfferedTool, Policy, Principal } from '../../policies/port.ts';
import type { ArgumentMention, Config, ToolMention } from '../config/config.ts';
import { didYouMean, nearest, type Problem, quote } from '../config/config-problems.ts';
import { NO_PRECONDITIONS, type Precondition, type PreconditionView } from '../consent/preconditions.ts';
import { toolMatcher } from './served-server.ts';
import type { ToolEntry } from './tool-entry.ts';

/** The parts of a definition that names are checked against. */
export interface DefinitionNames {
  readonly name: string;
  readonly inputSchema: Readonly<Record<string, unknown>>;
}

/** A name that matches nothing. */
export interface UnknownName extends Problem {
  readonly profile?: string;
  /**
   * Returns true for the tools whose calls would run without the restriction. Absent: the name only hides something, or
   * classifies a tool that does not exist.
   */
  readonly binds?: (tool: string) => boolean;
  /**
   * True for a classification of a tool that is gone, or that the server shows only to some clients. No call loses a
   * restriction.
   */
  readonly isIdle?: true;
}

type Schema = Readonly<Record<string, unknown>>;

/** The id of the reason for a refusal. */
const REASON = 'unknown-name';
const ALL = (): boolean => true;

/** Returns the names in tollgate.yaml that this server does not have, in the order of the file. */
export function findUnknownNames(
  { mentions }: Pick<Config, 'mentions'>,
  server: string,
  tools: readonly DefinitionNames[],
): readonly UnknownName[] {
  return mentions.filter((mention) => mention.server === server).flatMap((mention) => checkMention(mention, tools));
}

/** Returns, for each server without approved tools, the first place that names one of its tools. */
export function findUncheckedNames(
  { mentions, servers }: Pick<Config, 'mentions' | 'servers'>,
  offered: ReadonlyMap<string, unknown>,
): readonly Problem[] {
  return [...servers.keys()].flatMap((server) => {
    const first = mentions.find(
      (mention) => mention.server === server && (mention.tool !== '*' || mention.arguments.length > 0),
    );
    if (first === undefined || offered.has(server)) return [];
    return [
      {
        file: first.file,
        line: first.line,
        column: first.column,
        message:
          `${server} is not approved yet, so what this file names of its tools and arguments cannot be checked; ` +
          'approve it, and check again',
      },
    ];
  });
}

function checkMention(mention: ToolMention, tools: readonly DefinitionNames[]): readonly UnknownName[] {
  const { server, tool, key, profile } = mention;
  const meant = tools.filter(({ name }) => toolMatcher(tool)(name));
  const owner = profile === undefined ? {} : { profile };
  if (meant.length > 0) {
    return mention.arguments.flatMap((argument): readonly UnknownName[] => {
      const { file, line, column, name } = argument;
      const fault = argumentFault(name, meant);
      return fault === undefined
        ? findOddValues(argument, meant).map((odd) => ({ ...odd, ...owner }))
        : [{ file, line, column, message: fault, ...owner, binds: toolMatcher(tool) }];
    });
  }
  const names = tools.map(({ name }) => name);
  // A tool that was removed from the server no longer needs its settings. A misspelled name does.
  const restricts = key === 'pins' || key === 'budgets' || key === 'deny' || nearest(tool, names) !== undefined;
  const { file, line, column } = mention;
  return [
    {
      file,
      line,
      column,
      message: `server ${quote(server)} has no tool ${quote(tool)}: ${LOST[key]}; ${didYouMean(tool, names)}`,
      ...owner,
      ...(restricts ? { binds: ALL } : key === 'semantics' && { isIdle: true }),
    },
  ];
}

/**
 * Returns a problem for each pinned value that a tool does not accept. Each of its calls would be refused for arguments
 * that its caller did not write.
 */
function findOddValues(
  { file, line, column, name, value }: ArgumentMention,
  meant: readonly DefinitionNames[],
): readonly UnknownName[] {
  return meant.flatMap(({ name: tool, inputSchema }) => {
    const fault = value === undefined ? undefined : argumentValueFault(inputSchema, name, value);
    return fault === undefined
      ? []
      : [
          {
            file,
            line,
            column,
            message: `tool ${quote(tool)} does not accept the value that is pinned to ${quote(name)}: ${fault}`,
            binds: (one: string) => one === tool,
          },
        ];
  });
}

/** The effect of a name that matches nothing. */
const LOST = {
  expose: 'nothing is shown',
  pins: 'nothing is pinned',
  budgets: 'nothing is limited',
  deny: 'nothing is taken away',
  allow: 'nothing is admitted',
  semantics: 'nothing is classified',
} as const;

/**
 * Returns why a pin of an argument has no effect; undefined if one of the tools has the argument. If a schema accepts
 * any name, a name that is almost a known one is an error too.
 */
export function argumentFault(name: string, tools: readonly DefinitionNames[]): string | undefined {
  const found = tools.map(({ inputSchema }) => argumentsOf(inputSchema, { root: inputSchema, depth: 0 }));
  const known = [...new Set(found.flatMap(({ names }) => [...names]))];
  if (known.includes(name) || (found.some(({ isOpen }) => isOpen) && nearest(name, known) === undefined))
    return undefined;
  const [first] = tools;
  return `tool ${quote(first?.name ?? '')} has no argument ${quote(name)}; ${didYouMean(name, known)}`;
}

interface Arguments {
  readonly names: ReadonlySet<string>;
  readonly isOpen: boolean;
}

const MAX_DEPTH = 8;

/** Returns the names of the arguments in a schema, including its branches and its own definitions. */
function argumentsOf(schema: unknown, { root, depth }: { readonly root: Schema; readonly depth: number }): Arguments {
  if (typeof schema !== 'object' || schema === null || depth > MAX_DEPTH) return { names: new Set(), isOpen: true };
  const { properties, patternProperties, additionalProperties, allOf, anyOf, oneOf, $ref } = schema as Schema;
  const branches = [
    ...[allOf, anyOf, oneOf].flatMap((all) => (Array.isArray(all) ? (all as readonly unknown[]) : [])),
    ...(typeof $ref === 'string' ? [resolve($ref, root)] : []),
  ];
  const inner = branches.map((branch) => argumentsOf(branch, { root, depth: depth + 1 }));
  const own = typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
  const isFree = properties === undefined && branches.length === 0 && additionalProperties !== false;
  const isOpen =
    isFree ||
    patternProperties !== undefined ||
    additionalProperties === true ||
    (typeof additionalProperties === 'object' && additionalProperties !== null);
  return {
    names: new Set([...own, ...inner.flatMap(({ names }) => [...names])]),
    isOpen: isOpen || inner.some((one) => one.isOpen && one.names.size > 0),
  };
}

function resolve(ref: string, root: Schema): unknown {
  if (!ref.startsWith('#/')) return undefined;
  const steps = ref
    .slice(2)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return steps.reduce<unknown>((node, step) => (node as Schema | undefined)?.[step], root);
}

/** The parts of the catalog that the check uses. */
export interface NamePreconditionParts {
  /** Returns the same array as long as nothing changed. */
  readonly entriesOf: (server: string) => readonly { readonly tool: DefinitionNames }[];
}

/**
 * Returns the precondition that refuses calls without their restriction because of a wrong name, and hides their tools.
 */
export function namePrecondition(
  config: Pick<Config, 'mentions'>,
  { entriesOf }: NamePreconditionParts,
): Precondition & { readonly unknownOf: (server: string) => readonly UnknownName[] } {
  const servers = new Set(config.mentions.map(({ server }) => server));
  const cached = new WeakMap<readonly object[], readonly UnknownName[]>();
  const unknownOf = (server: string): readonly UnknownName[] => {
    const entries = servers.has(server) ? entriesOf(server) : [];
    // A server that has not listed yet has no definitions to check against. No call reaches it before it lists.
    if (entries.length === 0) return [];
    let known = cached.get(entries);
    if (known === undefined) {
      const tools = entries.map(({ tool }) => tool);
      known = findUnknownNames(config, server, tools);
      cached.set(entries, known);
    }
    return known;
  };
  const faultOf = (
    principal: Principal,
    { server, tool }: { readonly server: string; readonly tool: string },
  ): UnknownName | undefined =>
    unknownOf(server).find(
      ({ binds, profile }) => binds?.(tool) === true && (profile === undefined || principal.profiles.includes(profile)),
    );
  const viewOf = memoize(
    (principal: Principal): PreconditionView => ({
      revision: '',
      hides: () => false,
      withholds: (tool) => faultOf(principal, tool) !== undefined,
    }),
  );
  return {
    unknownOf,
    view: viewOf,
    judge: ({ caller, effect }) => {
      const fault = servers.has(effect.server) ? faultOf(caller.principal, effect) : undefined;
      if (fault !== undefined) throw refusal(fault);
      return NO_PRECONDITIONS;
    },
  };
}

/** The caller does not learn which tools or arguments exist. The log and `tollgate check` inform the owner. */
function refusal({ file, line }: Problem): TollgateError {
  const message =
    `${file}:${line} names a tool, an argument or a value that the server does not have, ` +
    'so a restriction of this tool would not apply.';
  return new TollgateError('DENIED', {
    detail: `Refused by rule ${REASON}: ${message}`,
    next: 'Use another tool, and tell the user: `tollgate check` says what the owner must correct.',
    data: { reasons: [{ id: REASON, message, file, line }] },
  });
}

/**
 * Reports each line once. `judge` gets the present list of a server. Servers are checked one after the other, because
 * each may have many rules.
 */
export function createNameNotices(
  policy: Policy,
  say: (line: string) => void,
): { readonly judge: (server: string, entries: readonly ToolEntry[]) => Promise<void> } {
  const said = new Set<string>();
  let last: Promise<unknown> = Promise.resolve();
  const report = async (server: string, entries: readonly ToolEntry[]): Promise<void> => {
    const tools = entries.map(
      ({ tool, semantics }): OfferedTool => ({ name: tool.name, inputSchema: tool.inputSchema, semantics }),
    );
    for (const line of (await policy.findUnoffered?.(server, tools)) ?? []) {
      if (!said.has(line)) say(line);
      said.add(line);
    }
  };
  return {
    judge: (server, entries) => {
      // A server that failed offers nothing now, which is no fault of the rules.
      const checked = last.then(() => (entries.length === 0 ? undefined : report(server, entries)));
      last = checked.catch(() => undefined);
      return checked;
    },
  };
}
