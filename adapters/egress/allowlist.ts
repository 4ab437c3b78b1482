/** Owns the targets that one server may reach; refuses all that no entry names. */
import { parseDomain } from '../../catalogs/domains.ts';
import type { Domain } from '../../catalogs/domains.ts';
import { parseHost } from '../../catalogs/hosts.ts';
import type { Target } from '../../catalogs/hosts.ts';
import { TollgateError } from '../../catalogs/errors.ts';
import { isPublic } from './address.ts';

const LOOPBACK: readonly string[] = ['127.0.0.1', '::1'];

/** The allowed domains of a server, read once. The constructor throws CONFIG_INVALID for an entry that is none. */
export class Allowlist {
  readonly #entries: readonly Domain[];
  readonly #closed: readonly string[];

  /** `closed`: see Confinement.closedHosts. */
  constructor(domains: readonly string[], closed: readonly string[] = []) {
    this.#closed = closed;
    this.#entries = domains.map((text) => {
      const entry = parseDomain(text);
      if ('fault' in entry) throw new TollgateError('CONFIG_INVALID', { detail: `An allowed domain is ${entry.fault}.` });
      return entry;
    });
  }

  /** Whether an entry names this very host, or a domain above it, with this port, and no rule closes it. */
  allows(target: Target): boolean {
    const { host, port } = target;
    return !this.#closed.some((pattern) => closes(pattern, target)) && this.#entries.some((entry) => entry.ports.includes(port) && (entry.below ? host.endsWith(`.${entry.host}`) : host === entry.host));
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

function closes(pattern: string, { host, kind, port }: Target): boolean {
  const [, name = '', only] = /^(\[.*\]|[^:]*)(?::(\d+))?$/.exec(pattern) ?? [];
  const shown = kind === 'ipv6' ? `[${host}]` : host;
  return (only === undefined || Number(only) === port) && (name === '*' || shown === name || (name.startsWith('*.') && host.endsWith(name.slice(1))));
}
