/** Owns the MCP endpoint over HTTP (MCP 2025-11-25, Streamable HTTP): messages, the stream, the end of a session; refuses what names no session. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { readMessage, type WireMessage } from '../../../adapters/rpc/message-parser.ts';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../../catalogs/text/time-slices.ts';
import type { Principal } from '../../../policies/port.ts';
import { type Era, eraOf, MODERN_PROBE } from '../protocol-revisions.ts';
import { MAX_RUNNING } from '../session-dispatch.ts';
import { EventStream } from './client-event-stream.ts';
import { respond, respondEmpty, respondRefusal } from './http-response.ts';
import type { HttpSession, SessionTable } from './http-sessions.ts';
import { readBody } from './request-body.ts';

/** One request that passed the gate, and whose it is. */
export interface EndpointRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly principal: Principal;
}

/** What the endpoint works on. */
export interface EndpointOptions {
  readonly sessions: SessionTable;
  readonly maxBodyBytes: number;
  readonly now: () => number;
  /** Whether Tollgate stops: what runs may end, and nothing begins. */
  readonly isDraining: boolean;
}

const JSON_RANGES = ['application/json', 'application/*', '*/*'];
const STREAM_RANGES = ['text/event-stream', 'text/*', '*/*'];
const JSON_HEADERS = { 'content-type': 'application/json' };

/** Serves one request at the endpoint. Throws TollgateError where nothing has been answered yet. */
export async function serveMcp(visit: EndpointRequest, options: EndpointOptions): Promise<void> {
  switch (visit.request.method) {
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

async function post(visit: EndpointRequest, options: EndpointOptions): Promise<void> {
  const { request, response } = visit;
  // A form or plain text is what a page may post anywhere without asking (attack: cross-site request).
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
  const body = await readBody(request, options.maxBodyBytes);
  if (body === 'gone') return;
  if (body === 'too-large')
    return respondRefusal(
      response,
      new TollgateError('HTTP_BODY_TOO_LARGE', { detail: `The body is larger than ${options.maxBodyBytes} bytes.` }),
    );
  // Many sessions may send a large body at once.
  if (body.length > LARGE_INPUT_BYTES) await ownEventLoopTurn();
  const message = readMessage(body, 'client');
  if (message.kind === 'invalid') return respondRefusal(response, message.error, { id: message.id });
  const id = message.kind === 'request' ? message.id : null;
  try {
    if (options.isDraining && message.kind === 'request') throw new TollgateError('SHUTTING_DOWN');
    const session = sessionFor(visit, message, options.sessions);
    if (message.kind === 'request' && session.dispatch.running >= MAX_RUNNING) throw new TollgateError('RATE_LIMITED');
    await exchange(visit, message, session);
    session.lastUsed = options.now();
  } catch (thrown) {
    if (!(thrown instanceof TollgateError)) throw thrown;
    respondRefusal(response, thrown, { id });
  }
}

/** A client that goes away does not cancel its call (transports, legacy revisions): the answer is dropped, not the work. */
async function exchange(
  { request, response }: EndpointRequest,
  message: WireMessage,
  session: HttpSession,
): Promise<void> {
  const stream = new EventStream(response);
  const reply = await session.dispatch.handle(message, (text) => {
    if (accepts(request, STREAM_RANGES)) stream.send(text);
  });
  if (response.headersSent) return stream.end(reply);
  if (reply === undefined) return respondEmpty(response, 202);
  const opened = message.kind === 'request' && message.method === 'initialize';
  respond(response, reply, opened ? { ...JSON_HEADERS, 'mcp-session-id': session.session.id } : JSON_HEADERS);
}

/** The session that a message is for, opened if it is the first. Throws NOT_INITIALIZED, HTTP_SESSION, HTTP_SESSIONS_FULL, HTTP_SESSIONS_QUOTA, WIRE_VERSION, WIRE_METHOD. */
function sessionFor(visit: EndpointRequest, message: WireMessage, sessions: SessionTable): HttpSession {
  const method = message.kind === 'request' ? message.method : undefined;
  if (visit.request.headers['mcp-session-id'] !== undefined) return namedSession(visit, sessions);
  // Said before the revision is looked at: the probe names one that is not spoken here, and must be told to fall back.
  if (method === MODERN_PROBE) throw new TollgateError('WIRE_METHOD');
  if (method !== 'initialize') return namedSession(visit, sessions);
  return sessions.open(spokenEra(visit.request), visit.principal);
}

/** The session of the Mcp-Session-Id header. */
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

function spokenEra(request: IncomingMessage): Era {
  const revision = request.headers['mcp-protocol-version'];
  const era = eraOf(Array.isArray(revision) ? revision.join() : revision);
  if (era === undefined)
    throw new TollgateError('WIRE_VERSION', {
      detail: 'MCP-Protocol-Version names a revision that is not spoken here.',
      next: 'Name the revision that initialize agreed on.',
    });
  return era;
}

function openStream(visit: EndpointRequest, { sessions, now, isDraining }: EndpointOptions): void {
  const { request, response } = visit;
  if (isDraining) throw new TollgateError('SHUTTING_DOWN');
  if (!accepts(request, STREAM_RANGES))
    return respondRefusal(
      response,
      new TollgateError('HTTP_METHOD', { detail: 'The client does not accept text/event-stream.' }),
      { status: 406 },
    );
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

async function endSession(visit: EndpointRequest, { sessions }: EndpointOptions): Promise<void> {
  await sessions.end(namedSession(visit, sessions), 'The client ended the session while the call ran.');
  respondEmpty(visit.response, 204);
}

/** Whether the Accept header admits any of these; a client that sends none admits all (RFC 9110 §12.5.1). Read leniently: nothing is guarded by it. */
function accepts({ headers: { accept } }: IncomingMessage, ranges: readonly string[]): boolean {
  if (accept === undefined) return true;
  const asked = accept.toLowerCase();
  return ranges.some((range) => asked.includes(range));
}
