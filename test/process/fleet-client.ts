/** An HTTP client of `tollgate serve` that opens a new connection for each request, as behind a load balancer. */
import { readFileSync } from 'node:fs';
import { type IncomingHttpHeaders, request } from 'node:http';
import type { Child } from './child.ts';

/** An answer. */
export interface FleetAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/** Where a process listens, and its token. */
export interface FleetAddress {
  readonly url: URL;
  readonly token: string;
}

/** Returns the address that a process prints with `--json`. */
export async function addressOf(child: Child): Promise<FleetAddress> {
  const { url, tokenFile } = JSON.parse(await child.firstLine()) as { url: string; tokenFile: string };
  return { url: new URL(url), token: readFileSync(tokenFile, 'utf8').trim() };
}

/** Sends one request. Rejects if the connection breaks. */
export function send(
  { url, token }: FleetAddress,
  {
    method = 'POST',
    path = '/mcp',
    session,
    body,
  }: { readonly method?: string; readonly path?: string; readonly session?: string; readonly body?: unknown },
): Promise<FleetAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: url.hostname,
        port: url.port,
        method,
        path,
        agent: false,
        headers: {
          authorization: `Bearer ${token}`,
          accept: 'application/json, text/event-stream',
          'content-type': 'application/json',
          ...(session !== undefined && { 'mcp-session-id': session }),
        },
      },
      (response) => {
        let text = '';
        response
          .setEncoding('utf8')
          .on('data', (chunk: string) => void (text += chunk))
          .on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }))
          .on('error', reject);
      },
    );
    sent.on('error', reject).end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** Opens a session and returns its id. */
export async function openSession(at: FleetAddress): Promise<string> {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } };
  const { headers } = await send(at, { body: { jsonrpc: '2.0', id: 1, method: 'initialize', params } });
  return String(headers['mcp-session-id']);
}

/** Calls a tool in a session. */
export function callTool(
  at: FleetAddress,
  session: string,
  params: Readonly<Record<string, unknown>>,
): Promise<FleetAnswer> {
  return send(at, { session, body: { jsonrpc: '2.0', id: 2, method: 'tools/call', params } });
}
