/**
 * One connection to a remote server over Streamable HTTP: with a session (MCP 2025-11-25 and older), or without one
 * (MCP 2026-07-28). Texts pass in both directions as their bytes.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { MAX_INPUT_BYTES } from '../../catalogs/text/time-slices.ts';
import { type Connection, type ConnectionEvents, STATELESS_REVISION } from '../rpc/connection.ts';
import { EventStreamReader } from '../rpc/event-stream.ts';
import type { WireMessage } from '../rpc/message-parser.ts';
import type { ServerSettings } from '../supervisor/server-settings.ts';
import { type HttpRequest, HttpRequests, type RemoteHost } from './http-requests.ts';
import { mediaType, readBatch, readEvents, readJsonBody } from './message-body.ts';
import { HttpStatusError, isTemporary } from './remote-failure.ts';

/** Milliseconds that the server may take to end its side of the session. */
const TERMINATE_MS = 2000;
/** Failed attempts in a row to open a stream again. */
const MAX_RETRIES = 5;
/** Bounds of the pause before a stream is opened again, whatever the server asks for. */
const [MIN_PAUSE_MS, MAX_PAUSE_MS] = [250, 30_000];
/** Milliseconds that a stream may stay open after its answer, or after its request was cancelled. */
const LINGER_MS = 5000;
/** The most bytes of the body of a refused request that are read. */
const MAX_ERROR_BYTES = 1_048_576;

/** One stream of the server: the answer to a request, or the listening stream. */
interface ServerStream {
  /** The id of the request. Undefined for the listening stream. */
  readonly id?: number;
  readonly abort: AbortController;
  /** True if nothing more is expected: the answer has come, or the request was cancelled. */
  isDone: boolean;
  /** True once the server has begun to answer. A request may have run then. */
  isOpen: boolean;
  /** Where the stream can be resumed, and after which pause. */
  lastId: string | undefined;
  retryMs: number | undefined;
}

/** A connection over Streamable HTTP. */
export class StreamableConnection implements Connection {
  readonly overHttp = 'streamable';
  readonly #settings: ServerSettings;
  readonly #host: RemoteHost;
  readonly #streams = new Map<number, ServerStream>();
  #http: HttpRequests | undefined;
  #events: ConnectionEvents | undefined;
  #listening: ServerStream | undefined;
  #sessionId: string | undefined;
  #version: string | undefined;
  #heardAt = performance.now();
  /** Bytes of requests that the server has not begun to answer. */
  #untaken = 0;
  #closed = false;

  constructor(settings: ServerSettings, host: RemoteHost) {
    this.#settings = settings;
    this.#host = host;
  }

  async start(events: ConnectionEvents): Promise<void> {
    this.#events = events;
    this.#http = await HttpRequests.open(this.#settings, this.#host);
  }

  send(text: string, id?: number, headers: HttpRequest['headers'] = {}): Promise<void> | void {
    if (this.#closed) return;
    if (id === undefined) return this.#sendMessage(text, headers);
    const stream: ServerStream = { id, ...newStream() };
    this.#streams.set(id, stream);
    void this.#exchange(stream, text, headers);
  }

  cancel(id: number): boolean {
    const stream = this.#streams.get(id);
    if (stream !== undefined) {
      stream.isDone = true;
      if (this.#isStateless) stream.abort.abort();
      else this.#endSoon(stream);
    }
    // Without a session, the end of the stream cancels the request (MCP 2026-07-28, Streamable HTTP).
    return this.#isStateless;
  }

  backlog(): number {
    return this.#untaken;
  }

  useProtocolVersion(version: string | undefined): void {
    this.#version = version;
  }

  heardAt(): number {
    return this.#heardAt;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    // The server may be gone already. The session ends here in any case.
    if (this.#sessionId !== undefined && !this.#isStateless)
      await this.#http
        ?.send({ method: 'DELETE', headers: this.#ownHeaders(), signal: AbortSignal.timeout(TERMINATE_MS) })
        .then(({ body }) => body?.cancel())
        .catch(() => undefined);
    this.killNow();
  }

  killNow(): void {
    this.#closed = true;
    this.#listening?.abort.abort();
    for (const { abort } of this.#streams.values()) abort.abort();
  }

  get #isStateless(): boolean {
    return this.#version !== undefined && this.#version >= STATELESS_REVISION;
  }

  #ownHeaders(): HttpRequest['headers'] {
    return {
      ...(this.#version !== undefined && { 'mcp-protocol-version': this.#version }),
      ...(this.#sessionId !== undefined && !this.#isStateless && { 'mcp-session-id': this.#sessionId }),
    };
  }

  async #post(text: string, headers: HttpRequest['headers'], signal: AbortSignal): Promise<Response> {
    const response = await (this.#http as HttpRequests).send({
      method: 'POST',
      headers: {
        ...headers,
        ...this.#ownHeaders(),
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
      },
      body: text,
      signal,
    });
    this.#heardAt = performance.now();
    this.#sessionId = response.headers.get('mcp-session-id') ?? this.#sessionId;
    return response;
  }

  /** Sends a notification, or an answer to a request of the server. */
  async #sendMessage(text: string, headers: HttpRequest['headers']): Promise<void> {
    const { abort } = newStream();
    this.#untaken += text.length;
    try {
      const response = await this.#post(text, headers, abort.signal);
      await response.body?.cancel();
      if (!response.ok) throw new HttpStatusError(response.status);
      // The first message after the handshake tells that the session is open.
      if (this.#version !== undefined && !this.#isStateless && this.#listening === undefined) this.#listen();
    } catch (thrown) {
      // No caller waits for a notification, but the end of a server must be noticed.
      this.#loseAfter(thrown);
    } finally {
      this.#untaken -= text.length;
    }
  }

  /** Sends a request, and delivers its answer or reports its failure. */
  async #exchange(stream: ServerStream, text: string, headers: HttpRequest['headers']): Promise<void> {
    try {
      const response = await this.#postCounted(stream, text, headers);
      if (!response.ok) await this.#readRefusal(response, stream);
      else if (mediaType(response) === 'text/event-stream') await this.#follow(stream, response);
      else await this.#readAnswer(response, stream);
    } catch (thrown) {
      this.#fail(stream, thrown);
    } finally {
      this.#streams.delete(stream.id as number);
    }
  }

  async #postCounted(stream: ServerStream, text: string, headers: HttpRequest['headers']): Promise<Response> {
    this.#untaken += text.length;
    try {
      return await this.#post(text, headers, stream.abort.signal);
    } finally {
      this.#untaken -= text.length;
    }
  }

  /** Without a session, a refusal with a JSON-RPC error is the answer of the server (MCP 2026-07-28). */
  async #readRefusal(response: Response, stream: ServerStream): Promise<void> {
    const { status } = response;
    const mayCarryError = this.#isStateless && (status === 400 || status === 404);
    if (!mayCarryError || mediaType(response) !== 'application/json') {
      await response.body?.cancel();
      throw new HttpStatusError(status);
    }
    const messages = await readJsonBody(response, MAX_ERROR_BYTES).catch(() => []);
    const id = stream.id as number;
    const [answer] = messages;
    if (answer?.kind !== 'error' || (answer.id !== null && answer.id !== id)) throw new HttpStatusError(status);
    this.#deliver({ ...answer, id }, stream);
  }

  async #readAnswer(response: Response, stream: ServerStream): Promise<void> {
    // The answer comes on another stream, or never. The deadline of the request applies.
    if (response.status === 202) return response.body?.cancel();
    if (mediaType(response) !== 'application/json') {
      await response.body?.cancel();
      throw this.#invalid('sent an answer that is not a JSON-RPC message');
    }
    for (const message of await readJsonBody(response)) {
      this.#deliver(message, stream);
      // A body answers its request, even if the id in it cannot be read.
      if (message.kind === 'invalid' && message.id === null) throw message.error;
    }
    if (!stream.isDone) throw this.#invalid('sent an answer to another request');
  }

  #invalid(fault: string): TollgateError {
    return new TollgateError('UPSTREAM_INVALID', { detail: `Server "${this.#settings.name}" ${fault}.` });
  }

  /** Opens the listening stream, and opens it again after each end. A server need not have one. */
  #listen(): void {
    const stream = newStream();
    this.#listening = stream;
    this.#follow(stream).catch((thrown: unknown) => {
      if (stream.isOpen) this.#loseAfter(thrown);
    });
  }

  /** Reads a stream, and resumes it where it ended, until it is done. Throws if that fails or the stream has no ids. */
  async #follow(stream: ServerStream, first?: Response): Promise<void> {
    let response = first;
    for (let failures = 0; !this.#isOver(stream); ) {
      try {
        response ??= await this.#resume(stream);
        if (await this.#read(response, stream)) failures = 0;
      } catch (thrown) {
        failures += 1;
        if (this.#isOver(stream)) return;
        if (failures > MAX_RETRIES || !canRetry(thrown, stream)) throw thrown;
      }
      if (this.#isOver(stream)) return;
      if (stream.id !== undefined && stream.lastId === undefined) throw noAnswer();
      response = undefined;
      await sleep(this.#pause(stream, failures), undefined, { signal: stream.abort.signal, ref: false });
    }
  }

  #isOver(stream: ServerStream): boolean {
    return this.#closed || stream.isDone;
  }

  #pause({ retryMs }: ServerStream, failures: number): number {
    const backoff = this.#settings.reconnectBackoffMs * 2 ** Math.max(0, failures - 1);
    return Math.min(Math.max(retryMs ?? backoff, MIN_PAUSE_MS), MAX_PAUSE_MS);
  }

  async #resume({ lastId, id, abort }: ServerStream): Promise<Response> {
    const response = await (this.#http as HttpRequests).sendChecked({
      method: 'GET',
      headers: {
        ...this.#ownHeaders(),
        accept: 'text/event-stream',
        ...(lastId !== undefined && { 'last-event-id': lastId }),
      },
      signal: abort.signal,
    });
    if (mediaType(response) === 'text/event-stream') return response;
    await response.body?.cancel();
    // As if there were no such stream.
    throw id === undefined ? new HttpStatusError(405) : noAnswer();
  }

  /** Reads one response of a stream to its end. Returns true if it carried an event. */
  async #read(response: Response, stream: ServerStream): Promise<boolean> {
    let hasMessage = false;
    const events = new EventStreamReader({
      maxBytes: MAX_INPUT_BYTES,
      onMessage: (text) => {
        hasMessage = true;
        stream.lastId = events.lastId ?? stream.lastId;
        for (const message of readBatch(text)) this.#deliver(message, stream);
      },
    });
    const before = stream.lastId;
    stream.isOpen = true;
    try {
      await readEvents(response, events, () => (this.#heardAt = performance.now()));
    } finally {
      stream.lastId = events.lastId ?? stream.lastId;
      stream.retryMs = events.retryMs ?? stream.retryMs;
    }
    return hasMessage || stream.lastId !== before;
  }

  #deliver(message: WireMessage, stream: ServerStream): void {
    this.#heardAt = performance.now();
    if (this.#closed) return;
    const isAnswer = message.kind === 'result' || message.kind === 'error' || message.kind === 'invalid';
    if (isAnswer && stream.id !== undefined && message.id === stream.id) {
      stream.isDone = true;
      this.#endSoon(stream);
    }
    this.#events?.onMessage(message, stream.id);
  }

  #endSoon({ abort }: ServerStream): void {
    setTimeout(() => abort.abort(), LINGER_MS).unref();
  }

  #fail(stream: ServerStream, thrown: unknown): void {
    if (this.#isOver(stream)) return;
    stream.isDone = true;
    const { error, lost } = (this.#http as HttpRequests).judge(thrown);
    const isAnswerLost = stream.isOpen && !(thrown instanceof TollgateError);
    this.#events?.onFailed(stream.id as number, isAnswerLost ? noAnswer(thrown) : error);
    // One broken stream does not end the session. A stream that could not be resumed does.
    const isStreamOnly = stream.isOpen && stream.lastId === undefined;
    // Without a session, a status is about its request alone.
    const isStatusOnly = this.#isStateless && thrown instanceof HttpStatusError;
    if (lost !== undefined && !isStreamOnly && !isStatusOnly) this.#lose(lost);
  }

  #loseAfter(thrown: unknown): void {
    const { lost } = (this.#http as HttpRequests).judge(thrown);
    if (lost !== undefined) this.#lose(lost);
  }

  #lose(why: string): void {
    if (this.#closed) return;
    this.killNow();
    this.#events?.onClosed(why);
  }
}

function newStream(): Omit<ServerStream, 'id'> {
  return { abort: new AbortController(), isDone: false, isOpen: false, lastId: undefined, retryMs: undefined };
}

/** Returns true if a stream may be opened again after this error. One without event ids cannot be resumed. */
function canRetry(thrown: unknown, { id, lastId }: ServerStream): boolean {
  if (thrown instanceof HttpStatusError) return isTemporary(thrown.code);
  if (id === undefined) return true;
  return lastId !== undefined && !(thrown instanceof TollgateError);
}

function noAnswer(cause?: unknown): TollgateError {
  return new TollgateError('TOOL_CRASHED', { detail: 'The server ended its answer stream without an answer.', cause });
}
