/** Owns the token of one connection: read, renewed, put on its requests; refuses to send it to another origin, and to ask a person. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { guardFetch } from './guarded-fetch.ts';
import { type CredentialStore, type Credentials, type SignInParts, scopeWords } from './sign-in-credentials.ts';
import { configuredClient, refreshCredentials } from './token-endpoint.ts';

/** What a bearer works with. `now` in ms since 1970. */
export interface BearerTokenParts {
  readonly settings: ServerSettings;
  readonly store: CredentialStore;
  readonly secrets: SignInParts['secrets'];
  readonly now?: () => number;
}

/** A token is renewed this long before its end: clocks differ, and requests take time. */
const EARLY_MS = 30_000;

/** The sign-in of a server, as its connection uses it. */
export class BearerToken {
  readonly #parts: BearerTokenParts;
  readonly #url: URL;
  readonly #now: () => number;
  #held: Credentials | undefined;
  #isRead = false;
  #renewing: Promise<void> | undefined;

  /** `url` of the settings must be an address. */
  constructor(parts: BearerTokenParts) {
    this.#parts = parts;
    this.#url = new URL(parts.settings.url ?? '');
    this.#now = parts.now ?? Date.now;
  }

  /** Whether a token may be sent to this address: to the server's own origin, and never in clear. */
  covers(address: string | URL): boolean {
    const url = new URL(address);
    return url.origin === this.#url.origin && isConfidential(url);
  }

  /** The token for a request; undefined: send none. Throws what `renew` throws when there is no valid one. */
  async token(): Promise<string | undefined> {
    if (!this.#isRead) await this.#read();
    const { access, expiresAt = Infinity, refresh: renewal } = this.#held ?? {};
    const isMachine = this.#isMachine;
    if (access === undefined ? !isMachine : expiresAt - EARLY_MS > this.#now() || (renewal === undefined && !isMachine))
      return access;
    await this.renew(access).catch((thrown: unknown) => {
      if (access === undefined || expiresAt <= this.#now()) throw thrown;
    });
    return this.#held?.access;
  }

  /** Gets another token than `refused`; of several callers one does it for all. Throws SERVER_UNAVAILABLE, SECRET_MISSING, VAULT_FAILED. */
  async renew(refused: string | undefined): Promise<void> {
    if (this.#held !== undefined && this.#held.access !== refused) return;
    this.#renewing ??= this.#parts.store
      .withLock(this.#parts.settings.name, () => this.#renewAlone(refused))
      .finally(() => {
        this.#renewing = undefined;
      });
    await this.#renewing;
  }

  /** Notes which rights the server misses, for the next sign-in, and answers with what to tell the caller; undefined: there is another token by now. */
  async noteMissing(scope: string | undefined, refused: string | undefined): Promise<TollgateError | undefined> {
    const {
      store,
      settings: { name, oauth },
    } = this.#parts;
    const missing = scopeWords(scope).join(' ');
    const isNewer = await store.withLock(name, async () => {
      const stored = await this.#read();
      if (stored !== undefined && stored.access !== refused) return true;
      if (stored !== undefined && missing !== '' && stored.missingScope !== missing)
        await store.write(name, { ...stored, missingScope: missing });
      return false;
    });
    if (isNewer) return undefined;
    const bound = oauth?.scopes === undefined ? '' : ` servers.${name}.oauth.scopes limits what it may ask for.`;
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${name}" asks for more rights than its sign-in has.`,
      next: `If it shall have them, run \`tollgate login ${name}\`, then call again.${bound}`,
      retryable: false,
    });
  }

  /** Whether a token can be had for this server, or there is one already: its refusals are about that then. */
  get isUsed(): boolean {
    return this.#held !== undefined || this.#isMachine;
  }

  get #isMachine(): boolean {
    return this.#parts.settings.oauth?.grant === 'client_credentials';
  }

  /** Sign-ins of another address than the configured one are as none. */
  async #read(): Promise<Credentials | undefined> {
    const stored = await this.#parts.store.read(this.#parts.settings.name);
    this.#held = stored?.url === this.#url.href ? stored : undefined;
    this.#isRead = true;
    return this.#held;
  }

  async #renewAlone(refused: string | undefined): Promise<void> {
    const {
      store,
      settings: { name },
    } = this.#parts;
    const stored = await this.#read();
    // Another process, or a person, was faster.
    if (stored !== undefined && stored.access !== refused) return;
    if (this.#isMachine) this.#held = await this.#obtain();
    else if (stored?.refresh === undefined)
      throw this.#needsPerson(stored === undefined ? 'asks for a sign-in' : 'does not take its sign-in any more');
    else this.#held = await this.#refresh(stored);
    await store.write(name, this.#held);
  }

  async #refresh(stored: Credentials): Promise<Credentials> {
    const { settings, secrets, store } = this.#parts;
    const client = (await configuredClient(settings, secrets)) ?? stored.client;
    try {
      return await refreshCredentials(stored, { client, fetch: guardFetch(this.#url), now: this.#now });
    } catch (thrown) {
      if (!isFinal(thrown))
        throw new TollgateError('SERVER_UNAVAILABLE', {
          detail: `The sign-in to server "${settings.name}" cannot be renewed at present.`,
          cause: thrown,
        });
      // Nobody tries it again: what was refused once stays refused.
      const { refresh: _ended, ...rest } = stored;
      await store.write(settings.name, rest);
      throw this.#needsPerson('does not take its sign-in any more');
    }
  }

  async #obtain(): Promise<Credentials> {
    const { obtainCredentials } = await import('./sign-in.ts');
    const { settings, store, secrets } = this.#parts;
    try {
      return await obtainCredentials({
        settings,
        store,
        secrets,
        show: () => undefined,
        signal: new AbortController().signal,
      });
    } catch (thrown) {
      const isOurs = thrown instanceof TollgateError && thrown.code !== 'LOGIN_FAILED';
      throw isOurs
        ? thrown
        : new TollgateError('SERVER_UNAVAILABLE', {
            detail: `No token could be had for server "${settings.name}".`,
            next: `\`tollgate login ${settings.name}\` shows why.`,
            cause: thrown,
          });
    }
  }

  #needsPerson(what: string): TollgateError {
    const { name } = this.#parts.settings;
    // The state of a server is shown by the message alone, so that names the command too.
    return new TollgateError('SERVER_UNAVAILABLE', {
      detail: `Server "${name}" ${what} (tollgate login ${name}).`,
      next: `Run \`tollgate login ${name}\`, then call again.`,
      retryable: false,
    });
  }
}

/** The issuer has judged: a refresh token that it does not know, or a client that it does not know any more. */
function isFinal(thrown: unknown): boolean {
  const { errorCode } = thrown as { errorCode?: unknown };
  return errorCode === 'invalid_grant' || errorCode === 'invalid_client' || errorCode === 'unauthorized_client';
}
