/** Owns what the management tools answer (HA-20): servers of the caller's own profiles in our words; refuses to widen anything, or to tell how a server is run. */
import { randomUUID } from 'node:crypto';
import type { Identity, SeenServer, Spoken, UpstreamCall } from '../../adapters/port.ts';
import { ERRORS, TollgateError } from '../../catalogs/errors.ts';
import { MANAGEMENT, SHIPPED } from '../../catalogs/shipped.ts';
import type { AuditLog } from '../audit/log.ts';
import { WORKSPACE } from '../config/names.ts';
import type { Consents } from '../consent/consents.ts';
import type { State } from '../state/state.ts';
import { noteRequest } from './requests.ts';

/** Where a server stands with its owner; the word is shown to models. */
export type ConsentWord = 'approved' | 'pending' | 'disabled' | 'not needed';

/** What the answers are made from. */
export interface ManagementParts {
  readonly state: State;
  readonly audit: AuditLog;
  /** Throws STATE_FAILED. */
  readonly consentOf: (server: string) => Promise<ConsentWord>;
  readonly now: () => number;
}

/** Answers a call of one of the three tools. Throws ARGS_INVALID for a server that is not the caller's, as for one that is none. */
export function createManagement(parts: ManagementParts): (call: UpstreamCall) => Promise<Spoken> {
  return async ({ tool, args, identity }) => {
    if (identity === undefined) throw new TollgateError('INTERNAL');
    const { name, action, server } = args.value as { readonly name?: string; readonly action?: string; readonly server?: string };
    if (tool === 'list_mcp_servers') return list(parts, identity);
    if (tool === 'mcp_server_info') return describe(parts, find(identity, name));
    return action === 'disable' ? putAside(identity, find(identity, server)) : enable(parts, identity, find(identity, server));
  };
}

/** Where a server stands. What runs in this process is Tollgate itself, and nobody is asked about it. */
export async function consentWord(server: string, consents: Pick<Consents, 'statusOf'>): Promise<ConsentWord> {
  if (server === WORKSPACE || SHIPPED.has(server)) return 'not needed';
  const { state, disabled } = await consents.statusOf(server);
  if (disabled !== undefined) return 'disabled';
  return state === 'approved' || state === 'any-tools' ? 'approved' : 'pending';
}

async function list({ consentOf }: ManagementParts, identity: Identity): Promise<Spoken> {
  const servers = identity.servers();
  const lines = await Promise.all(servers.map(async (server) => `${server.name}: ${stateOf(server)}, consent ${await consentOf(server.name)}, tools that you can see: ${server.tools.length}`));
  return { text: lines.join('\n'), hits: servers.length };
}

async function describe({ consentOf }: ManagementParts, server: SeenServer): Promise<Spoken> {
  const consent = await consentOf(server.name);
  const head = `${server.name}: ${stateOf(server)}, consent ${consent}`;
  // What nobody has approved is a name that the owner has written, and nothing of what the server says.
  const tools = consent === 'pending' ? [] : server.tools;
  // Words of the table only: what a server said of its failure may name its command or its files.
  const why = server.fault === undefined ? [] : [`Its tools are missing: ${ERRORS[server.fault].what} ${ERRORS[server.fault].next}`];
  return { text: [head, ...why, ...tools.map((tool) => `- ${tool.name}: ${tool.description}`)].join('\n'), hits: tools.length };
}

function putAside(identity: Identity, server: SeenServer): Spoken {
  if (server.name === MANAGEMENT) throw new TollgateError('ARGS_INVALID', { detail: `"${MANAGEMENT}" cannot put itself aside: nothing could bring it back.`, next: 'Name another server.' });
  identity.putAside(server.name, true);
  return { text: `${server.name} is put aside for this session: its tools have left your list. Nobody else is affected. To have them back: manage_mcp {"action": "enable", "server": "${server.name}"}` };
}

/** Only what this very session has put aside comes back by itself: everything else is a person's to give. */
async function enable({ state, audit, consentOf, now }: ManagementParts, identity: Identity, { name, aside }: SeenServer): Promise<Spoken> {
  if (aside) {
    identity.putAside(name, false);
    return { text: `${name} is back: its tools are in your list again.` };
  }
  const consent = await consentOf(name);
  if (consent === 'approved' || consent === 'not needed') return { text: `${name} is enabled already.` };
  const { principal } = identity;
  if (await noteRequest(state, { server: name, principal: principal.id, since: now() })) {
    audit.append({ type: 'approval', event: 'server-requested', id: randomUUID(), outcome: 'ask', principal, server: name });
  }
  const command = consent === 'disabled' ? 'servers enable' : 'approve';
  return { text: `A person decides about ${name}; your request is noted, nothing has changed. Tell the user to run \`tollgate ${command} ${name}\`, and go on without it.` };
}

/** A server that exists for others only answers as one that does not exist. */
function find(identity: Identity, name: string | undefined): SeenServer {
  const found = identity.servers().find((server) => server.name === name);
  if (found === undefined) throw new TollgateError('ARGS_INVALID', { detail: 'There is no such server.', next: 'Call list_mcp_servers and use a name from it.' });
  return found;
}

function stateOf({ state, aside }: SeenServer): string {
  return aside ? 'put aside by this session' : state;
}
