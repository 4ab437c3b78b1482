/** Runs `tools NAME`: shows one tool as an agent sees it, with the decision of the policy and the limits of a call. */
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { findExposed } from '../../../catalogs/tools/exposed-names.ts';
import type { ListDecision, Principal } from '../../../policies/port.ts';
import type { BudgetConfig, Config } from '../../config/config.ts';
import { didYouMean } from '../../config/config-problems.ts';
import { mergeProfiles } from '../../config/profiles.ts';
import { type ExposedTool, serversBehind } from '../../exposure/exposed-tool.ts';
import type { NameTable } from '../../exposure/name-table.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { json, MAX_COLUMNS, printable, wrapWords } from '../print.ts';

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
  readonly verdict: ListDecision['verdict'];
  readonly reasons: ListDecision['reasons'];
  readonly limits: Limits;
  /** As it is in the agent's tools/list. */
  readonly definition: {
    readonly description?: string;
    readonly inputSchema?: unknown;
    readonly outputSchema?: unknown;
  };
}

/**
 * Returns the text of `tools NAME`. `name` is a listed name, or `server.tool`. Throws UNKNOWN_TOOL for a tool that this
 * agent does not see.
 */
export function toolText(
  name: string,
  {
    principal,
    table,
    assembled,
    asJson,
  }: {
    readonly principal: Principal;
    readonly table: NameTable;
    readonly assembled: AssembledFacade;
    readonly asJson: boolean;
  },
): string {
  const exposed = findTool(name, table);
  const { decision } = exposed;
  const facts: ToolFacts = {
    principal: principal.id,
    name: exposed.name,
    server: exposed.server.name,
    tool: toolOf(exposed),
    ...(exposed.routedServers !== undefined && { servers: serversBehind(exposed).map(({ name: server }) => server) }),
    verdict: decision?.verdict ?? 'always',
    reasons: decision?.reasons ?? [],
    limits: limitsOf(exposed, principal, assembled),
    definition: JSON.parse(exposed.text) as ToolFacts['definition'],
  };
  return asJson ? json(facts) : readable(facts);
}

function findTool(name: string, { listed, byName, reader }: NameTable): ExposedTool {
  const visible = new Map(
    [...listed, ...(reader === undefined ? [] : [byName.get(reader)])].flatMap((one) =>
      one === undefined ? [] : [[one.name, one] as const],
    ),
  );
  const found =
    findExposed(visible, name)?.value ??
    listed.find((one) => serversBehind(one).some((server) => `${server.name}.${toolOf(one)}` === name));
  if (found !== undefined) return found;
  throw new TollgateError('UNKNOWN_TOOL', {
    detail: `This agent does not see a tool "${name}"; ${didYouMean(name, [...visible.keys()])}`,
    next: 'Use a name that `tollgate tools` shows. A tool that this principal may never call is not shown.',
  });
}

function toolOf({ entry, primitive, name }: ExposedTool): string {
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

const VERDICTS: Readonly<Record<ListDecision['verdict'], string>> = {
  always: 'always allowed',
  maybe: 'decided for each call',
  never: 'never allowed',
};

function readable({ name, server, servers = [server], tool, verdict, limits, reasons, definition }: ToolFacts): string {
  const { budgets, ...rest } = limits;
  const row = (key: string, value: string): string =>
    wrapWords(`${key.padEnd(12)}${printable(value)}`, MAX_COLUMNS, ' '.repeat(12));
  const lines = [
    row('name', name),
    row('behind it', servers.map((one) => `${one}.${tool}`).join(', ')),
    row('verdict', VERDICTS[verdict]),
    ...reasons.map(({ id, message, file, line }) =>
      row('', `${id}: ${message}${file === undefined ? '' : `  (${file}${line === undefined ? '' : `:${line}`})`}`),
    ),
    row(
      'limits',
      Object.entries(rest)
        .map(([key, value]) => `${key} ${value}`)
        .join(', '),
    ),
    ...budgets.map((budget) => row('budget', JSON.stringify(budget))),
    '',
    ...(definition.description ?? '').split('\n').map((line) => wrapWords(printable(line), MAX_COLUMNS, '')),
    '',
    'inputSchema',
    json(definition.inputSchema).trimEnd(),
    ...(definition.outputSchema === undefined ? [] : ['outputSchema', json(definition.outputSchema).trimEnd()]),
  ];
  return `${lines.join('\n')}\n`;
}
