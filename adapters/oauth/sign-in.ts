/** Owns signing in to a remote server and out of it: consent of a person, or the client's own right; refuses answers of another issuer. */
import { randomBytes } from 'node:crypto';
import type { OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { startRefusal } from '../supervisor/server-settings.ts';
import { type CallbackListener, openCallbackListener } from './callback-listener.ts';
import { type GuardedFetch, guardFetch } from './guarded-fetch.ts';
import { type DiscoveredIssuer, discoverIssuer, metadataText } from './issuer-discovery.ts';
import {
  type Credentials,
  type SignInParts,
  type SignInSummary,
  type SignIns,
  scopeWords,
} from './sign-in-credentials.ts';
import { configuredClient, credentialsOf, sdkClientInformation, signInUrl } from './token-endpoint.ts';

const WAIT_MS = 300_000;

interface Flow extends SignInParts {
  readonly found: DiscoveredIssuer;
  readonly fetch: GuardedFetch;
  readonly asked: readonly string[];
}

type Client = Credentials['client'];

/** See SignIns. */
export const signIns: SignIns = {
  signIn: async (parts) => {
    const refusal = startRefusal(parts.settings);
    if (refusal !== undefined) throw refusal;
    const held = await obtainCredentials(parts, await parts.store.read(parts.settings.name));
    await parts.store.withLock(parts.settings.name, () => parts.store.write(parts.settings.name, held));
    return shown(held);
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

/** The whole way to new credentials; writes nothing. `before` are those that stand now. */
export async function obtainCredentials(parts: SignInParts, before?: Credentials): Promise<Credentials> {
  const { settings, secrets, signal } = parts;
  const url = signInUrl(settings);
  const fetch = guardFetch(url);
  try {
    const found = await discoverIssuer({ settings, url, secrets, fetch, signal });
    const flow: Flow = {
      ...parts,
      found,
      fetch,
      asked: scopesFor({ parts, found, before: before?.url === url.href ? before : undefined }),
    };
    const client = await configuredClient(settings, secrets);
    const { tokens, client: used } =
      settings.oauth?.grant === 'client_credentials'
        ? { tokens: await asMachine(flow, client ?? { id: '' }), client: client ?? { id: '' } }
        : await asPerson(flow, client);
    // A secret of the configuration is not kept twice.
    return credentialsOf({
      url,
      discovered: found,
      client: client === undefined ? used : { id: client.id },
      requestedScopes: flow.asked,
      tokens,
      now: Date.now(),
    });
  } catch (thrown) {
    throw asLoginFailure(thrown, parts);
  }
}

/** What the owner wrote is all that is ever asked for; else what the server names, with what it was missing and what was granted before. */
function scopesFor({
  parts,
  found,
  before,
}: {
  readonly parts: SignInParts;
  readonly found: DiscoveredIssuer;
  readonly before: Credentials | undefined;
}): readonly string[] {
  const written = parts.settings.oauth?.scopes;
  if (written !== undefined) return written;
  const more =
    before?.missingScope === undefined ? [] : [...scopeWords(before.scope), ...scopeWords(before.missingScope)];
  return [...new Set([...found.scopes, ...more])];
}

async function asPerson(
  flow: Flow,
  configured: Client | undefined,
): Promise<{ readonly tokens: OAuthTokens; readonly client: Client }> {
  const { metadata, issuer } = flow.found;
  // Without PKCE another program on this machine could use the code (MCP 2025-11-25: such a server is refused).
  if (metadata.code_challenge_methods_supported?.includes('S256') !== true)
    throw new TollgateError('LOGIN_FAILED', {
      detail: `${new URL(issuer).host} does not say that it knows PKCE with S256.`,
      next: 'Its owner must turn it on: without it a sign-in can be stolen.',
    });
  const callback = await openCallbackListener(flow.settings.oauth?.callbackPort ?? 0);
  try {
    const client = configured ?? (await register(flow, callback.redirectUrl));
    return { tokens: await consent(flow, { callback, client }), client };
  } finally {
    callback.close();
  }
}

async function register(
  { found: { issuer, metadata }, fetch, asked, settings }: Flow,
  redirectUrl: string,
): Promise<Client> {
  const { registerClient } = await import('@modelcontextprotocol/sdk/client/auth.js');
  if (metadata.registration_endpoint === undefined)
    throw new TollgateError('LOGIN_FAILED', {
      detail: `${new URL(issuer).host} registers no clients by itself.`,
      next: `Register Tollgate there, with a redirect address like http://127.0.0.1:7311/callback; then write servers.${settings.name}.oauth: {clientId: …, callbackPort: 7311}.`,
    });
  const {
    client_id: id,
    client_secret: secret,
    token_endpoint_auth_method: authMethod,
  } = await registerClient(issuer, {
    metadata,
    fetchFn: fetch,
    ...(asked.length > 0 && { scope: asked.join(' ') }),
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
    found: { issuer, metadata, resource },
    asked,
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
    ...(asked.length > 0 && { scope: asked.join(' ') }),
  });
  const answer = callback.wait(state, { waitMs, signal });
  flow.show({ address, issuer, scopes: asked });
  const { code, issuer: from } = await answer;
  const named =
    from ??
    (metadataText(metadata, 'authorization_response_iss_parameter_supported') === undefined ? metadata.issuer : '');
  // A code of one issuer must not be carried to the token endpoint of another (mix-up; RFC 9207).
  if (named !== metadata.issuer)
    throw new TollgateError('LOGIN_FAILED', {
      detail: `The answer did not come from ${new URL(issuer).host}.`,
      next: 'Nothing was stored. Run it again; if it happens again, do not trust this server.',
    });
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
  { found: { issuer, metadata, resource }, fetch, asked }: Flow,
  client: Client,
): Promise<OAuthTokens> {
  const { fetchToken } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const words = new URLSearchParams({
    grant_type: 'client_credentials',
    ...(asked.length > 0 && { scope: asked.join(' ') }),
  });
  const provider = {
    clientMetadata: { redirect_uris: [] },
    clientInformation: () => sdkClientInformation(client),
    prepareTokenRequest: () => words,
  };
  return fetchToken(provider as unknown as Parameters<typeof fetchToken>[0], issuer, {
    metadata,
    resource,
    fetchFn: fetch,
  });
}

/** Errors of the SDK quote what a stranger wrote; the code of an OAuth error is a word of the standard. */
function asLoginFailure(thrown: unknown, { settings: { name }, signal }: SignInParts): TollgateError {
  if (thrown instanceof TollgateError) return thrown;
  if (signal.aborted)
    return new TollgateError('CANCELLED', {
      detail: 'The sign-in was stopped.',
      next: 'Run it again when you want it.',
    });
  const code = (thrown as { errorCode?: unknown } | null)?.errorCode;
  const why = typeof code === 'string' && /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
  return new TollgateError('LOGIN_FAILED', {
    detail: `The issuer did not give a token for server "${name}"${why}.`,
    next: 'Run it again; if it happens again, check the client and its rights with the owner of the server.',
    cause: thrown,
  });
}

/** RFC 7009: taking back the refresh token takes its access tokens back too, where the issuer is able to. */
async function revoke(held: Credentials, client: Client): Promise<boolean> {
  if (held.revocationEndpoint === undefined) return false;
  const body = new URLSearchParams({
    token: held.refresh ?? held.access,
    token_type_hint: held.refresh === undefined ? 'access_token' : 'refresh_token',
  });
  const isBasic = client.secret !== undefined && client.authMethod !== 'client_secret_post';
  if (!isBasic) body.set('client_id', client.id);
  if (!isBasic && client.secret !== undefined) body.set('client_secret', client.secret);
  const proof = isBasic
    ? { authorization: `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}` }
    : {};
  try {
    const response = await guardFetch(new URL(held.url))(held.revocationEndpoint, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...proof },
    });
    await response.body?.cancel();
    return response.ok;
  } catch {
    // It is forgotten here in any case, and the caller says that it was not taken back.
    return false;
  }
}

function shown({ issuer, scope, expiresAt, refresh }: Credentials): SignInSummary {
  return {
    issuer,
    scopes: scopeWords(scope),
    renewable: refresh !== undefined,
    ...(expiresAt !== undefined && { expiresAt }),
  };
}
