/**
 * Requests to a token endpoint, and the credentials made of its answers. Tokens that no header can carry are refused.
 */
import type {
  AuthorizationServerMetadata,
  OAuthClientInformationMixed,
  OAuthTokens,
} from '@modelcontextprotocol/sdk/shared/auth.js';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import type { GuardedFetch } from './guarded-fetch.ts';
import { type Credentials, loginFailed, type SignInParts } from './sign-in-credentials.ts';

type Client = Credentials['client'];
type Secrets = SignInParts['secrets'];

/** The form of a bearer token (RFC 6750 §2.1). */
const TOKEN = /^[\w.~+/-]{1,16384}=*$/;

/** Returns the address of a server. Throws LOGIN_FAILED if a token would be sent unencrypted. */
export function signInUrl({ name, url = '' }: Pick<ServerSettings, 'name' | 'url'>): URL {
  if (isConfidential(url)) return new URL(url);
  throw loginFailed(
    `Server "${name}" is not reached over https, so others could read its token on the way.`,
    `Write an https address under servers.${name}.url. Only a server on this machine may have http.`,
  );
}

/** Returns the client in the configuration with its secret, or undefined. Throws SECRET_MISSING. */
export async function configuredClient({ oauth }: ServerSettings, secrets: Secrets): Promise<Client | undefined> {
  if (oauth?.clientId === undefined) return undefined;
  if (oauth.clientSecret === undefined) return { id: oauth.clientId };
  const { secret = '' } = await fillSecrets({ secret: oauth.clientSecret }, secrets, 'headers');
  return { id: oauth.clientId, secret };
}

/** Converts a client to the form of the SDK. */
export function sdkClientInformation({ id, secret, authMethod }: Client): OAuthClientInformationMixed {
  return {
    client_id: id,
    ...(secret !== undefined && { client_secret: secret }),
    ...(authMethod !== undefined && { token_endpoint_auth_method: authMethod }),
  } as OAuthClientInformationMixed;
}

/**
 * Gets a new token with the refresh token, from the endpoint of the sign-in. Throws the SDK's OAuthError, LOGIN_FAILED,
 * and network errors.
 */
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
  return { ...rest, ...tokenFields(tokens, now()) };
}

/** Returns the part of the metadata that is used after the sign-in. */
function metadataOf({ issuer, tokenEndpoint, authMethods }: Credentials): AuthorizationServerMetadata {
  return {
    issuer,
    token_endpoint: tokenEndpoint,
    authorization_endpoint: tokenEndpoint,
    response_types_supported: ['code'],
    ...(authMethods.length > 0 && { token_endpoint_auth_methods_supported: [...authMethods] }),
  };
}

/**
 * Returns the fields of credentials that a token answer gives. `now`: milliseconds since 1970. Throws LOGIN_FAILED for
 * tokens that are not bearer tokens.
 */
export function tokenFields(
  tokens: OAuthTokens,
  now: number,
): Pick<Credentials, 'access' | 'refresh' | 'expiresAt' | 'scope'> {
  const { access_token: access, refresh_token: refresh, expires_in: seconds, scope, token_type: type } = tokens;
  if (type.toLowerCase() !== 'bearer' || !TOKEN.test(access))
    throw loginFailed(
      'The issuer gave a token that is not a bearer token.',
      'The issuer must give bearer tokens (RFC 6750). Tollgate supports no others.',
    );
  return {
    access,
    ...(refresh !== undefined && { refresh }),
    ...(seconds !== undefined && { expiresAt: now + seconds * 1000 }),
    ...(scope !== undefined && { scope }),
  };
}
