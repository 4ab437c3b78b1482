/** Finds the authorization server (issuer) of a server, and checks its metadata against impersonation. */
import type {
  AuthorizationServerMetadata,
  OAuthProtectedResourceMetadata,
} from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import { serverUnavailable } from '../supervisor/server-settings.ts';
import type { GuardedFetch } from './guarded-fetch.ts';
import { loginFailed, type SignInParts, scopeWords } from './sign-in-credentials.ts';

/** The issuer of tokens for a server, and what to request from it. */
export interface DiscoveredIssuer {
  /** As the server named it. It equals `metadata.issuer`, except for a slash at the end. */
  readonly issuer: string;
  readonly metadata: AuthorizationServerMetadata;
  /** The resource indicator (RFC 8707). */
  readonly resource: string;
  /** The scopes that the server requires now, else those that it supports. Empty: it did not say. */
  readonly scopes: readonly string[];
}

/** The parts that discovery needs. */
export interface DiscoveryParts extends Pick<SignInParts, 'settings' | 'secrets' | 'signal'> {
  readonly url: URL;
  readonly fetch: GuardedFetch;
}

interface Challenge {
  readonly resourceMetadataUrl?: URL;
  readonly scope?: string;
}

const NEXT = 'Its owner must correct it. Until then, use a token in headers, if the server accepts one.';

/**
 * Asks the server for its issuer, and the issuer for its metadata (RFC 9728, RFC 8414; MCP 2025-11-25, authorization).
 * Throws LOGIN_FAILED.
 */
export async function discoverIssuer(parts: DiscoveryParts): Promise<DiscoveredIssuer> {
  const { settings, url, fetch } = parts;
  const challenge = await probe(parts);
  const resource = await readResource(url, challenge, fetch);
  // Servers of protocol revision 2025-03-26 issue tokens themselves.
  const issuer = chooseIssuer(settings, resource) ?? url.origin;
  const metadata = await readMetadata(issuer, fetch);
  if (metadata === undefined) {
    const fault =
      resource === undefined && challenge.resourceMetadataUrl === undefined
        ? `Server "${settings.name}" does not name an issuer of tokens, so it has no sign-in.`
        : `The metadata of ${shownHost(issuer)}, the issuer for server "${settings.name}", cannot be read over https.`;
    throw loginFailed(fault, 'If it accepts a token, store it with `tollgate secret set` and write it into headers.');
  }
  checkMetadata(metadata, issuer);
  return {
    issuer,
    metadata,
    resource: resource?.resource ?? withoutFragment(url),
    scopes: scopesOf({ challenge, resource, metadata }),
  };
}

async function readMetadata(issuer: string, fetch: GuardedFetch): Promise<AuthorizationServerMetadata | undefined> {
  if (!isConfidential(issuer)) return undefined;
  const { discoverAuthorizationServerMetadata } = await import('@modelcontextprotocol/sdk/client/auth.js');
  return discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch }).catch(ignoreMissing);
}

/** Where an issuer that the owner has named gives tokens and publishes its keys. Absent: its metadata do not say. */
export interface IssuerPlaces {
  readonly issuer: string;
  readonly tokenEndpoint?: string;
  readonly jwks?: string;
  readonly authMethods: readonly string[];
}

/**
 * Reads the metadata of an issuer that the owner has named. Only the fields that are used must be valid, because it
 * serves more than this. Throws LOGIN_FAILED for metadata of another issuer, and if there are none.
 */
export async function readIssuer(issuer: string, fetch: GuardedFetch): Promise<IssuerPlaces> {
  const { buildDiscoveryUrls } = await import('@modelcontextprotocol/sdk/client/auth.js');
  for (const { url } of isConfidential(issuer) ? buildDiscoveryUrls(issuer) : []) {
    const response = await fetch(url, { headers: { accept: 'application/json' } });
    const found = (await response.json().catch(() => undefined)) as
      | Readonly<Record<string, unknown>>
      | null
      | undefined;
    if (!response.ok || typeof found !== 'object' || found === null) continue;
    if (!sameIssuer(String(found.issuer), issuer)) throw otherIssuer(issuer, String(found.issuer));
    const place = (name: string): string | undefined => {
      const text = found[name];
      if (typeof text !== 'string') return undefined;
      if (!isConfidential(text)) throw unsafeEndpoint(issuer);
      return text;
    };
    const [tokenEndpoint, jwks] = [place('token_endpoint'), place('jwks_uri')];
    const methods = found.token_endpoint_auth_methods_supported;
    return {
      issuer: String(found.issuer),
      ...(tokenEndpoint !== undefined && { tokenEndpoint }),
      ...(jwks !== undefined && { jwks }),
      authMethods: Array.isArray(methods) ? methods.filter((method) => typeof method === 'string') : [],
    };
  }
  throw loginFailed(
    `The metadata of the issuer ${shownHost(issuer)} cannot be read over https.`,
    'Check its address in tollgate.yaml, and the network.',
  );
}

/**
 * Sends requests without a token. The refusal names the metadata of the issuer, and the required scopes. A server may
 * protect less than `initialize`, so its list of tools is requested too, which has no effects.
 */
async function probe(parts: DiscoveryParts): Promise<Challenge> {
  const { settings, secrets, signal } = parts;
  const headers = {
    ...(await fillSecrets(settings.headers, secrets, 'headers')),
    accept: 'application/json, text/event-stream',
  };
  try {
    if (settings.transport === 'sse') return await challengeOf(await parts.fetch(parts.url, { headers, signal }));
    const opened = await post(parts, headers, { id: 1, ...INITIALIZE });
    const challenge = await challengeOf(opened);
    if (opened.status === 401 || opened.status === 403) return challenge;
    // A server of 2026-07-28 alone has no sessions and refuses `initialize`.
    if (!opened.ok) return await challengeOf(await post(parts, { ...headers, ...STATELESS_HEADERS }, STATELESS_LIST));
    const session = opened.headers.get('mcp-session-id');
    const within = { ...headers, ...(session !== null && { 'mcp-session-id': session }) };
    await challengeOf(await post(parts, within, { method: 'notifications/initialized' }));
    const listed = await challengeOf(await post(parts, within, { id: 2, method: 'tools/list' }));
    if (session !== null)
      await challengeOf(await parts.fetch(parts.url, { method: 'DELETE', headers: within, signal }));
    return listed;
  } catch (thrown) {
    if (thrown instanceof TollgateError) throw thrown;
    signal.throwIfAborted();
    const next = 'Check its url, and the network.';
    throw serverUnavailable(settings.name, 'cannot be reached', { next, cause: thrown });
  }
}

const CLIENT = { name: 'tollgate', version: '0.1.0' };
const INITIALIZE = {
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: CLIENT },
};
const STATELESS_HEADERS = { 'mcp-protocol-version': '2026-07-28', 'mcp-method': 'tools/list' };
const STATELESS_LIST = {
  id: 2,
  method: 'tools/list',
  params: {
    _meta: {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': {},
      'io.modelcontextprotocol/clientInfo': CLIENT,
    },
  },
};

function post(
  { url, fetch, signal }: DiscoveryParts,
  headers: Readonly<Record<string, string>>,
  message: object,
): Promise<Response> {
  return fetch(url, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', ...message }),
    signal,
  });
}

async function challengeOf(response: Response): Promise<Challenge> {
  const { extractWWWAuthenticateParams } = await import('@modelcontextprotocol/sdk/client/auth.js');
  await response.body?.cancel();
  return extractWWWAuthenticateParams(response) as Challenge;
}

async function readResource(
  url: URL,
  { resourceMetadataUrl }: Challenge,
  fetch: GuardedFetch,
): Promise<OAuthProtectedResourceMetadata | undefined> {
  const { discoverOAuthProtectedResourceMetadata } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const { checkResourceAllowed } = await import('@modelcontextprotocol/sdk/shared/auth-utils.js');
  const metadata = await discoverOAuthProtectedResourceMetadata(
    url,
    resourceMetadataUrl === undefined ? {} : { resourceMetadataUrl },
    fetch,
  ).catch(ignoreMissing);
  if (metadata === undefined || checkResourceAllowed({ requestedResource: url, configuredResource: metadata.resource }))
    return metadata;
  // This server could use a token for another server there.
  throw loginFailed(`The metadata of the server at ${url.host} describes ${shownHost(metadata.resource)}.`, NEXT);
}

/** Returns undefined for errors of the SDK, which mean that there is no metadata. Throws the refusals of Tollgate. */
function ignoreMissing(thrown: unknown): undefined {
  if (thrown instanceof TollgateError) throw thrown;
}

function chooseIssuer(
  { oauth, name }: SignInParts['settings'],
  resource: OAuthProtectedResourceMetadata | undefined,
): string | undefined {
  const named = resource?.authorization_servers ?? [];
  if (oauth?.issuer === undefined) return named[0];
  if (named.length === 0 || named.some((one) => sameIssuer(one, oauth.issuer ?? ''))) return oauth.issuer;
  throw loginFailed(
    `Server "${name}" sends the sign-in to ${shownHost(named[0] ?? '')}, not to the issuer in tollgate.yaml.`,
    `If that is right, correct servers.${name}.oauth.issuer. The client must be registered there.`,
  );
}

/** Refuses metadata that names another issuer, which would get what is meant for this one (mix-up; RFC 8414 §3.3). */
function checkMetadata(metadata: AuthorizationServerMetadata, issuer: string): void {
  if (!sameIssuer(metadata.issuer, issuer)) throw otherIssuer(issuer, metadata.issuer);
  const endpoints = [
    metadata.authorization_endpoint,
    metadata.token_endpoint,
    metadata.registration_endpoint,
    metadataText(metadata, 'revocation_endpoint'),
  ];
  const unsafe = endpoints.find((endpoint) => endpoint !== undefined && !isConfidential(endpoint));
  if (unsafe !== undefined) throw unsafeEndpoint(issuer);
}

function otherIssuer(issuer: string, named: string): TollgateError {
  return loginFailed(`The metadata of ${shownHost(issuer)} names ${shownHost(named)} as its issuer.`, NEXT);
}

function unsafeEndpoint(issuer: string): TollgateError {
  return loginFailed(
    `The metadata of ${shownHost(issuer)} names an endpoint that is not https, or that programs can read differently.`,
    NEXT,
  );
}

function scopesOf({
  challenge,
  resource,
  metadata,
}: {
  readonly challenge: Challenge;
  readonly resource: OAuthProtectedResourceMetadata | undefined;
  readonly metadata: AuthorizationServerMetadata;
}): readonly string[] {
  const required = scopeWords(challenge.scope ?? resource?.scopes_supported?.join(' '));
  // OpenID Connect providers give a refresh token only to clients that request this scope.
  return metadata.scopes_supported?.includes('offline_access') === true && !required.includes('offline_access')
    ? [...required, 'offline_access']
    : required;
}

/** Returns whether two addresses name the same issuer, apart from a slash at the end. */
export function sameIssuer(one: string, other: string): boolean {
  const normalize = (text: string): string => (URL.canParse(text) ? new URL(text).href : text).replace(/\/$/, '');
  return normalize(one) === normalize(other);
}

/** Returns a field of metadata that the SDK's type does not have for all kinds of metadata. */
export function metadataText(metadata: AuthorizationServerMetadata, field: string): string | undefined {
  const value = (metadata as Readonly<Record<string, unknown>>)[field];
  return value === undefined || value === false ? undefined : String(value);
}

function withoutFragment(url: URL): string {
  return url.href.split('#', 1)[0] ?? url.href;
}

/** Returns the host of an address for display. Other text of a server is never shown. */
export function shownHost(text: string): string {
  return URL.canParse(text) ? new URL(text).host.slice(0, 255) : 'another address';
}
