/** Owns the one way in which text becomes a host and a port; refuses every spelling that two readers could read differently. */
import { isIPv4, isIPv6 } from 'node:net';
import { domainToASCII } from 'node:url';

/** A host in its one spelling: lower case, no trailing dot, ASCII; an IPv6 address compressed and without brackets. */
export interface Host {
  readonly host: string;
  readonly kind: 'name' | 'ipv4' | 'ipv6';
}

/** Where a connection shall go. */
export interface Target extends Host {
  readonly port: number;
}

const MAX_NAME = 253;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** What `inet_aton` and URL parsers would take as a number, and so as (part of) an IPv4 address. */
const NUMERIC = /^(?:\d+|0x[\da-f]*)$/;

/**
 * Reads a host (RFC 3986 §3.2.2, less percent-encoding, userinfo, zone ids and the old forms of IPv4: octal, hex, short,
 * decimal). Undefined for everything else.
 */
export function parseHost(text: string): Host | undefined {
  if (/[^\x21-\x7e]/.test(text)) return undefined;
  if (text.startsWith('[') && text.endsWith(']')) return parseIPv6(text.slice(1, -1));
  const host = text.toLowerCase().replace(/\.$/, '');
  const labels = host.split('.');
  if (host.length > MAX_NAME || !labels.every((label) => LABEL.test(label))) return undefined;
  if (NUMERIC.test(labels.at(-1) ?? '')) return isIPv4(host) ? { host, kind: 'ipv4' } : undefined;
  // Broken punycode is read one way by a resolver and another by a certificate check.
  if (host.includes('xn--') && domainToASCII(host) !== host) return undefined;
  return { host, kind: 'name' };
}

function parseIPv6(text: string): Host | undefined {
  // isIPv6 takes zone ids, which choose an interface of the host.
  if (!isIPv6(text) || text.includes('%')) return undefined;
  return { host: new URL(`http://[${text}]/`).hostname.slice(1, -1), kind: 'ipv6' };
}

/** Reads `host:port`. Without a port it takes `fallback`, and is refused when there is none. */
export function parseAuthority(text: string, fallback?: number): Target | undefined {
  const [, name = '', digits] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(text) ?? [];
  const host = parseHost(name);
  const port = digits === undefined ? fallback : parsePort(digits);
  return host === undefined || port === undefined ? undefined : { ...host, port };
}

/** A port from 1 to 65535, without sign, blanks or leading zeros. */
function parsePort(text: string): number | undefined {
  return /^[1-9]\d{0,4}$/.test(text) && Number(text) <= 65_535 ? Number(text) : undefined;
}

/** A target as people write it. */
export function showTarget({ host, kind, port }: Target): string {
  return `${kind === 'ipv6' ? `[${host}]` : host}:${port}`;
}

/** True for an address that nobody between here and there can read along: https, or http to this machine. False for text that is no URL. */
export function isConfidential(address: string | URL): boolean {
  if (!URL.canParse(address)) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === 'https:' || (protocol === 'http:' && /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(hostname));
}
