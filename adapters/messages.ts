/** Owns the reading of messages from a server's bytes: lines within the wire limit; tells of what is none, and drops it. */
import type { Readable } from 'node:stream';
import { ownTurn } from '../catalogs/pace.ts';
import { LARGE_BYTES, MOST_BYTES } from '../catalogs/sizes.ts';
import type { ConnectionEvents } from './connection.ts';
import { LineReader } from './rpc/framing.ts';
import { readNoisy } from './rpc/noise.ts';

/** Reads the messages of a stream. A large message is parsed in a turn of its own; the stream waits for that, and the order stays. */
export class MessageReader {
  readonly #events: ConnectionEvents;
  readonly #stream: Readable;
  readonly #lines: LineReader;
  /** A large line, and what came behind it in the same chunk. */
  #later: Buffer[] = [];

  constructor(stream: Readable, events: ConnectionEvents) {
    this.#events = events;
    this.#stream = stream;
    this.#lines = new LineReader({
      maxBytes: MOST_BYTES,
      onLine: (line) => this.#receive(line),
      onBad: (_reason, edges) => events.onTooLarge(edges),
    });
    stream.on('data', (chunk: Buffer) => this.#lines.push(chunk));
    stream.on('end', () => this.#lines.end());
  }

  /** Delivers what has been read, at once: nothing is to come after the end of the server is told. */
  flush(): void {
    for (const line of this.#later.splice(0)) this.#deliver(line);
  }

  #receive(line: Buffer): void {
    const isLarge = line.length > LARGE_BYTES;
    if (!isLarge && this.#later.length === 0) return this.#deliver(line);
    // The bytes of a small line are those of the reader, which goes on.
    this.#later.push(isLarge ? line : Buffer.from(line));
    if (this.#later.length > 1) return;
    this.#stream.pause();
    void ownTurn().then(() => {
      this.flush();
      this.#stream.resume();
    });
  }

  #deliver(line: Buffer): void {
    const { message, noisy } = readNoisy(line);
    if (noisy) this.#events.onBad();
    if (!noisy || message.kind !== 'invalid') this.#events.onMessage(message);
  }
}
