/** Owns the sending of events to one host, for as long as its session lives; refuses to queue for one that does not read. */
import type { ServerResponse } from 'node:http';
import type { EventFeed } from '../servers/feed.ts';
import { EventStream } from '../wire/events.ts';

/** So often a quiet stream says something that readers ignore, so that nothing between takes it for dead. */
const BEAT_MS = 30_000;

/** Where events go. `after`: id of the last one that the host has. */
export interface StreamParts {
  readonly response: ServerResponse;
  readonly after: string | undefined;
  /** Aborted when the session of the host ends. */
  readonly closed: AbortSignal;
  /** Asked before anything is sent. */
  readonly mayHear: () => boolean;
}

/** Resolves when the host is gone, may hear no more, or its session has ended. A host that reads slowly finds a gap in the ids where it was too slow. */
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
