/** Owns what happened to servers and calls lately, for hosts that listen; refuses to keep more than a thousand events, and text of servers in any but the names of their tools. */
import type { ServerEvent } from '../../adapters/port.ts';
import { escapeHostile } from '../../catalogs/text.ts';
import type { CallEvent } from './call-event.ts';
import { counted } from './records.ts';

const MAX = 1000;
/** Names of tools in one event, and characters of one name: the counts beside them say how many there are. */
const [MAX_NAMES, MAX_NAME] = [100, 128];

/** Something that hosts hear of. */
export type FeedEvent = ServerEvent | CallEvent;

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
  readonly #redact: (text: string) => string;
  readonly #mark: string;
  readonly #ring: { readonly at: number; readonly event: FeedEvent }[] = [];
  readonly #listeners = new Set<() => void>();
  #last = 0;

  /** `now` in ms since 1970. `redact` takes secrets out of names that servers chose. */
  constructor(now: () => number, redact: (text: string) => string = (text) => text) {
    this.#now = now;
    this.#redact = redact;
    this.#mark = now().toString(36);
  }

  /** Something happened; listeners are told at once. */
  note(event: FeedEvent): void {
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
    const { event: word, id, ...facts } = kept.event;
    return {
      seq,
      id: `${this.#mark}-${seq}`,
      text: JSON.stringify({
        at: new Date(kept.at).toISOString(),
        event: word,
        id,
        ...counted(facts),
        ...this.#namesIn(facts),
      }),
    };
  }

  /** Which tools are new, gone and others than before. */
  #namesIn(facts: Readonly<Record<string, unknown>>): { readonly names?: Readonly<Record<string, readonly string[]>> } {
    const lists = Object.entries(facts).flatMap(([key, value]) =>
      Array.isArray(value) && value.length > 0
        ? [[key === 'tools' ? 'added' : key, (value as string[]).slice(0, MAX_NAMES).map(this.#clean)] as const]
        : [],
    );
    return lists.length === 0 ? {} : { names: Object.fromEntries(lists) };
  }

  readonly #clean = (name: string): string => escapeHostile(this.#redact(name.slice(0, MAX_NAME))).text;

  /** Told of each event until the function that it gives is called. Must not throw. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
