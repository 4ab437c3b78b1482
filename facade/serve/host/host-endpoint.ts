/** Serves the host API over HTTP: JSON in, JSON out. What the published description does not name is refused. */
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { jsonMembers, parseJsonDoc } from '../../../adapters/rpc/message-parser.ts';
import { asTollgateError, ERRORS, type ErrorCode, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../../catalogs/text/awaitable.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../../catalogs/text/time-slices.ts';
import type { ListenConfig } from '../../config/config.ts';
import { EventStream } from '../http/client-event-stream.ts';
import { discardBody, REFUSAL_HEADERS, respondWith, STATUS } from '../http/http-response.ts';
import type { EndpointRequest } from '../http/mcp-endpoint.ts';
import { readBody } from '../http/request-body.ts';
import { SharedSessions } from '../http/shared-sessions.ts';
import type { EventFeed } from './event-feed.ts';
import {
  checkOperationInput,
  findOperation,
  type HostApiOperation,
  type OperationInput,
} from './host-api-description.ts';
import { createHostOperations } from './host-operations.ts';
import { HostSessions } from './host-sessions.ts';
import { requireOwner } from './owner-operations.ts';
import { HostRefusal } from './reply-result.ts';
import type { HostParts } from './server-registration.ts';

/** The path prefix of the host API, with its version. */
export const HOST_PATH = '/host/v1/';

/** The most streams of events at once. */
const MAX_LISTENING = 16;

/** Serves hosts. */
export interface HostEndpoint {
  /** Serves one request that passed the checks. `admit` returns its principal. Never rejects. */
  serve(
    request: Pick<EndpointRequest, 'request' | 'response'>,
    admit: () => Awaitable<EndpointRequest['principal']>,
  ): Promise<void>;
  /** Call it every few seconds: it ends idle sessions. */
  tick(): void;
  /** From now on requests are refused with SHUTTING_DOWN. Resolves when all but the streams of events have ended. */
  drain(): Promise<void>;
  /** Cancels what runs, and waits until each request has its answer. */
  close(): Promise<void>;
}

/**
 * What the endpoint works with. `now` in ms, of any beginning. `reload` loads the configuration on the disk, and does
 * not throw if it refuses it.
 */
export interface HostEndpointOptions {
  readonly listen: ListenConfig;
  readonly now: () => number;
  readonly onFault: (thrown: unknown) => void;
  readonly reload: () => Promise<void>;
}

/**
 * Streams events: the one answer that does not end. It runs in a session of its host, so that it ends when the host's
 * principal is no longer an owner.
 */
function createEventStreams(
  feed: HostParts['feed'],
  sessions: HostSessions,
  isSuspended: (principal: string) => boolean,
) {
  let listening = 0;
  return async (
    { request, response }: Pick<EndpointRequest, 'request' | 'response'>,
    principal: EndpointRequest['principal'],
  ): Promise<void> => {
    requireOwner(principal);
    if (listening >= MAX_LISTENING)
      throw new TollgateError('RATE_LIMITED', {
        detail: `${MAX_LISTENING} hosts listen to events already.`,
        next: 'End a stream that no one reads.',
      });
    listening += 1;
    const after = request.headers['last-event-id'];
    await sessions
      .within({ principal }, (session) =>
        streamEvents(feed, {
          response,
          closed: session.closed,
          mayHear: () => session.principal.owner === true && !isSuspended(principal.id),
          after: typeof after === 'string' ? after : undefined,
        }),
      )
      .finally(() => (listening -= 1));
  };
}

/** The host API of a running facade. */
export function openHostEndpoint(
  parts: HostParts,
  { listen, now, onFault, reload }: HostEndpointOptions,
): HostEndpoint {
  const { state, gateway } = parts;
  const shared = state.isShared ? new SharedSessions({ state, idleMs: listen.idleMs, now: Date.now }) : undefined;
  const sessions = new HostSessions({ gateway, listen, now, shared });
  const operations = createHostOperations(parts, sessions, reload);
  const events = createEventStreams(
    parts.feed,
    sessions,
    (principal) => parts.suspensions.find(principal) !== undefined,
  );
  let isDraining = false;
  const running = new Set<Promise<object | string | undefined>>();
  return {
    serve: async ({ request, response }, admit) => {
      const gone = new AbortController();
      response.once('close', () => (response.writableFinished ? undefined : gone.abort()));
      const reads = /\btext\/event-stream\b/i.test(request.headers.accept ?? '');
      const stream = new EventStream(response);
      const onProgress = (params: Readonly<Record<string, unknown>>): void =>
        void stream.send(JSON.stringify({ progress: params }));
      try {
        const principal = await admit();
        const { operation, asked, argsText } = await read(request, listen.maxBodyBytes);
        checkOperationInput(operation, asked);
        if (isDraining) throw new TollgateError('SHUTTING_DOWN');
        const suspended = parts.suspensions.refusalOf(principal.id);
        if (suspended !== undefined) throw suspended;
        if (operation.id === 'events') return await events({ request, response }, principal);
        await parts.deps.refresh();
        const work = Promise.resolve(
          operations[operation.id]?.({
            principal,
            input: asked,
            gone: gone.signal,
            ...(reads && { onProgress }),
            ...(argsText !== undefined && { argsText }),
          }),
        );
        running.add(work);
        const answer = await work.finally(() => running.delete(work));
        if (answer === undefined)
          throw new TollgateError('INTERNAL', {
            cause: new Error(`operation ${operation.id} is described, but not implemented`),
          });
        const text = typeof answer === 'string' ? answer : JSON.stringify(answer);
        if (response.headersSent) stream.end(text);
        else respondWith(response, { status: operation.status, body: text, headers: HEADERS });
      } catch (thrown) {
        const refused = thrown instanceof HostRefusal ? thrown : inform(thrown, onFault);
        if (response.headersSent) return stream.end(refusalBody(refused));
        respondRefused(response, refused);
        discardBody(request);
      }
    },
    tick: () => void sessions.tick().catch(onFault),
    drain: async () => {
      isDraining = true;
      await Promise.allSettled(running);
    },
    close: async () => {
      const answers = Promise.allSettled(running);
      await sessions.close();
      await answers;
    },
  };
}

function refusalBody({ message, refusal }: HostRefusal): string {
  const { code = 'INTERNAL', next = ERRORS.INTERNAL.next, retryable = false, decision, correlation } = refusal;
  return JSON.stringify({ error: { code, message, next, retryable, decision, correlation } });
}

function respondRefused(response: EndpointRequest['response'], refused: HostRefusal): void {
  const { code = 'INTERNAL', status, allow } = refused.refusal;
  respondWith(response, {
    status: status ?? STATUS[code as ErrorCode] ?? 400,
    body: refusalBody(refused),
    headers: { ...HEADERS, ...REFUSAL_HEADERS[code as ErrorCode], ...(allow !== undefined && { allow }) },
  });
}

const HEADERS = { 'content-type': 'application/json', 'cache-control': 'no-store' };

async function read(
  request: IncomingMessage,
  maxBytes: number,
): Promise<{ operation: HostApiOperation; asked: OperationInput; argsText?: string }> {
  const url = request.url ?? '';
  const mark = url.indexOf('?');
  const { operation, named } = findOperation(request.method ?? '', mark === -1 ? url : url.slice(0, mark));
  const query = readQuery(mark === -1 ? '' : url.slice(mark + 1));
  if (!operation.hasBody) return { operation, asked: { ...query, ...named } };
  if (Object.keys(query).length > 0)
    throw new TollgateError('WIRE_PARAMS', {
      detail: 'This operation takes no query parameters.',
      next: 'Put it into the body.',
    });
  return { operation, ...(await readJson(request, maxBytes)) };
}

/** Parses the query. A key that appears twice is refused, because two readers would take two different values. */
function readQuery(text: string): Readonly<Record<string, string>> {
  const pairs = [...new URLSearchParams(text)];
  if (new Set(pairs.map(([key]) => key)).size < pairs.length)
    throw new TollgateError('WIRE_DUPLICATE_KEY', { detail: 'The query names the same key twice.' });
  return Object.fromEntries(pairs);
}

async function readJson(
  request: IncomingMessage,
  maxBytes: number,
): Promise<{ asked: OperationInput; argsText?: string }> {
  if (!/^application\/json\s*(;|$)/i.test(request.headers['content-type'] ?? ''))
    throw new TollgateError('HTTP_METHOD', {
      detail: 'The body is not application/json.',
      next: 'POST application/json.',
      data: { status: 415 },
    });
  const body = await readBody(request, maxBytes);
  if (body === 'gone') throw new TollgateError('CANCELLED');
  if (body === 'too-large')
    throw new TollgateError('HTTP_BODY_TOO_LARGE', { detail: `The body is larger than ${maxBytes} bytes.` });
  if (body.length > LARGE_INPUT_BYTES) await ownEventLoopTurn();
  if (!isUtf8(body)) throw new TollgateError('WIRE_UTF8');
  const { text, value } = parseBody(body.toString('utf8'));
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new TollgateError('WIRE_PARAMS', { detail: 'The body is not an object.', next: 'Send one JSON object.' });
  const span = 'arguments' in value ? jsonMembers(text).find(({ key }) => key === 'arguments') : undefined;
  return { asked: value as OperationInput, ...(span !== undefined && { argsText: text.slice(span.start, span.end) }) };
}

/** The error table describes a line of stdio clients. Here a body is one object. */
function parseBody(text: string): ReturnType<typeof parseJsonDoc> {
  try {
    return parseJsonDoc(text);
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'WIRE_PARSE') throw thrown;
    throw new TollgateError('WIRE_PARSE', {
      detail: 'The body is not JSON.',
      next: 'Send one JSON object as the body, UTF-8, without a byte order mark.',
      cause: thrown,
    });
  }
}

/** An error of Tollgate in the words of the table; any other error is opaque. */
function inform(thrown: unknown, onFault: (thrown: unknown) => void): HostRefusal {
  if (!(thrown instanceof TollgateError)) onFault(thrown);
  const { code, message, next, data, row, retryable } = asTollgateError(thrown);
  // What the command line reports as a wrong use.
  const shown = code === 'USAGE' ? 'WIRE_PARAMS' : code;
  return new HostRefusal(code === 'INTERNAL' ? row.what : message, {
    code: shown,
    next,
    retryable,
    ...(typeof data.status === 'number' && { status: data.status }),
    ...(typeof data.allow === 'string' && { allow: data.allow }),
  });
}

/** How often a quiet stream sends a comment, so that no proxy closes it. */
const BEAT_MS = 30_000;

/** A host that listens to events. `after`: id of the last event that it has. */
export interface StreamParts {
  readonly response: ServerResponse;
  readonly after: string | undefined;
  /** Aborted when the session of the host ends. */
  readonly closed: AbortSignal;
  /** Called before anything is sent. */
  readonly mayHear: () => boolean;
}

/**
 * Resolves when the host has disconnected, may receive no more, or its session has ended. A host that reads too slowly
 * finds a gap in the ids.
 */
export async function streamEvents(feed: EventFeed, { response, after, closed, mayHear }: StreamParts): Promise<void> {
  const stream = new EventStream(response);
  let place = feed.placeAfter(after);
  let end = (): void => undefined;
  const ended = new Promise<void>((resolve) => (end = resolve));
  const send = (): void => {
    if (!mayHear()) return end();
    for (let next = feed.next(place); next !== undefined && stream.send(next.text, next.id); next = feed.next(place))
      place = next.seq;
  };
  stream.open();
  const stop = feed.listen(send);
  const beat = setInterval(() => (mayHear() ? stream.comment('keep-alive') : end()), BEAT_MS).unref();
  response.on('drain', send);
  send();
  response.once('close', end);
  closed.addEventListener('abort', end, { once: true });
  if (!closed.aborted && !response.destroyed) await ended;
  stop();
  clearInterval(beat);
  response.off('drain', send);
  // The session may outlive many streams.
  closed.removeEventListener('abort', end);
  stream.end();
}
