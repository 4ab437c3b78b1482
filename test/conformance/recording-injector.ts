/**
 * Stands between the suite and its target on loopback: adds the bearer token, which the suite cannot send, and records
 * each request with the kind and the digest of its answer, so that two targets can be compared.
 */
import { createHash } from 'node:crypto';
import http, { type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { FIXTURE } from './policy.ts';

/** One request of the suite, and what the target made of it. */
export interface Exchange {
  readonly scenario: string;
  /** The HTTP method, or the method of MCP with the name or URI that it is about. */
  readonly request: string;
  /** The method of MCP; empty for other requests. */
  readonly method: string;
  /** The HTTP status and the kind of the answer. A result has a digest of what it says. */
  readonly answer: string;
  /** True if the target answered with a result. */
  readonly succeeded: boolean;
  /** The methods that the target asked of the client meanwhile. */
  readonly asks: readonly string[];
}

/** The answer of a stream that lasts until the suite ends it. */
export const STREAM = 'stream';

/** A running injector. Every request is recorded when it has closed. */
export interface Injector {
  readonly url: string;
  readonly exchanges: readonly Exchange[];
  close(): Promise<void>;
}

/** What the injector is told. */
export interface InjectorSettings {
  /** The address of the target. */
  readonly target: string;
  readonly token?: string;
  /** Returns the scenario that runs. */
  readonly scenario: () => string;
}

/** Starts an injector on a free port of loopback. */
export async function startInjector(settings: InjectorSettings): Promise<Injector> {
  const exchanges: Exchange[] = [];
  const server = http.createServer((request, response) => {
    const scenario = settings.scenario();
    forward(request, response, {
      settings,
      own: portOf(server),
      done: (seen) => exchanges.push({ scenario, ...seen }),
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { pathname } = new URL(settings.target);
  return {
    // The suite accepts only this name as local in its own checks of the Host header.
    url: `http://localhost:${portOf(server)}${pathname}`,
    exchanges,
    close: () =>
      new Promise((resolve) => {
        server.close(() => setImmediate(resolve));
        server.closeAllConnections();
      }),
  };
}

interface Passage {
  readonly settings: InjectorSettings;
  readonly own: number;
  readonly done: (seen: Omit<Exchange, 'scenario'>) => void;
}

/** Passes a request and its answer as they come. Only the port in Host and Origin becomes the target's. */
function forward(request: IncomingMessage, response: ServerResponse, { settings, own, done }: Passage): void {
  const target = new URL(settings.target);
  const sent: Buffer[] = [];
  const got: Buffer[] = [];
  let status = 0;
  const upstream = http.request(
    {
      host: '127.0.0.1',
      port: target.port,
      method: request.method,
      path: request.url,
      headers: headersFor(request, { own, target: target.port, token: settings.token }),
    },
    (answer) => {
      status = answer.statusCode ?? 502;
      response.writeHead(status, answer.headers);
      response.flushHeaders();
      answer.on('data', (chunk: Buffer) => got.push(chunk));
      answer.pipe(response);
    },
  );
  upstream.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  request.on('data', (chunk: Buffer) => sent.push(chunk));
  request.pipe(upstream);
  // A stream ends when the suite closes it.
  response.on('close', () => {
    done(seenIn(request, sent, { status, got }));
    if (!response.writableFinished) upstream.destroy();
  });
}

interface Addresses {
  readonly own: number;
  readonly target: string;
  readonly token: string | undefined;
}

function headersFor({ headers }: IncomingMessage, { own, target, token }: Addresses): OutgoingHttpHeaders {
  const sent: OutgoingHttpHeaders = { ...headers };
  for (const name of ['host', 'origin'] as const)
    if (headers[name] !== undefined) sent[name] = headers[name].replaceAll(`:${own}`, `:${target}`);
  if (token !== undefined) sent.authorization = `Bearer ${token}`;
  return sent;
}

interface Message {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: {
    readonly name?: string;
    readonly uri?: string;
    readonly ref?: unknown;
    readonly _meta?: { readonly progressToken?: unknown };
  };
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number };
}

function seenIn(
  request: IncomingMessage,
  sent: readonly Buffer[],
  { status, got }: { readonly status: number; readonly got: readonly Buffer[] },
): Omit<Exchange, 'scenario'> {
  const [asked] = messagesIn(Buffer.concat(sent).toString('utf8'));
  const answers = messagesIn(Buffer.concat(got).toString('utf8'));
  const reply = answers.find((one) => one.method === undefined && (one.result ?? one.error) !== undefined);
  const isStream = request.method === 'GET' || asked?.method === 'subscriptions/listen';
  const { name, uri, ref } = asked?.params ?? {};
  const about = name ?? uri ?? (ref === undefined ? undefined : JSON.stringify(ref));
  return {
    method: asked?.method ?? '',
    request: [asked?.method ?? (asked === undefined ? request.method : 'response'), about].filter(Boolean).join(' '),
    answer:
      isStream && status < 300
        ? STREAM
        : reply === undefined
          ? `${Math.floor(status / 100)}xx`
          : `${status} ${kindOf(reply, asked)}`,
    succeeded: reply?.result !== undefined,
    asks: [
      ...answers.flatMap(({ id, method }) => (id !== undefined && method !== undefined ? [method] : [])),
      ...asksIn(reply?.result?.inputRequests),
    ],
  };
}

/** The questions of an `input_required` result. */
function asksIn(requests: unknown): readonly string[] {
  if (typeof requests !== 'object' || requests === null) return [];
  return Object.values(requests as Record<string, { readonly method?: string }>).map(({ method }) => method ?? '');
}

/** Returns the messages of a JSON body or of an event stream. Anything else has none. */
function messagesIn(body: string): readonly Message[] {
  const texts = body.startsWith('{')
    ? [body]
    : body.split(/\r?\n\r?\n/).map((event) =>
        event
          .split(/\r?\n/)
          .filter((line) => line.startsWith('data:'))
          .map((line) => line.slice(5).trimStart())
          .join('\n'),
      );
  return texts.flatMap((text) => {
    try {
      const value = JSON.parse(text) as unknown;
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? [value as Message] : [];
    } catch {
      return [];
    }
  });
}

/** Methods whose result describes the target itself, so two targets differ. */
const ABOUT_ITSELF = new Set(['initialize', 'server/discover']);
/** Members of a list result. */
const LISTS = ['tools', 'resources', 'resourceTemplates', 'prompts'] as const;
/** Members that say how a result was made, not what it says. */
const NOT_SAID = new Set(['_meta', 'requestState', 'ttlMs', 'cacheScope']);

/** Codes below these are each implementation's own. */
const OWN_CODES = { from: -32019, to: -32000 } as const;

function kindOf(reply: Message | undefined, asked: Message | undefined): string {
  if (reply?.error !== undefined) {
    const { code } = reply.error;
    return code >= OWN_CODES.from && code <= OWN_CODES.to ? 'error' : `error ${code}`;
  }
  const result = reply?.result;
  if (result === undefined) return '';
  // The fixture repeats the token of its progress, which is Tollgate's own.
  if (ABOUT_ITSELF.has(asked?.method ?? '') || asked?.params?._meta?.progressToken !== undefined) return 'result';
  const list = LISTS.find((key) => Array.isArray(result[key]));
  if (list !== undefined) {
    const entries = result[list] as readonly Readonly<Record<string, unknown>>[];
    const names = entries.map(({ name, uri, uriTemplate }) => `${name} ${uri ?? uriTemplate ?? ''}`).sort();
    return `${entries.length} ${list} ${digestOf(names)}`;
  }
  const said = Object.entries(result).filter(([key]) => !NOT_SAID.has(key));
  return ['result', ...said.map(([key, value]) => `${key}=${digestOf(withoutLabel(value))}`).sort()].join(' ');
}

/** Tollgate names the server that asks before the message of a form, so that a person sees it. */
function withoutLabel(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value).replaceAll(`"message":"[${FIXTURE}] `, '"message":"'));
}

/** Returns a short digest of a value, to compare what two targets say. */
export function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 8);
}

function portOf(server: http.Server): number {
  return (server.address() as AddressInfo).port;
}
