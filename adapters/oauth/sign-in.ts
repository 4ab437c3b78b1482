/** Signs in to remote servers, with the consent of a person or with client credentials, and signs out again. */
import { randomBytes } from 'node:crypto';
import type { OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { startRefusal } from '../supervisor/server-settings.ts';
import { type CallbackListener, openCallbackListener } from './callback-listener.ts';
import { type GuardedFetch, guardFetch } from './guarded-fetch.ts';
import { type DiscoveredIssuer, discoverIssuer, metadataText } from './issuer-discovery.ts';
import {
  type Credentials,
  loginFailed,
  type SignInParts,
  type SignInSummary,
  type SignIns,
  scopeWords,
  signInStopped,
} from './sign-in-credentials.ts';
import { configuredClient, sdkClientInformation, signInUrl, tokenFields } from './token-endpoint.ts';

const WAIT_MS = 300_000;

interface Flow extends SignInParts {
  readonly discovered: DiscoveredIssuer;
  readonly fetch: GuardedFetch;
  readonly scopes: readonly string[];
}

type Client = Credentials['client'];

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
      const revoked =
        held !== undefined &&
        (await revoke(held, (await configuredClient(settings, secrets).catch(() => undefined)) ?? held.client));
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
    const scopes = settings.oauth?.scopes ?? scopesFor(discovered, usable);
    const flow: Flow = { ...parts, discovered, fetch, scopes };
    const client = await configuredClient(settings, secrets);
    const isMachine = settings.oauth?.grant === 'client_credentials';
    const { tokens, client: used } = isMachine ? await asMachine(flow, client) : await asPerson(flow, client);
    const { metadata, issuer, resource } = discovered;
    const revocationEndpoint = metadataText(metadata, 'revocation_endpoint');
    return {
      url: url.href,
      resource,
      issuer,
      tokenEndpoint: metadata.token_endpoint,
      authMethods: metadata.token_endpoint_auth_methods_supported ?? [],
      // The secret of a configured client is not copied into the credentials.
      client: client === undefined ? used : { id: client.id },
      ...(revocationEndpoint !== undefined && { revocationEndpoint }),
      ...scopeParameter(scopes),
      ...tokenFields(tokens, Date.now()),
    };
  } catch (thrown) {
    throw asLoginFailure(thrown, parts);
  }
}

/** Returns the scopes of the server, and, after a refusal for missing scopes, those together with the granted ones. */
function scopesFor({ scopes }: DiscoveredIssuer, before: Credentials | undefined): readonly string[] {
  if (before?.missingScope === undefined) return scopes;
  return [...new Set([...scopes, ...scopeWords(before.scope), ...scopeWords(before.missingScope)])];
}

/** The answer to a token request, and the client that made it. */
interface Grant {
  readonly tokens: OAuthTokens;
  readonly client: Client;
}

async function asPerson(flow: Flow, configured: Client | undefined): Promise<Grant> {
  const { metadata, issuer } = flow.discovered;
  // Without PKCE, another program on this machine could use the code. MCP 2025-11-25 requires to refuse such a server.
  if (metadata.code_challenge_methods_supported?.includes('S256') !== true)
    throw loginFailed(
      `${new URL(issuer).host} does not announce PKCE with S256.`,
      'Its owner must enable it. Without it, another program could steal the sign-in.',
    );
  const callback = await openCallbackListener(flow.settings.oauth?.callbackPort ?? 0);
  try {
    const client = configured ?? (await register(flow, callback.redirectUrl));
    return { tokens: await consent(flow, { callback, client }), client };
  } finally {
    callback.close();
  }
}

async function register(
  { discovered: { issuer, metadata }, fetch, scopes, settings }: Flow,
  redirectUrl: string,
): Promise<Client> {
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
    },
  });
  return { id, ...(secret !== undefined && { secret }), ...(authMethod !== undefined && { authMethod }) };
}

async function consent(
  flow: Flow,
  { callback, client }: { readonly callback: CallbackListener; readonly client: Client },
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
  const clientInformation = sdkClientInformation(client);
  const { authorizationUrl: address, codeVerifier } = await startAuthorization(issuer, {
    metadata,
    clientInformation,
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
    clientInformation,
    authorizationCode: code,
    codeVerifier,
    redirectUri: redirectUrl,
    resource,
    fetchFn: flow.fetch,
  });
}

async function asMachine(
  { discovered: { issuer, metadata, resource }, fetch, scopes }: Flow,
  client: Client = { id: '' },
): Promise<Grant> {
  const { fetchToken } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const parameters = new URLSearchParams({
    grant_type: 'client_credentials',
    ...scopeParameter(scopes),
  });
  const provider = {
    clientMetadata: { redirect_uris: [] },
    clientInformation: () => sdkClientInformation(client),
    prepareTokenRequest: () => parameters,
  };
  const sdkProvider = provider as unknown as Parameters<typeof fetchToken>[0];
  return { tokens: await fetchToken(sdkProvider, issuer, { metadata, resource, fetchFn: fetch }), client };
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

/** Revokes the refresh token, and with it the access tokens, where the issuer supports that (RFC 7009). */
async function revoke(held: Credentials, client: Client): Promise<boolean> {
  if (held.revocationEndpoint === undefined) return false;
  const body = new URLSearchParams({
    token: held.refresh ?? held.access,
    token_type_hint: held.refresh === undefined ? 'access_token' : 'refresh_token',
  });
  const usesBasic = client.secret !== undefined && client.authMethod !== 'client_secret_post';
  if (!usesBasic) body.set('client_id', client.id);
  if (!usesBasic && client.secret !== undefined) body.set('client_secret', client.secret);
  const authorization = usesBasic
    ? { authorization: `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}` }
    : {};
  try {
    const response = await guardFetch(new URL(held.url))(held.revocationEndpoint, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...authorization },
    });
    await response.body?.cancel();
    return response.ok;
  } catch {
    // The token is forgotten here in any case. The caller reports that it was not revoked.
    return false;
  }
}

/** Returns the scope parameter of a request, if any scopes are requested. */
function scopeParameter(scopes: readonly string[]): { readonly scope?: string } {
  return scopes.length > 0 ? { scope: scopes.join(' ') } : {};
}

function summaryOf({ issuer, scope, expiresAt, refresh }: Credentials): SignInSummary {
  return {
    issuer,
    scopes: scopeWords(scope),
    renewable: refresh !== undefined,
    ...(expiresAt !== undefined && { expiresAt }),
  };
}
