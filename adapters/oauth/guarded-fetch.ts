/**
 * The fetch function for sign-ins, whose addresses come from servers. It refuses plain HTTP, private addresses, and
 * slow or large answers.
 */

import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { Readable } from 'node:stream';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConfidential } from '../../catalogs/readers/urls.ts';
import { type Lookup, lookupBySystem } from '../egress/dial.ts';
import { isPublicAddress } from '../egress/public-address.ts';
import { loginFailed } from './sign-in-credentials.ts';

/** The part of `fetch` that the SDK's sign-in uses. It does not follow redirects. */
export type GuardedFetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

const TIMEOUT_MS = 15_000;
/** Metadata and tokens usually have a few kilobytes. */
const MAX_BYTES = 256 * 1024;

/**
 * Returns a fetch for one sign-in to one server. It resolves each name once, and connects to the checked addresses.
 * It refuses addresses that are not public if the server has a public one, because metadata of a server must not lead
 * into private networks (SSRF). Throws LOGIN_FAILED, and what node:http throws.
 */
export function guardFetch(server: URL, lookup: Lookup = lookupBySystem): GuardedFetch {
  const lookups = new Map<string, Promise<readonly string[]>>();
  const addressesOf = (url: URL): Promise<readonly string[]> => {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const addresses = lookups.get(host) ?? (isIP(host) > 0 ? Promise.resolve([host]) : lookup(host));
    lookups.set(host, addresses);
    return addresses;
  };
  return async (input, init = {}) => {
    const url = new URL(input);
    if (!isConfidential(url)) throw refused(`The address of a sign-in is not https: ${url.protocol}//${url.host}.`);
    const addresses = await addressesOf(url);
    const isPublic = addresses.every(isPublicAddress);
    if (!isPublic && (await addressesOf(server)).some(isPublicAddress))
      throw refused(`The server sends the sign-in to an address that is not public: ${url.host}.`);
    return toResponse(await send(url, init, addresses));
  };
}

function send(url: URL, init: RequestInit, addresses: readonly string[]): Promise<IncomingMessage> {
  const checked = addresses.map((address) => ({ address, family: isIP(address) }));
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  const options = {
    method: init.method ?? 'GET',
    headers: Object.fromEntries(new Headers(init.headers)),
    lookup: (_name: string, _options: unknown, done: (error: null, found: typeof checked) => void) =>
      done(null, checked),
    signal: init.signal == null ? timeout : AbortSignal.any([timeout, init.signal]),
    agent: false as const,
  };
  return new Promise((resolve, reject) => {
    const request = url.protocol === 'https:' ? requestHttps : requestHttp;
    request(url, options as Parameters<typeof requestHttp>[1], resolve)
      .once('error', reject)
      .end(init.body == null ? undefined : String(init.body as string | URLSearchParams));
  });
}

function toResponse(message: IncomingMessage): Response {
  const { statusCode: status = 500 } = message;
  const pairs = Object.entries(message.headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value]),
  );
  const hasNoBody = status === 204 || status === 205 || status === 304;
  if (hasNoBody) message.resume();
  return new Response(
    hasNoBody ? null : (Readable.toWeb(Readable.from(capped(message))) as ReadableStream<Uint8Array>),
    {
      status,
      headers: pairs,
    },
  );
}

async function* capped(message: IncomingMessage): AsyncGenerator<Buffer> {
  let size = 0;
  for await (const chunk of message as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BYTES) throw refused('An answer of the sign-in is larger than 256 KiB.');
    yield chunk;
  }
}

function refused(detail: string): TollgateError {
  return loginFailed(
    detail,
    'Nothing was sent there. Check the url of the server. If it is right, its owner must correct its metadata.',
  );
}
