/** Sends one HTTP request of the fetch server and follows its redirects, within the origin and the size limit. */
import { lookup as systemLookup } from 'node:dns/promises';
import { type IncomingMessage, request as requestPlain } from 'node:http';
import { request as requestSecure } from 'node:https';
import { isIP } from 'node:net';
import { isConsole } from '../../../catalogs/readers/console-ports.ts';
import { isPublicAddress } from '../../egress/public-address.ts';
import { FetchError, type FetchRequest, resolveInOrigin } from './fetch-scope.ts';

/** A response, with its body up to the size limit. */
export interface FetchResponse {
  readonly url: URL;
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** True if the body was longer than the limit. */
  readonly cut: boolean;
}

/** Settings that all requests of one fetch server share. */
export interface FetchScope {
  readonly origin: URL;
  /** Header with the credential. It is sent to the origin only. */
  readonly credential?: readonly [name: string, value: string];
  /** Private addresses that the owner allowed. */
  readonly addresses: readonly string[];
  /** Default: the resolver of the system. */
  readonly lookup?: (name: string) => Promise<readonly string[]>;
  /** Time limit for the request and all its redirects, in milliseconds. Default 25,000. */
  readonly timeoutMs?: number;
}

const TIMEOUT_MS = 25_000;
const MAX_BODY = 2 * 1024 * 1024;
const MAX_REDIRECTS = 5;

/** Sends a request. Follows redirects within the origin, for GET and HEAD only. Throws FetchError. */
export async function exchange(request: FetchRequest, scope: FetchScope): Promise<FetchResponse> {
  const signal = AbortSignal.timeout(scope.timeoutMs ?? TIMEOUT_MS);
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  let next = request;
  for (let hops = 0; ; hops += 1) {
    const answer = await send(next, scope, signal);
    const { location } = answer.headers;
    // A write must not be repeated at another address: the redirect itself is the answer.
    if (location === undefined || !isRead || ![301, 302, 303, 307, 308].includes(answer.status)) return answer;
    if (hops === MAX_REDIRECTS) throw new FetchError('REDIRECT_REFUSED', `More than ${MAX_REDIRECTS} redirects.`);
    next = { ...next, url: redirectTarget(location, next.url, scope.origin) };
  }
}

function redirectTarget(location: string, from: URL, origin: URL): URL {
  try {
    return resolveInOrigin(location, origin, from);
  } catch (thrown) {
    throw new FetchError(
      'REDIRECT_REFUSED',
      `The service redirects to another address. ${(thrown as FetchError).message}`,
    );
  }
}

async function send(
  { url, method, headers, body }: FetchRequest,
  scope: FetchScope,
  signal: AbortSignal,
): Promise<FetchResponse> {
  checkLiteralAddress(url, scope);
  const { credential } = scope;
  const allHeaders = {
    'user-agent': 'tollgate-fetch/1',
    accept: 'text/html, application/json, text/*;q=0.9, */*;q=0.1',
    'accept-encoding': 'identity',
    ...headers,
    ...(credential !== undefined && { [credential[0].toLowerCase()]: credential[1] }),
  };
  const options = {
    method,
    headers: allHeaders,
    agent: false,
    signal,
    lookup: checkedLookup(portOf(url), scope) as never,
  };
  const start = url.protocol === 'https:' ? requestSecure : requestPlain;
  try {
    const answer = await new Promise<IncomingMessage>((resolve, reject) => {
      start(url, options).on('error', reject).on('response', resolve).end(body);
    });
    const reason = (answer.statusMessage ?? '').replace(/[^\x20-\x7e]/g, '?');
    return { url, status: answer.statusCode ?? 0, reason, headers: answer.headers, ...(await read(answer)) };
  } catch (thrown) {
    throw failureOf(thrown, signal);
  }
}

/** Checks an IP address that is written in the URL. Node does not pass it to `lookup`. */
function checkLiteralAddress(url: URL, scope: FetchScope): void {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0 && !isAllowed({ address: host, port: portOf(url) }, scope)) throw privateAddress(url.hostname);
}

function isAllowed(
  { address, port }: { readonly address: string; readonly port: number },
  { addresses }: FetchScope,
): boolean {
  return isPublicAddress(address) || (addresses.includes(address) && !isConsole(address, port));
}

function portOf({ port, protocol }: URL): number {
  return port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port);
}

type LookupCallback = (
  error: Error | null,
  found: readonly { readonly address: string; readonly family: number }[],
) => void;

/**
 * Resolves a name once and checks all its addresses. Node connects only to these addresses, which prevents DNS
 * rebinding. In a sandbox, the egress proxy resolves the name and makes the same check.
 */
function checkedLookup(
  port: number,
  scope: FetchScope,
): (name: string, options: unknown, done: LookupCallback) => void {
  const resolveName =
    scope.lookup ??
    (async (name) => (await systemLookup(name, { all: true, verbatim: true })).map(({ address }) => address));
  return async (name, _options, done) => {
    const found = await resolveName(name).catch(() => []);
    const addresses = found.map((address) => ({ address, family: isIP(address) }));
    if (found.length === 0) done(new FetchError('UNREACHABLE', `The host ${name} has no IP address.`), addresses);
    else done(found.every((address) => isAllowed({ address, port }, scope)) ? null : privateAddress(name), addresses);
  };
}

function privateAddress(name: string): FetchError {
  return new FetchError('PRIVATE_ADDRESS', `${name} is at a private address, which the owner has not allowed.`);
}

/** Reads a body up to the limit. Leaving the loop closes the connection, so an endless body costs no more. */
async function read(answer: IncomingMessage): Promise<{ readonly body: Buffer; readonly cut: boolean }> {
  const chunks: Buffer[] = [];
  const isStream = /^text\/event-stream/i.test(answer.headers['content-type'] ?? '');
  let size = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Buffer);
    size += (chunk as Buffer).length;
    // An event stream need not end. Its first event is enough.
    if (size > MAX_BODY || (isStream && (chunk as Buffer).includes('\n\n'))) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, MAX_BODY), cut: size > MAX_BODY };
}

function failureOf(thrown: unknown, signal: AbortSignal): FetchError {
  if (thrown instanceof FetchError) return thrown;
  if (signal.aborted)
    return new FetchError('TIMEOUT', 'The service did not answer in time. The request may have had an effect.');
  const { code = 'unknown', message } = thrown as NodeJS.ErrnoException;
  if (/Tollgate: private-address/.test(message)) return privateAddress('The service');
  return new FetchError('UNREACHABLE', `The service cannot be reached (${code}).`);
}
