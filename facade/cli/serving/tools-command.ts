/** Runs `tools` and `servers`: shows what an agent sees, and the servers with their state and quarantined tools. */
import { refusedState, type ServerAdapter } from '../../../adapters/port.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { NameCollision } from '../../../catalogs/tools/exposed-names.ts';
import { isNamed, TOOL_CAPABILITIES } from '../../../catalogs/tools/tool-capabilities.ts';
import type { Principal } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import { nameFault } from '../../config/servers/server-names.ts';
import type { Preconditions } from '../../consent/preconditions.ts';
import type { ConsentSummary } from '../../consent/servers/consent-summary.ts';
import { KillSwitch, refusalIn } from '../../consent/switch/kill-switch.ts';
import type { ExposedTool } from '../../exposure/exposed-tool.ts';
import type { NameTable } from '../../exposure/name-table.ts';
import { type EnableRequest, listRequests } from '../../internal-servers/enable-requests.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { readServerLog } from '../../runtime/servers/server-logs.ts';
import { isFinal, readReports, type ServerReport } from '../../runtime/servers/server-reports.ts';
import { askFacade, type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { withState } from '../command-state.ts';
import { json, plural, table } from '../print.ts';
import { serverNamed } from '../server-consent/owner-context.ts';
import { consentSummaries } from '../server-consent/server-consent-commands.ts';
import { reportStops } from '../stop-notice.ts';
import type { Wiring } from '../wiring.ts';
import { originsOf, toolOf, toolText } from './tool-command.ts';

/**
 * Prints the tools that the principal sees with their sizes in bytes, or one of them. Exit code 5 if a server of the
 * principal cannot be reached. Throws UNKNOWN_TOOL.
 */
export async function runTools(
  options: CommonOptions & { as?: string; name?: string | undefined },
  io: Io,
  { assemble }: Pick<Wiring, 'assemble'>,
): Promise<number> {
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  return askFacade({ config, options, io, assemble }, async (assembled) => {
    const { deps, catalog, serversOf } = assembled;
    const view = await deps.nameTables.tableFor(principal);
    if (options.name !== undefined)
      return {
        data: await toolText(options.name, { principal, table: view, assembled, asJson: options.json === true }),
        remarks: [],
        code: EXIT.ok,
      };
    const shownBy = await originsOf(principal, assembled);
    const listed = new Set(view.listed);
    const rows = view.visible.map((one) => ({
      name: one.name,
      server: one.server.name,
      tool: toolOf(one),
      listed: listed.has(one),
      bytes: Buffer.byteLength(one.text),
      verdict: one.decision?.verdict ?? 'always',
      shownBy: shownBy(one),
      rules: (one.decision?.reasons ?? []).map(({ id }) => id),
    }));
    const missing = serversOf(principal).flatMap((name) =>
      reasonOf(catalog.problems.get(name)).map((reason) => ({ name, reason })),
    );
    const { collisions, unshown } = view;
    const bytes = Buffer.byteLength(view.text);
    const isSearched = view.visible.length > view.listed.length;
    const data =
      options.json === true
        ? `${JSON.stringify({ principal: principal.id, tools: rows, bytes, collisions, unshown, missing })}\n`
        : table(
            io,
            ['NAME', ...(isSearched ? ['LISTED'] : []), 'TOOL', 'BYTES', 'VERDICT', 'SHOWN BY', 'RULES'],
            rows.map((row, at) => [
              row.name,
              ...(isSearched ? [row.listed ? 'yes' : 'by search'] : []),
              `${row.server}.${row.tool}`,
              String(row.bytes),
              isAlwaysAsked(view.visible[at]) ? 'ask' : row.verdict,
              row.shownBy.map((entry) => (entry === `${row.server}.${row.tool}` ? 'its name' : entry)).join(', '),
              fewRules(row.rules),
            ]),
          );
    const remarks = [
      ...(options.json === true ? [] : [sizeRemark(principal, view, bytes)]),
      ...(await hiddenRemarks(deps.preconditions, { principal, catalog, servers: serversOf(principal) })),
      ...collisions.map(collisionRemark),
      ...unshown,
      ...missing.map(({ name, reason }) => `The tools of ${name} are missing: ${reason}`),
    ];
    return { data, remarks, code: missing.length > 0 ? EXIT.server : EXIT.ok };
  });
}

function sizeRemark({ id, profiles }: Principal, { listed, visible }: NameTable, bytes: number): string {
  const which = `profile ${profiles.join(', ') || 'default'}`;
  const found = visible.length - listed.length;
  const more = found === 0 ? '' : ` It finds ${found} more with find_tools.`;
  const gets = `gets ${plural(listed.length, 'tool')}, ${bytes} bytes in its list.${more}`;
  return `${id} (${which}) ${gets} One of them: tollgate tools NAME`;
}

/** Returns true if no call of the tool runs without a person. */
function isAlwaysAsked(exposed: ExposedTool | undefined): boolean {
  return exposed?.decision?.says?.some(({ outcome, say }) => outcome === 'ask' && say === '') === true;
}

/** The most rules of a tool in the table; `tools NAME` shows all. */
const MAX_RULES = 2;

function fewRules(rules: readonly string[]): string {
  const more = rules.length - MAX_RULES;
  return rules.slice(0, MAX_RULES).join(', ') + (more > 0 ? `, +${more}` : '');
}

/** A collision of one tool is with a name of Tollgate itself. */
function collisionRemark({ name, tools }: NameCollision): string {
  const names = tools.map(({ server, tool }) => `${server}.${tool}`).join(' and ');
  return tools.length > 1
    ? `${names} would both be called ${name}; neither is shown. Give each its own name under expose.`
    : `Tollgate uses the name ${name} itself; the tool is not shown. Give it another name under expose.`;
}

/** Tells the owner at the terminal which tools the preconditions hide. An agent does not learn it. */
async function hiddenRemarks(
  preconditions: Preconditions,
  {
    principal,
    catalog,
    servers,
  }: { principal: Principal; catalog: AssembledFacade['catalog']; servers: readonly string[] },
): Promise<readonly string[]> {
  const { refused, hides } = preconditions.view(principal);
  if (refused !== undefined) return [`${refused.message} ${refused.next}`];
  const hidden = servers.flatMap((server) =>
    catalog
      .entries(server)
      .filter(({ tool }) => hides({ server, tool: tool.name }))
      .map(({ tool }) => tool.name),
  );
  return [...TOOL_CAPABILITIES.values()].flatMap((capability) => {
    const count = hidden.filter((tool) => isNamed(capability, tool)).length;
    if (count === 0) return [];
    const enable = `An owner adds it with: tollgate upgrades enable ${capability.name}`;
    return [`${plural(count, 'tool')} not shown: ${capability.title} is off. ${enable}`];
  });
}

interface RowParts {
  readonly config: Config;
  readonly catalog: AssembledFacade['catalog'];
  readonly summary: ConsentSummary | undefined;
  /** Why the kill switch or the master switch stops it. */
  readonly stop: TollgateError | undefined;
  readonly processes: readonly ServerReport[];
}

/** Returns the row of one server, from the report of a running Tollgate or from its own start. */
function serverRow(adapter: ServerAdapter, { config, catalog, summary, stop, processes }: RowParts) {
  const { name } = adapter;
  const entries = catalog.entries(name);
  const quarantined = entries.filter(
    (entry) => entry.projection(config.schemaProfile) === undefined || entry.quarantine !== undefined,
  );
  const { word = 'not needed', pending = 0, refusal, disabled = false } = summary ?? {};
  const found = catalog.problems.get(name);
  // The catalog does not start a server without consent, so only the summary knows whether its files have changed. A
  // server that runs goes on with the files that it was started with.
  const changed = found?.data.consent === 'lacking' ? (refusal ?? found) : (found ?? refusal);
  const isRunning = found === undefined && processes.some(isFinal);
  const problem = stop ?? (isRunning ? undefined : changed);
  const report = problem === undefined && isRunning ? processes[0] : undefined;
  const health = adapter.health();
  const isLacking = problem?.data.consent !== undefined || stop !== undefined;
  const reason = reasonOf(problem ?? refusal).join('') || (report?.reason ?? '');
  return {
    name,
    consent: word,
    state: report?.state ?? (isLacking && problem !== undefined ? refusedState(problem) : health.state),
    killed: stop?.code === 'SERVER_UNAVAILABLE',
    disabled,
    tools: entries.length,
    pending,
    bytes: entries.reduce((sum, entry) => sum + Buffer.byteLength(JSON.stringify(entry.tool)), 0),
    version: report?.version ?? adapter.info()?.version ?? '',
    reason,
    log: reason !== '' && !isLacking && (readServerLog(config.state, name) ?? '') !== '',
    processes: processes.map(({ server: _, ...process }) => process),
    quarantined: [
      ...quarantined.map((entry) => ({ tool: entry.tool.name, reason: entry.quarantine ?? '' })),
      ...(report?.unfit ?? health.unfit ?? []),
    ],
  };
}

/**
 * Prints every server with its state. The state is the report of a running Tollgate that runs the server or has given
 * it up. Otherwise the server is started to list its tools. Exit code 5 if one cannot be reached.
 */
export async function runServers(
  options: CommonOptions & { readonly log?: string; readonly start?: boolean },
  io: Io,
  { assemble }: Pick<Wiring, 'assemble'>,
): Promise<number> {
  const { log } = options;
  if (log !== undefined) return runServerLog({ ...options, log }, io);
  const config = readForOwner(options, io);
  await reportStops(config.state, io);
  return askFacade({ config, options, io, assemble }, async ({ catalog, consents }) => {
    const { requests, reports, stopOf } = await readShared(config);
    const names = [...catalog.servers.keys()];
    const isReported = (name: string): boolean => reports.get(name)?.some(isFinal) === true;
    await Promise.all([
      catalog.refresh(
        names.filter((name) => !isReported(name)),
        options.start === false ? 'leave' : 'wake',
      ),
      catalog.refresh(names.filter(isReported), 'leave'),
    ]);
    const summaries = await consentSummaries({ config, consents });
    const rows = [...catalog.servers.values()].map(({ name, adapter }) =>
      serverRow(adapter, {
        config,
        catalog,
        summary: summaries.get(name),
        stop: stopOf(name),
        processes: reports.get(name) ?? [],
      }),
    );
    const code = rows.some((row) => row.reason !== '') ? EXIT.server : EXIT.ok;
    if (options.json === true) return { data: `${JSON.stringify({ servers: rows, requests })}\n`, remarks: [], code };
    const data = table(
      io,
      ['NAME', 'CONSENT', 'STATE', 'TOOLS', 'PENDING', 'BYTES', 'QUARANTINED', 'VERSION'],
      rows.map((row) => [
        row.name,
        row.consent,
        row.state,
        String(row.tools),
        String(row.pending),
        String(row.bytes),
        String(row.quarantined.length),
        row.version,
      ]),
    );
    return { data, remarks: [...rows.flatMap(remarksOn), ...requests.map(requestRemark)], code };
  });
}

function requestRemark({ server, principal }: EnableRequest): string {
  const decide = `\`tollgate approve ${server}\` or \`tollgate servers enable ${server}\``;
  const see = `See \`tollgate servers info ${server}\`, and decide with ${decide}.`;
  return `An agent of ${principal} asks for ${server}. ${see}`;
}

/** Reads the requests of agents for configured servers, and the reports of running processes on servers not killed. */
async function readShared(config: Config): Promise<{
  readonly requests: readonly EnableRequest[];
  readonly reports: ReadonlyMap<string, readonly ServerReport[]>;
  readonly stopOf: (server: string) => TollgateError | undefined;
}> {
  const { servers } = config;
  return withState(config, async (state) => {
    const killSwitch = new KillSwitch(state);
    const killed = killSwitch.names();
    const stopOf = (server: string): TollgateError | undefined => refusalIn(killed, server);
    const reports = [...(await readReports(state))].filter(([server]) => stopOf(server) === undefined);
    return {
      requests: (await listRequests(state)).filter(({ server }) => servers.has(server)),
      reports: new Map(reports),
      stopOf,
    };
  });
}

/** Returns why the tools of a server are missing and what to do; nothing if they are not missing. */
function reasonOf(problem: TollgateError | undefined): readonly string[] {
  return problem === undefined ? [] : [`${problem.message} ${problem.next}`];
}

interface Row {
  readonly name: string;
  readonly reason: string;
  readonly state: string;
  /** Whether its log has text. */
  readonly log: boolean;
  readonly processes: readonly Pick<ServerReport, 'pid' | 'state' | 'reason'>[];
  readonly quarantined: readonly { readonly tool: string; readonly reason: string }[];
}

function remarksOn(row: Row): readonly string[] {
  const others = row.processes
    .filter(({ reason = '' }) => !row.reason.startsWith(reason))
    .map(
      ({ pid, state, reason = '' }) => `${row.name} is ${state} in the Tollgate that runs as process ${pid}: ${reason}`,
    );
  const log = row.log && !row.reason.includes('servers --log') ? ` Its log: tollgate servers --log ${row.name}` : '';
  return [
    // The stops are told before the list.
    ...(row.reason === '' || row.state === 'killed' ? [] : [`${row.name}: ${row.reason}${log}`]),
    ...others,
    ...row.quarantined.map((one) => `${row.name}.${one.tool} is in quarantine: ${one.reason}`),
  ];
}

/** Prints the log, oldest line first. Throws USAGE, CONFIG_INVALID. */
function runServerLog(options: CommonOptions & { readonly log: string }, io: Io): number {
  const fault = nameFault(options.log);
  if (fault !== undefined)
    throw new TollgateError('USAGE', {
      detail: `No server can have this name: ${fault}.`,
      next: 'Use a name that `tollgate servers` shows.',
    });
  const config = readForOwner(options, io);
  const text = readServerLog(config.state, options.log);
  // A server that is no longer configured may have left a log.
  if (text === undefined) serverNamed(config, options.log);
  const lines = (text ?? '').split('\n').filter((line) => line !== '');
  if (options.json === true) io.stdout(json({ server: options.log, lines }));
  else if (text === undefined) io.stderr(`${options.log} has written nothing to stderr.\n`);
  else io.stdout(text);
  return EXIT.ok;
}
