/**
 * Parses allowed and denied domains: a host, or `*.` and a host, with or without a port. Patterns that mean more than
 * they seem to are refused.
 */
import { domainToASCII } from 'node:url';
import { type Host, parseAuthority } from './hosts.ts';

/** Ports of an allowed domain without a port: those of HTTP and HTTPS. */
export const WEB_PORTS: readonly number[] = [80, 443];

/** One entry of `allowedDomains` or `deniedDomains`. */
export interface Domain extends Host {
  /** True for `*.host`: all names below, but not the host itself. */
  readonly below: boolean;
  /** If absent: 80 and 443 for an allowed domain, all ports for a denied one. */
  readonly port?: number;
}

/** Returns whether an entry names this host, or a domain above it; ports are ignored. */
export function namesHost({ below, host }: Domain, target: Pick<Host, 'host'>): boolean {
  return below ? target.host.endsWith(`.${host}`) : target.host === host;
}

/** Reads one entry. A refusal says what is wrong and what to write. */
export function parseDomain(text: string): Domain | { readonly fault: string } {
  if (text.includes('/'))
    return {
      fault: 'an address with a scheme or a path, but only hosts can be allowed; write example.org or example.org:8443',
    };
  const below = text.startsWith('*.');
  const [, name = '', port] = /^(\[.*\]|[^:]*)(:.*)?$/.exec(below ? text.slice(2) : text) ?? [];
  if (name.includes('*'))
    return { fault: 'a * that is not at the beginning; write *.example.org for all names below example.org' };
  // People may write a name in their own letters; in the protocol it is ASCII.
  const host = parseAuthority((/^[\x21-\x7e]*$/.test(name) ? name : domainToASCII(name)) + (port ?? ''), WEB_PORTS[0]);
  if (host === undefined)
    return {
      fault: 'not a host; write a name, an IPv4 address or [an IPv6 address], and :port if it is neither 80 nor 443',
    };
  if (below && (host.kind !== 'name' || !host.host.includes('.')))
    return { fault: 'a * before an address or a name without a dot would allow strangers; write *.example.org' };
  return { host: host.host, kind: host.kind, below, ...(port !== undefined && { port: host.port }) };
}
