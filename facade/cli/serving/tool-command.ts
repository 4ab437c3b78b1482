/** Runs `tools NAME`: shows one tool as an agent sees it, with the decision of the policy and the limits of a call. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Semantics } from '../../../catalogs/tools/tool-definition.ts';
import type { ListDecision, Principal } from '../../../policies/port.ts';
import type { BudgetConfig, Config } from '../../config/config.ts';
import { mergeProfiles } from '../../config/profiles.ts';
import { splitToolId } from '../../config/servers/server-names.ts';
import { type ExposedTool, semanticsOf, serversBehind } from '../../exposure/exposed-tool.ts';
import type { NameTable } from '../../exposure/name-table.ts';
import { toolMatcher } from '../../exposure/served-server.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { json, MAX_COLUMNS, printable, wrapWords } from '../print.ts';
import { explainUnknown, findListed, reasonText } from './named-tool.ts';
import { schemaText } from './schema-text.ts';

/** In milliseconds and bytes. Rules may set less for one call, which `tollgate try` shows. */
interface Limits {
  readonly argumentBytes: number;
  readonly resultBytes: number;
  readonly resultLines: number;
  readonly mediaBytes: number;
  readonly spillBytes: number;
  readonly timeoutMs: number;
  readonly concurrent: number;
  readonly budgets: readonly BudgetConfig[];
}

/** What is shown of one tool. */
interface ToolFacts {
  readonly principal: string;
  readonly name: string;
  readonly server: string;
  /** All servers of a primitive, if it has several. */
  readonly servers?: readonly string[];
  readonly tool: string;
  readonly semantics: readonly Semantics[];
  readonly verdict: ListDecision['verdict'];
  /** The entries of `expose` that show it. */
  readonly shownBy: readonly string[];
  readonly reasons: ListDecision['reasons'];
  readonly limits: Limits;
  /** As it is in the agent's tools/list. */
  readonly definition: {
    readonly description?: string;
    readonly inputSchema?: unknown;
    readonly outputSchema?: unknown;
  };
}

/** One tool, and what is known of its caller. */
export interface ToolQuestion {
  readonly principal: Principal;
  readonly table: NameTable;
  readonly assembled: AssembledFacade;
  readonly asJson: boolean;
}

/**
 * Returns the text of `tools NAME`. `name` is a listed name, or `server.tool`. Throws UNKNOWN_TOOL for a tool that this
 * agent does not see, and SERVER_UNAVAILABLE if the name is one of a server that cannot be reached.
 */
export async function toolText(name: string, { principal, table, assembled, asJson }: ToolQuestion): Promise<string> {
  const exposed = findListed(table, name);
  if (exposed === undefined)
    throw await explainUnknown(new TollgateError('UNKNOWN_TOOL'), { name, principal, assembled });
  const { decision } = exposed;
  const facts: ToolFacts = {
    principal: principal.id,
    name: exposed.name,
    server: exposed.server.name,
    tool: toolOf(exposed),
    ...(exposed.routedServers !== undefined && { servers: serversBehind(exposed).map(({ name: server }) => server) }),
    semantics: semanticsOf(exposed),
    verdict: decision?.verdict ?? 'always',
    shownBy: (await originsOf(principal, assembled))(exposed),
    reasons: decision?.reasons ?? [],
    limits: limitsOf(exposed, principal, assembled),
    definition: JSON.parse(exposed.text) as ToolFacts['definition'],
  };
  return asJson ? json(facts) : readable(facts);
}

/**
 * Returns a function that names the entries of `expose` by which a tool is shown: patterns of the configuration, and
 * places in Rego.
 */
export async function originsOf(
  principal: Principal,
  { config, deps }: Pick<AssembledFacade, 'config' | 'deps'>,
): Promise<(exposed: ExposedTool) => readonly string[]> {
  const { expose } = mergeProfiles(config, principal.profiles);
  const requested = (await deps.policy().requestedExposures?.(principal)) ?? [];
  return ({ name, server, entry, primitive }) => {
    if (entry === undefined) return [primitive === undefined ? 'search' : 'primitives'];
    const isMeant = (pattern: string): boolean => {
      const id = splitToolId(pattern);
      return id?.server === server.name && toolMatcher(id.tool)(entry.tool.name);
    };
    const rules = expose.filter((one) => isMeant(one.tool) && (one.name === undefined || one.name === name));
    const exact = rules.filter((one) => one.name === name);
    return [
      ...(exact.length > 0 ? exact : rules).map(({ tool }) => tool),
      ...requested.filter(({ tool }) => isMeant(tool)).map(({ place }) => place),
    ];
  };
}

/** Returns the tool of its server that is behind a shown tool; its own name for a primitive and Tollgate's tools. */
export function toolOf({ entry, primitive, name }: ExposedTool): string {
  return entry?.tool.name ?? primitive ?? name;
}

function limitsOf(
  exposed: ExposedTool,
  principal: Principal,
  { deps, config }: Pick<AssembledFacade, 'deps' | 'config'>,
): Limits {
  const { args, server } = exposed;
  const caps = deps.capsOf(principal);
  return {
    argumentBytes: args.maxBytes,
    resultBytes: caps.bytes,
    resultLines: caps.lines,
    mediaBytes: caps.media,
    spillBytes: caps.spillBytes,
    timeoutMs: Math.min(server.timeoutMs, caps.timeoutMs ?? Infinity),
    concurrent: caps.concurrent,
    budgets: budgetsOf(
      config,
      principal,
      serversBehind(exposed).map(({ name }) => name),
    ),
  };
}

/** Returns the budgets that a call of this principal to one of these servers may use, depending on tool and verb. */
function budgetsOf(config: Config, principal: Principal, servers: readonly string[]): readonly BudgetConfig[] {
  // A budget of the profile replaces one with the same id.
  const byId = new Map(
    [...config.budgets, ...mergeProfiles(config, principal.profiles).budgets].map((budget) => [budget.id, budget]),
  );
  return [...byId.values()].filter(
    ({ when }) =>
      (when.server === undefined || servers.includes(when.server)) &&
      (when.role ?? principal.role) === principal.role &&
      (when.profile === undefined || principal.profiles.includes(when.profile)),
  );
}

/** In words, for a tool that is shown. */
const VERDICTS: Readonly<Record<ListDecision['verdict'], string>> = {
  always: 'always allowed',
  maybe: 'decided for each call',
  never: 'never allowed',
};

function readable(facts: ToolFacts): string {
  const { principal, name, server, servers = [server], tool, verdict, limits, reasons, definition } = facts;
  const row = (key: string, value: string): string =>
    wrapWords(`${key.padEnd(12)}${printable(value)}`, MAX_COLUMNS, ' '.repeat(12));
  const lines = [
    row('name', name),
    row('behind it', servers.map((one) => `${one}.${tool}`).join(', ')),
    ...facts.semantics.map((one) => row('does', semanticsText(one))),
    row('verdict', `${VERDICTS[verdict]} for ${principal}`),
    ...reasons.map((reason) => row('rule', reasonText(reason))),
    row('shown by', facts.shownBy.join(', ')),
    ...limitRows(limits).map(([key, value]) => row(key, value)),
    '',
    ...(definition.description ?? '').split('\n').map((line) => wrapWords(printable(line), MAX_COLUMNS, '')),
    '',
    'arguments',
    ...schemaText(definition.inputSchema),
    ...(definition.outputSchema === undefined ? [] : ['', 'result', ...schemaText(definition.outputSchema)]),
    '',
    ...(['try', 'call'] as const).map((word) => row(word, `tollgate ${word} ${exampleCall(facts)}`)),
  ];
  return `${lines.join('\n')}\n`;
}

function semanticsText({ verb, paths = [], urls = [], command, byArgument }: Semantics): string {
  const verbs = byArgument === undefined ? verb : `${verb}, or by ${byArgument.argument}`;
  const facts = [
    ...(paths.length > 0 ? [`paths in ${paths.join(', ')}`] : []),
    ...(urls.length > 0 ? [`addresses in ${urls.join(', ')}`] : []),
    ...(command === undefined ? [] : [`a command in ${command}`]),
  ];
  return [verbs, ...facts].join('; ');
}

function limitRows({ budgets, ...limits }: Limits): readonly (readonly [string, string])[] {
  const { argumentBytes, resultBytes, resultLines, mediaBytes, spillBytes, timeoutMs, concurrent } = limits;
  return [
    ['limits', `arguments ${argumentBytes} bytes; ${timeoutMs / 1000} s; ${concurrent} calls at once`],
    [
      '',
      `result ${resultBytes} bytes or ${resultLines} lines, media ${mediaBytes} bytes, ` +
        `the rest up to ${spillBytes} bytes is kept`,
    ],
    ...budgets.map((budget) => ['budget', JSON.stringify(budget)] as const),
  ];
}

/** Returns the arguments of a command that calls the tool, with a place for each required argument. */
function exampleCall({ principal, name, definition }: ToolFacts): string {
  const { required } = (definition.inputSchema ?? {}) as { readonly required?: unknown };
  const names = Array.isArray(required) ? required.map(String).filter((one) => /^[\w.-]{1,40}$/.test(one)) : [];
  return [name, ...names.map((one) => `${one}=…`), '--as', principal].join(' ');
}
