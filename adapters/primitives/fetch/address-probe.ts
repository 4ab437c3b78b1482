/** Owns the question what answers at an address: an MCP server, another service, or nothing; sends no credential, and refuses private addresses that were not written out. */
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

/** Greets the address as an MCP client would (Streamable HTTP). Never throws. */
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
    return judge(answer);
  } catch (thrown) {
    if (!(thrown instanceof FetchError)) throw thrown;
    if (thrown.code === 'PRIVATE_ADDRESS') return { kind: 'private', addresses: await addressesOf(url.hostname) };
    return thrown.code === 'UNREACHABLE' && (await isUnknown(url.hostname))
      ? { kind: 'unknown' }
      : { kind: 'unreachable', why: thrown.message };
  }
};

function judge({ status, headers, body }: FetchResponse): AddressProbeResult {
  // RFC 9728: who answers so wants a sign-in, and says where.
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
    // Another service answers in its own words.
  }
  return { kind: 'web', status };
}

async function isUnknown(name: string): Promise<boolean> {
  return (await addressesOf(name)).length === 0;
}

async function addressesOf(name: string): Promise<readonly string[]> {
  const host = name.replace(/^\[|\]$/g, '');
  return lookup(host, { all: true }).then(
    (found) => found.map(({ address }) => address),
    () => [],
  );
}
