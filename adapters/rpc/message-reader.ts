/** Reads messages from a server's bytes. It reports and drops lines that are not messages or exceed the wire limit. */
import type { Readable } from 'node:stream';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, MAX_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import type { ConnectionEvents } from './connection.ts';
import { LineReader } from './framing.ts';
import { type JsonScan, type PartialScan, startScan } from './json-scan.ts';
import { readMessage, type WireMessage } from './message-parser.ts';

/**
 * Reads the messages of a stream. A long line is scanned while it arrives. A large message is parsed in its own turn;
 * the stream waits, so the order stays.
 */
export class MessageReader {
  readonly #events: ConnectionEvents;
  readonly #stream: Readable;
  readonly #lines: LineReader;
  /** The scan of a long line that has not ended. */
  #scan: PartialScan | undefined;
  /** A large line, and the rest of its chunk. */
  #later: WaitingLine[] = [];

  constructor(stream: Readable, events: ConnectionEvents) {
    this.#events = events;
    this.#stream = stream;
    this.#lines = new LineReader({
      maxBytes: MAX_INPUT_BYTES,
      onPart: (bytes) => this.#scanPart(bytes),
      onLine: (line) => this.#receive(line),
      onBad: (_reason, edges) => events.onTooLarge(edges),
    });
    stream.on('data', (chunk: Buffer) => this.#lines.push(chunk));
    stream.on('end', () => this.#lines.end());
  }

  /** Delivers the lines that wait, because no message may come after the end of the server is reported. */
  flush(): void {
    for (const { line, scan } of this.#later.splice(0)) this.#deliver(line, scan);
  }

  /** `bytes`: a long line so far, or nothing if it is over the limit. */
  #scanPart(bytes: Buffer | undefined): void {
    if (bytes === undefined) this.#scan = undefined;
    else (this.#scan ??= startScan(2)).advance(bytes);
  }

  #receive(line: Buffer): void {
    const scan = this.#scan;
    this.#scan = undefined;
    const isLarge = line.length > LARGE_INPUT_BYTES;
    if (!isLarge && this.#later.length === 0) return this.#deliver(line, scan);
    // The reader reuses the bytes of a small line.
    this.#later.push({ line: isLarge ? line : Buffer.from(line), scan });
    if (this.#later.length > 1) return;
    this.#stream.pause();
    void ownEventLoopTurn().then(() => {
      this.flush();
      this.#stream.resume();
    });
  }

  #deliver(line: Buffer, scan: PartialScan | undefined): void {
    const { message, noisy } = readNoisyLine(line, scan?.finish(line));
    if (noisy) this.#events.onBad();
    if (!noisy || message.kind !== 'invalid') this.#events.onMessage(message);
  }
}

interface WaitingLine {
  readonly line: Buffer;
  /** The scan of its first parts, if it came in parts. */
  readonly scan: PartialScan | undefined;
}

/** The beginnings of frames of known implementations. The TypeScript SDK puts `result` first. */
const BEGINNINGS = ['{"jsonrpc"', '{"result"', '{"id"', '{"method"', '{"error"'];
/** Each attempt reads the line again, so these limits bound the cost of a hostile line. */
const ATTEMPTS = 4;
const MAX_NOISY_BYTES = 1_048_576;

/** A message of a server. `noisy`: bytes before it were skipped. */
export interface NoisyMessage {
  readonly message: WireMessage;
  readonly noisy: boolean;
}

/**
 * Reads a line of a server. If log text without a newline comes before a frame, the frame is still read, because its
 * call would wait for the timeout otherwise. This applies to lines of at most 1 MiB. It opens no attack: a server that
 * prints foreign text could print the newline too. `scan`: the scan of the line, if there is one.
 */
export function readNoisyLine(line: Buffer, scan?: JsonScan): NoisyMessage {
  const message = readMessage(line, 'server', scan);
  if (!isNoise(message) || line.length > MAX_NOISY_BYTES) return { message, noisy: false };
  let from = 0;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    from = nextBeginning(line, from + 1);
    if (from < 0) break;
    const behind = readMessage(line.subarray(from), 'server');
    if (behind.kind !== 'invalid') return { message: behind, noisy: true };
  }
  return { message, noisy: true };
}

function isNoise(message: WireMessage): boolean {
  if (message.kind !== 'invalid') return false;
  const { cause } = message.error;
  return cause instanceof TollgateError && (cause.code === 'WIRE_PARSE' || cause.code === 'WIRE_UTF8');
}

function nextBeginning(line: Buffer, from: number): number {
  const places = BEGINNINGS.map((beginning) => line.indexOf(beginning, from)).filter((place) => place >= 0);
  return places.length === 0 ? -1 : Math.min(...places);
}
