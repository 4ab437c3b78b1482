/**
 * The MCP endpoint over HTTP (MCP 2025-11-25 and 2026-07-28, Streamable HTTP): messages, the stream, and the end of a
 * session. Both eras use one URL.
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Cancellation } from '../../../adapters/rpc/cancellation.ts';
import { readMessage, type WireMessage } from '../../../adapters/rpc/message-parser.ts';
import type { WireText } from '../../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../../catalogs/text/awaitable.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../../catalogs/text/time-slices.ts';
import type { Principal } from '../../../policies/port.ts';
import { type Era, eraOf, eraOfMessage } from '../protocol-revisions.ts';
import { MAX_RUNNING } from '../session-dispatch.ts';
import { EventStream } from './client-event-stream.ts';
import { respond, respondEmpty, respondRefusal, respondWith, STATUS } from './http-response.ts';
import type { HttpSession, SessionTable } from './http-sessions.ts';
import { readBody } from './request-body.ts';

/** One request that passed the checks, and its principal. */
export interface EndpointRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly principal: Principal;
}

/** What the endpoint works with. */
export interface EndpointOptions {
  readonly sessions: SessionTable;
  readonly maxBodyBytes: number;
  readonly now: () => number;
  /** Whether Tollgate stops: running requests may end, and no new ones begin. */
  readonly isDraining: boolean;
}

const JSON_RANGES = ['application/json', 'application/*', '*/*'];
const STREAM_RANGES = ['text/event-stream', 'text/*', '*/*'];
const JSON_HEADERS = { 'content-type': 'application/json' };

/** Serves one request at the endpoint. Throws, or rejects with, TollgateError if nothing has been answered yet. */
export function serveMcp(visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { method } = visit.request;
  if (method !== 'POST' && eraOf(revisionOf(visit.request)) === 'modern')
    return respondRefusal(visit.response, new TollgateError('HTTP_METHOD'), { headers: { allow: 'POST' } });
  switch (method) {
    case 'POST':
      return post(visit, options);
    case 'GET':
      return openStream(visit, options);
    case 'DELETE':
      return endSession(visit, options);
    default:
      return respondRefusal(visit.response, new TollgateError('HTTP_METHOD'), {
        headers: { allow: 'GET, POST, DELETE' },
      });
  }
}

function post(visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { request, response } = visit;
  // A page may post a form or plain text to any address without permission (attack: cross-site request).
  if (!/^application\/json\s*(;|$)/i.test(request.headers['content-type'] ?? ''))
    return respondRefusal(response, new TollgateError('HTTP_METHOD', { detail: 'The body is not application/json.' }), {
      status: 415,
    });
  if (!accepts(request, JSON_RANGES))
    return respondRefusal(
      response,
      new TollgateError('HTTP_METHOD', { detail: 'The client does not accept application/json.' }),
      { status: 406 },
    );
  return readBody(request, options.maxBodyBytes).then((body) => {
    if (body === 'gone') return;
    if (body === 'too-large')
      return respondRefusal(
        response,
        new TollgateError('HTTP_BODY_TOO_LARGE', { detail: `The body is larger than ${options.maxBodyBytes} bytes.` }),
      );
    // Many sessions may send a large body at once.
    if (body.length > LARGE_INPUT_BYTES) return ownEventLoopTurn().then(() => serveMessage(body, visit, options));
    return serveMessage(body, visit, options);
  });
}

function serveMessage(body: Buffer, visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { response } = visit;
  const message = readMessage(body, 'client');
  if (message.kind === 'invalid') return respondRefusal(response, message.error, { id: message.id });
  const id = message.kind === 'request' ? message.id : null;
  try {
    if (eraOfMessage(message, revisionOf(visit.request)) === 'modern') return serveStateless(message, visit, options);
    if (options.isDraining && message.kind === 'request') throw new TollgateError('SHUTTING_DOWN');
    const session = sessionFor(visit, message, options.sessions);
    if (message.kind === 'request' && session.dispatch.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    const opened = message.kind === 'request' && message.method === 'initialize';
    return andThen(
      session.dispatch.handle(message, (text) => sendOnStream(visit, text), { client: visit.request.socket }),
      (reply) => {
        answer(response, reply, opened ? { ...JSON_HEADERS, 'mcp-session-id': session.session.id } : JSON_HEADERS);
        session.lastUsed = options.now();
      },
    );
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    respondRefusal(response, thrown, { id });
  }
}

/**
 * Serves a message without a session id. A client that disconnects cancels its request (MCP 2026-07-28, transports,
 * cancellation). Throws SHUTTING_DOWN, RATE_LIMITED, and what opening a session throws.
 */
function serveStateless(message: WireMessage, visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { request, response, principal } = visit;
  if (message.kind === 'notification') return respondEmpty(response, 202);
  if (message.kind !== 'request')
    return respondRefusal(
      response,
      new TollgateError('HTTP_METHOD', {
        detail: 'The body is a response.',
        next: 'Send answers to questions of servers in inputResponses.',
      }),
      { status: 400 },
    );
  if (message.method === 'subscriptions/listen' && !accepts(request, STREAM_RANGES))
    return respondRefusal(response, noStream(), { id: message.id, status: 406 });
  if (options.isDraining) throw new TollgateError('SHUTTING_DOWN');
  const session = options.sessions.virtual(principal);
  if (session.dispatch.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
  const stream = session.hold(response, options.now);
  const closed = new Cancellation();
  let status = 200;
  response.once('close', () => {
    if (!response.writableFinished) closed.abort(new TollgateError('CANCELLED'));
  });
  return andThen(
    session.dispatch.handle(message, (text) => accepts(request, STREAM_RANGES) && stream.send(text), {
      client: request.socket,
      stateless: {
        headers: request.headers,
        closed,
        onRefused: ({ code }) => (status = code === 'WIRE_METHOD' ? 404 : (STATUS[code] ?? 400)),
      },
    }),
    (reply) => {
      if (response.headersSent || reply === undefined) return stream.end(reply);
      respondWith(response, { status, body: reply, headers: JSON_HEADERS });
    },
  );
}

/** Returns false if the message was not sent. */
function sendOnStream({ request, response }: EndpointRequest, text: string): boolean {
  return accepts(request, STREAM_RANGES) && new EventStream(response).send(text);
}

/** A client that disconnects does not cancel its call (transports, legacy revisions): only the answer is dropped. */
function answer(response: ServerResponse, reply: WireText | undefined, headers: OutgoingHttpHeaders): void {
  if (response.headersSent) return new EventStream(response).end(reply);
  if (reply === undefined) return respondEmpty(response, 202);
  respond(response, reply, headers);
}

/**
 * Returns the session of a message; the first message opens it. Throws NOT_INITIALIZED, HTTP_SESSION,
 * HTTP_SESSIONS_FULL, HTTP_SESSIONS_QUOTA, WIRE_VERSION.
 */
function sessionFor(visit: EndpointRequest, message: WireMessage, sessions: SessionTable): HttpSession {
  const method = message.kind === 'request' ? message.method : undefined;
  if (visit.request.headers['mcp-session-id'] !== undefined || method !== 'initialize')
    return namedSession(visit, sessions);
  return sessions.open(spokenEra(visit.request), visit.principal);
}

/** Returns the session of the Mcp-Session-Id header. */
function namedSession({ request, principal }: EndpointRequest, sessions: SessionTable): HttpSession {
  const id = request.headers['mcp-session-id'];
  if (typeof id !== 'string')
    throw new TollgateError('NOT_INITIALIZED', {
      detail: 'The request names no session.',
      next: 'Send initialize first, then its Mcp-Session-Id with every request.',
    });
  spokenEra(request);
  const session = sessions.find(id, principal);
  if (session === undefined) throw new TollgateError('HTTP_SESSION');
  return session;
}

function revisionOf({ headers }: IncomingMessage): string | undefined {
  const revision = headers['mcp-protocol-version'];
  return Array.isArray(revision) ? revision.join() : revision;
}

/** A session has a revision that begins with `initialize`. */
function spokenEra(request: IncomingMessage): Era {
  const era = eraOf(revisionOf(request));
  if (era !== 'legacy')
    throw new TollgateError('WIRE_VERSION', {
      detail: 'MCP-Protocol-Version names a revision that is not supported.',
      next: 'Name the revision that initialize agreed on.',
    });
  return era;
}

function openStream(visit: EndpointRequest, { sessions, now, isDraining }: EndpointOptions): void {
  const { request, response } = visit;
  if (isDraining) throw new TollgateError('SHUTTING_DOWN');
  if (!accepts(request, STREAM_RANGES)) return respondRefusal(response, noStream(), { status: 406 });
  const session = namedSession(visit, sessions);
  if (session.streaming)
    return respondRefusal(
      response,
      new TollgateError('HTTP_SESSION', {
        detail: 'This session has an open stream already.',
        next: 'Close it first.',
      }),
      { status: 409 },
    );
  session.attach(response, now);
}

function noStream(): TollgateError {
  return new TollgateError('HTTP_METHOD', { detail: 'The client does not accept text/event-stream.' });
}

async function endSession(visit: EndpointRequest, { sessions }: EndpointOptions): Promise<void> {
  await sessions.end(namedSession(visit, sessions), 'The client ended the session while the call ran.');
  respondEmpty(visit.response, 204);
}

/**
 * Returns whether the Accept header allows any of these; a client that sends none allows all (RFC 9110 §12.5.1). Read
 * leniently, because nothing depends on it.
 */
function accepts({ headers: { accept } }: IncomingMessage, ranges: readonly string[]): boolean {
  if (accept === undefined) return true;
  const asked = accept.toLowerCase();
  return ranges.some((range) => asked.includes(range));
}
