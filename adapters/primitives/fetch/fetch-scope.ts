/** Owns what the fetch server may reach: one origin, written one way; refuses every other address, header and method. */
import { parseHost } from '../../../catalogs/readers/hosts.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';

/** Why something was refused, for the model and for tests; the words say what to do. */
export type FetchCode =
  | 'BAD_ADDRESS'
  | 'OTHER_HOST'
  | 'BAD_HEADER'
  | 'BAD_BODY'
  | 'REDIRECT_REFUSED'
  | 'PRIVATE_ADDRESS'
  | 'UNREACHABLE'
  | 'TIMEOUT'
  | 'NOT_TEXT';

/** A refusal or failure of one fetch. The message is public. */
export class FetchError extends Error {
  readonly code: FetchCode;

  constructor(code: FetchCode, message: string) {
    super(message);
    this.code = code;
  }
}

export const FETCH_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'] as const;
export type FetchMethod = (typeof FETCH_METHODS)[number];

/** Headers that a caller may set: what asks for a form of the answer, or describes the body. Never the one that holds the credential. */
const HEADERS: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'content-type',
  'if-match',
  'if-none-match',
  'if-modified-since',
  'idempotency-key',
]);
const MAX_HEADER = 1024;
const MAX_BODY = 1024 * 1024;

/** The arguments of one call. */
export interface FetchArgs {
  readonly url?: string;
  readonly path?: string;
  readonly method?: FetchMethod;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** A request that may be sent. */
export interface FetchRequest {
  readonly url: URL;
  readonly method: FetchMethod;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Reads the origin that a server is made for: scheme, host and port alone. Throws FetchError. */
export function readOrigin(text: string): URL {
  const url = parse(text);
  if (url === undefined || url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new FetchError('BAD_ADDRESS', 'The origin is no scheme, host and port, such as https://tracker.example.org.');
  return url;
}

/** The request of a call, bound to the origin. Throws FetchError. */
export function requestOf({ url, path, method = 'GET', headers = {}, body }: FetchArgs, origin: URL): FetchRequest {
  if ((url === undefined) === (path === undefined)) throw new FetchError('BAD_ADDRESS', 'Give either path or url.');
  if (path !== undefined && !path.startsWith('/')) throw new FetchError('BAD_ADDRESS', 'A path begins with /.');
  if (body !== undefined && (method === 'GET' || method === 'HEAD'))
    throw new FetchError('BAD_BODY', `${method} has no body; take POST, PUT or PATCH, or leave it out.`);
  if (Buffer.byteLength(body ?? '') > MAX_BODY) throw new FetchError('BAD_BODY', 'The body is larger than 1 MiB.');
  return {
    url: resolveInOrigin(path ?? url ?? '', origin),
    method,
    headers: headersOf(headers),
    ...(body !== undefined && { body }),
  };
}

/** An address of the origin, resolved against `base`. Throws FetchError for another host, scheme or port. */
export function resolveInOrigin(text: string, origin: URL, base: URL = origin): URL {
  // WHATWG drops tabs and line breaks and turns \ into /: two readers would read such a text differently.
  if (/[\u0000-\u0020\\\u007f]/.test(text))
    throw new FetchError('BAD_ADDRESS', 'The address holds a blank, a control character or a backslash; escape it.');
  const url = parse(text, base);
  if (url === undefined)
    throw new FetchError(
      'BAD_ADDRESS',
      'The address is none, holds a user or password, or can be read in two ways; write it in ASCII and escape the rest with %.',
    );
  if (url.origin !== origin.origin)
    throw new FetchError('OTHER_HOST', `Only ${origin.origin} is reached here, not ${url.host.slice(0, 100)}.`);
  url.hash = '';
  return url;
}

function parse(text: string, base?: URL): URL | undefined {
  // An absolute address is what a policy judged, and what an owner reads: it must mean one host to everyone.
  if ((base === undefined || /^[a-z][a-z0-9+.-]*:/i.test(text)) && readUrl(text).host === '') return undefined;
  if (!URL.canParse(text, base)) return undefined;
  const url = new URL(text, base);
  if (
    !/^https?:$/.test(url.protocol) ||
    url.username !== '' ||
    url.password !== '' ||
    /^[a-z]+:\/\/[^/?#]*@/i.test(text)
  )
    return undefined;
  return parseHost(url.hostname) === undefined ? undefined : url;
}

function headersOf(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => {
      const key = name.toLowerCase();
      if (!HEADERS.has(key))
        throw new FetchError(
          'BAD_HEADER',
          `This header is not set here; those that may be are ${[...HEADERS].join(', ')}.`,
        );
      if (!/^[\t\x20-\x7e]*$/.test(value) || value.length > MAX_HEADER)
        throw new FetchError(
          'BAD_HEADER',
          `The value of ${key} holds a line break or another character that HTTP refuses, or is longer than ${MAX_HEADER}.`,
        );
      return [key, value];
    }),
  );
}
