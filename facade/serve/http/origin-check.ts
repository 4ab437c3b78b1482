/**
 * Checks the Host and Origin headers. A web page could let its own name resolve to this machine, so only listed names
 * are accepted.
 */
import { isIPv6 } from 'node:net';
import type { ListenConfig } from '../../config/config.ts';

/** Judges the two headers in which a browser says where a request comes from and where it goes. */
export interface OriginCheck {
  /** Returns whether the Host header names this listener. A missing one does not. */
  allowsHost(host: string | undefined): boolean;
  /**
   * Returns whether a request with this Origin may be served. Programs send none; the origin of a page must be listed
   * or Tollgate's own.
   */
  allowsOrigin(origin: string | undefined): boolean;
}

const LOOPBACK = ['localhost', '127.0.0.1', '[::1]'];
const WILDCARDS = ['0.0.0.0', '::', '[::]'];

/** Returns the host as it appears in a URL: IPv6 in brackets, a wildcard as the loopback address. */
export function urlHost(host: string): string {
  if (WILDCARDS.includes(host)) return '127.0.0.1';
  return host.includes(':') && !host.startsWith('[') ? `[${host}]` : host;
}

/**
 * Returns the check of a listener on `port`. Hosts: the loopback names and the listening address with the port, and
 * `listen.hosts` (an entry without a port is accepted with and without the port). Origins: `listen.origins` and
 * Tollgate's own on loopback. Attack: DNS rebinding (CVE-2025-66414): a page's own name resolves to 127.0.0.1, so only
 * names can tell.
 */
export function createOriginCheck(listen: ListenConfig, port: number): OriginCheck {
  const names = [...LOOPBACK, urlHost(listen.host)];
  const hosts = new Set(names.flatMap((name) => (port === 80 ? [name, `${name}:80`] : [`${name}:${port}`])).map(lower));
  for (const entry of listen.hosts.map((host) => lower(isIPv6(host) ? `[${host}]` : host))) {
    hosts.add(entry);
    if (!/^(\[[^\]]*\]|[^:]*):\d+$/.test(entry)) hosts.add(`${entry}:${port}`);
  }
  const origins = new Set(
    LOOPBACK.flatMap((name) => (port === 80 ? [`http://${name}`, `http://${name}:80`] : [`http://${name}:${port}`])),
  );
  // Every sandboxed frame and every file: page sends `null`, and `*` is no origin, so neither identifies anyone.
  for (const entry of listen.origins.map(lower))
    if (entry !== 'null' && entry !== '*') origins.add(entry.replace(/\/$/, ''));
  return {
    allowsHost: (host) => host !== undefined && hosts.has(lower(host)),
    allowsOrigin: (origin) => origin === undefined || origins.has(lower(origin)),
  };
}

function lower(text: string): string {
  return text.toLowerCase();
}
