/** Parses hosts and ports. A spelling that two programs could read differently is refused. */
import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/**
 * A host in its one spelling: lower case, no trailing dot, ASCII; an IPv6 address compressed and without brackets, or
 * as the IPv4 address in it.
 */
export interface Host {
  readonly host: string;
  readonly kind: 'name' | 'ipv4' | 'ipv6';
}

/** The target of a connection. */
export interface Authority extends Host {
  readonly port: number;
}

const MAX_NAME = 253;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** What `inet_aton` and URL parsers read as a number, and so as part of an IPv4 address. */
const NUMERIC = /^(?:\d+|0x[\da-f]*)$/;

/**
 * Reads a host (RFC 3986 §3.2.2, without percent-encoding, userinfo, zone ids and the old forms of IPv4: octal, hex,
 * short, decimal). Undefined for everything else.
 */
export function parseHost(text: string): Host | undefined {
  if (text.length > MAX_NAME + 1 || /[^\x21-\x7e]/.test(text)) return undefined;
  if (text.startsWith('[') && text.endsWith(']')) return parseIPv6(text.slice(1, -1));
  const host = text.toLowerCase().replace(/\.$/, '');
  const labels = host.split('.');
  if (host.length > MAX_NAME || !labels.every((label) => LABEL.test(label))) return undefined;
  if (NUMERIC.test(labels.at(-1) ?? '')) return isIPv4(host) ? { host, kind: 'ipv4' } : undefined;
  // A resolver and a certificate check may read broken punycode differently.
  if (host.includes('xn--') && domainToASCII(host) !== host) return undefined;
  return { host, kind: 'name' };
}

function parseIPv6(text: string): Host | undefined {
  // isIPv6 accepts zone ids, which choose an interface of the host.
  if (!isIPv6(text) || text.includes('%')) return undefined;
  const host = new URL(`http://[${text}]/`).hostname.slice(1, -1);
  const embedded = embeddedIPv4(groupsOf(host));
  if (embedded === 'unclear') return undefined;
  return embedded === undefined ? { host, kind: 'ipv6' } : { host: embedded, kind: 'ipv4' };
}

/** Returns the eight groups of a compressed address. */
function groupsOf(host: string): readonly number[] {
  const [head = '', tail] = host.split('::');
  const read = (part: string): number[] =>
    part
      .split(':')
      .filter((group) => group !== '')
      .map((group) => Number.parseInt(group, 16));
  const [front, back] = [read(head), read(tail ?? '')];
  return [...front, ...Array.from({ length: 8 - front.length - back.length }, () => 0), ...back];
}

/**
 * Returns the IPv4 address that a packet to an IPv6 address may reach: mapped (::ffff:0:0/96), translated
 * (::ffff:0:0:0/96), compatible (::/96), NAT64 (64:ff9b::/96, RFC 6052) and 6to4 (2002::/16, RFC 3056). `unclear` if a
 * network chooses its position (64:ff9b:1::/48, RFC 8215), if there are two (Teredo, RFC 4380), and for ISATAP (RFC
 * 5214).
 */
function embeddedIPv4(groups: readonly number[]): string | 'unclear' | undefined {
  const [a = 0, b = 0, c = 0, , e = 0, f = 0, g = 0, h = 0] = groups;
  const isZeroTo = (end: number): boolean => groups.slice(0, end).every((group) => group === 0);
  if (a === 0x2001 && b === 0) return 'unclear';
  if (a === 0x64 && b === 0xff9b) return groups.slice(2, 6).every((group) => group === 0) ? dotted(g, h) : 'unclear';
  if (a === 0x2002) return dotted(b, c);
  if (f === 0x5efe && (e & 0xfcff) === 0) return 'unclear';
  const isMapped = (isZeroTo(5) && f === 0xffff) || (isZeroTo(4) && e === 0xffff && f === 0);
  // :: and ::1 are addresses of IPv6 itself.
  const isCompatible = isZeroTo(6) && (g !== 0 || h > 1);
  return isMapped || isCompatible ? dotted(g, h) : undefined;
}

function dotted(high: number, low: number): string {
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** Reads `host:port`. Without a port it uses `fallback`, and is refused if there is none. */
export function parseAuthority(text: string, fallback?: number): Authority | undefined {
  const [, name = '', digits] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(text) ?? [];
  const host = parseHost(name);
  const port = digits === undefined ? fallback : parsePort(digits);
  return host === undefined || port === undefined ? undefined : { ...host, port };
}

/** Returns a port from 1 to 65535; undefined for another number, a sign, spaces or leading zeros. */
function parsePort(text: string): number | undefined {
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined;
}

/** Returns a target as people write it. */
export function formatAuthority({ host, kind, port }: Authority): string {
  return `${kind === 'ipv6' ? `[${host}]` : host}:${port}`;
}
