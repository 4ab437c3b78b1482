/**
 * One connection to a remote server over HTTP with SSE (MCP 2024-11-05): one event stream carries all messages of the
 * server, and requests go to the address that its first event names.
 */
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import { MAX_INPUT_BYTES } from '../../catalogs/text/time-slices.ts';
import type { Connection, ConnectionEvents } from '../rpc/connection.ts';
import { EventStreamReader } from '../rpc/event-stream.ts';
import { type ServerSettings, serverUnavailable } from '../supervisor/server-settings.ts';
import { HttpRequests, type RemoteHost } from './http-requests.ts';
import { mediaType, readBatch, readEvents } from './message-body.ts';

/** A connection over HTTP with SSE. */
export class SseConnection implements Connection {
  readonly overHttp = 'sse';
  readonly #settings: ServerSettings;
  readonly #host: RemoteHost;
  readonly #abort = new AbortController();
  #http: HttpRequests | undefined;
  #events: ConnectionEvents | undefined;
  #endpoint: URL | undefined;
  #version: string | undefined;
  #heardAt = performance.now();
  /** Bytes of messages that the server has not accepted. */
  #untaken = 0;
  #closed = false;

  constructor(settings: ServerSettings, host: RemoteHost) {
    this.#settings = settings;
    this.#host = host;
  }

  async start(events: ConnectionEvents): Promise<void> {
    this.#events = events;
    const http = await HttpRequests.open(this.#settings, this.#host);
    this.#http = http;
    try {
      const response = await http.sendChecked({
        method: 'GET',
        headers: { accept: 'text/event-stream' },
        signal: this.#abort.signal,
      });
      if (mediaType(response) !== 'text/event-stream') throw await this.#refuse(response);
      await new Promise<void>((resolve, reject) => void this.#read(response, resolve).catch(reject));
    } catch (thrown) {
      throw http.judge(thrown).error;
    }
  }

  async send(text: string, id?: number): Promise<void> {
    this.#untaken += text.length;
    try {
      const response = await (this.#http as HttpRequests).sendChecked(
        {
          method: 'POST',
          headers: {
            ...(this.#version !== undefined && { 'mcp-protocol-version': this.#version }),
            'content-type': 'application/json',
          },
          body: text,
          signal: this.#abort.signal,
        },
        this.#endpoint,
      );
      await response.body?.cancel();
    } catch (thrown) {
      if (this.#closed) return;
      const { error, lost } = (this.#http as HttpRequests).judge(thrown);
      if (id !== undefined) this.#events?.onFailed(id, error);
      if (lost !== undefined) this.#lose(lost);
    } finally {
      this.#untaken -= text.length;
    }
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
    this.killNow();
  }

  killNow(): void {
    this.#closed = true;
    this.#abort.abort();
  }

  async #refuse({ body }: Response): Promise<TollgateError> {
    await body?.cancel();
    return this.#unusable('answers without an event stream');
  }

  /** Reads the event stream to its end, which ends the session. Calls `onReady` when the address is known. */
  async #read(response: Response, onReady: () => void): Promise<void> {
    const events = new EventStreamReader({
      maxBytes: MAX_INPUT_BYTES,
      onMessage: (text) => {
        if (!this.#closed) for (const message of readBatch(text)) this.#events?.onMessage(message);
      },
      onOther: (type, data) => {
        if (type !== 'endpoint' || this.#endpoint !== undefined) return;
        this.#endpoint = this.#endpointOf(data.toString('utf8'));
        onReady();
      },
    });
    const onBytes = (): void => void (this.#heardAt = performance.now());
    const broken = await readEvents(response, events, onBytes).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    if (this.#endpoint === undefined)
      throw broken ?? this.#unusable('ended its event stream before it named an address');
    this.#lose('closed its event stream');
  }

  /** Messages, and with them headers and tokens, go to the origin of the server only. */
  #endpointOf(address: string): URL {
    const { url } = this.#http as HttpRequests;
    const endpoint = URL.canParse(address, url) ? new URL(address, url) : undefined;
    if (endpoint?.origin === url.origin && endpoint.username === '' && endpoint.password === '') return endpoint;
    throw this.#unusable('names an address of another origin for its messages, which is not used');
  }

  #unusable(fault: string): TollgateError {
    return serverUnavailable(this.#settings.name, fault, { retryable: false });
  }

  #lose(why: string): void {
    if (this.#closed) return;
    this.killNow();
    this.#events?.onClosed(why);
  }
}
