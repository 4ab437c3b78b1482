/** Owns the way from a server's address to whoever gives tokens for it; refuses metadata that speaks for somebody else. */
import type {
  AuthorizationServerMetadata,
  OAuthProtectedResourceMetadata,
} from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { fillSecrets } from '../stdio/server-secrets.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import type { GuardedFetch } from './guarded-fetch.ts';
import { scopeWords } from './sign-in-credentials.ts';

/** Who gives tokens for a server, and what is asked of us. */
export interface DiscoveredIssuer {
  /** As the server named it; the same as `metadata.issuer` but for a slash at the end. */
  readonly issuer: string;
  readonly metadata: AuthorizationServerMetadata;
  /** For RFC 8707. */
  readonly resource: string;
  /** What the server asks for at this time, else what it knows; empty: it did not say. */
  readonly scopes: readonly string[];
}

/** What discovery works with. */
export interface DiscoveryParts {
  readonly settings: ServerSettings;
  readonly url: URL;
  readonly secrets: (name: string) => Promise<string>;
  readonly fetch: GuardedFetch;
  readonly signal: AbortSignal;
}

interface Challenge {
  readonly resourceMetadataUrl?: URL;
  readonly scope?: string;
}

const NEXT = 'Its owner must correct it; until then use a token in headers, if the server takes one.';

/** Asks the server, then the issuer that it names (RFC 9728, RFC 8414; MCP 2025-11-25, authorization). Throws LOGIN_FAILED. */
export async function discoverIssuer(parts: DiscoveryParts): Promise<DiscoveredIssuer> {
  const { settings, url, fetch } = parts;
  const sdk = await import('@modelcontextprotocol/sdk/client/auth.js');
  const challenge = await probe(parts);
  const { resource, resourceMetadataUrl } = { resource: await readResource(url, challenge, fetch), ...challenge };
  // Servers of 2025-03-26 give tokens themselves.
  const issuer = chooseIssuer(settings, resource) ?? url.origin;
  const metadata = isConfidential(issuer)
    ? await sdk.discoverAuthorizationServerMetadata(issuer, { fetchFn: fetch }).catch(rethrowOurs)
    : undefined;
  if (metadata === undefined) {
    const asks =
      resource === undefined && resourceMetadataUrl === undefined
        ? `Server "${settings.name}" does not say who gives tokens for it: it has no sign-in.`
        : `The metadata of ${hostOf(issuer)}, which gives tokens for server "${settings.name}", cannot be read over https.`;
    throw new TollgateError('LOGIN_FAILED', {
      detail: asks,
      next: 'If it takes a token, store it with `tollgate secret set` and write it into headers.',
    });
  }
  checkMetadata(metadata, issuer);
  return {
    issuer,
    metadata,
    resource: resource?.resource ?? withoutFragment(url),
    scopes: scopesOf({ challenge, resource, metadata }),
  };
}

/** Asks without a token: the refusal says where tokens come from, and which rights are needed. */
async function probe({ settings, url, secrets, fetch, signal }: DiscoveryParts): Promise<Challenge> {
  const { extractWWWAuthenticateParams } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const headers = {
    ...(await fillSecrets(settings.headers, secrets, 'headers')),
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
  };
  const hello = JSON.stringify({
    jsonrpc: '2.0',
    id: 1,
    method: 'initialize',
    params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'tollgate', version: '0.1.0' } },
  });
  try {
    const response = await fetch(
      url,
      settings.transport === 'sse' ? { headers, signal } : { method: 'POST', headers, body: hello, signal },
    );
    await response.body?.cancel();
    return extractWWWAuthenticateParams(response) as Challenge;
  } catch (thrown) {
    if (thrown instanceof TollgateError) throw thrown;
    signal.throwIfAborted();
    throw new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${settings.name}" cannot be reached.`,
      next: 'Check its url, and the network.',
      cause: thrown,
    });
  }
}

async function readResource(
  url: URL,
  { resourceMetadataUrl }: Challenge,
  fetch: GuardedFetch,
): Promise<OAuthProtectedResourceMetadata | undefined> {
  const { discoverOAuthProtectedResourceMetadata } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const { checkResourceAllowed } = await import('@modelcontextprotocol/sdk/shared/auth-utils.js');
  const found = await discoverOAuthProtectedResourceMetadata(
    url,
    resourceMetadataUrl === undefined ? {} : { resourceMetadataUrl },
    fetch,
  ).catch(rethrowOurs);
  if (found === undefined || checkResourceAllowed({ requestedResource: url, configuredResource: found.resource }))
    return found;
  // A token for another server, sent to this one, could be used there by whoever runs this one.
  throw new TollgateError('LOGIN_FAILED', {
    detail: `The metadata of the server at ${url.host} speaks for ${hostOf(found.resource)}.`,
    next: NEXT,
  });
}

/** The SDK says in plain errors that there is nothing; what we refuse ourselves is no "nothing". */
function rethrowOurs(thrown: unknown): undefined {
  if (thrown instanceof TollgateError) throw thrown;
}

function chooseIssuer(
  { oauth, name }: ServerSettings,
  resource: OAuthProtectedResourceMetadata | undefined,
): string | undefined {
  const named = resource?.authorization_servers ?? [];
  if (oauth?.issuer === undefined) return named[0];
  if (named.length === 0 || named.some((one) => sameIssuer(one, oauth.issuer ?? ''))) return oauth.issuer;
  throw new TollgateError('LOGIN_FAILED', {
    detail: `Server "${name}" sends the sign-in to ${hostOf(named[0] ?? '')}, not to the issuer in tollgate.yaml.`,
    next: `If that is right, correct servers.${name}.oauth.issuer; its client must be registered there.`,
  });
}

/** A document that calls itself another issuer would get what is meant for that one (mix-up; RFC 8414 §3.3). */
function checkMetadata(metadata: AuthorizationServerMetadata, issuer: string): void {
  if (!sameIssuer(metadata.issuer, issuer))
    throw new TollgateError('LOGIN_FAILED', {
      detail: `The metadata of ${hostOf(issuer)} calls itself ${hostOf(metadata.issuer)}.`,
      next: NEXT,
    });
  const endpoints = [
    metadata.authorization_endpoint,
    metadata.token_endpoint,
    metadata.registration_endpoint,
    metadataText(metadata, 'revocation_endpoint'),
  ];
  const unsafe = endpoints.find((endpoint) => endpoint !== undefined && !isConfidential(endpoint));
  if (unsafe !== undefined)
    throw new TollgateError('LOGIN_FAILED', {
      detail: `The metadata of ${hostOf(issuer)} names an endpoint that is not https, or that programs can read differently.`,
      next: NEXT,
    });
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
  const asked = scopeWords(challenge.scope ?? resource?.scopes_supported?.join(' '));
  // Providers of OpenID Connect give a refresh token to those only who ask for this.
  return metadata.scopes_supported?.includes('offline_access') === true && !asked.includes('offline_access')
    ? [...asked, 'offline_access']
    : asked;
}

function sameIssuer(one: string, other: string): boolean {
  const bare = (text: string): string => (URL.canParse(text) ? new URL(text).href : text).replace(/\/$/, '');
  return bare(one) === bare(other);
}

/** A field of metadata that the SDK's type does not have for every kind of it. */
export function metadataText(metadata: AuthorizationServerMetadata, field: string): string | undefined {
  const value = (metadata as Readonly<Record<string, unknown>>)[field];
  return value === undefined || value === false ? undefined : String(value);
}

function withoutFragment(url: URL): string {
  return url.href.split('#', 1)[0] ?? url.href;
}

/** Foreign text is shown as a host name or not at all. */
function hostOf(text: string): string {
  return URL.canParse(text) ? new URL(text).host.slice(0, 255) : 'another address';
}
