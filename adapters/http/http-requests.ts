/**
 * The HTTP requests of one connection: the configured headers, the token of the sign-in, and redirects within the
 * origin. Nothing else is sent.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { AuthorizedFetch, BearerToken } from '../oauth/bearer-token.ts';
import type { LaunchHost } from '../stdio/launch.ts';
import { fillSecrets, secretNames } from '../stdio/server-secrets.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { HttpStatusError, judgeRemoteFailure, type RemoteFailure } from './remote-failure.ts';

/** Gives the values of `${secret:NAME}` in headers, and the stored sign-ins. */
export type RemoteHost = Pick<LaunchHost, 'secrets' | 'credentials'>;

/** One request. Its headers have priority over the configured ones. */
export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly signal: AbortSignal;
}

type SendFunction = (url: string | URL, init: RequestInit) => Promise<Response>;

const MAX_REDIRECTS = 5;

/** Sends requests to one server. */
export class HttpRequests {
  readonly url: URL;
  readonly #name: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #hasSecrets: boolean;
  readonly #authorized: AuthorizedFetch | undefined;
  readonly #send: SendFunction;

  private constructor(settings: ServerSettings, headers: HttpRequest['headers'], authorized?: AuthorizedFetch) {
    [this.#name, this.url] = [settings.name, new URL(settings.url ?? '')];
    [this.#headers, this.#authorized] = [headers, authorized];
    this.#hasSecrets = secretNames(settings.headers).length > 0;
    this.#send = authorized?.send ?? fetch;
  }

  /** Reads the secrets of the headers. Throws INIT_FAILED without a valid url, SECRET_MISSING and VAULT_FAILED. */
  static async open(settings: ServerSettings, host: RemoteHost): Promise<HttpRequests> {
    if (!URL.canParse(settings.url ?? ''))
      throw new TollgateError('INIT_FAILED', { detail: `Server "${settings.name}" has no valid url.` });
    const headers = await fillSecrets(settings.headers, host.secrets, 'headers');
    return new HttpRequests(settings, headers, authorize(settings, host));
  }

  /**
   * Sends a request, to the url of the server unless `to` is given. Redirects that keep method and origin are followed.
   * Throws what `fetch` throws.
   */
  async send(request: HttpRequest, to = this.url): Promise<Response> {
    const headers = new Headers(this.#headers);
    for (const [name, value] of Object.entries(request.headers)) headers.set(name, value);
    const init: RequestInit = { ...request, headers, redirect: 'manual' };
    let from = to;
    let response = await this.#send(from, init);
    for (let hops = 0; hops < MAX_REDIRECTS; hops += 1) {
      const target = redirectTarget(response, from, request.method);
      if (target === undefined) break;
      await response.body?.cancel();
      [from, response] = [target, await this.#send(target, init)];
    }
    return response;
  }

  /** As `send`. Throws HttpStatusError for any other status than 2xx. */
  async sendChecked(request: HttpRequest, to?: URL): Promise<Response> {
    const response = await this.send(request, to);
    if (response.ok) return response;
    await response.body?.cancel();
    throw new HttpStatusError(response.status);
  }

  /**
   * Returns what an error of a request means for its call and its session. A refused secret may have been replaced
   * since it was read, so the session is lost, and the next connection reads it again.
   */
  judge(thrown: unknown): RemoteFailure {
    const failure = judgeRemoteFailure(this.#name, thrown, this.#authorized?.refusal);
    const isOld = this.#hasSecrets && thrown instanceof HttpStatusError && thrown.code === 401;
    return isOld ? { ...failure, lost: 'refuses the configured credentials (HTTP 401)' } : failure;
  }
}

/** Returns what adds the token of the sign-in. Undefined if the owner wrote an Authorization header. */
function authorize(settings: ServerSettings, { credentials: store, secrets }: RemoteHost): AuthorizedFetch | undefined {
  const hasHeader = Object.keys(settings.headers).some((name) => name.toLowerCase() === 'authorization');
  return store === undefined || hasHeader
    ? undefined
    : new AuthorizedFetch(new BearerToken({ settings, store, secrets }));
}

/** Statuses that keep the method and body (RFC 9110 §15.4). A GET keeps them with any redirect. */
const KEEPS_METHOD: ReadonlySet<number> = new Set([307, 308]);
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

/** Returns where a redirect leads, if it may be followed: to the same origin, or to https on the same host. */
function redirectTarget(response: Response, from: URL, method: HttpRequest['method']): URL | undefined {
  const location = response.headers.get('location') ?? '';
  const { status } = response;
  if (location === '' || !REDIRECTS.has(status) || !URL.canParse(location, from)) return undefined;
  const to = new URL(location, from);
  if (method !== 'GET' && !KEEPS_METHOD.has(status)) return undefined;
  if (to.username !== '' || to.password !== '') return undefined;
  const isUpgrade = from.protocol === 'http:' && to.protocol === 'https:' && from.port === '' && to.port === '';
  return to.origin === from.origin || (isUpgrade && to.hostname === from.hostname) ? to : undefined;
}
