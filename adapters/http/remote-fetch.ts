/**
 * The fetch function for the SDK's transports. It keeps bodies exact, limits sizes, detects the end of answer streams,
 * and slows down reconnects.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, MAX_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import { EventStreamReader } from '../rpc/event-stream.ts';
import { scanJson } from '../rpc/json-scan.ts';
import { firstByte, MAX_JSON_VALUES, OPEN_LIST, readMessage, type WireMessage } from '../rpc/message-parser.ts';

/** How requests are sent, and the events that they report. */
export interface RemoteFetchEvents {
  /** Default: the global fetch. */
  readonly send?: (url: string | URL, init: RequestInit) => Promise<Response>;
  /** Called with each message of the server, read from the bytes of its body. */
  onMessage(message: WireMessage): void;
  /** The answer to this request cannot arrive any more. */
  onFailed(id: number, error: TollgateError): void;
}

/** The minimum between two listening streams. A server may ask for a retry delay of 0 and close each one. */
const LISTEN_PAUSE_MS = 250;
const NEWLINE = 10;

/**
 * A fetch for the SDK's client transports, which corrects three faults:
 * - They serialize messages, which would round numbers. So they get placeholders, which are replaced by the exact text
 *   here. Incoming messages are read here, from the bytes, and those that the SDK parses are not used.
 * - They do not notice that a stream without event ids ended before the answer. The request ends here.
 * - They read bodies of any size. The wire limit applies here.
 */
export class RemoteFetch {
  private readonly events: RemoteFetchEvents;
  /** The text and id of each request, by its placeholder. */
  private readonly bodies = new Map<string, { readonly text: string; readonly id: number }>();
  private listenedAt = Number.NEGATIVE_INFINITY;
  private stopped = false;

  constructor(events: RemoteFetchEvents) {
    this.events = events;
  }

  /** Until `forget`, replaces a body that equals the placeholder by `text`. */
  substitute(placeholder: string, text: string, id: number): void {
    this.bodies.set(placeholder, { text, id });
  }

  forget(placeholder: string): void {
    this.bodies.delete(placeholder);
  }

  /** Opens no listening stream from now on. The SDK retries even after its close, and would delay the exit. */
  stopListening(): void {
    this.stopped = true;
  }

  readonly fetch = async (url: string | URL, init: RequestInit = {}): Promise<Response> => {
    const sent = typeof init.body === 'string' ? this.bodies.get(init.body) : undefined;
    const listens = (init.method ?? 'GET') === 'GET';
    if (listens) await this.pauseBeforeListening();
    // After this status, which says that there is no such stream, the SDK does not try again.
    if (listens && this.stopped) return new Response(null, { status: 405 });
    const response = await (this.events.send ?? fetch)(url, sent === undefined ? init : { ...init, body: sent.text });
    if (response.body === null) return response;
    const type = response.headers.get('content-type')?.split(';', 1)[0]?.trim().toLowerCase();
    const streaming = type === 'text/event-stream';
    // Bodies of failures and of answers to notifications are not messages, and the SDK does not read them either.
    const hasMessages =
      response.ok && (streaming || type === 'application/json') && (listens ? streaming : sent !== undefined);
    return replaceBody(
      response,
      guard(response.body, {
        streaming,
        ...(hasMessages && { onMessage: (text) => this.deliver(text, streaming ? undefined : sent?.id) }),
        onEnd: (end) => this.noteEnd(sent?.id, streaming, end),
      }),
    );
  };

  /** A body that is not a stream answers its request, even if the id in it cannot be read. */
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

  private noteEnd(id: number | undefined, streaming: boolean, end: BodyEnd): void {
    if (id === undefined) return;
    if (end === 'too-large') return this.events.onFailed(id, new TollgateError('UPSTREAM_TOO_LARGE'));
    // The SDK resumes a stream with event ids, so the answer may still arrive.
    if (!streaming || end === 'resumable') return;
    const detail = 'The server ended its answer stream without an answer.';
    this.events.onFailed(id, new TollgateError('TOOL_CRASHED', { detail }));
  }
}

/** How a body ended. `resumable`: it was a stream with event ids. */
type BodyEnd = 'final' | 'resumable' | 'too-large';

interface Guarding {
  readonly streaming: boolean;
  /** Absent where the body carries no messages. */
  readonly onMessage?: (text: Buffer) => void;
  readonly onEnd: (end: BodyEnd) => void;
}

/**
 * Passes a body on and ends it at the wire limit, which counts per line of an event stream, else for the whole body.
 */
function guard(
  body: ReadableStream<Uint8Array>,
  { streaming, onMessage, onEnd }: Guarding,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  const collect = collector(streaming, onMessage);
  let heldBytes = 0;
  let end: BodyEnd = 'final';
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        // A large message may end here. It is parsed in its own turn of the event loop.
        if (heldBytes > LARGE_INPUT_BYTES) await ownEventLoopTurn();
        if (done) {
          collect?.end();
          controller.close();
          return onEnd(end);
        }
        const chunk = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
        const newline = streaming ? chunk.lastIndexOf(NEWLINE) : -1;
        heldBytes = newline < 0 ? heldBytes + chunk.length : chunk.length - newline;
        if (streaming && (chunk.includes('\nid:') || chunk.indexOf('id:') === 0)) end = 'resumable';
        if (heldBytes <= MAX_INPUT_BYTES && collect?.push(chunk) !== false) return controller.enqueue(value);
        onEnd('too-large');
        controller.error(new Error('larger than the wire limit'));
        await reader.cancel();
      } catch (thrown) {
        controller.error(thrown);
        onEnd(end);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

/** Reads the messages of a body. `push` returns false if the body exceeds the wire limit. */
interface Collector {
  push(chunk: Buffer): boolean;
  end(): void;
}

function collector(streaming: boolean, onMessage: ((text: Buffer) => void) | undefined): Collector | undefined {
  if (onMessage === undefined) return undefined;
  if (streaming) {
    const events = new EventStreamReader({ maxBytes: MAX_INPUT_BYTES, onMessage });
    // At the end, an event without its blank line is incomplete (HTML Living Standard, server-sent events).
    return { push: (chunk) => events.push(chunk), end: () => undefined };
  }
  const chunks: Buffer[] = [];
  return { push: (chunk) => chunks.push(chunk) > 0, end: () => onMessage(Buffer.concat(chunks)) };
}

/**
 * Reads a body. Protocol revision 2025-03-26 allows an array of answers. Each is serialized again, so the array is
 * accepted only if doubles hold all of its numbers.
 */
function readBody(body: Buffer): readonly WireMessage[] {
  if (firstByte(body) !== OPEN_LIST) return [readMessage(body, 'server')];
  const { exact, values } = scanJson(body);
  if (!exact || values > MAX_JSON_VALUES) return [readMessage(body, 'server')];
  try {
    return (JSON.parse(body.toString('utf8')) as readonly unknown[]).map((item) =>
      readMessage(Buffer.from(JSON.stringify(item)), 'server'),
    );
  } catch {
    return [readMessage(body, 'server')];
  }
}

/** Returns the response with another body. It keeps `url` and `redirected`, by which the SDK judges redirects. */
function replaceBody(response: Response, body: ReadableStream<Uint8Array>): Response {
  const { status, statusText, headers, url, redirected, type } = response;
  const replaced = new Response(body, { status, statusText, headers });
  return Object.defineProperties(replaced, {
    url: { value: url },
    redirected: { value: redirected },
    type: { value: type },
  });
}
