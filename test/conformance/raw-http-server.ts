/** Runs an MCP server over HTTP in this process, whose answers are given as text. It checks nothing. */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text as readText } from 'node:stream/consumers';
import type { Step } from '../protocol/protocol-facade.ts';

/** How the server answers: a JSON body, or an event stream. */
export type AnswerForm = 'json' | 'sse';

/** A running server. The keys of `answers` are `METHOD NAME` or `METHOD`, as in test/fixtures/protocol-server.mjs. */
export interface RawHttpServer {
  readonly url: string;
  answers: Readonly<Record<string, Step>>;
  close(): void;
}

interface Asked {
  readonly id?: number | string;
  readonly method: string;
  readonly params?: { readonly name?: string; readonly uri?: string };
}

/** Starts a server on a free port of loopback. */
export async function startRawHttp(form: AnswerForm, capabilities: unknown): Promise<RawHttpServer> {
  const server = createServer(async (request, response) => {
    if (request.method !== 'POST') return void response.writeHead(405).end();
    const { id, method, params = {} } = JSON.parse(await readText(request)) as Asked;
    if (id === undefined) return void response.writeHead(202).end();
    if (method === 'initialize') return send(response, 'json', `{"jsonrpc":"2.0","id":${id},"result":${hello()}}`);
    const step = raw.answers[`${method} ${params.name ?? params.uri}`] ?? raw.answers[method];
    const member = step?.error === undefined ? `"result":${step?.raw ?? '{}'}` : `"error":${step.error}`;
    send(response, form, `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${member}}`);
  });
  const hello = (): string =>
    JSON.stringify({ protocolVersion: '2025-11-25', capabilities, serverInfo: { name: 'raw', version: '1.0.0' } });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const raw: RawHttpServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    answers: {},
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
  return raw;
}

function send(response: ServerResponse, form: AnswerForm, message: string): void {
  if (form === 'json') response.writeHead(200, { 'content-type': 'application/json' }).end(message);
  else response.writeHead(200, { 'content-type': 'text/event-stream' }).end(`event: message\ndata: ${message}\n\n`);
}
