/**
 * Answers the management tools (HA-20): it describes servers of the caller's own profiles in Tollgate's words. It gives
 * no more access, and does not tell how a server is run.
 */
import { randomUUID } from 'node:crypto';
import type { CallerIdentity, InProcessAnswer, UpstreamCall, VisibleServer } from '../../adapters/port.ts';
import { ERRORS, TollgateError } from '../../catalogs/errors/error-table.ts';
import { MANAGEMENT } from '../../catalogs/servers/shipped-servers.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { ConsentLabel, ConsentSummary } from '../consent/servers/consent-summary.ts';
import type { State } from '../state/state-port.ts';
import { noteRequest } from './enable-requests.ts';

/** What the answers are made from. */
export interface ManagementParts {
  readonly state: State;
  readonly audit: AuditLog;
  /** Throws STATE_FAILED. */
  readonly consentOf: (server: string) => Promise<ConsentSummary>;
  readonly now: () => number;
}

/**
 * Answers a call of one of the three tools. Throws ARGS_INVALID for a server that is not the caller's, as for an
 * unknown one.
 */
export function createManagement(parts: ManagementParts): (call: UpstreamCall) => Promise<InProcessAnswer> {
  return async ({ tool, args, identity }) => {
    if (identity === undefined) throw new TollgateError('INTERNAL');
    const { action, server } = args.value as { readonly action?: string; readonly server?: string };
    if (tool === 'list_mcp_servers') return list(parts, identity);
    if (tool === 'mcp_server_info') return describe(parts, find(identity, server));
    return action === 'disable'
      ? putAside(identity, find(identity, server))
      : enable(parts, identity, find(identity, server));
  };
}

/** The state of consent as a model is told. It reads no file: a changed start shows in the state of the server. */
function wordFor({ state }: VisibleServer, { word }: ConsentSummary): ConsentLabel {
  return state === 'not approved' && (word === 'approved' || word === 'any tools') ? 'changed' : word;
}

async function list({ consentOf }: ManagementParts, identity: CallerIdentity): Promise<InProcessAnswer> {
  const servers = identity.servers();
  const lines = await Promise.all(
    servers.map(
      async (server) =>
        `${headOf(server, await consentOf(server.name))}, tools that you can see: ${server.tools.length}`,
    ),
  );
  return { text: lines.join('\n'), hits: servers.length };
}

async function describe({ consentOf }: ManagementParts, server: VisibleServer): Promise<InProcessAnswer> {
  const summary = await consentOf(server.name);
  const consent = wordFor(server, summary);
  // Of a server without approval, only the name in the configuration is shown, and nothing that the server says.
  const tools = consent === 'unapproved' || consent === 'start only' || consent === 'damaged' ? [] : server.tools;
  // Only words of the error table, because a server's own error may name its command or its files.
  const why =
    server.fault === undefined
      ? []
      : [`Its tools are missing: ${ERRORS[server.fault].what} ${ERRORS[server.fault].next}`];
  return {
    text: [headOf(server, summary), ...why, ...tools.map((tool) => `- ${tool.name}: ${tool.description}`)].join('\n'),
    hits: tools.length,
  };
}

function putAside(identity: CallerIdentity, server: VisibleServer): InProcessAnswer {
  if (server.name === MANAGEMENT)
    throw new TollgateError('ARGS_INVALID', {
      detail: `"${MANAGEMENT}" cannot set itself aside, because nothing could bring it back.`,
      next: 'Name another server.',
    });
  identity.setHidden(server.name, true);
  return {
    text: `${server.name} is set aside for this session: its tools have left your list. No one else is affected. To have them back: manage_mcp {"action": "enable", "server": "${server.name}"}`,
  };
}

/** Only a server that this session has set aside can be enabled here; a person enables everything else. */
async function enable(
  { state, audit, consentOf, now }: ManagementParts,
  identity: CallerIdentity,
  server: VisibleServer,
): Promise<InProcessAnswer> {
  const { name, hidden: aside } = server;
  if (aside) {
    identity.setHidden(name, false);
    return { text: `${name} is back: its tools are in your list again.` };
  }
  const summary = await consentOf(name);
  if (!summary.disabled && ['approved', 'any tools', 'not needed'].includes(wordFor(server, summary)))
    return { text: `${name} is enabled already.` };
  const { principal } = identity;
  if (await noteRequest(state, { server: name, principal: principal.id, since: now() })) {
    audit.append({
      type: 'approval',
      event: 'server-requested',
      id: randomUUID(),
      outcome: 'ask',
      principal,
      server: name,
    });
  }
  const command = summary.disabled ? 'servers enable' : 'approve';
  return {
    text: `A person decides about ${name}. Your request is stored; nothing has changed. Tell the user to run \`tollgate ${command} ${name}\`, and continue without it.`,
  };
}

/** A server of other principals answers like an unknown one. */
function find(identity: CallerIdentity, name: string | undefined): VisibleServer {
  const found = identity.servers().find((server) => server.name === name);
  if (found === undefined)
    throw new TollgateError('ARGS_INVALID', {
      detail: 'There is no such server.',
      next: 'Call list_mcp_servers and use a name from it.',
    });
  return found;
}

/** A decision of the owner counts before what the last list said. */
function headOf(server: VisibleServer, summary: ConsentSummary): string {
  const state = server.hidden ? 'set aside by this session' : summary.disabled ? 'disabled' : server.state;
  return `${server.name}: ${state}, consent ${wordFor(server, summary)}`;
}
