/** Owns the requests to a token endpoint, and what is kept of an answer; refuses tokens that no header can carry. */
import type {
  AuthorizationServerMetadata,
  OAuthClientInformationMixed,
  OAuthTokens,
} from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import type { GuardedFetch } from './guarded-fetch.ts';
import { type DiscoveredIssuer, metadataText } from './issuer-discovery.ts';
import type { Credentials, SignInParts } from './sign-in-credentials.ts';

type Client = Credentials['client'];
type Secrets = SignInParts['secrets'];

/** RFC 6750 §2.1. */
const TOKEN = /^[\w.~+/-]{1,16384}=*$/;

/** What a new sign-in was made of. */
export interface TokenGrant {
  readonly url: URL;
  readonly discovered: DiscoveredIssuer;
  readonly client: Client;
  readonly requestedScopes: readonly string[];
  readonly tokens: OAuthTokens;
  readonly now: number;
}

/** The address of a server at which a sign-in may be used. Throws LOGIN_FAILED where a token would go in clear. */
export function signInUrl({ name, url = '' }: Pick<ServerSettings, 'name' | 'url'>): URL {
  if (isConfidential(url)) return new URL(url);
  throw new TollgateError('LOGIN_FAILED', {
    detail: `Server "${name}" is not reached over https, so a token for it would be read by everybody on the way.`,
    next: `Write an https address under servers.${name}.url; only a server on this machine may have http.`,
  });
}

/** The client of the configuration with its secret; undefined where none is written. Throws SECRET_MISSING. */
export async function configuredClient({ oauth }: ServerSettings, secrets: Secrets): Promise<Client | undefined> {
  if (oauth?.clientId === undefined) return undefined;
  if (oauth.clientSecret === undefined) return { id: oauth.clientId };
  const { secret = '' } = await fillSecrets({ secret: oauth.clientSecret }, secrets, 'headers');
  return { id: oauth.clientId, secret };
}

/** A client as the SDK takes it. */
export function sdkClientInformation({ id, secret, authMethod }: Client): OAuthClientInformationMixed {
  return {
    client_id: id,
    ...(secret !== undefined && { client_secret: secret }),
    ...(authMethod !== undefined && { token_endpoint_auth_method: authMethod }),
  } as OAuthClientInformationMixed;
}

/** What is kept of a new sign-in. Throws LOGIN_FAILED for tokens that are not bearer tokens. */
export function credentialsOf({
  url,
  discovered: found,
  client,
  requestedScopes: asked,
  tokens,
  now,
}: TokenGrant): Credentials {
  const { metadata, issuer, resource } = found;
  const revocation = metadataText(metadata, 'revocation_endpoint');
  return {
    url: url.href,
    resource,
    issuer,
    tokenEndpoint: metadata.token_endpoint,
    authMethods: metadata.token_endpoint_auth_methods_supported ?? [],
    client,
    ...(revocation !== undefined && { revocationEndpoint: revocation }),
    ...(asked.length > 0 && { scope: asked.join(' ') }),
    ...partsOf(tokens, now),
  };
}

/** Renews by the refresh token, at the endpoint of the sign-in. Throws the SDK's OAuthError, LOGIN_FAILED, and errors of the network. */
export async function refreshCredentials(
  held: Credentials,
  { client, fetch, now }: { readonly client: Client; readonly fetch: GuardedFetch; readonly now: () => number },
): Promise<Credentials> {
  const { refreshAuthorization } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const tokens = await refreshAuthorization(held.issuer, {
    metadata: metadataOf(held),
    clientInformation: sdkClientInformation(client),
    refreshToken: held.refresh ?? '',
    resource: held.resource,
    fetchFn: fetch,
  });
  const { expiresAt: _old, ...rest } = held;
  return { ...rest, ...partsOf(tokens, now()) };
}

/** What is used of the metadata after the sign-in. */
function metadataOf({ issuer, tokenEndpoint, authMethods }: Credentials): AuthorizationServerMetadata {
  return {
    issuer,
    token_endpoint: tokenEndpoint,
    authorization_endpoint: tokenEndpoint,
    response_types_supported: ['code'],
    ...(authMethods.length > 0 && { token_endpoint_auth_methods_supported: [...authMethods] }),
  };
}

function partsOf(tokens: OAuthTokens, now: number): Pick<Credentials, 'access' | 'refresh' | 'expiresAt' | 'scope'> {
  const { access_token: access, refresh_token: renew, expires_in: seconds, scope, token_type: type } = tokens;
  if (type.toLowerCase() !== 'bearer' || !TOKEN.test(access))
    throw new TollgateError('LOGIN_FAILED', {
      detail: 'The issuer gave a token that is no bearer token.',
      next: 'Its owner must give bearer tokens (RFC 6750): no others are served here.',
    });
  return {
    access,
    ...(renew !== undefined && { refresh: renew }),
    ...(seconds !== undefined && { expiresAt: now + seconds * 1000 }),
    ...(scope !== undefined && { scope }),
  };
}
