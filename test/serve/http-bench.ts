/** A real listener in front of the fake facade, and plain HTTP requests to it. */
import { type IncomingHttpHeaders, request as open } from 'node:http';
import type { ListenConfig } from '../../facade/config/config.ts';
import { type HttpOptions, type HttpServer, serveHttp } from '../../facade/serve/http/http-listener.ts';
import { ALICE, BOB, FakeFacade, initialize } from './fake-facade.ts';

export const LISTEN: ListenConfig = {
  host: '127.0.0.1',
  port: 0,
  hosts: [],
  origins: [],
  auth: 'token',
  maxBodyBytes: 64 * 1024,
  maxSessions: 100,
  maxSessionsPerPrincipal: 100,
  idleMs: 600_000,
  unreadyMs: 0,
  maxConnections: 4096,
  headersMs: 10_000,
  requestMs: 60_000,
  socketIdleMs: 60_000,
};
export const TOKENS = new Map([
  ['alice-token', ALICE],
  ['bob-token', BOB],
]);

export interface Asked {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string | readonly string[] | undefined>>;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

export interface Answered {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

export interface HttpBench {
  readonly facade: FakeFacade;
  readonly server: HttpServer;
  readonly faults: unknown[];
  readonly port: number;
  /** Sends a request as alice. A header of `undefined` is left out. */
  ask(asked?: Asked): Promise<Answered>;
  /** Opens a session, of alice or of the principal of the token. */
  session(token?: string): Promise<string>;
}

export async function listen(
  options: Partial<Omit<HttpOptions, 'listen'>> & { readonly listen?: Partial<ListenConfig> } = {},
): Promise<HttpBench> {
  const facade = new FakeFacade();
  const faults: unknown[] = [];
  const server = await serveHttp({
    facade,
    authenticate: (token) => (token === undefined ? undefined : TOKENS.get(token)),
    onFault: (thrown) => faults.push(thrown),
    drainMs: 100,
    ...options,
    listen: { ...LISTEN, ...options.listen },
  });
  const port = Number(new URL(server.url).port);
  const ask = (asked: Asked = {}): Promise<Answered> => send(port, asked);
  const session = async (token = 'alice-token'): Promise<string> => {
    const { headers } = await ask({ headers: { authorization: `Bearer ${token}` }, body: initialize() });
    return headers['mcp-session-id'] as string;
  };
  return { facade, server, faults, port, ask, session };
}

const DEFAULTS = {
  authorization: 'Bearer alice-token',
  'content-type': 'application/json',
  accept: 'application/json, text/event-stream',
};

function send(port: number, { method = 'POST', path = '/mcp', headers = {}, body, signal }: Asked): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const all = Object.entries({ host: `127.0.0.1:${port}`, ...DEFAULTS, ...headers }).filter(
      ([, value]) => value !== undefined,
    );
    const sent = open(
      {
        host: '127.0.0.1',
        port,
        method,
        path,
        setHost: false,
        headers: Object.fromEntries(all) as Record<string, string>,
        ...(signal === undefined ? {} : { signal }),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => (text += chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }));
        response.on('error', reject);
      },
    );
    sent.on('error', reject);
    sent.end(
      body === undefined ? undefined : typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
    );
  });
}
