/**
 * Forwards plain HTTP: it rebuilds each request for the target, and refuses requests that two parsers could read
 * differently.
 */

import { type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Authority, formatAuthority, parseAuthority } from '../../catalogs/readers/hosts.ts';
import type { ByteMeter } from './byte-meter.ts';

/** A request as the target gets it. */
export interface ForwardedRequest {
  readonly target: Authority;
  readonly path: string;
}

/** Headers of one hop (RFC 9110 §7.6.1) and headers for proxies. They are not forwarded. */
const HOP_HEADERS: ReadonlySet<string> = new Set(
  (
    'connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer transfer-encoding ' +
    'upgrade host'
  ).split(' '),
);
const MAX_HEADER_BYTES = 32 * 1024;

/**
 * Reads `http://host[:port]/path` (RFC 9112 §3.2.2). Returns undefined for origin form, other schemes, userinfo and
 * fragments.
 */
export function readAbsoluteUrl(url: string): ForwardedRequest | undefined {
  const [, authority = '', path = ''] = /^http:\/\/([^/?#]*)([/?][^#]*)?$/i.exec(url) ?? [];
  const target = parseAuthority(authority, 80);
  return target === undefined ? undefined : { target, path: path.startsWith('/') ? path : `/${path}` };
}

/**
 * Reads the target of a request in a tunnel: a path, `*`, or an absolute URL of the tunnel's host. Returns the reason
 * as a string if it is refused.
 */
export function readTunnelledUrl(url: string, target: Authority): ForwardedRequest | 'other-name' | 'malformed' {
  if (url === '*' || /^\/[^#]*$/.test(url)) return { target, path: url };
  const named = readAbsoluteUrl(url);
  if (named === undefined) return 'malformed';
  return named.target.host === target.host && named.target.port === target.port
    ? { target, path: named.path }
    : 'other-name';
}

/** Returns true if the Host header is absent or names the target too. Another name could mislead another parser. */
export function hostAgrees(message: IncomingMessage, target: Authority): boolean {
  const hosts = message.rawHeaders.filter((_, at) => at % 2 === 0 && message.rawHeaders[at]?.toLowerCase() === 'host');
  if (hosts.length > 1) return false;
  if (message.headers.host === undefined) return true;
  const named = parseAuthority(message.headers.host, target.port);
  return named?.host === target.host && named.port === target.port;
}

/** Options of forwarding one request. */
export interface ForwardOptions {
  readonly forward: ForwardedRequest;
  readonly upstream: Socket;
  readonly meter: ByteMeter;
  readonly onSpent: () => void;
}

/** Sends the request to the target and its response back. Never rejects: a failure becomes 502 or a cut response. */
export function forwardRequest(message: IncomingMessage, answer: ServerResponse, options: ForwardOptions): void {
  const { forward, upstream, meter, onSpent } = options;
  const fail = (): void => {
    upstream.destroy();
    if (answer.headersSent) answer.destroy();
    else answer.writeHead(502, 'Bad Gateway', { connection: 'close' }).end();
  };
  const count = (direction: 'up' | 'down', bytes: number): void => {
    if (meter.spend(direction, bytes)) return;
    onSpent();
    fail();
    message.destroy();
  };
  const headers: string[] = [
    ...endToEnd(message),
    'Host',
    showHost(forward.target),
    'Connection',
    'close',
    ...(message.headers['transfer-encoding'] === undefined ? [] : ['Transfer-Encoding', 'chunked']),
  ];
  const { method = 'GET' } = message;
  const outgoing = request({
    method,
    path: forward.path,
    headers,
    setHost: false,
    createConnection: () => upstream,
    maxHeaderSize: MAX_HEADER_BYTES,
  });
  count('up', forward.path.length + headers.join('').length);
  outgoing.on('error', fail).on('upgrade', fail);
  outgoing.on('response', (incoming) => {
    const back = endToEnd(incoming);
    count('down', back.join('').length);
    if (answer.destroyed || answer.headersSent) return;
    try {
      answer.writeHead(incoming.statusCode ?? 502, [...back]);
    } catch {
      // Node reads more answers (status 000) than it writes. Reasons have been seen with controls in them, so they are
      // not passed on.
      return fail();
    }
    incoming.on('data', (chunk: Buffer) => count('down', chunk.length)).on('error', fail);
    incoming.pipe(answer);
  });
  message.on('data', (chunk: Buffer) => count('up', chunk.length));
  message.pipe(outgoing);
  answer.on('close', () => upstream.destroy());
}

/** Returns the headers without those of this hop and those that `Connection` names. Names and values alternate. */
function endToEnd({ rawHeaders, headers }: IncomingMessage): readonly string[] {
  const dropped = new Set((headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase()));
  const isKept = (name: string): boolean =>
    !HOP_HEADERS.has(name.toLowerCase()) &&
    !(dropped.has(name.toLowerCase()) && name.toLowerCase() !== 'content-length');
  return rawHeaders.flatMap((name, at) => (at % 2 === 0 && isKept(name) ? [name, rawHeaders[at + 1] ?? ''] : []));
}

/** Omits the default port of the scheme, because servers compare the Host header with their name. */
function showHost(target: Authority): string {
  return target.port === 80 ? formatAuthority(target).replace(/:80$/, '') : formatAuthority(target);
}
