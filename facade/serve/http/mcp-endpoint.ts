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
import type { Facade } from '../facade-port.ts';
import { namedReplica } from '../modern/request-states.ts';
import { type Era, eraOf, eraOfMessage } from '../protocol-revisions.ts';
import { replyText } from '../reply-text.ts';
import { MAX_RUNNING } from '../session-dispatch.ts';
import { EventStream } from './client-event-stream.ts';
import { respond, respondEmpty, respondRefusal, respondWith, STATUS } from './http-response.ts';
import { type HttpSession, MAX_MOVES, type SessionTable, tooManyMoves } from './http-sessions.ts';
import { MISDIRECTED, type ReplicaHop } from './replica-hop.ts';
import { readBody } from './request-body.ts';

/** One request that passed the checks, and its principal. */
export interface EndpointRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly principal: Principal;
  /** Another replica sent the request on. It goes no further. */
  readonly isHop?: boolean;
}

/** What the endpoint works with. */
export interface EndpointOptions {
  readonly sessions: SessionTable;
  readonly maxBodyBytes: number;
  readonly now: () => number;
  /** Whether Tollgate stops: running requests may end, and no new ones begin. */
  readonly isDraining: boolean;
  readonly facade: Pick<Facade, 'replica' | 'answerLost'>;
  /** The way to other replicas. Absent: there is none. */
  readonly hop?: Pick<ReplicaHop, 'forward'>;
  /** Returns the address of another replica. */
  readonly addressOf?: (replica: string | undefined) => string | undefined;
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
  const refuse = (thrown: unknown): void => {
    if (!(thrown instanceof TollgateError)) throw thrown;
    respondRefusal(response, thrown, { id });
  };
  try {
    const work =
      eraOfMessage(message, revisionOf(visit.request)) === 'modern'
        ? serveStateless({ message, body }, visit, options)
        : serveInSession({ message, body }, visit, options);
    return work instanceof Promise ? work.catch(refuse) : work;
  } catch (thrown) {
    refuse(thrown);
  }
}

type RequestMessage = Extract<WireMessage, { kind: 'request' }>;

/** A message, and the bytes that it was read from. */
interface ReceivedMessage {
  readonly message: WireMessage;
  readonly body: Buffer;
}

/** Methods after which other replicas must know something new of the session. */
const CHANGING: ReadonlySet<string> = new Set(['initialize', 'logging/setLevel', 'tools/list', 'prompts/list']);

/** Throws SHUTTING_DOWN, RATE_LIMITED, and what `sessionFor` throws. */
function serveInSession(received: ReceivedMessage, visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { sessions, now } = options;
  const { response, request } = visit;
  const { message } = received;
  const method = message.kind === 'request' ? message.method : undefined;
  const isShared = options.facade.replica !== undefined;
  if (options.isDraining && method !== undefined && (method === 'initialize' || !isShared))
    throw new TollgateError('SHUTTING_DOWN');
  return andThen(sessionFor(received, visit, options), (session) => {
    if (session === undefined) return undefined;
    if (method !== undefined && session.dispatch.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    const headers = method === 'initialize' ? { ...JSON_HEADERS, 'mcp-session-id': session.session.id } : JSON_HEADERS;
    const send = (text: string): boolean => sendOnStream(visit, text);
    return andThen(session.dispatch.handle(message, send, { client: request.socket }), (reply) =>
      andThen(CHANGING.has(method ?? '') ? sessions.save(session) : undefined, () => {
        answer(response, reply, headers);
        session.lastUsed = now();
      }),
    );
  });
}

/**
 * Serves a message without a session id. A client that disconnects cancels its request (MCP 2026-07-28, transports,
 * cancellation). Throws SHUTTING_DOWN, RATE_LIMITED, and what opening a session throws.
 */
function serveStateless(received: ReceivedMessage, visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { request, response } = visit;
  const { message } = received;
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
  const { requestState, taskId } = message.params?.value ?? {};
  const address = options.addressOf?.(namedReplica(requestState) ?? namedReplica(taskId));
  // The call waits on the replica that it names. If that has ended, this one refuses it.
  if (address === undefined || options.hop === undefined || visit.isHop === true)
    return serveHere(message, visit, options);
  return options.hop.forward(address, { request, response, body: received.body }).then((sent) => {
    if (sent === 'lost') return answerLost(message, visit, options);
    if (sent !== 'answered') return serveHere(message, visit, options);
  });
}

function serveHere(message: RequestMessage, visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  return andThen(options.sessions.virtual(visit.principal), (session) => {
    if (session.dispatch.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    return answerStateless(message, visit, { session, now: options.now });
  });
}

function answerStateless(
  message: RequestMessage,
  { request, response }: EndpointRequest,
  { session, now }: { readonly session: HttpSession; readonly now: () => number },
): Awaitable<void> {
  const stream = session.hold(response, now);
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
 * Returns the session of a message; the first message opens it. Undefined: its home has answered. Throws
 * NOT_INITIALIZED, HTTP_SESSION, HTTP_SESSIONS_FULL, HTTP_SESSIONS_QUOTA, WIRE_VERSION, SHUTTING_DOWN, STATE_FAILED.
 */
function sessionFor(
  { message, body }: ReceivedMessage,
  visit: EndpointRequest,
  options: EndpointOptions,
): Awaitable<HttpSession | undefined> {
  const method = message.kind === 'request' ? message.method : undefined;
  if (visit.request.headers['mcp-session-id'] !== undefined || method !== 'initialize')
    return namedSession(visit, options, {
      body,
      onLost: () =>
        message.kind === 'request' ? answerLost(message, visit, options) : respondEmpty(visit.response, 202),
    });
  return options.sessions.open(spokenEra(visit.request), visit.principal);
}

/** What goes on to the home of a session. Without `onLost`, the request may be served twice. */
interface ForHome {
  readonly body?: Buffer;
  readonly onLost?: () => void;
}

/** Returns the session of the Mcp-Session-Id header. Undefined: its home has answered. */
function namedSession(
  visit: EndpointRequest,
  options: EndpointOptions,
  on: ForHome = {},
): Awaitable<HttpSession | undefined> {
  const { request, principal } = visit;
  const id = request.headers['mcp-session-id'];
  if (typeof id !== 'string')
    throw new TollgateError('NOT_INITIALIZED', {
      detail: 'The request names no session.',
      next: 'Send initialize first, then its Mcp-Session-Id with every request.',
    });
  spokenEra(request);
  if (options.facade.replica !== undefined) return sharedSession(id, visit, { ...options, ...on });
  const session = options.sessions.find(id, principal);
  if (session === undefined) throw new TollgateError('HTTP_SESSION');
  return session;
}

async function sharedSession(
  id: string,
  visit: EndpointRequest,
  { sessions, hop, body, onLost }: EndpointOptions & ForHome,
): Promise<HttpSession | undefined> {
  const { request, response, principal } = visit;
  if (visit.isHop === true) {
    if (!(await sessions.isHome(id))) return misdirect(response);
    const session = sessions.find(id, principal);
    if (session === undefined) throw new TollgateError('HTTP_SESSION');
    return session;
  }
  for (let moves = 0; moves < MAX_MOVES; moves += 1) {
    const found = await sessions.locate(id, principal, moves > 0 ? 'exact' : undefined);
    if (found === undefined) throw new TollgateError('HTTP_SESSION');
    if (!('address' in found)) return found;
    const sent = (await hop?.forward(found.address, { request, response, body })) ?? 'unreachable';
    if (sent === 'answered') return undefined;
    if (sent === 'lost' && (onLost !== undefined || response.headersSent)) {
      if (onLost === undefined) response.end();
      onLost?.();
      return undefined;
    }
    const taken = await sessions.takeOver(id, principal, found.found);
    if (taken !== undefined) return taken;
  }
  throw tooManyMoves();
}

function misdirect(response: ServerResponse): undefined {
  respondEmpty(response, MISDIRECTED);
}

/** The home may have run the request, so it is not sent again. */
function answerLost(
  message: RequestMessage,
  { request, response, principal }: EndpointRequest,
  { facade }: Pick<EndpointOptions, 'facade'>,
): void {
  const session = request.headers['mcp-session-id'];
  const { id, method } = message;
  const lost = { principal, method, ...(typeof session === 'string' && { session }) };
  const reply = replyText(id, facade.answerLost(lost));
  if (!response.headersSent) return respondWith(response, { status: 200, body: reply, headers: JSON_HEADERS });
  if (/^text\/event-stream/.test(String(response.getHeader('content-type'))))
    return new EventStream(response).end(reply);
  // Half of an answer has been sent.
  response.destroy();
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

function openStream(visit: EndpointRequest, options: EndpointOptions): Awaitable<void> {
  const { request, response } = visit;
  if (options.isDraining && visit.isHop !== true) throw new TollgateError('SHUTTING_DOWN');
  if (!accepts(request, STREAM_RANGES)) return respondRefusal(response, noStream(), { status: 406 });
  return andThen(namedSession(visit, options), (session) => {
    if (session?.streaming !== true) return session?.attach(response, options.now);
    const open = new TollgateError('HTTP_SESSION', {
      detail: 'This session has an open stream already.',
      next: 'Close it first.',
    });
    return respondRefusal(response, open, { status: 409 });
  });
}

function noStream(): TollgateError {
  return new TollgateError('HTTP_METHOD', { detail: 'The client does not accept text/event-stream.' });
}

async function endSession(visit: EndpointRequest, options: EndpointOptions): Promise<void> {
  const session = await namedSession(visit, options);
  if (session === undefined) return;
  await options.sessions.end(session, 'The client ended the session while the call ran.');
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
