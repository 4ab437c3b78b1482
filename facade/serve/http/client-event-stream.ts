/** One event stream to a client (HTML, server-sent events). It does not queue for a client that does not read. */
import type { ServerResponse } from 'node:http';
import { oneLine } from '../../../adapters/rpc/framing.ts';
import { joinText, type WireText } from '../../../adapters/rpc/wire-message.ts';

const HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

/** Sends messages as events. The headers go out with the first one; until then plain JSON can still be answered. */
export class EventStream {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
  }

  /** A message was sent, and more may follow. */
  get isOpen(): boolean {
    return this.#response.headersSent && !this.#response.writableEnded;
  }

  /** Sends only the headers. */
  open(): void {
    if (this.#response.headersSent || this.#response.destroyed) return;
    this.#response.writeHead(200, HEADERS);
    this.#response.flushHeaders();
  }

  /**
   * Sends one message, with the id by which the client may continue later. Returns false if nothing was sent, because
   * the client has disconnected or reads too slowly.
   */
  send(message: string, id?: string): boolean {
    return this.#write(`${id === undefined ? '' : `id: ${id}\n`}event: message\ndata: ${oneLine(message)}\n\n`);
  }

  /** Sends a comment, which clients ignore. */
  comment(text: string): void {
    this.#write(`: ${text}\n\n`);
  }

  /** Sends the last message, if any, even to a slow client, and ends the stream. */
  end(message?: WireText): void {
    if (this.#response.destroyed || this.#response.writableEnded) return;
    this.open();
    this.#response.end(message === undefined ? undefined : `event: message\ndata: ${oneLine(joinText(message))}\n\n`);
  }

  #write(text: string): boolean {
    const response = this.#response;
    if (response.destroyed || response.writableEnded || response.writableNeedDrain) return false;
    this.open();
    response.write(text);
    return true;
  }
}
