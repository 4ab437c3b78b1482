/**
 * The proxy of one server: CONNECT and plain HTTP on a unix socket. It refuses every target that its allowlist does not
 * name.
 */
import { chmodSync, chownSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Authority, formatAuthority, parseAuthority } from '../../catalogs/readers/hosts.ts';
import type { Allowlist } from './allowlist.ts';
import { type BlockedAttempt, BlockedAttempts, type BlockReason } from './blocked-attempts.ts';
import { type ByteBudget, ByteMeter } from './byte-meter.ts';
import { openTunnel } from './connect-tunnel.ts';
import { type DialResult, dial, type Lookup, lookupBySystem } from './dial.ts';
import { forwardRequest, hostAgrees, readAbsoluteUrl, readTunnelledUrl } from './http-forward.ts';

/** Limits of one proxy. Times are in milliseconds. */
export interface ProxyLimits {
  readonly bytes: ByteBudget;
  /** Simultaneous connections of the server. */
  readonly connections: number;
  /** A connection without traffic in both directions is ended after this time. */
  readonly idleMs: number;
  readonly headersMs: number;
  readonly connectMs: number;
}

export const PROXY_LIMITS: ProxyLimits = {
  bytes: { up: 256 * 1024 ** 2, down: 2 * 1024 ** 3 },
  connections: 64,
  idleMs: 120_000,
  headersMs: 10_000,
  connectMs: 10_000,
};

/** The parts of a proxy. */
export interface ProxyParts {
  readonly server: string;
  readonly allowlist: Allowlist;
  readonly onBlocked: (blocked: BlockedAttempt) => void;
  readonly limits?: Partial<ProxyLimits>;
  readonly lookup?: Lookup;
}

const MAX_HEADER_BYTES = 16 * 1024;

/** The status and the text of each refusal. The preload reads the reason from a header. */
const REFUSALS: Readonly<Record<BlockReason | 'unresolved' | 'unreachable', readonly [status: number, text: string]>> =
  {
    malformed: [400, 'the proxy does not support this request'],
    'not-allowed': [
      403,
      'not among the allowed domains of this server (sandbox.network.allowedDomains in tollgate.yaml), ' +
        'or denied there or by a rule',
    ],
    'private-address': [
      403,
      'the name leads to a private or local address that is not itself among the allowed domains',
    ],
    'other-name': [403, 'the request names another host'],
    budget: [403, 'this server has used up its byte budget'],
    connections: [503, 'too many connections at once'],
    unresolved: [502, 'the name has no address'],
    unreachable: [502, 'the host cannot be reached'],
  };

/** A forward proxy for one server. */
export class EgressProxy {
  readonly #parts: ProxyParts;
  readonly #limits: ProxyLimits;
  readonly #reports: BlockedAttempts;
  readonly #meter: ByteMeter;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** The number of connections to targets, including those that are being opened. */
  #upstreams = 0;
  /** Tunnels that carry plain HTTP. `upstream` is present until the first request takes it. */
  readonly #tunnels = new WeakMap<Duplex, { readonly target: Authority; upstream?: Socket }>();

  constructor(parts: ProxyParts) {
    this.#parts = parts;
    this.#limits = { ...PROXY_LIMITS, ...parts.limits };
    this.#reports = new BlockedAttempts(parts.server, parts.onBlocked);
    this.#meter = new ByteMeter(this.#limits.bytes);
    const { headersMs, idleMs } = this.#limits;
    this.#server = createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: headersMs,
      requestTimeout: 0,
      connectionsCheckingInterval: Math.min(1000, headersMs),
      keepAliveTimeout: idleMs,
      requireHostHeader: false,
      noDelay: true,
    });
    this.#server.maxConnections = this.#limits.connections;
    this.#server.on('drop', () => this.#reports.note('connections'));
    this.#server.on('connection', (socket) => this.#track(socket));
    // A failure of one request ends its connection, never the process.
    this.#server.on(
      'connect',
      (message: IncomingMessage, client: Duplex, head: Buffer) =>
        void this.#connect(message, client, head).catch(() => client.destroy()),
    );
    this.#server.on('request', (message, answer) => void this.#request(message, answer).catch(() => message.destroy()));
    this.#server.on('clientError', (_error, client: Duplex) =>
      this.#refuse(client, 'malformed', this.#tunnels.get(client)?.target),
    );
  }

  /** Listens on a unix socket. Only `owner` may use it; without `owner`, every user may. */
  async listen(path: string, owner?: number): Promise<void> {
    await new Promise<void>((resolve, reject) => this.#server.once('error', reject).listen(path, resolve));
    chmodSync(path, owner === undefined ? 0o666 : 0o600);
    if (owner !== undefined && owner !== process.getuid?.()) chownSync(path, owner, -1);
  }

  /** Ends every connection. Idempotent. */
  async close(): Promise<void> {
    this.#reports.flush();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Ends a socket on an error, and after the idle time. */
  #track(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket)).on('error', () => socket.destroy());
    socket.setTimeout(this.#limits.idleMs, () => socket.destroy());
  }

  async #connect(message: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const target = parseAuthority(message.url ?? '');
    const hasBody =
      Number(message.headers['content-length'] ?? 0) !== 0 || message.headers['transfer-encoding'] !== undefined;
    if (target === undefined || hasBody || this.#tunnels.has(client)) return this.#refuse(client, 'malformed', target);
    const refusal = this.#refusalOf(message, target);
    if (refusal !== undefined) return this.#refuse(client, refusal, target);
    const dialled = await this.#dial(target);
    if ('failure' in dialled) return this.#refuse(client, dialled.failure, target);
    if (client.destroyed) return void dialled.socket.destroy();
    client.write('HTTP/1.1 200 Connection established\r\n\r\n');
    const upstream = dialled.socket;
    const onHttp = (greeting: Buffer): void => this.#readTunnel({ client, upstream, target }, greeting);
    openTunnel(
      {
        client,
        upstream,
        target,
        meter: this.#meter,
        onBlocked: (reason) => this.#reports.note(reason, target),
        onHttp,
      },
      head,
    );
  }

  /** Reads the requests in a tunnel as requests to the proxy, so that each one is checked and rebuilt. */
  #readTunnel(
    { client, upstream, target }: { readonly client: Duplex; readonly upstream: Socket; readonly target: Authority },
    greeting: Buffer,
  ): void {
    this.#tunnels.set(client, { target, upstream });
    client.once('close', () => upstream.destroy());
    client.unshift(greeting);
    this.#server.emit('connection', client);
    client.resume();
  }

  async #request(message: IncomingMessage, answer: ServerResponse): Promise<void> {
    const tunnel = this.#tunnels.get(message.socket);
    const forward =
      tunnel === undefined
        ? (readAbsoluteUrl(message.url ?? '') ?? 'malformed')
        : readTunnelledUrl(message.url ?? '', tunnel.target);
    if (typeof forward === 'string') return this.#answer(answer, forward, tunnel?.target);
    const { target } = forward;
    const refusal = this.#refusalOf(message, target);
    if (refusal !== undefined) return this.#answer(answer, refusal, target);
    const upstream = tunnel?.upstream;
    if (tunnel !== undefined) delete tunnel.upstream;
    const dialled = upstream === undefined || upstream.destroyed ? await this.#dial(target) : { socket: upstream };
    if ('failure' in dialled) return this.#answer(answer, dialled.failure, target);
    if (answer.destroyed) return void dialled.socket.destroy();
    forwardRequest(message, answer, {
      forward,
      upstream: dialled.socket,
      meter: this.#meter,
      onSpent: () => this.#reports.note('budget', target),
    });
    dialled.socket.resume();
  }

  #refusalOf(message: IncomingMessage, target: Authority): BlockReason | undefined {
    if (!this.#parts.allowlist.allows(target)) return 'not-allowed';
    if (this.#meter.isSpent) return 'budget';
    return hostAgrees(message, target) ? undefined : 'other-name';
  }

  async #dial(target: Authority): Promise<DialResult | { readonly failure: 'connections' }> {
    const { allowlist, lookup = lookupBySystem } = this.#parts;
    // A client can send many requests without waiting for an answer.
    if (this.#upstreams >= this.#limits.connections) return { failure: 'connections' };
    this.#upstreams += 1;
    const dialled = await dial(target, {
      allowlist,
      lookup,
      connectMs: this.#limits.connectMs,
      onSocket: (socket) => this.#track(socket),
    });
    const release = (): void => void (this.#upstreams -= 1);
    if ('failure' in dialled || dialled.socket.destroyed) release();
    else dialled.socket.once('close', release);
    return dialled;
  }

  #refuse(client: Duplex, reason: keyof typeof REFUSALS, target?: Authority): void {
    const { status, headers, body } = this.#describe(reason, target);
    if (client.destroyed || !client.writable) return void client.destroy();
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
    client.end(`HTTP/1.1 ${status} Refused\r\n${lines.join('')}\r\n${body}`, () => client.destroy());
  }

  #answer(answer: ServerResponse, reason: keyof typeof REFUSALS, target?: Authority): void {
    const { status, headers, body } = this.#describe(reason, target);
    answer.writeHead(status, headers).end(body);
  }

  #describe(
    reason: keyof typeof REFUSALS,
    target?: Authority,
  ): { readonly status: number; readonly headers: Record<string, string>; readonly body: string } {
    if (reason !== 'unresolved' && reason !== 'unreachable') this.#reports.note(reason, target);
    const [status, text] = REFUSALS[reason];
    const body = `Tollgate: ${target === undefined ? '' : `${formatAuthority(target)}: `}${text}.\n`;
    return {
      status,
      body,
      headers: {
        'x-tollgate-refusal': reason,
        'content-type': 'text/plain',
        'content-length': String(body.length),
        connection: 'close',
      },
    };
  }
}
