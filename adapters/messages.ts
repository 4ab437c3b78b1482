/** Owns the reading of messages from a server's bytes: lines within the wire limit; tells of what is none, and drops it. */
import type { ConnectionEvents } from './connection.ts';
import { WIRE_LIMIT } from './connection.ts';
import { LineReader } from './rpc/framing.ts';
import { readNoisy } from './rpc/noise.ts';

/** A reader to push chunks into; `end` takes what stands without a line end. */
export function messageReader(events: ConnectionEvents): LineReader {
  return new LineReader({
    maxBytes: WIRE_LIMIT,
    onLine: (line) => {
      const { message, noisy } = readNoisy(line);
      if (noisy) events.onBad();
      if (!noisy || message.kind !== 'invalid') events.onMessage(message);
    },
    onBad: (_reason, edges) => events.onTooLarge(edges),
  });
}
