/**
 * Requests between replicas. The connection is TLS with a key that only processes of the same state can derive (RFC
 * 4279, RFC 5489), so both ends prove who they are, and nothing can be read, changed or repeated in between.
 */
import type { IncomingMessage, OutgoingHttpHeaders, RequestListener, ServerResponse } from 'node:http';
import { Agent, createServer, request as openRequest, type RequestOptions, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Seals } from '../../state/state-seals.ts';

/**
 * What became of a request: its home has answered it, has not received it, refuses it because it is not the home, or
 * ended after it may have begun.
 */
export type Forwarded = 'answered' | 'unreachable' | 'elsewhere' | 'lost';

/** One request that goes on to its home. */
export interface HopRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly body: Buffer | undefined;
  /** What the path of the request began with, which was removed; '' if nothing was. */
  readonly prefix?: string;
}

/** What a hop works with. */
export interface HopParts {
  readonly seals: Seals;
  readonly host: string;
  readonly port: number;
  /** Serves the requests of other replicas. */
  readonly receive: RequestListener;
  readonly onFault: (thrown: unknown) => void;
}

const PURPOSE = 'replica hop';
/** Ciphers with a shared key and forward secrecy. Node supports shared keys up to TLS 1.2. */
const TLS = {
  ciphers: 'ECDHE-PSK-CHACHA20-POLY1305:DHE-PSK-AES256-GCM-SHA384',
  minVersion: 'TLSv1.2',
  maxVersion: 'TLSv1.2',
} as const;
/** How long a connection to another replica may take to open. */
const CONNECT_MS = 2_000;
/** After this time every replica has read a key that another one has made. */
const KEY_MS = 500;
const PROBE_MS = 10_000;
const KEPT_MS = 60_000;
/** An unused connection is closed here first, so that no request meets a connection that the other end closes. */
const UNUSED_MS = 20_000;
/** The status by which a replica says that it is not the home of a session (RFC 9110 §15.5.20). */
export const MISDIRECTED = 421;
/** Headers of one connection, not of the message. The body has its own length. */
const OWN_HEADERS = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'content-length',
  'date',
]);

/** The connections of one replica to and from the others. */
export class ReplicaHop {
  readonly #parts: HopParts;
  readonly #server: Server;
  readonly #agent = new Agent({ keepAlive: true, keepAliveMsecs: PROBE_MS, timeout: UNUSED_MS });

  constructor(parts: HopParts) {
    this.#parts = parts;
    this.#server = createServer(
      {
        ...TLS,
        pskCallback: (_socket: TLSSocket, identity: string) => this.#keyOf(identity),
        keepAlive: true,
        keepAliveInitialDelay: PROBE_MS,
        keepAliveTimeout: KEPT_MS,
      },
      parts.receive,
    );
    // A stranger who connects is no fault of this process.
    this.#server.on('tlsClientError', () => undefined);
  }

  /** Returns the address for other replicas. Throws CONFIG_INVALID if it is not available. */
  async listen(): Promise<string> {
    const { seals, host, port, onFault } = this.#parts;
    await seals.secret(PURPOSE);
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      // In a worker, the listener of clients is shared with other workers, and this one is not.
      this.#server.listen({ port, host, exclusive: true }, resolve);
    }).catch((cause: NodeJS.ErrnoException) => {
      throw new TollgateError('CONFIG_INVALID', {
        detail: `listen.replicaPort: ${host}:${port} is not available (${cause.code ?? 'unknown'}).`,
        next: 'Choose another listen.replicaPort, or stop what listens there.',
        cause,
      });
    });
    this.#server.removeAllListeners('error').on('error', onFault);
    return JSON.stringify([host, (this.#server.address() as AddressInfo).port]);
  }

  /** Sends a request to a replica, and its answer back as it comes. It is sent once at most. Throws STATE_FAILED. */
  async forward(address: string, hop: HopRequest): Promise<Forwarded> {
    const first = await this.#try(address, hop);
    if (first !== 'refused') return first;
    await delay(KEY_MS);
    const second = await this.#try(address, hop);
    return second === 'refused' ? 'unreachable' : second;
  }

  async close(): Promise<void> {
    this.#agent.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #keyOf(day: string): Buffer | null {
    try {
      return this.#parts.seals.secretOf(PURPOSE, day) ?? null;
    } catch {
      return null;
    }
  }

  /** `refused`: the other end does not have the key, and nothing was sent. */
  async #try(address: string, hop: HopRequest): Promise<Forwarded | 'refused'> {
    const [host, port] = JSON.parse(address) as [string, number];
    const { day, key } = await this.#parts.seals.secret(PURPOSE);
    const { request, response, body, prefix = '' } = hop;
    return new Promise((resolve) => {
      let isOpen = false;
      // The types of Node lack `pskCallback`, which goes on to `tls.connect`.
      const options: RequestOptions & Pick<ConnectionOptions, 'pskCallback'> = {
        ...TLS,
        host,
        port,
        method: request.method,
        path: `${prefix}${request.url}`,
        setHost: false,
        headers: { ...messageHeaders(request.headers), 'content-length': body?.length ?? 0 },
        agent: this.#agent,
        checkServerIdentity: () => undefined,
        pskCallback: () => ({ psk: key, identity: day }),
      };
      const sent = openRequest(options);
      const timer = setTimeout(() => sent.destroy(), CONNECT_MS);
      const opened = (): void => {
        isOpen = true;
        clearTimeout(timer);
      };
      sent.on('socket', (socket: TLSSocket) => (sent.reusedSocket ? opened() : socket.once('secureConnect', opened)));
      const onGone = (): void => void sent.destroy();
      response.once('close', onGone);
      const end = (how: Forwarded | 'refused'): void => {
        clearTimeout(timer);
        response.off('close', onGone);
        resolve(how);
      };
      sent.on('error', ({ code }: NodeJS.ErrnoException) =>
        end(isOpen ? 'lost' : code === 'EPROTO' ? 'refused' : 'unreachable'),
      );
      sent.on('response', (answer) => {
        if (answer.statusCode !== MISDIRECTED) return relay(answer, response, end);
        answer.resume();
        end('elsewhere');
      });
      sent.end(body);
    });
  }
}

function relay(answer: IncomingMessage, response: ServerResponse, end: (how: Forwarded) => void): void {
  if (response.destroyed) return end('answered');
  const { 'content-length': length } = answer.headers;
  response.writeHead(answer.statusCode ?? 502, {
    ...messageHeaders(answer.headers),
    ...(length !== undefined && { 'content-length': length }),
  });
  if (length === undefined) response.flushHeaders();
  answer.on('end', () => {
    response.end();
    end('answered');
  });
  // `close` without `end`: the home has ended, or this client has.
  answer.on('close', () => end(response.destroyed || answer.complete ? 'answered' : 'lost'));
  answer.on('error', () => undefined);
  answer.pipe(response, { end: false });
}

function messageHeaders(headers: IncomingMessage['headers']): OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OWN_HEADERS.has(name)));
}
