/** Reads the messages of a server from the body of an HTTP response, from its bytes, within the wire limits. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, MAX_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import type { EventStreamReader } from '../rpc/event-stream.ts';
import { scanJson } from '../rpc/json-scan.ts';
import { firstByte, MAX_JSON_VALUES, OPEN_LIST, readMessage, type WireMessage } from '../rpc/message-parser.ts';

const [NEWLINE, RETURN] = [10, 13];

/** Returns the media type of a response, in lower case and without parameters. */
export function mediaType({ headers }: Response): string {
  return (headers.get('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
}

/** Reads an event stream to its end. Throws UPSTREAM_TOO_LARGE, and what reading the body throws. */
export async function readEvents(response: Response, events: EventStreamReader, onBytes: () => void): Promise<void> {
  await readChunks(response, {
    take: (chunk) => {
      onBytes();
      return events.push(chunk);
    },
    // An event without its blank line is incomplete (HTML Living Standard, server-sent events), but its lines count.
    lineEnd: (chunk) => Math.max(chunk.lastIndexOf(NEWLINE), chunk.lastIndexOf(RETURN)),
  });
}

/** Reads the messages of a JSON body. Throws UPSTREAM_TOO_LARGE, and what reading the body throws. */
export async function readJsonBody(response: Response, maxBytes = MAX_INPUT_BYTES): Promise<readonly WireMessage[]> {
  const chunks: Buffer[] = [];
  await readChunks(response, { take: (chunk) => chunks.push(chunk) > 0, lineEnd: () => -1, maxBytes });
  return readBatch(Buffer.concat(chunks));
}

interface ChunkReading {
  /** Returns false if a message is larger than the limit. */
  readonly take: (chunk: Buffer) => boolean;
  /** Returns the place of the last line end of a chunk, or -1. What comes before it no longer counts. */
  readonly lineEnd: (chunk: Buffer) => number;
  readonly maxBytes?: number;
}

async function readChunks({ body }: Response, { take, lineEnd, maxBytes = MAX_INPUT_BYTES }: ChunkReading) {
  let heldBytes = 0;
  for await (const value of body ?? []) {
    // A large message may end here. It is parsed in its own turn of the event loop.
    if (heldBytes > LARGE_INPUT_BYTES) await ownEventLoopTurn();
    const chunk = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    const end = lineEnd(chunk);
    heldBytes = end < 0 ? heldBytes + chunk.length : chunk.length - end;
    // Leaving the loop cancels the body.
    if (heldBytes > maxBytes || !take(chunk)) throw new TollgateError('UPSTREAM_TOO_LARGE');
  }
  if (heldBytes > LARGE_INPUT_BYTES) await ownEventLoopTurn();
}

/**
 * Reads the text of a body or an event. Protocol revision 2025-03-26 allows an array of answers. Each is serialized
 * again, so the array is accepted only if doubles hold all of its numbers.
 */
export function readBatch(body: Buffer): readonly WireMessage[] {
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
