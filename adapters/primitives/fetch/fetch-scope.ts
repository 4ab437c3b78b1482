/** Checks the requests of the fetch server: one origin, unambiguous URLs, and a fixed list of headers and methods. */
import { parseHost } from '../../../catalogs/readers/hosts.ts';
import { readUrl } from '../../../catalogs/readers/urls.ts';

/** Why a fetch was refused or failed. The message of the error says what to do. */
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

/**
 * Headers that a caller may set: content negotiation, conditional requests and the type of the body. The header of the
 * credential must not be among them.
 */
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

/** A request that passed all checks. */
export interface FetchRequest {
  readonly url: URL;
  readonly method: FetchMethod;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Parses the origin of a fetch server: only scheme, host and port. Throws FetchError. */
export function readOrigin(text: string): URL {
  const url = parse(text);
  if (url === undefined || url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new FetchError(
      'BAD_ADDRESS',
      'The origin must be a scheme, host and port only, such as https://tracker.example.org.',
    );
  return url;
}

/** Builds the request of a call and checks that it stays within the origin. Throws FetchError. */
export function requestOf({ url, path, method = 'GET', headers = {}, body }: FetchArgs, origin: URL): FetchRequest {
  if ((url === undefined) === (path === undefined)) throw new FetchError('BAD_ADDRESS', 'Give either path or url.');
  if (path !== undefined && !path.startsWith('/')) throw new FetchError('BAD_ADDRESS', 'path must start with /.');
  if (body !== undefined && (method === 'GET' || method === 'HEAD'))
    throw new FetchError('BAD_BODY', `${method} requests have no body. Use POST, PUT or PATCH, or omit body.`);
  if (Buffer.byteLength(body ?? '') > MAX_BODY) throw new FetchError('BAD_BODY', 'The body is larger than 1 MiB.');
  return {
    url: resolveInOrigin(path ?? url ?? '', origin),
    method,
    headers: headersOf(headers),
    ...(body !== undefined && { body }),
  };
}

/** Resolves a URL against `base`. Throws FetchError if its host, scheme or port is not that of the origin. */
export function resolveInOrigin(text: string, origin: URL, base: URL = origin): URL {
  // WHATWG URL drops tabs and line breaks and turns \ into /. Another parser would read a different address.
  if (/[\u0000-\u0020\\\u007f]/.test(text))
    throw new FetchError(
      'BAD_ADDRESS',
      'The URL contains a space, a control character or a backslash. Percent-encode it.',
    );
  const url = parse(text, base);
  if (url === undefined)
    throw new FetchError(
      'BAD_ADDRESS',
      'The URL is invalid, contains a user name or password, or is ambiguous. ' +
        'Write it in ASCII and percent-encode all other characters.',
    );
  if (url.origin !== origin.origin)
    throw new FetchError('OTHER_HOST', `This server reaches only ${origin.origin}, not ${url.host.slice(0, 100)}.`);
  url.hash = '';
  return url;
}

function parse(text: string, base?: URL): URL | undefined {
  // The policy judges absolute URLs, and an owner reads them. All parsers must find the same host in them.
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
        throw new FetchError('BAD_HEADER', `This header cannot be set. Allowed headers: ${[...HEADERS].join(', ')}.`);
      if (!/^[\t\x20-\x7e]*$/.test(value) || value.length > MAX_HEADER)
        throw new FetchError(
          'BAD_HEADER',
          `The value of ${key} contains a line break or another character that HTTP does not allow, ` +
            `or is longer than ${MAX_HEADER} characters.`,
        );
      return [key, value];
    }),
  );
}
