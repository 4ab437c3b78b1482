/** The attributes of connections (semantic conventions, network and server). */
import type { Attributes } from '@opentelemetry/api';
import type { ServerConfig } from '../../config/config.ts';

/** Returns how a client of this transport is connected. */
export function transportOf(transport: 'stdio' | 'http'): Attributes {
  return transport === 'stdio'
    ? { 'network.transport': 'pipe' }
    : { 'network.transport': 'tcp', 'network.protocol.name': 'http', 'network.protocol.version': '1.1' };
}

/** Returns where a server is. */
export function placeOf({ url, socket }: Pick<ServerConfig, 'url' | 'socket'>): Attributes {
  if (socket !== undefined) return { 'network.transport': 'pipe', 'server.address': socket };
  if (url === undefined || !URL.canParse(url)) return { 'network.transport': 'pipe' };
  const { hostname, port, protocol } = new URL(url);
  return {
    'network.transport': 'tcp',
    'network.protocol.name': 'http',
    'server.address': hostname.replace(/^\[|\]$/g, ''),
    'server.port': port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port),
  };
}
