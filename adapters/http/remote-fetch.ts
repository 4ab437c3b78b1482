/** Owns the HTTP requests under the SDK's transports: exact bodies, size limits, the end of answer streams; refuses hot reconnect loops. */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, MAX_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import { EventStreamReader } from '../rpc/event-stream.ts';
import { scanJson } from '../rpc/json-scan.ts';
import { MAX_JSON_VALUES, readMessage, type WireMessage } from '../rpc/message-parser.ts';

/** How the requests are sent, and what they report. */
export interface RemoteFetchEvents {
  /** What sends them; default: the global one. */
  readonly send?: (url: string | URL, init: RequestInit) => Promise<Response>;
  /** Takes each message of the server, read from the bytes of its body. */
  onMessage(message: WireMessage): void;
  /** The answer to this request cannot come any more. */
  onFailed(id: number, error: TollgateError): void;
}

/** Between two openings of the listening stream: a server may ask for a retry delay of 0 and hang up at once. */
const LISTEN_PAUSE_MS = 250;
const NEWLINE = 10;

/**
 * A fetch for the SDK's client transports. They serialise the messages that they are given, which would round numbers, so
 * they get stand-ins, and the text goes out in their place. They do not notice that a stream without event ids ended before
 * the answer, and they read bodies of any size: both end the request here. They round the numbers of what comes in: messages
 * are read here, from the bytes, and what the SDK makes of them is not used.
 */
export class RemoteFetch {
  private readonly events: RemoteFetchEvents;
  /** Stand-in → text and id of the request. */
  private readonly bodies = new Map<string, { readonly text: string; readonly id: number }>();
  private listenedAt = Number.NEGATIVE_INFINITY;
  private stopped = false;

  constructor(events: RemoteFetchEvents) {
    this.events = events;
  }

  /** From now until `forget`, a body equal to the stand-in is sent as `text`. */
  substitute(standIn: string, text: string, id: number): void {
    this.bodies.set(standIn, { text, id });
  }

  forget(standIn: string): void {
    this.bodies.delete(standIn);
  }

  /** No listening stream is opened from now on: the SDK goes on trying after it was closed, and would hold up our exit. */
  stopListening(): void {
    this.stopped = true;
  }

  readonly fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const sent = typeof init.body === 'string' ? this.bodies.get(init.body) : undefined;
    const listens = (init.method ?? 'GET') === 'GET';
    if (listens) await this.pauseBeforeListening();
    // The one answer after which the SDK does not try again: such a stream is not offered.
    if (listens && this.stopped) return new Response(null, { status: 405 });
    const response = await (this.events.send ?? fetch)(url, sent === undefined ? init : { ...init, body: sent.text });
    if (response.body === null) return response;
    const kind = response.headers.get('content-type')?.split(';', 1)[0]?.trim().toLowerCase();
    const streaming = kind === 'text/event-stream';
    // Bodies that the SDK does not read as messages are none: of failures, and of answers to what asks nothing.
    const carries =
      response.ok && (streaming || kind === 'application/json') && (listens ? streaming : sent !== undefined);
    return replaceBody(
      response,
      guard(response.body, {
        streaming,
        ...(carries && { onMessage: (text) => this.deliver(text, streaming ? undefined : sent?.id) }),
        onEnd: (end) => this.noteEnd(sent?.id, streaming, end),
      }),
    );
  };

  /** A body that is one message answers one request, also where its id cannot be read. */
  private deliver(text: Buffer, id: number | undefined): void {
    for (const message of readBody(text)) {
      this.events.onMessage(message);
      if (message.kind === 'invalid' && message.id === null && id !== undefined)
        this.events.onFailed(id, message.error);
    }
  }

  private async pauseBeforeListening(): Promise<void> {
    const wait = this.listenedAt + LISTEN_PAUSE_MS - performance.now();
    if (wait > 0) await sleep(wait);
    this.listenedAt = performance.now();
  }

  private noteEnd(id: number | undefined, streaming: boolean, end: StreamEnd): void {
    if (id === undefined) return;
    if (end.tooLarge) return this.events.onFailed(id, new TollgateError('UPSTREAM_TOO_LARGE'));
    // A stream with event ids is taken up again by the SDK, and the answer may still come.
    if (!streaming || end.resumable) return;
    const error = new TollgateError('TOOL_CRASHED', {
      detail: 'The server ended its answer stream without an answer.',
    });
    this.events.onFailed(id, error);
  }
}

/** How a body ended. */
interface StreamEnd {
  readonly tooLarge: boolean;
  readonly resumable: boolean;
}

interface Guarding {
  readonly streaming: boolean;
  /** Absent where the body carries no messages. */
  readonly onMessage?: (text: Buffer) => void;
  readonly onEnd: (end: StreamEnd) => void;
}

/** Passes a body on and ends it at the wire limit: per line of an event stream, over all of another body. */
function guard(
  body: ReadableStream<Uint8Array>,
  { streaming, onMessage, onEnd }: Guarding,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const collect = collector(streaming, onMessage);
  let held = 0;
  let resumable = false;
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        // A large message may end here. It is parsed in a turn of its own.
        if (held > LARGE_INPUT_BYTES) await ownEventLoopTurn();
        if (done) {
          collect?.end();
          controller.close();
          onEnd({ tooLarge: false, resumable });
          return;
        }
        const chunk = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
        const newline = streaming ? chunk.lastIndexOf(NEWLINE) : -1;
        held = newline < 0 ? held + chunk.length : chunk.length - newline;
        resumable ||= streaming && (chunk.includes('\nid:') || chunk.indexOf('id:') === 0);
        if (held <= MAX_INPUT_BYTES && collect?.push(chunk) !== false) return controller.enqueue(value);
        onEnd({ tooLarge: true, resumable });
        controller.error(new Error('larger than the wire limit'));
        await reader.cancel();
      } catch (thrown) {
        controller.error(thrown);
        onEnd({ tooLarge: false, resumable });
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** Where the bytes of a body go besides the SDK. `push` says whether the body is within the wire limit. */
interface Collector {
  push(chunk: Buffer): boolean;
  end(): void;
}

function collector(streaming: boolean, onMessage: ((text: Buffer) => void) | undefined): Collector | undefined {
  if (onMessage === undefined) return undefined;
  if (streaming) {
    const events = new EventStreamReader({ maxBytes: MAX_INPUT_BYTES, onMessage });
    // An event without its blank line is not complete (HTML Living Standard, server-sent events).
    return { push: (chunk) => events.push(chunk), end: () => undefined };
  }
  const chunks: Buffer[] = [];
  return { push: (chunk) => chunks.push(chunk) > 0, end: () => onMessage(Buffer.concat(chunks)) };
}

/** The revision of 2025-03-26 allows an array of answers. It has no text of its own for each, so its numbers must be carried by doubles. */
function readBody(body: Buffer): readonly WireMessage[] {
  const text = body.toString('utf8');
  if (!text.trimStart().startsWith('[')) return [readMessage(body, 'server')];
  const { exact, values } = scanJson(text);
  if (!exact || values > MAX_JSON_VALUES) return [readMessage(body, 'server')];
  try {
    return (JSON.parse(text) as readonly unknown[]).map((item) =>
      readMessage(Buffer.from(JSON.stringify(item)), 'server'),
    );
  } catch {
    return [readMessage(body, 'server')];
  }
}

/** `url` and `redirected` do not survive the constructor, and the SDK judges redirects by them. */
function replaceBody(response: Response, body: ReadableStream<Uint8Array>): Response {
  const { status, statusText, headers, url, redirected, type } = response;
  const replaced = new Response(body, { status, statusText, headers });
  return Object.defineProperties(replaced, {
    url: { value: url },
    redirected: { value: redirected },
    type: { value: type },
  });
}
