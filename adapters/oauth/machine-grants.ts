/** Grants that need no person: client credentials, and the grant of an enterprise's identity provider (ID-JAG). */
import type { OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { fillSecrets } from '../stdio/server-secrets.ts';
import { serverUnavailable } from '../supervisor/server-settings.ts';
import { type GuardedFetch, guardFetch } from './guarded-fetch.ts';
import { type DiscoveredIssuer, readIssuer, shownHost } from './issuer-discovery.ts';
import { loginFailed, type SignInParts } from './sign-in-credentials.ts';
import { configuredClient, type OAuthClient, proofOf, proveClient } from './token-endpoint.ts';

/** The answer to a token request, and the client that made it. */
export interface TokenGrant {
  readonly tokens: OAuthTokens;
  readonly client: OAuthClient;
}

/** What a grant needs. */
interface GrantParts extends Pick<SignInParts, 'settings' | 'secrets'> {
  readonly discovered: DiscoveredIssuer;
  readonly fetch: GuardedFetch;
  readonly scopes: readonly string[];
}

const ID_TOKEN = 'urn:ietf:params:oauth:token-type:id_token';
const ID_JAG = 'urn:ietf:params:oauth:token-type:id-jag';
const NO_CLIENT: OAuthClient = { id: '' };

/** Gets a token for the client itself (RFC 6749 §4.4). */
export async function grantToClient(parts: GrantParts, client: OAuthClient = NO_CLIENT): Promise<TokenGrant> {
  const parameters = { grant_type: 'client_credentials', ...scopeParameter(parts.scopes) };
  return { tokens: await requestToken(parts, client, parameters), client };
}

/**
 * Gets a token for the user of an enterprise. Its identity provider exchanges the user's ID token for an assertion
 * (RFC 8693; OAuth Identity Assertion Authorization Grant), and the issuer of the server accepts it (RFC 7523 §2.1).
 * Each goes to its own issuer in the configuration only. Throws LOGIN_FAILED and what the SDK throws.
 */
export async function grantToEnterprise(parts: GrantParts, client: OAuthClient = NO_CLIENT): Promise<TokenGrant> {
  const parameters = {
    grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
    assertion: await requestAssertion(parts),
    ...scopeParameter(parts.scopes),
  };
  return { tokens: await requestToken(parts, client, parameters), client };
}

async function requestAssertion({ settings, secrets, discovered, scopes }: GrantParts): Promise<string> {
  const enterprise = settings.oauth?.enterprise;
  if (enterprise === undefined) throw serverUnavailable(settings.name, 'has no identity provider in its settings');
  // The owner has named the identity provider, which may be in a private network.
  const fetch = guardFetch(new URL(enterprise.issuer));
  const host = shownHost(enterprise.issuer);
  const { issuer, tokenEndpoint, authMethods } = await readIssuer(enterprise.issuer, fetch);
  if (tokenEndpoint === undefined)
    throw loginFailed(
      `The metadata of the identity provider ${host} name no token endpoint.`,
      `Check servers.${settings.name}.oauth.enterprise.issuer.`,
    );
  const { idToken = '' } = await fillSecrets({ idToken: enterprise.idToken }, secrets, 'headers');
  const client = (await configuredClient(enterprise, secrets)) ?? NO_CLIENT;
  const { metadata: audience, resource } = discovered;
  const headers = new Headers({ 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json' });
  const parameters = new URLSearchParams({
    grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange',
    requested_token_type: ID_JAG,
    subject_token_type: ID_TOKEN,
    subject_token: idToken,
    audience: audience.issuer,
    resource,
    ...scopeParameter(scopes),
  });
  const metadata = { issuer, token_endpoint_auth_methods_supported: [...authMethods] };
  await proveClient(client, { headers, parameters, metadata });
  const response = await fetch(tokenEndpoint, { method: 'POST', headers, body: parameters });
  const answer = (await response.json().catch(() => ({}))) as Readonly<Record<string, unknown>>;
  if (!response.ok || typeof answer.access_token !== 'string')
    throw loginFailed(
      `The identity provider ${host} gave no grant for server "${settings.name}".`,
      `The ID token may have expired: renew the secret of servers.${settings.name}.oauth.enterprise.idToken. ` +
        'Otherwise the administrator of the identity provider must allow this server.',
    );
  // Another kind of token, such as an access token of the identity provider, must not go to the issuer of a server.
  if (answer.issued_token_type !== ID_JAG)
    throw loginFailed(
      `The identity provider ${host} gave a token of another kind.`,
      'It must support the Identity Assertion Authorization Grant. Nothing was sent to the server.',
    );
  return answer.access_token;
}

/** Sends a request to a token endpoint, for the resource of the sign-in (RFC 8707). */
async function requestToken(
  { discovered: { issuer, metadata, resource }, fetch }: Pick<GrantParts, 'discovered' | 'fetch'>,
  client: OAuthClient,
  parameters: Readonly<Record<string, string>>,
): Promise<OAuthTokens> {
  const { fetchToken } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const { clientInformation, addClientAuthentication } = proofOf(client, metadata);
  const provider = {
    clientMetadata: { redirect_uris: [] },
    clientInformation: () => clientInformation,
    prepareTokenRequest: () => new URLSearchParams(parameters),
    addClientAuthentication,
  };
  return fetchToken(provider as unknown as Parameters<typeof fetchToken>[0], issuer, {
    metadata,
    resource,
    fetchFn: fetch,
  });
}

/** Returns the scope parameter of a request, if any scopes are requested. */
export function scopeParameter(scopes: readonly string[]): { readonly scope?: string } {
  return scopes.length > 0 ? { scope: scopes.join(' ') } : {};
}
