/** Owns one HTTP exchange of the fetch server, redirects included; refuses to leave its origin, private addresses, and answers without end. */
import { lookup as systemLookup } from 'node:dns/promises';
import { type IncomingMessage, request as requestPlain } from 'node:http';
import { request as requestSecure } from 'node:https';
import { isIP } from 'node:net';
import { isPublicAddress } from '../../egress/public-address.ts';
import { FetchError, type FetchRequest, resolveInOrigin } from './fetch-scope.ts';

/** An answer, its body as far as it was read. */
export interface FetchResponse {
  readonly url: URL;
  readonly status: number;
  readonly reason: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** The body was longer than what is read. */
  readonly cut: boolean;
}

/** What all requests of one server share. */
export interface FetchScope {
  readonly origin: URL;
  /** Header with the credential; it goes to the origin only. */
  readonly credential?: readonly [name: string, value: string];
  /** Addresses that are not public and were written out by the owner. */
  readonly addresses: readonly string[];
  /** Default: the system's. */
  readonly lookup?: (name: string) => Promise<readonly string[]>;
  /** For all of one exchange; default 25 s. */
  readonly timeoutMs?: number;
}

const TIMEOUT_MS = 25_000;
const MAX_BODY = 2 * 1024 * 1024;
const MAX_REDIRECTS = 5;

/** Sends a request and follows redirects of reading requests within the origin. Throws FetchError. */
export async function exchange(request: FetchRequest, scope: FetchScope): Promise<FetchResponse> {
  const signal = AbortSignal.timeout(scope.timeoutMs ?? TIMEOUT_MS);
  const reads = request.method === 'GET' || request.method === 'HEAD';
  let next = request;
  for (let hops = 0; ; hops += 1) {
    const answer = await send(next, scope, signal);
    const { location } = answer.headers;
    // What was written once must not be written again elsewhere: such an answer is handed over as it is.
    if (location === undefined || !reads || ![301, 302, 303, 307, 308].includes(answer.status)) return answer;
    if (hops === MAX_REDIRECTS) throw new FetchError('REDIRECT_REFUSED', `More than ${MAX_REDIRECTS} redirects.`);
    next = { ...next, url: redirected(location, next.url, scope.origin) };
  }
}

function redirected(location: string, from: URL, origin: URL): URL {
  try {
    return resolveInOrigin(location, origin, from);
  } catch (thrown) {
    throw new FetchError('REDIRECT_REFUSED', `The service redirects away. ${(thrown as FetchError).message}`);
  }
}

function send(
  { url, method, headers, body }: FetchRequest,
  scope: FetchScope,
  signal: AbortSignal,
): Promise<FetchResponse> {
  const { credential } = scope;
  const all = {
    'user-agent': 'tollgate-fetch/1',
    accept: 'text/html, application/json, text/*;q=0.9, */*;q=0.1',
    'accept-encoding': 'identity',
    ...headers,
    ...(credential !== undefined && { [credential[0].toLowerCase()]: credential[1] }),
  };
  return new Promise((resolve, reject) => {
    const start = url.protocol === 'https:' ? requestSecure : requestPlain;
    const outgoing = start(url, {
      method,
      headers: all,
      agent: false,
      signal,
      lookup: checkedLookup(scope) as never,
      ...literalCheck(url, scope),
    });
    outgoing.on('error', (thrown) => reject(failureOf(thrown, signal)));
    outgoing.on('response', (answer) => {
      read(answer).then(
        ({ body: read, cut }) =>
          resolve({
            url,
            status: answer.statusCode ?? 0,
            reason: (answer.statusMessage ?? '').replace(/[^\x20-\x7e]/g, '?'),
            headers: answer.headers,
            body: read,
            cut,
          }),
        (thrown: unknown) => reject(failureOf(thrown, signal)),
      );
    });
    outgoing.end(body);
  });
}

/** An address in the place of a name is not looked up, so it is judged here. */
function literalCheck(url: URL, { addresses }: FetchScope): object {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  if (isIP(host) !== 0 && !isPublicAddress(host) && !addresses.includes(host)) throw privateAddress(url.hostname);
  return {};
}

type Looked = (error: Error | null, found: readonly { readonly address: string; readonly family: number }[]) => void;

/** One resolution, judged whole, and only its addresses are dialled (DNS rebinding). In a sandbox the proxy resolves instead, and judges as strictly. */
function checkedLookup({ lookup, addresses }: FetchScope): (name: string, options: unknown, done: Looked) => void {
  const find =
    lookup ?? (async (name) => (await systemLookup(name, { all: true, verbatim: true })).map(({ address }) => address));
  return (name, _options, done) => {
    find(name).then(
      (found) => {
        const isOpen =
          found.length > 0 && found.every((address) => isPublicAddress(address) || addresses.includes(address));
        done(
          isOpen
            ? null
            : found.length === 0
              ? new FetchError('UNREACHABLE', `${name} has no address.`)
              : privateAddress(name),
          found.map((address) => ({ address, family: isIP(address) })),
        );
      },
      () => done(new FetchError('UNREACHABLE', `${name} has no address.`), []),
    );
  };
}

function privateAddress(name: string): FetchError {
  return new FetchError(
    'PRIVATE_ADDRESS',
    `${name} is at an address of this machine or its networks, which the owner has not written out.`,
  );
}

/** What is longer is cut, and the connection closed: a body without end costs no more than this. */
async function read(answer: IncomingMessage): Promise<{ readonly body: Buffer; readonly cut: boolean }> {
  const chunks: Buffer[] = [];
  const isStream = /^text\/event-stream/i.test(answer.headers['content-type'] ?? '');
  let size = 0;
  for await (const chunk of answer) {
    chunks.push(chunk as Buffer);
    size += (chunk as Buffer).length;
    // A stream of events has no end; its first one is an answer.
    if (size > MAX_BODY || (isStream && (chunk as Buffer).includes('\n\n'))) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, MAX_BODY), cut: size > MAX_BODY };
}

function failureOf(thrown: unknown, signal: AbortSignal): FetchError {
  if (thrown instanceof FetchError) return thrown;
  if (signal.aborted)
    return new FetchError('TIMEOUT', 'The service did not answer in time. What was sent may have had its effect.');
  const { code = 'unknown', message } = thrown as NodeJS.ErrnoException;
  if (/Tollgate: private-address/.test(message))
    return new FetchError(
      'PRIVATE_ADDRESS',
      'The service is at a private address, which the owner has not written out.',
    );
  return new FetchError('UNREACHABLE', `The service cannot be reached (${code}).`);
}
