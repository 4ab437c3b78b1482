/**
 * Answers the management tools (HA-20): describes the servers of the caller's profiles in Tollgate's own words, and
 * stores requests for an owner. It gives no access, and does not tell how a server is run.
 */
import { randomUUID } from 'node:crypto';
import type { CallerIdentity, InProcessAnswer, UpstreamCall, VisibleServer } from '../../adapters/port.ts';
import { ERRORS, TollgateError } from '../../catalogs/errors/error-table.ts';
import { knownNames } from '../../catalogs/servers/known-server.ts';
import { MANAGEMENT } from '../../catalogs/servers/shipped-servers.ts';
import type { AttentionItem } from '../attention/attention-list.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Config } from '../config/config.ts';
import type { ConsentLabel, ConsentSummary } from '../consent/servers/consent-summary.ts';
import type { State } from '../state/state-port.ts';
import { type ConnectionProposal, isConnected, propose, proposedName } from './connection-proposals.ts';
import { noteRequest } from './enable-requests.ts';

/** The objects that answers are made from. */
export interface ManagementParts {
  readonly state: State;
  readonly audit: AuditLog;
  /** Throws STATE_FAILED. */
  readonly consentOf: (server: string) => Promise<ConsentSummary>;
  readonly now: () => number;
  /** Returns what needs the owner's attention. Never rejects. */
  readonly attention: () => Promise<readonly Pick<AttentionItem, 'kind'>[]>;
  /** The configuration in force. */
  readonly config: () => Pick<Config, 'servers'>;
}

/** Answers a call of one of the tools. Throws ARGS_INVALID for an unknown server, and for one of others. */
export function createManagement(parts: ManagementParts): (call: UpstreamCall) => Promise<InProcessAnswer> {
  return async ({ tool, args, identity }) => {
    if (identity === undefined) throw new TollgateError('INTERNAL');
    if (tool === 'propose_server')
      return proposeService(parts, identity, args.value as Pick<ConnectionProposal, 'service' | 'reason'>);
    const { action, server } = args.value as { readonly action?: string; readonly server?: string };
    if (tool === 'attention_summary') return summarise(parts);
    if (tool === 'list_mcp_servers') return list(parts, identity);
    if (tool === 'mcp_server_info') return describe(parts, find(identity, server));
    return action === 'disable'
      ? hide(identity, find(identity, server))
      : enable(parts, identity, find(identity, server));
  };
}

/** Kinds and numbers only: an item may be about another principal. */
async function summarise({ attention }: ManagementParts): Promise<InProcessAnswer> {
  const items = await attention();
  if (items.length === 0) return { text: 'Nothing waits for the owner.', hits: 0 };
  const counts = new Map<string, number>();
  for (const { kind } of items) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const lines = [...counts].map(([kind, count]) => `${kind}: ${count}`);
  return { text: [...lines, 'The owner sees them with: tollgate status'].join('\n'), hits: items.length };
}

/** Returns the consent as a model sees it. It reads no file: the state of the server tells that a start has changed. */
function consentLabel({ state }: VisibleServer, { word }: ConsentSummary): ConsentLabel {
  return state === 'not approved' && (word === 'approved' || word === 'any tools') ? 'changed' : word;
}

async function list({ consentOf }: ManagementParts, identity: CallerIdentity): Promise<InProcessAnswer> {
  const servers = identity.servers();
  const lines = await Promise.all(
    servers.map(
      async (server) =>
        `${summaryOf(server, await consentOf(server.name))}, tools that you can see: ${server.tools.length}`,
    ),
  );
  return { text: lines.join('\n'), hits: servers.length };
}

async function describe({ consentOf }: ManagementParts, server: VisibleServer): Promise<InProcessAnswer> {
  const summary = await consentOf(server.name);
  const consent = consentLabel(server, summary);
  // A text of a server without approval is not shown to a model.
  const tools = consent === 'unapproved' || consent === 'start only' || consent === 'damaged' ? [] : server.tools;
  // Texts of the error table only, because a server's own error may name its command or its files.
  const why =
    server.fault === undefined
      ? []
      : [`Its tools are missing: ${ERRORS[server.fault].what} ${ERRORS[server.fault].next}`];
  return {
    text: [summaryOf(server, summary), ...why, ...tools.map((tool) => `- ${tool.name}: ${tool.description}`)].join(
      '\n',
    ),
    hits: tools.length,
  };
}

function hide(identity: CallerIdentity, server: VisibleServer): InProcessAnswer {
  if (server.name === MANAGEMENT)
    throw new TollgateError('ARGS_INVALID', {
      detail: `"${MANAGEMENT}" cannot be disabled, because it is needed to enable it again.`,
      next: 'Name another server.',
    });
  identity.setHidden(server.name, true);
  return {
    text:
      `${server.name} is disabled for this session: its tools are no longer in your list. ` +
      'Other sessions are not affected. ' +
      `To enable it again: manage_mcp {"action": "enable", "server": "${server.name}"}`,
  };
}

/** Enables a server that this session has hidden. For every other server it stores a request for the owner. */
async function enable(
  { state, audit, consentOf, now }: ManagementParts,
  identity: CallerIdentity,
  server: VisibleServer,
): Promise<InProcessAnswer> {
  const { name, hidden } = server;
  if (hidden) {
    identity.setHidden(name, false);
    return { text: `${name} is enabled: its tools are in your list again.` };
  }
  const summary = await consentOf(name);
  if (!summary.disabled && ['approved', 'any tools', 'not needed'].includes(consentLabel(server, summary)))
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
    text:
      `A person decides about ${name}. Your request is stored; nothing has changed. ` +
      `Tell the user to run \`tollgate ${command} ${name}\`, and continue without it.`,
  };
}

/** Stores a proposal. What it names is neither looked up nor contacted. */
async function proposeService(
  { state, audit, now, config }: ManagementParts,
  { principal }: CallerIdentity,
  { service, reason }: Pick<ConnectionProposal, 'service' | 'reason'>,
): Promise<InProcessAnswer> {
  const isAddress = service.startsWith('https://');
  if (!isAddress && !knownNames().includes(service))
    throw new TollgateError('ARGS_INVALID', {
      detail: `Tollgate knows no service "${service}".`,
      next: 'Give the https address of its MCP server.',
    });
  const isAnswered = (one: string): boolean => isConnected(config(), one);
  if (isAnswered(service))
    return { text: `${service} is connected already. If you do not see its tools, they are not meant for you.` };
  const answer = await propose(state, { principal, service, reason, since: now() }, isAnswered);
  const { declined } = answer.proposal;
  if (declined !== undefined) {
    const why = declined.reason === undefined ? '' : `: ${JSON.stringify(declined.reason)}`;
    return { text: `A person has declined ${service}${why}. Do not propose it again; continue without it.` };
  }
  if (answer.isNew)
    audit.append({
      type: 'approval',
      event: 'service-proposed',
      id: answer.proposal.id,
      outcome: 'ask',
      principal,
      server: proposedName(service),
    });
  const what = answer.isNew ? 'Your proposal is stored' : 'Your proposal waits already';
  return {
    text:
      `${what}; nothing was installed, contacted or changed. A person decides about ${service}. ` +
      'Tell the user to run `tollgate approvals list`, and continue without it.',
  };
}

/** Throws the same error for a server of other principals as for an unknown one. */
function find(identity: CallerIdentity, name: string | undefined): VisibleServer {
  const found = identity.servers().find((server) => server.name === name);
  if (found === undefined)
    throw new TollgateError('ARGS_INVALID', {
      detail: 'There is no such server.',
      next: 'Call list_mcp_servers and use a name from it.',
    });
  return found;
}

/** The owner's decision is newer than the state that the last list found. */
function summaryOf(server: VisibleServer, summary: ConsentSummary): string {
  const state = server.hidden ? 'disabled for this session' : summary.disabled ? 'disabled' : server.state;
  return `${server.name}: ${state}, consent ${consentLabel(server, summary)}`;
}
