/**
 * Finds out whether an MCP server, another service, or nothing answers at an address. It sends no credential, and
 * connects to private addresses only if the owner allowed them.
 */
import { lookup } from 'node:dns/promises';
import type { AddressProbe, AddressProbeResult } from '../../port.ts';
import { exchange, type FetchResponse } from './fetch-client.ts';
import { FetchError } from './fetch-scope.ts';

const TIMEOUT_MS = 8000;
const HELLO = {
  jsonrpc: '2.0',
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'tollgate', version: '1' } },
};
const HEADERS = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' };

/** Sends `initialize` as an MCP client does (Streamable HTTP), then closes the session. Never throws a FetchError. */
export const probeAddress: AddressProbe = async (address, addresses) => {
  const url = new URL(address);
  const scope = { origin: new URL(url.origin), addresses, timeoutMs: TIMEOUT_MS };
  try {
    const answer = await exchange({ url, method: 'POST', headers: HEADERS, body: JSON.stringify(HELLO) }, scope);
    const session = answer.headers['mcp-session-id'];
    if (typeof session === 'string')
      await exchange({ url, method: 'DELETE', headers: { ...HEADERS, 'mcp-session-id': session } }, scope).catch(
        () => undefined,
      );
    return classify(answer);
  } catch (thrown) {
    if (!(thrown instanceof FetchError)) throw thrown;
    if (thrown.code === 'PRIVATE_ADDRESS') return { kind: 'private', addresses: await addressesOf(url.hostname) };
    return thrown.code === 'UNREACHABLE' && (await addressesOf(url.hostname)).length === 0
      ? { kind: 'unknown' }
      : { kind: 'unreachable', why: thrown.message };
  }
};

function classify({ status, headers, body }: FetchResponse): AddressProbeResult {
  // RFC 9728: the server requires a sign-in and names its metadata.
  if (status === 401 && /resource_metadata\s*=/i.test(headers['www-authenticate'] ?? ''))
    return { kind: 'mcp', login: true };
  const text = body.toString('utf8');
  const json = /^text\/event-stream/i.test(headers['content-type'] ?? '')
    ? (/^data:(.*)$/m.exec(text)?.[1] ?? '')
    : text;
  try {
    const { jsonrpc, result } = JSON.parse(json) as { jsonrpc?: unknown; result?: { protocolVersion?: unknown } };
    if (jsonrpc === '2.0' && typeof result?.protocolVersion === 'string') return { kind: 'mcp', login: false };
  } catch {
    // The answer is not JSON, so this is another service.
  }
  return { kind: 'web', status };
}

async function addressesOf(name: string): Promise<readonly string[]> {
  const host = name.replace(/^\[|\]$/g, '');
  return lookup(host, { all: true }).then(
    (found) => found.map(({ address }) => address),
    () => [],
  );
}
