/** Owns `tools` and `servers`: what an agent sees, and what stands behind it with its state and its quarantined tools. */

import { refusedState } from '../../../adapters/port.ts';
import type { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { NameCollision } from '../../../catalogs/tools/exposed-names.ts';
import { isNamed, TOOL_CAPABILITIES } from '../../../catalogs/tools/tool-capabilities.ts';
import type { Principal } from '../../../policies/port.ts';
import type { Config } from '../../config/config.ts';
import type { Preconditions } from '../../consent/preconditions.ts';
import { KillSwitch } from '../../consent/switch/kill-switch.ts';
import { type EnableRequest, listRequests } from '../../internal-servers/enable-requests.ts';
import type { AssembledFacade, AssembleFacade } from '../../runtime/assembled-facade.ts';
import { readServerLog } from '../../runtime/servers/server-logs.ts';
import { isFinal, readReports, type ServerReport } from '../../runtime/servers/server-reports.ts';
import { openState } from '../../state/sqlite-state.ts';
import { askFacade, type CommonOptions, readForOwner, readPrincipal } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { plural, table } from '../print.ts';
import { consentSummaries } from '../server-consent/server-consent-commands.ts';
import { reportStops } from '../stop-notice.ts';
import { toolText } from './tool-command.ts';

/**
 * What the principal's tools/list answers, with the bytes it costs; or one tool of it. Exit code 5 when a server of the principal cannot be
 * reached. Throws UNKNOWN_TOOL.
 */
export async function runTools(
  options: CommonOptions & { as?: string; name?: string | undefined },
  io: Io,
  assemble: AssembleFacade,
): Promise<number> {
  const config = readForOwner(options, io);
  const principal = readPrincipal(config, options, io);
  return askFacade({ config, options, io, assemble }, async (assembled) => {
    const { deps, catalog, serversOf } = assembled;
    const view = await deps.nameTables.tableFor(principal);
    if (options.name !== undefined)
      return {
        data: toolText(options.name, { principal, table: view, assembled, asJson: options.json === true }),
        remarks: [],
        code: EXIT.ok,
      };
    const rows = view.listed.map((one) => ({
      name: one.name,
      server: one.server.name,
      tool: one.entry?.tool.name ?? one.primitive ?? '',
      bytes: Buffer.byteLength(one.text),
    }));
    const missing = serversOf(principal).flatMap((name) =>
      reasonOf(catalog.problems.get(name)).map((reason) => ({ name, reason })),
    );
    const data =
      options.json === true
        ? `${JSON.stringify({ principal: principal.id, tools: rows, bytes: Buffer.byteLength(view.text), collisions: view.collisions, unshown: view.unshown, missing })}\n`
        : table(
            io,
            ['NAME', 'SERVER', 'TOOL', 'BYTES'],
            rows.map((row) => [row.name, row.server, row.tool, String(row.bytes)]),
          );
    const remarks = [
      ...(await unseen(deps.preconditions, { principal, catalog, servers: serversOf(principal) })),
      ...view.collisions.map(collisionRemark),
      ...view.unshown,
      ...missing.map(({ name, reason }) => `The tools of ${name} are missing: ${reason}`),
    ];
    return { data, remarks, code: missing.length > 0 ? EXIT.server : EXIT.ok };
  });
}

/** A single tool collides with a name of Tollgate's own. */
function collisionRemark({ name, tools }: NameCollision): string {
  return tools.length > 1
    ? `${tools.map(({ server, tool }) => `${server}.${tool}`).join(' and ')} would both be called ${name}; neither is shown. Give each a name of its own under expose.`
    : `Tollgate uses the name ${name} itself; the tool is not shown. Give it another name under expose.`;
}

/** What people have decided beforehand hides tools: the owner at the terminal is told, an agent never. */
async function unseen(
  standing: Preconditions,
  {
    principal,
    catalog,
    servers,
  }: { principal: Principal; catalog: AssembledFacade['catalog']; servers: readonly string[] },
): Promise<readonly string[]> {
  const { off, hides } = standing.view(principal);
  if (off !== undefined) return [`${off.message} ${off.next}`];
  const hidden = servers.flatMap((server) =>
    catalog
      .entries(server)
      .filter(({ tool }) => hides({ server, tool: tool.name }))
      .map(({ tool }) => tool.name),
  );
  return [...TOOL_CAPABILITIES.values()].flatMap((capability) => {
    const count = hidden.filter((tool) => isNamed(capability, tool)).length;
    return count === 0
      ? []
      : [
          `${plural(count, 'tool')} not shown: ${capability.title} is off. An owner adds it with: tollgate upgrades enable ${capability.name}`,
        ];
  });
}

/** Every server with its state: as the Tollgate says that runs it or has given it up, else it is started to be listed. Exit code 5 when one cannot be reached. */
export async function runServers(options: CommonOptions, io: Io, assemble: AssembleFacade): Promise<number> {
  const config = readForOwner(options, io);
  await reportStops(config.state, io);
  return askFacade({ config, options, io, assemble }, async ({ catalog, consents }) => {
    const { requests, reports } = await toldOf(config);
    const names = [...catalog.servers.keys()];
    const isTold = (name: string): boolean => reports.get(name)?.some(isFinal) === true;
    await Promise.all([
      catalog.refresh(
        names.filter((name) => !isTold(name)),
        'wake',
      ),
      catalog.refresh(names.filter(isTold), 'leave'),
    ]);
    const summaries = await consentSummaries({ config, consents });
    const rows = [...catalog.servers.values()].map(({ name, adapter }) => {
      const entries = catalog.entries(name);
      const hostile = entries.filter(
        (entry) => entry.projection(config.schemaProfile) === undefined || entry.quarantine !== undefined,
      );
      const { word = 'not needed', pending = 0, refusal } = summaries.get(name) ?? {};
      const seen = catalog.problems.get(name);
      // Only a start looks at the files, and nothing starts whose tools nobody has approved.
      const problem = seen?.data.consent === 'lacking' ? (refusal ?? seen) : seen;
      const processes = reports.get(name) ?? [];
      const told = problem === undefined && isTold(name) ? processes[0] : undefined;
      const state =
        told?.state ?? (problem?.data.consent === undefined ? adapter.health().state : refusedState(problem));
      const reason = reasonOf(problem).join('') || (told?.reason ?? '');
      const log =
        reason !== '' && problem?.data.consent === undefined && (readServerLog(config.state, name) ?? '') !== '';
      return {
        name,
        consent: word,
        state,
        tools: entries.length,
        pending,
        bytes: entries.reduce((sum, entry) => sum + Buffer.byteLength(JSON.stringify(entry.tool)), 0),
        version: told?.version ?? adapter.info()?.version ?? '',
        reason,
        log,
        processes: processes.map(({ server: _, ...process }) => process),
        quarantined: [
          ...hostile.map((entry) => ({ tool: entry.tool.name, reason: entry.quarantine ?? '' })),
          ...(told?.unfit ?? adapter.health().unfit ?? []),
        ],
      };
    });
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
    const wishes = requests.map(
      ({ server, principal }) =>
        `An agent of ${principal} asks for ${server}: look at it with \`tollgate servers info ${server}\`, and decide with \`tollgate approve ${server}\` or \`tollgate servers enable ${server}\`.`,
    );
    return { data, remarks: [...rows.flatMap(remarksOn), ...wishes], code };
  });
}

/** What agents have asked to have enabled, of the servers that are still there, and what running processes say of those that nobody has killed. */
async function toldOf({ state: folder, servers }: Config): Promise<{
  readonly requests: readonly EnableRequest[];
  readonly reports: ReadonlyMap<string, readonly ServerReport[]>;
}> {
  const state = openState(folder);
  try {
    const killSwitch = new KillSwitch(state);
    const reports = [...(await readReports(state))].filter(([server]) => killSwitch.refusalOf(server) === undefined);
    return {
      requests: (await listRequests(state)).filter(({ server }) => servers.has(server)),
      reports: new Map(reports),
    };
  } finally {
    await state.close();
  }
}

/** Why the tools of a server are missing, and what to do; none when they are there. */
function reasonOf(problem: TollgateError | undefined): readonly string[] {
  return problem === undefined ? [] : [`${problem.message} ${problem.next}`];
}

interface Row {
  readonly name: string;
  readonly reason: string;
  /** Whether something stands in its log. */
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
    ...(row.reason === '' ? [] : [`${row.name}: ${row.reason}${log}`]),
    ...others,
    ...row.quarantined.map((one) => `${row.name}.${one.tool} is in quarantine: ${one.reason}`),
  ];
}
