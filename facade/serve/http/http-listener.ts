/** The HTTP listener of `tollgate serve`: origin check, token, routes. */

import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../../catalogs/text/awaitable.ts';
import type { Principal } from '../../../policies/port.ts';
import type { ListenConfig } from '../../config/config.ts';
import type { JwtConfig } from '../../config/settings/jwt-settings.ts';
import { ProcessMetrics } from '../../runtime/metrics/process-metrics.ts';
import { metricFamily } from '../../runtime/metrics/prometheus-text.ts';
import type { State } from '../../state/state-port.ts';
import { type Drain, drained } from '../drain.ts';
import type { Facade } from '../facade-port.ts';
import { HOST_PATH, type HostEndpoint } from '../host/host-endpoint.ts';
import { respond, respondEmpty, respondRefusal, respondWith } from './http-response.ts';
import { SessionTable } from './http-sessions.ts';
import { type EndpointRequest, serveMcp } from './mcp-endpoint.ts';
import { createOriginCheck, type OriginCheck, urlHost } from './origin-check.ts';
import { authenticateHeader, resourceMetadata } from './protected-resource.ts';
import { ReplicaHop } from './replica-hop.ts';
import { SharedSessions } from './shared-sessions.ts';
import { Sockets } from './sockets.ts';
import { type Authenticate, bearerToken } from './token-authentication.ts';

/** A facade with what finds its callers. */
export interface ServedFacade {
  readonly facade: Facade;
  readonly listen: ListenConfig;
  readonly authenticate: Authenticate;
  /** The issuer whose tokens are accepted now. Default: none. */
  readonly issuer?: () => JwtConfig | undefined;
  /** Whether a token of this principal is still valid. Default: always. */
  readonly isCurrent?: (principal: Principal) => boolean;
  /** Returns the text of `/metrics` of all processes of this listener, of which `own` is one. Default: `own`. */
  readonly joinMetrics?: (principal: Principal, own: string) => Promise<string>;
  /** The state that other replicas share. Absent: there are none. */
  readonly shared?: State;
  /** Serves paths under /host/v1/; absent: there are none. */
  readonly host?: HostEndpoint;
}

/** What a listener needs: its facade, and those of tenants by name, whose paths begin with /t/NAME. */
export interface HttpOptions extends ServedFacade, Drain {
  readonly tenants?: ReadonlyMap<string, ServedFacade>;
  /** Called with an unexpected error. */
  readonly onFault: (thrown: unknown) => void;
  /** Milliseconds, of any beginning. Default the process clock. */
  readonly now?: () => number;
}

/** A running listener. */
export interface HttpServer {
  /** Address of the MCP endpoint. */
  readonly url: string;
  /** Connections that are open. */
  readonly connections: number;
  /** Returns the text of `/metrics` of this process for a principal. */
  metrics(principal: Principal): string;
  /**
   * Refuses new requests, lets running calls end, answers those that do not, closes every session and connection. Can
   * be called again.
   */
  close(): Promise<void>;
}

/**
 * How often idle sessions are ended and quiet streams send a comment: below the 60 s of proxies, above the 20 s in
 * which TCP finds a dead client. Linux probes only while no data is under way.
 */
const TICK_MS = 30_000;
/** When TCP begins to probe a quiet connection. Node lets it probe ten times, a second apart. */
const PROBE_MS = 10_000;
/** How long the last answers may take to leave after nothing runs any more. */
const FLUSH_MS = 500;
/** After this time every replica has read that this one is no home any more. Until then its hop says so. */
const HEARD_MS = 1_000;
/** The headers of requests that a page of an allowed origin may send. */
const PAGE_HEADERS = [
  'authorization',
  'content-type',
  'mcp-session-id',
  'mcp-protocol-version',
  'mcp-method',
  'mcp-name',
  'last-event-id',
];
/** Headers that repeat arguments of tools have any name, so those that are asked for are allowed. */
const ARGUMENT_HEADER = /^mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,128}$/;
const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, DELETE',
  'access-control-max-age': '600',
};

/** Listens. Throws CONFIG_INVALID if the address is not available. */
export async function serveHttp(options: HttpOptions): Promise<HttpServer> {
  const front = new HttpFront(options);
  return {
    url: await front.listen(),
    get connections() {
      return front.connections;
    },
    metrics: (principal) => front.metrics(principal),
    close: () => front.close(),
  };
}

/** A served facade with its sessions. No other facade knows them. */
interface Endpoint extends Omit<ServedFacade, 'shared'> {
  readonly sessions: SessionTable;
  /** The sessions that other replicas serve too. */
  readonly shared?: SharedSessions;
  /** Absent for the facade of the listener's own paths. */
  readonly tenant?: string;
}

class HttpFront {
  readonly #options: HttpOptions;
  readonly #now: () => number;
  readonly #own: Endpoint;
  readonly #tenants: ReadonlyMap<string, Endpoint>;
  readonly #server: Server;
  readonly #sockets: Sockets;
  readonly #metrics = new HttpMetrics();
  readonly #hop: ReplicaHop | undefined;
  /** The principals of pages, by origin. The check of origins bounds their number. */
  readonly #pages = new WeakMap<Principal, Map<string, Principal>>();
  #process: ProcessMetrics | undefined;
  #gate: OriginCheck | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed: Promise<void> | undefined;
  #isDraining = false;

  constructor(options: HttpOptions) {
    const { listen, tenants = new Map<string, ServedFacade>(), now = () => performance.now() } = options;
    this.#options = options;
    this.#now = now;
    const { replicaPort, replicaHost } = listen;
    if (replicaPort !== undefined)
      this.#hop = new ReplicaHop({
        seals: options.facade.seals,
        host: replicaHost ?? listen.host,
        port: replicaPort,
        receive: (request, response) => this.#receive(request, response, true),
        onFault: options.onFault,
      });
    this.#own = this.#openEndpoint(options);
    this.#tenants = new Map([...tenants].map(([tenant, one]) => [tenant, this.#openEndpoint({ ...one, tenant })]));
    this.#server = createServer(
      {
        headersTimeout: listen.headersMs,
        requestTimeout: listen.requestMs,
        connectionsCheckingInterval: Math.min(1000, listen.headersMs),
        keepAliveTimeout: listen.socketIdleMs,
        keepAlive: true,
        keepAliveInitialDelay: PROBE_MS,
      },
      (request, response) => this.#receive(request, response),
    );
    this.#sockets = new Sockets(this.#server, { maxConnections: listen.maxConnections, idleMs: listen.socketIdleMs });
  }

  #openEndpoint({ shared: state, ...served }: ServedFacade & { readonly tenant?: string }): Endpoint {
    const { facade, listen, isCurrent } = served;
    const shared = state && new SharedSessions({ state, idleMs: listen.idleMs, now: Date.now });
    const sessions = new SessionTable({
      facade,
      ...(shared !== undefined && { shared, hops: this.#hop !== undefined }),
      maxSessions: listen.maxSessions,
      maxPerPrincipal: listen.maxSessionsPerPrincipal,
      idleMs: listen.idleMs,
      ...(isCurrent !== undefined && { isCurrent }),
      now: this.#now,
      onFault: this.#options.onFault,
    });
    facade.onToolsChanged((session) => sessions.toolsChanged(session));
    facade.onNotice((notice, session) => sessions.notice(notice, session));
    return { ...served, sessions, ...(shared !== undefined && { shared }) };
  }

  get #endpoints(): readonly Endpoint[] {
    return [this.#own, ...this.#tenants.values()];
  }

  get connections(): number {
    return this.#sockets.size;
  }

  /** Returns the URL. If it rejects, nothing listens any more: otherwise the process would not end. */
  async listen(): Promise<string> {
    try {
      return await this.#listen();
    } catch (thrown) {
      this.#server.close();
      this.#server.closeAllConnections();
      await this.#hop?.close();
      throw thrown;
    }
  }

  async #listen(): Promise<string> {
    const { host, port } = this.#options.listen;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', (cause: NodeJS.ErrnoException) =>
        reject(unavailable(`${urlHost(host)}:${port}`, cause)),
      );
      this.#server.listen(port, host, resolve);
    });
    this.#server.removeAllListeners('error').on('error', this.#options.onFault);
    this.#process = new ProcessMetrics();
    const bound = (this.#server.address() as AddressInfo).port;
    this.#gate = createOriginCheck(this.#options.listen, bound);
    const address = await this.#hop?.listen();
    if (address !== undefined) for (const { shared } of this.#endpoints) await shared?.enlist(address);
    this.#timer = setInterval(() => this.#tick(), Math.min(TICK_MS, this.#options.listen.idleMs)).unref();
    return `http://${urlHost(host)}:${bound}/mcp`;
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    const { listen, onUrge } = this.#options;
    // Until its load balancer has seen that this replica is not ready, it serves all requests.
    await drained(new Promise(() => undefined), { drainMs: listen.unreadyMs, onUrge });
    this.#isDraining = true;
    const all = this.#endpoints;
    await drained(Promise.all(all.flatMap(({ sessions, host }) => [sessions.drain(), host?.drain()])), this.#options);
    clearInterval(this.#timer);
    this.#process?.close();
    const gone = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    await Promise.all(
      all.flatMap(({ sessions, host }) => [sessions.endAll('Tollgate stopped while the call ran.'), host?.close()]),
    );
    await turn();
    for (const { shared } of all) await shared?.delist().catch(this.#options.onFault);
    if (this.#hop !== undefined) await delay(HEARD_MS);
    await this.#hop?.close();
    this.#server.closeIdleConnections();
    await Promise.race([gone, delay(FLUSH_MS, undefined, { ref: false })]);
    this.#server.closeAllConnections();
    await gone;
  }

  #tick(): void {
    for (const { sessions, host } of this.#endpoints) {
      sessions.tick();
      host?.tick();
    }
  }

  /** `isHop`: another replica sent the request on, after its checks of Host and Origin. */
  #receive(request: IncomingMessage, response: ServerResponse, isHop = false): void {
    const { socket } = request;
    this.#sockets.begin(socket);
    response.on('close', () => {
      this.#sockets.end(socket);
      if (!isHop) this.#metrics.count(response);
    });
    try {
      const work = isHop
        ? this.#serveMcp(this.#endpointOf(request), { request, response }, true)
        : this.#admit(request, response);
      if (work instanceof Promise) work.catch((thrown) => this.#refuse(response, thrown));
    } catch (thrown) {
      this.#refuse(response, thrown);
    }
  }

  #refuse(response: ServerResponse, thrown: unknown): void {
    if (!(thrown instanceof TollgateError)) this.#options.onFault(thrown);
    respondRefusal(response, asTollgateError(thrown));
  }

  /**
   * Checks Host and Origin first, on every route except health checks (which ask by address), because a foreign page
   * can read what it can reach.
   */
  #admit(request: IncomingMessage, response: ServerResponse): Awaitable<void> {
    const { origin } = request.headers;
    const endpoint = this.#endpointOf(request);
    const probe = PROBES.get(pathOf(request));
    if (probe !== undefined && this.#gate?.allowsOrigin(origin) === true)
      return this.#probe(endpoint, probe, { request, response });
    if (this.#gate?.allowsHost(onlyHost(request)) !== true) throw new TollgateError('HTTP_HOST');
    if (!this.#gate.allowsOrigin(origin)) throw new TollgateError('HTTP_ORIGIN');
    if (origin !== undefined) allowPage(response, origin);
    // A client that keeps its connection would find it closed at its next request.
    if (this.#closed !== undefined) response.setHeader('connection', 'close');
    if (request.method === 'OPTIONS' && origin !== undefined) return respondEmpty(response, 204, preflightOf(request));
    return this.#route(endpoint, { request, response });
  }

  /**
   * Returns the facade of a path, and removes the part that names its tenant. The token must be one of this tenant. The
   * path of an unknown tenant stays as it is, and is found nowhere.
   */
  #endpointOf(request: IncomingMessage): Endpoint {
    const [, name = '', rest = ''] = TENANT_PATH.exec(request.url ?? '') ?? [];
    const tenant = this.#tenants.get(name);
    if (tenant === undefined) return this.#own;
    request.url = rest;
    return tenant;
  }

  #route(endpoint: Endpoint, { request, response }: Exchange): Awaitable<void> {
    const path = pathOf(request);
    const { host } = endpoint;
    if (path === '/mcp') return this.#serveMcp(endpoint, { request, response }, false);
    if (host !== undefined && path.startsWith(HOST_PATH))
      return host.serve({ request, response }, () =>
        andThen(this.#visit(endpoint, { request, response }), ({ principal }) => principal),
      );
    const metadata = this.#metadata(endpoint, path);
    if (metadata === undefined && path !== '/healthz' && path !== '/metrics')
      return respondRefusal(response, new TollgateError('HTTP_PATH'));
    if (request.method !== 'GET')
      return respondRefusal(response, new TollgateError('HTTP_METHOD', { next: 'Use GET.' }), {
        headers: { allow: 'GET' },
      });
    if (metadata !== undefined)
      return respond(response, metadata, { 'content-type': 'application/json', 'cache-control': 'no-store' });
    // Without a token /healthz says no more than /readyz.
    if (path === '/healthz' && request.headers.authorization === undefined)
      return this.#answerReadiness(endpoint, response, { status: 'ok' });
    return andThen(this.#visit(endpoint, { request, response }), ({ principal }) =>
      path === '/healthz'
        ? this.#answerReadiness(endpoint, response, { status: 'ok', servers: endpoint.facade.health(principal) })
        : this.#answerMetrics(endpoint, response, principal),
    );
  }

  /** The well-known path of a tenant's resource does not begin with that of the tenant (RFC 9728 §3.1). */
  #metadata(endpoint: Endpoint, path: string): string | undefined {
    for (const one of endpoint.tenant === undefined ? this.#endpoints : [endpoint]) {
      const issuer = one.issuer?.();
      const metadata = issuer === undefined ? undefined : resourceMetadata(path, issuer, one === endpoint);
      if (metadata !== undefined) return metadata;
    }
    return undefined;
  }

  #serveMcp(endpoint: Endpoint, exchange: Exchange, isHop: boolean): Awaitable<void> {
    const { facade, sessions, listen, shared, tenant } = endpoint;
    const hop = this.#hop;
    const prefix = tenant === undefined ? '' : `/t/${tenant}`;
    return andThen(this.#visit(endpoint, exchange), (visit) =>
      serveMcp(
        { ...visit, isHop },
        {
          facade,
          sessions,
          maxBodyBytes: listen.maxBodyBytes,
          now: this.#now,
          isDraining: this.#isDraining,
          ...(hop !== undefined && { hop: { forward: (address, one) => hop.forward(address, { ...one, prefix }) } }),
          addressOf: (replica) => shared?.addressOf(replica),
        },
      ),
    );
  }

  /** Returns the metrics of the listener's own facade for a principal. */
  metrics(principal: Principal): string {
    return this.#metricsOf(this.#own, principal);
  }

  #answerMetrics(endpoint: Endpoint, response: ServerResponse, principal: Principal): Awaitable<void> {
    const own = this.#metricsOf(endpoint, principal);
    const joined = endpoint.tenant === undefined ? this.#options.joinMetrics?.(principal, own) : undefined;
    return andThen(joined ?? own, (text) =>
      respond(response, text, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }),
    );
  }

  /** What all tenants share is shown only to owners of the listener's own facade. */
  #metricsOf({ facade, tenant }: Endpoint, principal: Principal): string {
    const shared =
      principal.owner === true && tenant === undefined
        ? [...this.#metrics.lines(this.#sockets, this.#endpoints), ...(this.#process?.lines() ?? []), ''].join('\n')
        : '';
    return `${facade.metrics(principal)}${shared}`;
  }

  /** Tells everyone only whether to send work here. */
  #probe(endpoint: Endpoint, probe: 'live' | 'ready', { request, response }: Exchange): Awaitable<void> {
    const { method } = request;
    if (method !== 'GET' && method !== 'HEAD')
      return respondRefusal(response, new TollgateError('HTTP_METHOD', { next: 'Use GET.' }), {
        headers: { allow: 'GET, HEAD' },
      });
    return probe === 'live'
      ? answerHealth(response, 200, { status: 'live' })
      : this.#answerReadiness(endpoint, response, { status: 'ready' });
  }

  async #answerReadiness(
    { facade }: Endpoint,
    response: ServerResponse,
    { status, ...more }: { readonly status: string; readonly servers?: object },
  ): Promise<void> {
    const failing = this.#closed === undefined ? await facade.readiness() : ['draining'];
    if (failing.length > 0) return answerHealth(response, 503, { status: 'failing', failing, ...more });
    return answerHealth(response, 200, { status, ...more });
  }

  #visit({ authenticate, issuer }: Endpoint, { request, response }: Exchange): Awaitable<EndpointRequest> {
    const { authorization, origin } = request.headers;
    return andThen(authenticate(bearerToken(authorization)), (principal) => {
      if (principal === undefined) {
        const header = authenticateHeader(issuer?.(), authorization !== undefined);
        response.setHeader('www-authenticate', header);
        throw new TollgateError('HTTP_AUTH');
      }
      this.#sockets.vouch(request.socket);
      return { request, response, principal: origin === undefined ? principal : this.#ofPage(principal, origin) };
    });
  }

  /**
   * Returns the principal with a checked Origin header instead of the client of its token. In lower case, as it was
   * checked, so that spelling cannot avoid a deny. The same object each time, because later stages cache by principal.
   */
  #ofPage(principal: Principal, header: string): Principal {
    const origin = header.toLowerCase();
    const known = this.#pages.get(principal) ?? new Map<string, Principal>();
    const page = known.get(origin) ?? Object.freeze({ ...principal, origin });
    this.#pages.set(principal, known.set(origin, page));
    return page;
  }
}

type Exchange = Pick<EndpointRequest, 'request' | 'response'>;

const TENANT_PATH = /^\/t\/([a-z0-9-]+)(\/.*)$/s;

/** Health checks, which come by the address of the machine and without a token. */
const PROBES: ReadonlyMap<string, 'live' | 'ready'> = new Map([
  ['/livez', 'live'],
  ['/readyz', 'ready'],
]);

function pathOf({ url = '' }: IncomingMessage): string {
  const query = url.indexOf('?');
  return query === -1 ? url : url.slice(0, query);
}

function answerHealth(response: ServerResponse, status: 200 | 503, health: object): void {
  respondWith(response, {
    status,
    body: JSON.stringify(health),
    headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  });
}

function unavailable(address: string, cause: NodeJS.ErrnoException): TollgateError {
  const detail = `listen: ${address} is not available (${cause.code ?? 'unknown'}).`;
  return new TollgateError('CONFIG_INVALID', {
    detail,
    next: 'Choose another listen.host or listen.port, or stop what listens there.',
    cause,
  });
}

/** Two readers may take different ones of two Host headers. Node keeps the first without a note. */
function onlyHost({ rawHeaders, headers }: IncomingMessage): string | undefined {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2)
    if (rawHeaders[at]?.length === 4 && rawHeaders[at]?.toLowerCase() === 'host') count += 1;
  return count === 1 ? headers.host : undefined;
}

/** Lets the page of an allowed origin read the answer, by name and never by a wildcard. */
function allowPage(response: ServerResponse, origin: string): void {
  response.setHeader('access-control-allow-origin', origin);
  response.setHeader('access-control-expose-headers', 'mcp-session-id, www-authenticate');
  response.setHeader('vary', 'origin');
}

function preflightOf({ headers }: IncomingMessage): OutgoingHttpHeaders {
  const asked = (headers['access-control-request-headers'] ?? '').toLowerCase().split(/ *, */);
  const allowed = [...PAGE_HEADERS, ...asked.filter((name) => ARGUMENT_HEADER.test(name))];
  return { ...PREFLIGHT, 'access-control-allow-headers': allowed.join(', ') };
}

/** Counts responses by status. */
class HttpMetrics {
  readonly #responses = new Map<number, number>();

  /** Called when a response has ended, or its client has disconnected. */
  count({ headersSent, statusCode }: ServerResponse): void {
    if (headersSent) this.#responses.set(statusCode, (this.#responses.get(statusCode) ?? 0) + 1);
  }

  /** Returns the lines of /metrics. */
  lines({ size, turnedAway }: Sockets, endpoints: readonly Endpoint[]): readonly string[] {
    const tenants = endpoints.flatMap(({ tenant, sessions }) =>
      tenant === undefined ? [] : [[`tenant="${tenant}"`, sessions.size] as const],
    );
    return [
      ...metricFamily(
        'tollgate_http_responses_total',
        ['counter', 'Responses by status.'],
        [...this.#responses]
          .sort(([one], [other]) => one - other)
          .map(([status, count]) => [`status="${status}"`, count]),
      ),
      ...metricFamily('tollgate_http_connections', ['gauge', 'Open connections of clients.'], [['', size]]),
      ...metricFamily(
        'tollgate_http_connections_turned_away_total',
        [
          'counter',
          'Connections beyond listen.maxConnections: evicted to make room, or refused because there was none.',
        ],
        Object.entries(turnedAway).map(([how, count]) => [`how="${how}"`, count]),
      ),
      ...metricFamily(
        'tollgate_http_sessions_evicted_total',
        ['counter', 'Idle sessions that were ended to make room.'],
        [['', endpoints.reduce((sum, { sessions }) => sum + sessions.evicted, 0)]],
      ),
      ...metricFamily('tollgate_tenant_sessions', ['gauge', 'Open sessions of each tenant.'], tenants),
    ];
  }
}
