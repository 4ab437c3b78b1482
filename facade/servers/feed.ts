/** Owns what happened to servers lately, for hosts that listen; refuses to keep more than a thousand events, and text of servers in any. */
import type { ServerEvent } from '../../adapters/port.ts';
import { counted } from './records.ts';

const MAX = 1000;

/** One event as a listener is sent it. */
export interface FeedItem {
  readonly seq: number;
  /** Of this process: another one's is no place to go on from. */
  readonly id: string;
  /** JSON. */
  readonly text: string;
}

/** The events of one process. Each listener reads on from its own place, so that a slow one makes nobody keep more. */
export class EventFeed {
  readonly #now: () => number;
  readonly #mark: string;
  readonly #ring: { readonly at: number; readonly event: ServerEvent }[] = [];
  readonly #listeners = new Set<() => void>();
  #last = 0;

  /** `now` in ms since 1970. */
  constructor(now: () => number) {
    this.#now = now;
    this.#mark = now().toString(36);
  }

  /** Something happened; listeners are told at once. */
  note(event: ServerEvent): void {
    this.#last += 1;
    this.#ring[this.#last % MAX] = { at: this.#now(), event };
    for (const listener of this.#listeners) listener();
  }

  /** The place after the event of this id; without one that of now, and where the id is of another process before all that is kept. */
  placeAfter(id: string | undefined): number {
    if (id === undefined) return this.#last;
    const [mark, seq] = id.split('-');
    return mark === this.#mark && /^\d{1,15}$/.test(seq ?? '') ? Math.min(Number(seq), this.#last) : 0;
  }

  /** The first event after a place that is kept still. */
  next(place: number): FeedItem | undefined {
    const seq = Math.max(place + 1, this.#last - MAX + 1);
    const kept = seq > this.#last ? undefined : this.#ring[seq % MAX];
    if (kept === undefined) return undefined;
    const { event: word, server, id, ...facts } = kept.event;
    return { seq, id: `${this.#mark}-${seq}`, text: JSON.stringify({ at: new Date(kept.at).toISOString(), event: word, server, id, ...counted(facts) }) };
  }

  /** Told of each event until the function that it gives is called. Must not throw. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
