/**
 * The HTTP listener of the console: loopback only, on another port than agents use. Every request is checked for its
 * Host, its Origin and, apart from the page itself, for the session of a person.
 */
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import { PROGRAM } from '../../../catalogs/programs/own-code.ts';
import { noteConsolePort } from '../../../catalogs/readers/console-ports.ts';
import { discardBody, respondWith, STATUS } from '../http/http-response.ts';
import { readBody } from '../http/request-body.ts';
import type { ConsoleSignIn } from './console-sign-in.ts';

/** A request of a signed-in person. `gone` is aborted when the browser disconnects. */
export interface ConsoleRequest {
  readonly query: URLSearchParams;
  /** The parsed body of a POST request; empty for GET. */
  readonly body: Readonly<Record<string, unknown>>;
  readonly gone: AbortSignal;
}

/**
 * The routes below /api/, by method and name: `GET search`. A route returns its answer, or the lines of a stream that
 * ends when the browser disconnects.
 */
export type ConsoleRoutes = Readonly<
  Record<string, (request: ConsoleRequest) => Promise<object> | AsyncIterable<object>>
>;

/** What the listener needs. `port` 0 is a free one. */
export interface ConsoleOptions {
  readonly port: number;
  readonly signIn: ConsoleSignIn;
  readonly routes: ConsoleRoutes;
  /** Called with an unexpected error. */
  readonly onFault: (thrown: unknown) => void;
}

/** A running console. */
export interface ConsoleServer {
  readonly port: number;
  /** Ends all connections. */
  close(): Promise<void>;
}

const HOST = '127.0.0.1';
/** A draft of a policy is the largest thing that is sent. */
const MAX_BODY_BYTES = 2 * 1024 * 1024;
/** Times of slow clients, ms. */
const [HEADERS_MS, REQUEST_MS] = [10_000, 30_000];
const MAX_CONNECTIONS = 64;
/** A quiet stream sends an empty line, so that both sides notice a dead connection. */
const BEAT_MS = 15_000;

/** No source but this listener, nothing inline, no frame around it, and no text that becomes markup. */
const PAGE_HEADERS: OutgoingHttpHeaders = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
    "trusted-types 'none'",
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
  'cache-control': 'no-store',
};

/** The built files of the page, by their paths. */
const ASSETS: Readonly<Record<string, string>> = {
  '/console.js': 'text/javascript; charset=utf-8',
  '/console-style.css': 'text/css; charset=utf-8',
  '/icon.svg': 'image/svg+xml',
};

/** The header in which the page sends its token. A form or an image of another page cannot set it. */
const PAGE_TOKEN = 'x-tollgate-page';

/** Starts the console. Throws CONSOLE_UNAVAILABLE if the port is taken or the files of the page are missing. */
export async function serveConsole(options: ConsoleOptions): Promise<ConsoleServer> {
  const front = new ConsoleFront(options);
  const server = createServer(
    { headersTimeout: HEADERS_MS, requestTimeout: REQUEST_MS, connectionsCheckingInterval: 1000 },
    (request, response) => void front.receive(request, response),
  );
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) =>
      reject(
        new TollgateError('CONSOLE_UNAVAILABLE', {
          detail: `The console cannot listen at ${HOST}:${options.port} (${codeOf(cause)}).`,
          next: 'Choose another --port, or none for a free one.',
          cause,
        }),
      ),
    );
    server.listen(options.port, HOST, resolve);
  });
  server.removeAllListeners('error').on('error', options.onFault);
  const { port } = server.address() as AddressInfo;
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  const forget = await notePort(port).catch(async (thrown: unknown) => {
    await close();
    throw thrown;
  });
  front.port = port;
  return { port, close: () => close().finally(forget) };
}

function codeOf(cause: unknown): string {
  return (cause as NodeJS.ErrnoException).code ?? 'unknown';
}

/** What servers could reach is not opened. Throws CONSOLE_UNAVAILABLE. */
async function notePort(port: number): Promise<() => void> {
  try {
    return noteConsolePort(port);
  } catch (cause) {
    throw new TollgateError('CONSOLE_UNAVAILABLE', {
      detail: `The port of the console cannot be closed to servers (${codeOf(cause)}).`,
      next: 'Let the user of Tollgate write to ~/.local/state.',
      cause,
    });
  }
}

class ConsoleFront {
  /** Known after the start. Until then no Host header is right. */
  port = 0;
  readonly #options: ConsoleOptions;
  readonly #files: ReadonlyMap<string, Buffer>;

  constructor(options: ConsoleOptions) {
    this.#options = options;
    this.#files = readAssets();
  }

  async receive(request: IncomingMessage, response: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(PAGE_HEADERS)) if (value !== undefined) response.setHeader(name, value);
    try {
      await this.#admit(request, response);
    } catch (thrown) {
      if (!(thrown instanceof TollgateError)) this.#options.onFault(thrown);
      refuse(response, asTollgateError(thrown));
    }
  }

  async #admit(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = '', headers } = request;
    const hosts = [`${HOST}:${this.port}`, `localhost:${this.port}`];
    // A page of another host that resolves to this machine has its own name here.
    if (!hosts.includes(headers.host ?? '')) throw new TollgateError('HTTP_HOST', { next: OWN_ADDRESS });
    const own = headers.origin === undefined || headers.origin === `http://${headers.host}`;
    const site = headers['sec-fetch-site'];
    const isForeign = typeof site === 'string' && !['same-origin', 'none'].includes(site);
    if (!own || isForeign) throw new TollgateError('HTTP_ORIGIN', { next: OWN_ADDRESS });
    const { pathname, searchParams } = new URL(request.url ?? '/', `http://${hosts[0]}`);
    if (!pathname.startsWith('/api/')) return this.#sendFile(pathname, method, response);
    const name = `${method} ${pathname.slice('/api/'.length)}`;
    if (method === 'POST' && headers['content-type'] !== 'application/json')
      throw new TollgateError('HTTP_METHOD', { next: 'Send application/json.' });
    if (name === 'POST sign-in') return this.#signIn(request, response);
    const cookie = this.#cookieOf(request);
    if (!this.#options.signIn.isSignedIn(cookie, headerOf(request, PAGE_TOKEN)))
      throw new TollgateError('HTTP_AUTH', {
        detail: 'You are not signed in to the console, or your session has ended.',
        next: 'Press Enter in the terminal of the console, and use the new code.',
      });
    if (name === 'POST sign-out') {
      this.#options.signIn.signOut(cookie);
      return respondJson(response, {}, { 'set-cookie': this.#cookie('', 'Max-Age=0') });
    }
    const route = Object.hasOwn(this.#options.routes, name) ? this.#options.routes[name] : undefined;
    if (route === undefined) throw new TollgateError('HTTP_PATH', { next: 'Reload the page.' });
    const body = method === 'POST' ? await readJson(request) : {};
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const answer = route({ query: searchParams, body, gone: gone.signal });
    if (answer instanceof Promise) return respondJson(response, await answer);
    return sendLines(response, answer, () => this.#options.signIn.goesOn(cookie));
  }

  /** Every path that is not a file is a state of the page. */
  #sendFile(pathname: string, method: string, response: ServerResponse): void {
    if (method !== 'GET' && method !== 'HEAD') throw new TollgateError('HTTP_METHOD', { next: 'Use GET.' });
    const type = ASSETS[pathname];
    const body = this.#files.get(type === undefined ? '/index.html' : pathname) ?? '';
    response.writeHead(200, {
      'content-type': type ?? 'text/html; charset=utf-8',
      'content-length': body.length,
    });
    response.end(method === 'HEAD' ? undefined : body);
  }

  async #signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { code } = await readJson(request);
    const signedIn = typeof code === 'string' ? this.#options.signIn.signIn(code) : undefined;
    if (signedIn === undefined)
      throw new TollgateError('HTTP_AUTH', {
        detail: 'This code is wrong, was used, or has expired.',
        next: 'Press Enter in the terminal of the console, and use the new code.',
      });
    respondJson(response, { page: signedIn.page }, { 'set-cookie': this.#cookie(signedIn.cookie) });
  }

  /** The name has the port, because consoles of several projects share the cookies of this host. */
  #cookie(value: string, more?: string): string {
    const parts = [`tollgate-${this.port}=${value}`, 'HttpOnly', 'SameSite=Strict', 'Path=/api'];
    return [...parts, ...(more === undefined ? [] : [more])].join('; ');
  }

  #cookieOf({ headers }: IncomingMessage): string | undefined {
    const start = `tollgate-${this.port}=`;
    const found = (headers.cookie ?? '').split(/; */).filter((part) => part.startsWith(start));
    // Another server of this host may add a second cookie with a longer path. Then it is not known which is ours.
    return found.length === 1 ? found[0]?.slice(start.length) : undefined;
  }
}

const OWN_ADDRESS = 'Open the address that `tollgate console` prints.';

function readAssets(): ReadonlyMap<string, Buffer> {
  const folder = path.join(PROGRAM, 'code', 'console');
  try {
    return new Map(
      ['/index.html', ...Object.keys(ASSETS)].map((name) => [name, readFileSync(path.join(folder, name))]),
    );
  } catch (cause) {
    throw new TollgateError('CONSOLE_UNAVAILABLE', {
      detail: 'The files of the console are missing.',
      next: 'Install Tollgate again; in a checkout run: npm run build',
      cause,
    });
  }
}

function headerOf({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return typeof value === 'string' ? value : undefined;
}

async function readJson(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const body = await readBody(request, MAX_BODY_BYTES);
  if (body === 'gone') throw new TollgateError('CANCELLED');
  if (body === 'too-large')
    throw new TollgateError('HTTP_BODY_TOO_LARGE', { detail: `The body is larger than ${MAX_BODY_BYTES} bytes.` });
  try {
    const value: unknown = JSON.parse(body.toString());
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Answered below.
  }
  throw new TollgateError('WIRE_PARSE', { detail: 'The body is not a JSON object.', next: 'Send one JSON object.' });
}

function respondJson(response: ServerResponse, answer: object, headers: OutgoingHttpHeaders = {}): void {
  respondWith(response, {
    status: 200,
    body: JSON.stringify(answer),
    headers: { 'content-type': 'application/json', ...headers },
  });
}

function refuse(response: ServerResponse, { code, message, next }: TollgateError): void {
  if (response.headersSent) return void response.destroy();
  const body = JSON.stringify({ error: { code, message, next } });
  respondWith(response, {
    status: STATUS[code] ?? 400,
    body,
    headers: { 'content-type': 'application/json' },
  });
  discardBody(response.req);
}

/**
 * Sends JSON lines until the session ends. A browser that does not read stops the source, and does not fill the memory.
 */
async function sendLines(
  response: ServerResponse,
  lines: AsyncIterable<object>,
  mayHear: () => boolean,
): Promise<void> {
  response.writeHead(200, { 'content-type': 'application/x-ndjson' });
  response.flushHeaders();
  const beat = setInterval(() => response.write('\n'), BEAT_MS).unref();
  try {
    for await (const line of lines) {
      if (response.destroyed || !mayHear()) return;
      if (!response.write(`${JSON.stringify(line)}\n`))
        await new Promise<void>((resolve) => {
          response.once('drain', resolve).once('close', resolve);
        });
    }
  } finally {
    clearInterval(beat);
    response.end();
  }
}
