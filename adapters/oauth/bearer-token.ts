/**
 * The access token of one connection: reads it, renews it, and adds it to requests. The token goes to the server's own
 * origin only. No person is asked here.
 */
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { type ServerSettings, serverUnavailable } from '../supervisor/server-settings.ts';
import { guardFetch } from './guarded-fetch.ts';
import { type CredentialStore, type Credentials, type SignInParts, scopeWords } from './sign-in-credentials.ts';
import { clientInUse, configuredClient, refreshCredentials } from './token-endpoint.ts';

/** The parts that a bearer token needs. `now` returns milliseconds since 1970. */
export interface BearerTokenParts {
  readonly settings: ServerSettings;
  readonly store: CredentialStore;
  readonly secrets: SignInParts['secrets'];
  readonly now?: () => number;
}

/** A token is renewed this long before it expires, because clocks differ and requests take time. */
const EARLY_MS = 30_000;

/** The token of a server, as its connection uses it. */
export class BearerToken {
  readonly #parts: BearerTokenParts;
  readonly #url: URL;
  readonly #now: () => number;
  #held: Credentials | undefined;
  #isRead = false;
  #renewing: Promise<void> | undefined;

  /** `url` of the settings must be a valid URL. */
  constructor(parts: BearerTokenParts) {
    this.#parts = parts;
    this.#url = new URL(parts.settings.url ?? '');
    this.#now = parts.now ?? Date.now;
  }

  /** Returns true if the token may be sent to this address: to the server's own origin, and never unencrypted. */
  covers(address: string | URL): boolean {
    const url = new URL(address);
    return url.origin === this.#url.origin && isConfidential(url);
  }

  /** Returns the token for a request, or undefined to send none. Throws as `renew` if there is no valid token. */
  async token(): Promise<string | undefined> {
    if (!this.#isRead) await this.#read();
    const { access, expiresAt = Infinity, refresh } = this.#held ?? {};
    const isMachine = this.#isMachine;
    if (access === undefined ? !isMachine : expiresAt - EARLY_MS > this.#now() || (refresh === undefined && !isMachine))
      return access;
    await this.renew(access).catch((thrown: unknown) => {
      if (access === undefined || expiresAt <= this.#now()) throw thrown;
    });
    return this.#held?.access;
  }

  /**
   * Gets another token than `refused`. Concurrent callers share one renewal. Throws SERVER_UNAVAILABLE, SECRET_MISSING
   * and VAULT_FAILED.
   */
  async renew(refused: string | undefined): Promise<void> {
    if (this.#held !== undefined && this.#held.access !== refused) return;
    this.#renewing ??= this.#parts.store
      .withLock(this.#parts.settings.name, () => this.#renewAlone(refused))
      .finally(() => {
        this.#renewing = undefined;
      });
    await this.#renewing;
  }

  /**
   * Stores which scopes the server requires in addition, for the next sign-in. Returns the error for the caller, which
   * names the scopes and the command that grants them, or undefined if there is a newer token already. No browser opens
   * here, so a server that asks again and again causes no sign-ins.
   */
  async noteMissing(scope: string | undefined, refused: string | undefined): Promise<TollgateError | undefined> {
    const { store, settings } = this.#parts;
    const { name, oauth } = settings;
    const missing = scopeWords(scope);
    const granted = await store.withLock(name, async () => {
      const stored = await this.#read();
      if (stored !== undefined && stored.access !== refused) return 'newer';
      const missingScope = missing.join(' ');
      if (stored !== undefined && missing.length > 0 && stored.missingScope !== missingScope)
        await store.write(name, { ...stored, missingScope });
      return scopeWords(stored?.scope);
    });
    if (granted === 'newer') return undefined;
    const lacking = missing.filter((word) => !granted.includes(word));
    if (missing.length > 0 && lacking.length === 0)
      return serverUnavailable(name, `refuses a request for its scopes, although its sign-in has ${listed(missing)}`, {
        next: 'Another sign-in does not help. The owner of the server must check the rights of the account.',
        retryable: false,
      });
    const beyond = oauth?.scopes === undefined ? [] : lacking.filter((word) => !oauth.scopes?.includes(word));
    const limit =
      beyond.length === 0 ? '' : `servers.${name}.oauth.scopes limits what is requested, so add them there first. `;
    const rights = lacking.length === 0 ? '' : `: ${listed(lacking)}`;
    return serverUnavailable(name, `requires more rights than its sign-in has${rights}`, {
      next: `${limit}To grant them, run \`${loginCommand(name, lacking)}\`, then call again.`,
      retryable: false,
    });
  }

  /** True if there is a token, or one can be obtained without a person. Refusals of the server are about it then. */
  get isUsed(): boolean {
    return this.#held !== undefined || this.#isMachine;
  }

  /** Returns true if the sign-in is known to lack one of these scopes. */
  lacks(scope: string | undefined): boolean {
    const granted = scopeWords(this.#held?.scope);
    return scopeWords(scope).some((word) => !granted.includes(word));
  }

  get #isMachine(): boolean {
    return (this.#parts.settings.oauth?.grant ?? 'authorization_code') !== 'authorization_code';
  }

  /** Reads the stored sign-in. One for another address than the configured one is ignored. */
  async #read(): Promise<Credentials | undefined> {
    const stored = await this.#parts.store.read(this.#parts.settings.name);
    this.#held = stored?.url === this.#url.href ? stored : undefined;
    this.#isRead = true;
    return this.#held;
  }

  async #renewAlone(refused: string | undefined): Promise<void> {
    const stored = await this.#read();
    // Another process, or a person, has renewed it already.
    if (stored !== undefined && stored.access !== refused) return;
    if (this.#isMachine) this.#held = await this.#obtain();
    else if (stored?.refresh === undefined)
      throw this.#needsPerson(stored === undefined ? 'requires a sign-in' : 'no longer accepts its sign-in');
    else this.#held = await this.#refresh(stored);
    await this.#parts.store.write(this.#parts.settings.name, this.#held);
  }

  async #refresh(stored: Credentials): Promise<Credentials> {
    const { settings, secrets, store } = this.#parts;
    const client = clientInUse(stored, await configuredClient(settings.oauth, secrets));
    try {
      return await refreshCredentials(stored, { client, fetch: guardFetch(this.#url), now: this.#now });
    } catch (thrown) {
      if (!isFinal(thrown))
        throw new TollgateError('SERVER_UNAVAILABLE', {
          detail: `The sign-in to server "${settings.name}" cannot be renewed at present.`,
          cause: thrown,
        });
      // The issuer would refuse this refresh token again, so no process may try it again.
      const { refresh: _refused, ...rest } = stored;
      await store.write(settings.name, rest);
      throw this.#needsPerson('no longer accepts its sign-in');
    }
  }

  async #obtain(): Promise<Credentials> {
    const { obtainCredentials } = await import('./sign-in.ts');
    const { settings, store, secrets } = this.#parts;
    const { signal } = new AbortController();
    // What a server refused is requested only when an owner says so.
    const { missingScope: _refused, ...before } = this.#held ?? {};
    const known = this.#held === undefined ? undefined : (before as Credentials);
    try {
      return await obtainCredentials({ settings, store, secrets, show: () => undefined, signal }, known);
    } catch (thrown) {
      if (thrown instanceof TollgateError && thrown.code !== 'LOGIN_FAILED') throw thrown;
      throw new TollgateError('SERVER_UNAVAILABLE', {
        detail: `No token could be obtained for server "${settings.name}".`,
        next: `\`tollgate login ${settings.name}\` shows why.`,
        cause: thrown,
      });
    }
  }

  #needsPerson(fault: string): TollgateError {
    const { name } = this.#parts.settings;
    // The health of a server shows the message without the next step, so the message names the command too.
    return serverUnavailable(name, `${fault} (tollgate login ${name})`, {
      next: `Run \`tollgate login ${name}\`, then call again.`,
      retryable: false,
      data: { signIn: 'required' },
    });
  }
}

/** The most scopes in a message. The next sign-in requests the others too. */
const SHOWN_SCOPES = 10;
/** A scope that a shell reads as one word, and not as an option: a server chooses it, and a person pastes it. */
const SHOWN_SCOPE = /^\w[\w.:/@+,=%-]{0,99}$/;

function shownScopes(words: readonly string[]): readonly string[] {
  return words.filter((word) => SHOWN_SCOPE.test(word)).slice(0, SHOWN_SCOPES);
}

function listed(words: readonly string[]): string {
  const shown = shownScopes(words);
  const more = words.length - shown.length;
  return [...shown, ...(more === 0 ? [] : [`${more} that cannot be shown`])].join(', ');
}

function loginCommand(name: string, words: readonly string[]): string {
  const shown = shownScopes(words);
  return `tollgate login ${name}${shown.length === 0 ? '' : ` --scope ${shown.join(' ')}`}`;
}

/** Returns true if the issuer does not know the refresh token or the client any more. Another attempt cannot help. */
function isFinal(thrown: unknown): boolean {
  const { errorCode } = thrown as { errorCode?: unknown };
  return errorCode === 'invalid_grant' || errorCode === 'invalid_client' || errorCode === 'unauthorized_client';
}

/** Sends the requests of a connection with its token. A refused request is sent once more, with a new token. */
export class AuthorizedFetch {
  readonly #bearer: BearerToken;
  /** Why the last answer 401 or 403 came. Undefined if the sign-in is not the reason. */
  refusal: TollgateError | undefined;

  constructor(bearer: BearerToken) {
    this.#bearer = bearer;
  }

  /**
   * Sends a request as `fetch` does. If there is no valid token, it returns a local 401 and sends nothing, because the
   * SDK's transports pass on a status, but not every error. A server refuses a token before it runs anything, so the
   * request may be repeated.
   */
  readonly send = async (url: string | URL, init: RequestInit): Promise<Response> => {
    if (!this.#bearer.covers(url)) return fetch(url, init);
    try {
      const token = await this.#bearer.token();
      const first = await fetch(url, withToken(init, token));
      if (!(await this.#hasNewToken(first, token))) return first;
      await first.body?.cancel();
      const renewed = await this.#bearer.token();
      const second = await fetch(url, withToken(init, renewed));
      if (second.status === 401 || second.status === 403) this.refusal = await this.#refusalOf(second, renewed);
      return second;
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      this.refusal = thrown;
      return new Response(null, { status: 401 });
    }
  };

  /** Returns true if the request may be sent again. Otherwise `refusal` says why not, if the sign-in is the reason. */
  async #hasNewToken(response: Response, token: string | undefined): Promise<boolean> {
    if (response.status !== 401 && response.status !== 403) return false;
    this.refusal = undefined;
    const { scope, isBearer, lacksScope } = await readChallenge(response);
    // The server refused a key in another header, so a sign-in does not help.
    if (!isBearer && !this.#bearer.isUsed) return false;
    if (response.status === 403 && !lacksScope) return false;
    try {
      if (lacksScope) this.refusal = await this.#bearer.noteMissing(scope, token);
      else await this.#bearer.renew(token);
    } catch (thrown) {
      this.refusal = asTollgateError(thrown);
    }
    return this.refusal === undefined;
  }

  /** Returns why a server refuses a new token. It may require scopes that no renewal gives. */
  async #refusalOf(response: Response, token: string | undefined): Promise<TollgateError> {
    const { scope, lacksScope } = await readChallenge(response);
    const missing = lacksScope || this.#bearer.lacks(scope) ? await this.#bearer.noteMissing(scope, token) : undefined;
    return (
      missing ??
      new TollgateError('SERVER_UNAVAILABLE', {
        detail: 'The server refuses the new token.',
        next: 'Sign in again with `tollgate login`. If that does not help, the owner of the server must check it.',
        retryable: false,
      })
    );
  }
}

/** Reads the WWW-Authenticate header of a refusal (RFC 6750 §3). */
async function readChallenge(response: Response): Promise<{
  readonly scope: string | undefined;
  readonly isBearer: boolean;
  readonly lacksScope: boolean;
}> {
  const { extractWWWAuthenticateParams } = await import('@modelcontextprotocol/sdk/client/auth.js');
  const { scope, error } = extractWWWAuthenticateParams(response);
  const isBearer = /^bearer\b/i.test(response.headers.get('www-authenticate') ?? '');
  return { scope, isBearer, lacksScope: error === 'insufficient_scope' };
}

function withToken(init: RequestInit, token: string | undefined): RequestInit {
  if (token === undefined) return init;
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${token}`);
  return { ...init, headers };
}
