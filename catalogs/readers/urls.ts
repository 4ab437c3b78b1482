/** The canonical form in which URLs are compared. A URL that programs may read differently has no canonical form. */
import { longPattern } from '../text/long-pattern.ts';
import { parseAuthority, parseHost } from './hosts.ts';

/** A URL as rules read it. All fields are empty if it cannot be read. */
export interface ReadUrl {
  /** Lower case, without the colon. */
  readonly scheme: string;
  /** Lower case, without port; an IPv6 address in brackets, or as the IPv4 address that it stands for. */
  readonly host: string;
  /**
   * `scheme://host:port/path` with the port always written (0: the scheme has none), without user, query and fragment.
   */
  readonly address: string;
}

const PORTS: ReadonlyMap<string, number> = new Map([
  ['http', 80],
  ['https', 443],
  ['ws', 80],
  ['wss', 443],
  ['ftp', 21],
]);

/** Returns the default port of a scheme, 0 if it has none. */
export function portOf(scheme: string): number {
  return PORTS.get(scheme) ?? 0;
}

/**
 * The part of RFC 3986 that every client reads alike: a scheme, `//`, a host with an optional port, and only characters
 * of the grammar. Userinfo, backslashes, spaces, control characters, non-ASCII letters and broken escapes are not in
 * it.
 */
const STRICT = longPattern('i')`
  ^([a-z][a-z0-9+.-]*):\/\/((?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d+)?)
  ((?:\/(?:[\w.~!$&'()*+,;=:@/-]|%[0-9a-f]{2})*)?)
  (?:\?(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9a-f]{2})*)?
  (?:#(?:[\w.~!$&'()*+,;=:@/?-]|%[0-9a-f]{2})*)?$`;
/** Limit of characters in an address. No client accepts more, and the expression over megabytes overflows the stack. */
const MAX_CHARS = 65_536;
const UNREADABLE: ReadUrl = { scheme: '', host: '', address: '' };

/**
 * Reads a URL only if the strict grammar and WHATWG name the same host; decision record 0047 says why. Dots in the path
 * are resolved. A host that ends with a dot, an old form of an IPv4 address, and more than 65,536 characters are
 * unreadable.
 */
export function readUrl(text: string): ReadUrl {
  if (text.length > MAX_CHARS) return UNREADABLE;
  const [, written = '', authority = ''] = STRICT.exec(text) ?? [];
  const scheme = written.toLowerCase();
  // Port 1 means "none written"; parseAuthority accepts no port 0.
  const target = parseAuthority(authority, PORTS.get(scheme) ?? 1);
  if (target === undefined || authority.replace(/:\d+$/, '').endsWith('.') || !URL.canParse(text)) return UNREADABLE;
  const { hostname, port, pathname } = new URL(text);
  const plain = target.kind === 'ipv6' ? `[${target.host}]` : target.host;
  const whatwg = parseHost(hostname.toLowerCase());
  if (whatwg?.host !== target.host) return UNREADABLE;
  const path = canonicalPath(pathname === '' ? '/' : pathname);
  const isPlain = path.startsWith('/') && !isAmbiguous(path);
  return {
    scheme,
    host: plain,
    address: isPlain ? `${scheme}://${plain}:${port === '' ? portOf(scheme) : port}${path}` : '',
  };
}

/** The canonical form of each escape, by its two digits in any case (RFC 3986 §6.2.2). */
const ESCAPES: ReadonlyMap<string, string> = new Map(
  [...'0123456789abcdefABCDEF'].flatMap((high, _at, digits) =>
    digits.map((low): [string, string] => {
      const letter = String.fromCharCode(Number.parseInt(high + low, 16));
      return [high + low, /[A-Za-z0-9._~-]/.test(letter) ? letter : `%${high}${low}`.toUpperCase()];
    }),
  ),
);

/**
 * Returns a path without escapes that are not needed, and with all other escapes in capitals. The parts are looked up
 * in a table, because a callback of `replace` took 0.7 µs for each escape.
 */
export function canonicalPath(path: string): string {
  if (!path.includes('%')) return path;
  return path
    .split('%')
    .map((part, at) => (at === 0 ? part : (ESCAPES.get(part.slice(0, 2)) ?? `%${part.slice(0, 2)}`) + part.slice(2)))
    .join('');
}

const URI = /^([a-z][a-z0-9+.-]*):((?:[\w.~!$&'()*+,;=:@/?#[\]-]|%[0-9a-f]{2})*)$/i;

/**
 * Returns the URI of a resource in canonical form: the scheme in lower case, without needless escapes. Empty if
 * programs could read it in different ways: because of characters that RFC 3986 does not allow, dots as path segments,
 * empty segments, encoded slashes, or `file:` without `///`, and for more than 65,536 characters. Case, port and query
 * stay, because each server reads them in its own way.
 */
export function canonicalUri(uri: string): string {
  if (uri.length > MAX_CHARS) return '';
  const [, scheme, rest] = URI.exec(uri) ?? [];
  if (scheme === undefined || rest === undefined || (/^file$/i.test(scheme) && !rest.startsWith('///'))) return '';
  const plain = canonicalPath(rest);
  const [path = ''] = plain.replace(/^\/\/[^/?#]*/, '').split(/[?#]/, 1);
  return isAmbiguous(`/${path.replace(/^\//, '')}`) ? '' : `${scheme.toLowerCase()}:${plain}`;
}

/**
 * Returns true for a path that programs read differently: encoded slashes, escapes of escapes, empty segments, dots
 * with parameters.
 */
function isAmbiguous(path: string): boolean {
  return /%(2F|5C|00|25)|\/\/|\\|\/\.{1,2}(;|\/|$)/.test(path);
}

/**
 * Returns true if no one can read the traffic to an address: https, or http to this machine. False for a text that is
 * not a URL, or that another program, such as the browser of a sign-in, may read as another host.
 */
export function isConfidential(address: string | URL): boolean {
  if (typeof address === 'string' && readUrl(address).host === '') return false;
  const { protocol, hostname } = new URL(address);
  return protocol === 'https:' || (protocol === 'http:' && /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname));
}

/** Returns what to correct in an address of the configuration; undefined if every program reads it alike. */
export function urlFault(text: string): string | undefined {
  if (readUrl(text).host !== '') return undefined;
  return (
    'programs can read this address differently; write scheme://host/path in ASCII, without backslash, ' +
    'blank, user, dot at the end of the host or an old form of an IPv4 address'
  );
}
