/** Owns the domains that a server may reach; refuses patterns that say more than their reader thinks. */
import { domainToASCII } from 'node:url';
import { isPublic } from './address.ts';
import { parseAuthority, parseHost } from './host.ts';
import type { Host, Target } from './host.ts';

/** Ports of an entry that names none: those of HTTP and HTTPS. */
const WEB_PORTS: readonly number[] = [80, 443];
const LOOPBACK: readonly string[] = ['127.0.0.1', '::1'];

interface Entry extends Host {
  /** `*.` stood before it: names below, never the name itself. */
  readonly below: boolean;
  readonly ports: readonly number[];
}

/** Why an entry of `allowedDomains` cannot be used, and what to write; undefined when it can. */
export function domainFault(text: string): string | undefined {
  const entry = parseEntry(text);
  return typeof entry === 'string' ? entry : undefined;
}

function parseEntry(text: string): Entry | string {
  if (/^[a-z][a-z\d+.-]*:\/\//i.test(text) || text.includes('/')) return 'an address with a scheme or a path; only hosts can be allowed: write example.org or example.org:8443';
  const below = text.startsWith('*.');
  const rest = below ? text.slice(2) : text;
  if (rest.includes('*')) return 'a * elsewhere than in front; write *.example.org for all names below example.org';
  const [, name = '', port] = /^(\[.*\]|[^:]*)(:.*)?$/.exec(rest) ?? [];
  const ascii = /^[\x21-\x7e]*$/.test(name) ? name : domainToASCII(name);
  const target = parseAuthority(ascii + (port ?? ''), WEB_PORTS[0]);
  if (target === undefined) return 'not a host; write a name, an IPv4 address or [an IPv6 address], with :port where it is not 80 or 443';
  if (below && (target.kind !== 'name' || !target.host.includes('.'))) return 'a * before a top-level domain or an address allows strangers; name the domain: *.example.org';
  return { host: target.host, kind: target.kind, below, ports: port === undefined ? WEB_PORTS : [target.port] };
}

/** Which targets a server may reach. Made of entries that `domainFault` accepts; throws RangeError on others. */
export class Allowlist {
  readonly #entries: readonly Entry[];

  constructor(domains: readonly string[]) {
    this.#entries = domains.map((text) => {
      const entry = parseEntry(text);
      if (typeof entry === 'string') throw new RangeError(`allowed domain: ${entry}`);
      return entry;
    });
  }

  /** Whether an entry names this very host, or a domain above it, with this port. */
  allows({ host, port }: Target): boolean {
    return this.#entries.some((entry) => entry.ports.includes(port) && (entry.below ? host.endsWith(`.${entry.host}`) : host === entry.host));
  }

  /**
   * Whether a target may be dialled at this address. A public one may; any other must be in the list itself, with the port,
   * so that no name server can send a server into the host's networks. The name `localhost` stands for the loopback addresses.
   */
  admits({ host, port }: Target, address: string): boolean {
    if (isPublic(address)) return true;
    if (host === 'localhost' && LOOPBACK.includes(address)) return true;
    const named = parseHost(address.includes(':') ? `[${address}]` : address);
    return named !== undefined && this.#entries.some((entry) => !entry.below && entry.host === named.host && entry.ports.includes(port));
  }

  /** Whether the host's own loopback is among the targets: then a server's loopback addresses mean that one. */
  get namesLoopback(): boolean {
    return this.#entries.some(({ host }) => host === 'localhost' || host.startsWith('127.') || host === '::1');
  }
}
