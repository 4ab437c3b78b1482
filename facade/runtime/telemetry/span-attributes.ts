/** Attributes of the semantic conventions that spans and metrics share: connections, revisions and errors. */
import type { Attributes } from '@opentelemetry/api';
import type { ServerConfig } from '../../config/config.ts';
import type { ClientAddress } from '../../serve/request-trace.ts';

/** Returns how a client of this transport is connected. */
export function transportOf(transport: 'stdio' | 'http'): Attributes {
  return transport === 'stdio'
    ? { 'network.transport': 'pipe' }
    : { 'network.transport': 'tcp', 'network.protocol.name': 'http', 'network.protocol.version': '1.1' };
}

/** Returns where a client is: a proxy in front of Tollgate, if there is one. Empty without TCP. */
export function clientPlace({ remoteAddress, remotePort }: ClientAddress = {}): Attributes {
  if (remoteAddress === undefined || remotePort === undefined) return {};
  return { 'client.address': remoteAddress, 'client.port': remotePort };
}

/** Returns where a server is. */
export function placeOf({ url, socket }: Pick<ServerConfig, 'url' | 'socket'>): Attributes {
  if (socket !== undefined) return { 'network.transport': 'unix', 'server.address': socket };
  if (url === undefined || !URL.canParse(url)) return { 'network.transport': 'pipe' };
  const { hostname, port, protocol } = new URL(url);
  return {
    ...transportOf('http'),
    'server.address': hostname.replace(/^\[|\]$/g, ''),
    'server.port': port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port),
  };
}

/** Returns the protocol revision, if it is known. */
export function revisionFacts(version: string | undefined): Attributes {
  return version === undefined ? {} : { 'mcp.protocol.version': version };
}

/** Returns what an error is: the number of a JSON-RPC error, or another code. Empty without one. */
export function errorFacts(error: string | undefined): Attributes {
  if (error === undefined) return {};
  return { 'error.type': error, ...(/^-?\d+$/.test(error) && { 'rpc.response.status_code': error }) };
}
