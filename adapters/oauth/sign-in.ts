/** Signs in to remote servers, with the consent of a person or with client credentials, and signs out again. */
import { randomBytes } from 'node:crypto';
import type { OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { startRefusal } from '../supervisor/server-settings.ts';
import { type CallbackListener, openCallbackListener } from './callback-listener.ts';
import { type GuardedFetch, guardFetch } from './guarded-fetch.ts';
import { type DiscoveredIssuer, discoverIssuer, metadataText, sameIssuer, shownHost } from './issuer-discovery.ts';
import { grantToClient, grantToEnterprise, scopeParameter, type TokenGrant } from './machine-grants.ts';
import {
  type Credentials,
  loginFailed,
  type SignInParts,
  type SignInSummary,
  type SignIns,
  scopeWords,
  signInStopped,
} from './sign-in-credentials.ts';
import {
  clientInUse,
  configuredClient,
  type OAuthClient,
  proofOf,
  revokeCredentials,
  signInUrl,
  tokenFields,
} from './token-endpoint.ts';

const WAIT_MS = 300_000;

interface Flow extends SignInParts {
  readonly discovered: DiscoveredIssuer;
  readonly fetch: GuardedFetch;
  readonly scopes: readonly string[];
}

/** Implements SignIns. */
export const signIns: SignIns = {
  signIn: async (parts) => {
    const refusal = startRefusal(parts.settings);
    if (refusal !== undefined) throw refusal;
    const held = await obtainCredentials(parts, await parts.store.read(parts.settings.name));
    await parts.store.withLock(parts.settings.name, () => parts.store.write(parts.settings.name, held));
    return summaryOf(held);
  },
  signOut: ({ settings, store, secrets }) =>
    store.withLock(settings.name, async () => {
      const held = await store.read(settings.name).catch(() => undefined);
      const configured = await configuredClient(settings.oauth, secrets).catch(() => undefined);
      const revoked =
        held !== undefined &&
        (await revokeCredentials(held, clientInUse(held, configured), guardFetch(new URL(held.url))));
      return { removed: await store.remove(settings.name), revoked };
    }),
};

/** Performs a sign-in and returns its credentials. It stores nothing. `before`: the stored credentials. */
export async function obtainCredentials(parts: SignInParts, before?: Credentials): Promise<Credentials> {
  const { settings, secrets, signal } = parts;
  const url = signInUrl(settings);
  const fetch = guardFetch(url);
  try {
    const discovered = await discoverIssuer({ settings, url, secrets, fetch, signal });
    const usable = before?.url === url.href ? before : undefined;
    if (usable !== undefined) checkConsent(settings, usable, discovered);
    const scopes = scopesFor(parts, discovered, usable);
    const flow: Flow = { ...parts, discovered, fetch, scopes };
    const client = await configuredClient(settings.oauth, secrets);
    const { tokens, client: used } = await obtainTokens(flow, client);
    const { metadata, issuer, resource } = discovered;
    const revocationEndpoint = metadataText(metadata, 'revocation_endpoint');
    return {
      url: url.href,
      resource,
      issuer,
      tokenEndpoint: metadata.token_endpoint,
      authMethods: metadata.token_endpoint_auth_methods_supported ?? [],
      // The secret of a configured client is not copied into the credentials.
      client: used.id === client?.id ? { id: used.id } : used,
      ...(revocationEndpoint !== undefined && { revocationEndpoint }),
      ...scopeParameter(scopes),
      ...tokenFields(tokens, Date.now()),
    };
  } catch (thrown) {
    throw asLoginFailure(thrown, parts);
  }
}

/**
 * Refuses another issuer than the one that the person consented to. A server that is taken over could otherwise ask for
 * more rights, and lead the person to an issuer of its own (attack: step-up to another issuer).
 */
function checkConsent({ name, oauth }: SignInParts['settings'], before: Credentials, found: DiscoveredIssuer): void {
  // The owner has named the issuer, so the server cannot choose one.
  if (oauth?.issuer !== undefined || sameIssuer(before.issuer, found.issuer)) return;
  throw loginFailed(
    `Server "${name}" now sends the sign-in to ${shownHost(found.issuer)}. ` +
      `You consented to ${shownHost(before.issuer)}.`,
    `If its owner confirms the change, run \`tollgate logout ${name}\`, then sign in again.`,
  );
}

/**
 * Returns the scopes to request: those of the server. If more were refused or are requested, also those, together with
 * the granted ones. A machine keeps what an owner gave it.
 */
function scopesFor(
  { settings: { name, oauth }, addScopes = [] }: SignInParts,
  { scopes }: DiscoveredIssuer,
  before: Credentials | undefined,
): readonly string[] {
  const limit = oauth?.scopes;
  const beyond = addScopes.filter((scope) => limit?.includes(scope) === false);
  if (beyond.length > 0)
    throw loginFailed(
      `servers.${name}.oauth.scopes does not list ${beyond.join(', ')}, so it is not requested.`,
      'Add it there, and run this again.',
    );
  if (limit !== undefined) return limit;
  const more = [...addScopes, ...scopeWords(before?.missingScope)];
  const isPerson = (oauth?.grant ?? 'authorization_code') === 'authorization_code';
  return isPerson && more.length === 0 ? scopes : [...new Set([...scopes, ...scopeWords(before?.scope), ...more])];
}

function obtainTokens(flow: Flow, client: OAuthClient | undefined): Promise<TokenGrant> {
  switch (flow.settings.oauth?.grant) {
    case 'client_credentials':
      return grantToClient(flow, client);
    case 'enterprise':
      return grantToEnterprise(flow, client);
    default:
      return asPerson(flow, client);
  }
}

async function asPerson(flow: Flow, configured: OAuthClient | undefined): Promise<TokenGrant> {
  const { metadata, issuer } = flow.discovered;
  // Without PKCE, another program on this machine could use the code. MCP 2025-11-25 requires to refuse such a server.
  if (metadata.code_challenge_methods_supported?.includes('S256') !== true)
    throw loginFailed(
      `${new URL(issuer).host} does not announce PKCE with S256.`,
      'Its owner must enable it. Without it, another program could steal the sign-in.',
    );
  const callback = await openCallbackListener(flow.settings.oauth?.callbackPort ?? 0);
  try {
    const client = isKnown(configured, flow.discovered) ? configured : await register(flow, callback.redirectUrl);
    return { tokens: await consent(flow, { callback, client }), client };
  } finally {
    callback.close();
  }
}

/** Returns false for the address of a client's metadata (CIMD) if the issuer does not read such addresses. */
function isKnown(client: OAuthClient | undefined, { metadata }: DiscoveredIssuer): client is OAuthClient {
  if (client === undefined) return false;
  const isDocument = /^https:\/\/[^/]+\/./.test(client.id) && client.secret === undefined;
  return !isDocument || metadataText(metadata, 'client_id_metadata_document_supported') === 'true';
}

async function register(
  { discovered: { issuer, metadata }, fetch, scopes, settings }: Flow,
  redirectUrl: string,
): Promise<OAuthClient> {
  const { registerClient } = await import('@modelcontextprotocol/sdk/client/auth.js');
  if (metadata.registration_endpoint === undefined)
    throw loginFailed(
      `${new URL(issuer).host} does not register clients automatically.`,
      'Register Tollgate there, with a redirect address like http://127.0.0.1:7311/callback. Then write ' +
        `servers.${settings.name}.oauth: {clientId: …, callbackPort: 7311}.`,
    );
  const {
    client_id: id,
    client_secret: secret,
    token_endpoint_auth_method: authMethod,
  } = await registerClient(issuer, {
    metadata,
    fetchFn: fetch,
    ...scopeParameter(scopes),
    clientMetadata: {
      client_name: 'Tollgate',
      redirect_uris: [redirectUrl],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
      // The browser returns to a port of this machine, which an issuer refuses for a web client (SEP-837).
      ...{ application_type: 'native' },
    },
  });
  return { id, ...(secret !== undefined && { secret }), ...(authMethod !== undefined && { authMethod }) };
}

async function consent(
  flow: Flow,
  { callback, client }: { readonly callback: CallbackListener; readonly client: OAuthClient },
): Promise<OAuthTokens> {
  const { startAuthorization, exchangeAuthorization } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const {
    discovered: { issuer, metadata, resource },
    scopes,
    signal,
    waitMs = WAIT_MS,
  } = flow;
  const { redirectUrl } = callback;
  const state = randomBytes(32).toString('base64url');
  const proof = proofOf(client, metadata);
  const { authorizationUrl: address, codeVerifier } = await startAuthorization(issuer, {
    metadata,
    clientInformation: proof.clientInformation,
    redirectUrl,
    state,
    resource,
    ...scopeParameter(scopes),
  });
  const answer = callback.wait(state, { waitMs, signal });
  flow.show({ address, issuer, scopes });
  const { code, issuer: sender } = await answer;
  const mustNameIssuer = metadataText(metadata, 'authorization_response_iss_parameter_supported') !== undefined;
  // A code of one issuer must not go to the token endpoint of another one (mix-up; RFC 9207).
  if (sender === undefined ? mustNameIssuer : sender !== metadata.issuer)
    throw loginFailed(
      `The answer did not come from ${new URL(issuer).host}.`,
      'Nothing was stored. Run it again. If it happens again, do not trust this server.',
    );
  return exchangeAuthorization(issuer, {
    metadata,
    ...proof,
    authorizationCode: code,
    codeVerifier,
    redirectUri: redirectUrl,
    resource,
    fetchFn: flow.fetch,
  });
}

/** Converts an error. Errors of the SDK quote text of servers, so only the standard code of an OAuth error is shown. */
function asLoginFailure(thrown: unknown, { settings: { name }, signal }: SignInParts): TollgateError {
  if (thrown instanceof TollgateError) return thrown;
  if (signal.aborted) return signInStopped();
  const code = (thrown as { errorCode?: unknown } | null)?.errorCode;
  const why = typeof code === 'string' && /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
  return loginFailed(
    `The issuer did not give a token for server "${name}"${why}.`,
    'Run it again. If it happens again, check the client and its rights with the owner of the server.',
    thrown,
  );
}

function summaryOf({ issuer, scope, expiresAt, refresh }: Credentials): SignInSummary {
  return {
    issuer,
    scopes: scopeWords(scope),
    renewable: refresh !== undefined,
    ...(expiresAt !== undefined && { expiresAt }),
  };
}
