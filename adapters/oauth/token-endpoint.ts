/**
 * Requests to a token endpoint, how a client proves itself there, and the credentials made of the answers. Tokens that
 * no header can carry are refused.
 */
import { createPrivateKey, type KeyObject, randomUUID } from 'node:crypto';
import type {
  AuthorizationServerMetadata,
  OAuthClientInformationMixed,
  OAuthTokens,
} from '@modelcontextprotocol/sdk/shared/auth.js';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import type { OAuthSettings, ServerSettings } from '../supervisor/server-settings.ts';
import type { GuardedFetch } from './guarded-fetch.ts';
import { type Credentials, loginFailed, type SignInParts } from './sign-in-credentials.ts';

/** A client at a token endpoint. `privateKey`: PKCS #8 as PEM, or a JWK; it is never stored with the credentials. */
export type OAuthClient = Credentials['client'] & { readonly privateKey?: string };
type Secrets = SignInParts['secrets'];

/** The form of a bearer token (RFC 6750 §2.1). */
const TOKEN = /^[\w.~+/-]{1,16384}=*$/;
/** How long a proof of a client is valid, in seconds. It is used at once, and clocks differ. */
const ASSERTION_SECONDS = 120;

/** Returns the address of a server. Throws LOGIN_FAILED if a token would be sent unencrypted. */
export function signInUrl({ name, url = '' }: Pick<ServerSettings, 'name' | 'url'>): URL {
  if (isConfidential(url)) return new URL(url);
  throw loginFailed(
    `Server "${name}" is not reached over https, so others could read its token on the way.`,
    `Write an https address under servers.${name}.url. Only a server on this machine may have http.`,
  );
}

/** Returns the client in the configuration with its secret, or undefined. Throws SECRET_MISSING. */
export async function configuredClient(
  oauth: Pick<OAuthSettings, 'clientId' | 'clientSecret' | 'privateKey'> | undefined,
  secrets: Secrets,
): Promise<OAuthClient | undefined> {
  if (oauth?.clientId === undefined) return undefined;
  const { clientId: id, clientSecret: secret, privateKey } = oauth;
  return {
    id,
    ...(secret !== undefined && (await fillSecrets({ secret }, secrets, 'headers'))),
    // A PEM text has line breaks, which no header could carry.
    ...(privateKey !== undefined && (await fillSecrets({ privateKey }, secrets, 'env'))),
  };
}

/**
 * Returns the client of a sign-in. The secret of a configured client is not in the credentials. A configured document
 * (CIMD) may not be the client, because not every issuer reads one.
 */
export function clientInUse({ client }: Credentials, configured: OAuthClient | undefined): OAuthClient {
  return configured?.id === client.id ? configured : client;
}

/** A request to a token endpoint, to which the proof of a client is added. */
export interface ClientRequest {
  readonly headers: Headers;
  readonly parameters: URLSearchParams;
  /** Of the issuer, who alone can use the proof. */
  readonly metadata: Pick<AuthorizationServerMetadata, 'issuer' | 'token_endpoint_auth_methods_supported'>;
}

/** Adds what proves a client: its signed assertion (RFC 7523 §2.2), or its secret as the metadata allow. */
export async function proveClient(
  client: OAuthClient,
  { headers, parameters, metadata }: ClientRequest,
): Promise<void> {
  const { id, secret = '', privateKey } = client;
  if (privateKey !== undefined) {
    parameters.set('client_id', id);
    parameters.set('client_assertion_type', 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer');
    return parameters.set('client_assertion', await signAssertion(id, privateKey, metadata.issuer));
  }
  const { selectClientAuthMethod } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const method = selectClientAuthMethod(sdkClient(client), metadata.token_endpoint_auth_methods_supported ?? []);
  if (method === 'client_secret_basic')
    return headers.set('authorization', `Basic ${Buffer.from(`${id}:${secret}`).toString('base64')}`);
  parameters.set('client_id', id);
  if (method === 'client_secret_post') parameters.set('client_secret', secret);
}

function sdkClient({ id, secret, authMethod }: OAuthClient): OAuthClientInformationMixed {
  return {
    client_id: id,
    ...(secret !== undefined && { client_secret: secret }),
    ...(authMethod !== undefined && { token_endpoint_auth_method: authMethod }),
  } as OAuthClientInformationMixed;
}

/** Returns the fields by which requests of the SDK prove a client. `metadata`: of the issuer that the proof is for. */
export function proofOf(client: OAuthClient, metadata: ClientRequest['metadata']) {
  return {
    clientInformation: sdkClient(client),
    addClientAuthentication: (headers: Headers, parameters: URLSearchParams) =>
      proveClient(client, { headers, parameters, metadata }),
  };
}

/** Signs the assertion of a client. Throws LOGIN_FAILED for a key that cannot sign; no message shows any part of it. */
async function signAssertion(id: string, privateKey: string, audience: string): Promise<string> {
  const { SignJWT } = await import('jose');
  try {
    const { key, header } = readSigningKey(privateKey);
    return await new SignJWT({})
      .setProtectedHeader(header)
      .setIssuer(id)
      .setSubject(id)
      .setAudience(audience)
      .setJti(randomUUID())
      .setIssuedAt()
      .setExpirationTime(`${ASSERTION_SECONDS}s`)
      .sign(key);
  } catch {
    // The error could quote the key, so it is dropped.
    throw loginFailed(
      `The private key of client "${id.slice(0, 200)}" cannot be used.`,
      'It must be a private RSA, EC or Ed25519 key: PKCS #8 as PEM, or a JWK. Store it again.',
    );
  }
}

const CURVES: Readonly<Record<string, string>> = { prime256v1: 'ES256', secp384r1: 'ES384', secp521r1: 'ES512' };

/** A JWK may name its algorithm and its id. Otherwise the kind of the key decides. */
function readSigningKey(text: string): {
  readonly key: KeyObject;
  readonly header: { readonly alg: string; readonly kid?: string };
} {
  const isJwk = text.trimStart().startsWith('{');
  const jwk = isJwk ? (JSON.parse(text) as { readonly alg?: string; readonly kid?: string }) : {};
  const key = createPrivateKey(isJwk ? { key: jwk as never, format: 'jwk' } : text);
  const { asymmetricKeyType: kind, asymmetricKeyDetails: details } = key;
  const byKind = kind === 'rsa' ? 'RS256' : kind === 'ed25519' ? 'EdDSA' : CURVES[details?.namedCurve ?? ''];
  const { alg = byKind ?? '', kid } = jwk;
  return { key, header: { alg, ...(kid !== undefined && { kid }) } };
}

/**
 * Gets a new token with the refresh token, from the endpoint of the sign-in. Throws the SDK's OAuthError, LOGIN_FAILED,
 * and network errors.
 */
export async function refreshCredentials(
  held: Credentials,
  { client, fetch, now }: { readonly client: OAuthClient; readonly fetch: GuardedFetch; readonly now: () => number },
): Promise<Credentials> {
  const { refreshAuthorization } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const tokens = await refreshAuthorization(held.issuer, {
    metadata: metadataOf(held),
    ...proofOf(client, metadataOf(held)),
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
 * Revokes the refresh token, and with it the access tokens, where the issuer supports that (RFC 7009). Returns whether
 * it did.
 */
export async function revokeCredentials(held: Credentials, client: OAuthClient, fetch: GuardedFetch): Promise<boolean> {
  if (held.revocationEndpoint === undefined) return false;
  const body = new URLSearchParams({
    token: held.refresh ?? held.access,
    token_type_hint: held.refresh === undefined ? 'access_token' : 'refresh_token',
  });
  const headers = new Headers({ 'content-type': 'application/x-www-form-urlencoded' });
  try {
    await proveClient(client, { headers, parameters: body, metadata: metadataOf(held) });
    const response = await fetch(held.revocationEndpoint, { method: 'POST', body, headers });
    await response.body?.cancel();
    return response.ok;
  } catch {
    // The token is forgotten here in any case. The caller reports that it was not revoked.
    return false;
  }
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
