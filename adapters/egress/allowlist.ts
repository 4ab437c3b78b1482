/** Decides which targets one server may reach: only those that an entry names. */

import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { isConsole } from '../../catalogs/readers/console-ports.ts';
import { type Domain, namesHost, parseDomain, WEB_PORTS } from '../../catalogs/readers/domains.ts';
import { type Authority, parseHost } from '../../catalogs/readers/hosts.ts';
import { isPublicAddress } from './public-address.ts';

const LOOPBACK: readonly string[] = ['127.0.0.1', '::1'];

/**
 * The allowed and denied domains of a server, parsed once. The constructor throws CONFIG_INVALID for an invalid entry.
 */
export class Allowlist {
  readonly #entries: readonly Domain[];
  readonly #denied: readonly Domain[];
  readonly #closed: readonly string[];

  /** `closed`: see Confinement.closedHosts; it and `denied` win over `domains`. */
  constructor(domains: readonly string[], closed: readonly string[] = [], denied: readonly string[] = []) {
    this.#entries = domains.map((text) => read(text, 'An allowed'));
    this.#denied = denied.map((text) => read(text, 'A denied'));
    this.#closed = closed;
  }

  /**
   * Returns true if an entry names this host, or a domain above it, with this port, and no entry denies or closes it.
   */
  allows(target: Authority): boolean {
    return (
      !this.#refuses(target) && this.#entries.some((entry) => opensPort(entry, target.port) && namesHost(entry, target))
    );
  }

  /**
   * Returns true if a target may be dialled at this address. A public address may. Any other address must be in the
   * list itself, with the port, so that no name server can lead a server into the host's networks. A denied or closed
   * address is never dialled, whatever name led to it. The name `localhost` stands for the loopback addresses.
   */
  admits({ host, port }: Authority, address: string): boolean {
    const named = parseHost(address.includes(':') ? `[${address}]` : address);
    // An address in an unclear notation could be a denied one.
    if (named === undefined || this.#refuses({ ...named, port })) return false;
    if (isPublicAddress(address)) return true;
    if (host === 'localhost' && LOOPBACK.includes(address)) return true;
    return this.#entries.some((entry) => !entry.below && entry.host === named.host && opensPort(entry, port));
  }

  /** Returns true if the host's loopback is a target. The server's loopback addresses then mean the host's. */
  get namesLoopback(): boolean {
    return this.#entries.some(({ host }) => host === 'localhost' || host.startsWith('127.') || host === '::1');
  }

  #refuses(target: Authority): boolean {
    return (
      isConsole(target.host, target.port) ||
      this.#denied.some((entry) => (entry.port ?? target.port) === target.port && namesHost(entry, target)) ||
      this.#closed.some((pattern) => closes(pattern, target))
    );
  }
}

function read(text: string, which: string): Domain {
  const entry = parseDomain(text);
  if ('fault' in entry) throw new TollgateError('CONFIG_INVALID', { detail: `${which} domain is ${entry.fault}.` });
  return entry;
}

function opensPort({ port }: Domain, wanted: number): boolean {
  return port === undefined ? WEB_PORTS.includes(wanted) : port === wanted;
}

function closes(pattern: string, { host, kind, port }: Authority): boolean {
  const [, name = '', only] = /^(\[.*\]|[^:]*)(?::(\d+))?$/.exec(pattern) ?? [];
  const shown = kind === 'ipv6' ? `[${host}]` : host;
  return (
    (only === undefined || Number(only) === port) &&
    (name === '*' || shown === name || (name.startsWith('*.') && host.endsWith(name.slice(1))))
  );
}
