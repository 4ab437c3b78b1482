/** Owns the requests of a connection that has a sign-in: a refused one is sent once more with a new token; refuses a third time. */
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import type { BearerToken } from './bearer-token.ts';

/** Sends requests with the token of a bearer. */
export class AuthorizedFetch {
  readonly #bearer: BearerToken;
  #refusal: TollgateError | undefined;

  constructor(bearer: BearerToken) {
    this.#bearer = bearer;
  }

  /** Why the last answer 401 or 403 came; undefined: not for want of a sign-in. */
  get refusal(): TollgateError | undefined {
    return this.#refusal;
  }

  /**
   * As `fetch`. Where no valid token can be had, the answer is a 401 that never left this machine: the transports of the SDK
   * pass on the status of an answer, but not every error. A server refuses a token before it runs anything, so the request may be repeated.
   */
  readonly send = async (url: string | URL, init: RequestInit): Promise<Response> => {
    if (!this.#bearer.covers(url)) return fetch(url, init);
    try {
      const token = await this.#bearer.token();
      const first = await fetch(url, withToken(init, token));
      if (!(await this.#hasAnother(first, token))) return first;
      await first.body?.cancel();
      const second = await fetch(url, withToken(init, await this.#bearer.token()));
      if (second.status === 401 || second.status === 403)
        this.#refusal = new TollgateError('SERVER_UNAVAILABLE', {
          detail: 'The server does not take the token that it was just given.',
          next: 'Its owner must look at its sign-in; signing in again may help.',
          retryable: false,
        });
      return second;
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) throw thrown;
      this.#refusal = thrown;
      return new Response(null, { status: 401 });
    }
  };

  async #hasAnother(response: Response, token: string | undefined): Promise<boolean> {
    if (response.status !== 401 && response.status !== 403) return false;
    this.#refusal = undefined;
    const { extractWWWAuthenticateParams } = await import('@modelcontextprotocol/sdk/client/auth.js');
    const isBearer = /^bearer\b/i.test(response.headers.get('www-authenticate') ?? '');
    const { scope, error } = extractWWWAuthenticateParams(response);
    // A key in another header was refused: no sign-in helps.
    if (!isBearer && !this.#bearer.isUsed) return false;
    if (response.status === 403 && error !== 'insufficient_scope') return false;
    try {
      if (response.status === 401) await this.#bearer.renew(token);
      else this.#refusal = await this.#bearer.noteMissing(scope, token);
    } catch (thrown) {
      this.#refusal = asTollgateError(thrown);
    }
    return this.#refusal === undefined;
  }
}

function withToken(init: RequestInit, token: string | undefined): RequestInit {
  if (token === undefined) return init;
  const headers = new Headers(init.headers);
  headers.set('authorization', `Bearer ${token}`);
  return { ...init, headers };
}
