/** Tollgate in front of the server of a client scenario, signed in as an owner would. */
import { type Gateway, PRINCIPALS, startGateway } from './gateway.ts';
import { CLIENT_DOCUMENT, type Context } from './peer-client.ts';

/** The name of the server behind Tollgate. */
export const PEER = 'peer';

const SEMANTICS = {
  'test*': 'read',
  'add_*': 'read',
  'lookup_*': 'read',
  'my-*': 'read',
  'json_schema_*': 'execute',
  'valid_*': 'write',
  'invalid_*': 'write',
} as const;

/** Rules by kind, verb, name and URI. What no rule allows is refused. */
const RULES = [
  { id: 'reads', outcome: 'allow', when: { servers: [PEER], verbs: ['read'] } },
  { id: 'writes', outcome: 'allow', when: { servers: [PEER], verbs: ['write'], roles: ['tester'] } },
  { id: 'schemas', outcome: 'allow', when: { tools: [`${PEER}.json_schema_*`], roles: ['tester'] } },
  { id: 'files', outcome: 'allow', when: { kind: 'resource', servers: [PEER], uri: ['file:///path/to/**'] } },
  { id: 'prompts', outcome: 'allow', when: { kind: 'prompt', servers: [PEER] } },
  { id: 'forms', outcome: 'allow', when: { kind: 'elicitation', servers: [PEER], asks: { mode: 'form' } } },
] as const;

/** What the server may ask of the client. The rules decide each request. */
const ASKS = ['sampling', 'elicitation', 'roots'] as const;

/** What the scenario gave. */
export interface PeerPlace {
  readonly folder: string;
  readonly url: string;
  readonly context: Context;
  readonly scenario: string;
}

const EXPOSE = { primitives: {}, tools: [`${PEER}.*`], resources: [PEER], prompts: [`${PEER}.*`] } as const;

/** Starts Tollgate, approved and signed in. */
export function startPeerGateway(place: PeerPlace): Promise<Gateway> {
  const { folder, url, context } = place;
  return startGateway({
    folder,
    server: PEER,
    config: {
      version: 1,
      workspace: './work',
      state: './state',
      servers: { [PEER]: { url, semantics: SEMANTICS, uri: 'own', asks: ASKS, ...oauthOf(place) } },
      // This prompt of the suite has no messages.
      prompts: { [`${PEER}.test_prompt`]: { template: [] } },
      secrets: { 'peer.secret': { env: 'PEER_SECRET' } },
      principals: PRINCIPALS,
      profiles: { suite: { servers: [PEER], expose: EXPOSE } },
      schemaProfile: 'faithful',
      rules: RULES,
      limits: { drainMs: 1000 },
    },
    env: { PEER_SECRET: context.client_secret ?? context.private_key_pem ?? 'no-secret-in-this-scenario' },
  });
}

/** What an owner would write about the client that is registered at the issuer. */
function oauthOf({ scenario, context }: PeerPlace): Readonly<Record<string, unknown>> {
  if (scenario === 'auth/basic-cimd') return { oauth: { clientId: CLIENT_DOCUMENT } };
  const { client_id, issuer } = context;
  if (client_id === undefined || issuer === undefined) return {};
  const grant = scenario.startsWith('auth/client-credentials') ? { grant: 'client_credentials' } : {};
  return { oauth: { ...grant, issuer, clientId: client_id, clientSecret: '${secret:peer.secret}' } };
}
