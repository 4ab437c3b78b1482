/**
 * The latest events of servers and calls, for hosts that listen: at most a thousand, and no text of servers except
 * names of tools.
 */
import type { ServerEvent } from '../../../adapters/port.ts';
import type { ErrorCode } from '../../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../../catalogs/text/hostile-text.ts';
import type { OutcomeEntry } from '../../audit/audit-entry.ts';
import type { EndedCall } from '../../call/record.ts';
import { countedFacts } from '../../runtime/servers/server-records.ts';

const MAX = 1000;
/**
 * The most names of tools in one event, and the most characters of a name. The counts next to them say how many there
 * are.
 */
const [MAX_NAMES, MAX_NAME] = [100, 128];

/** Something that happened, as hosts hear of it. */
export type FeedEvent = ServerEvent | CallEvent | AttentionEvent;

/** One event as a listener gets it. */
export interface FeedItem {
  readonly seq: number;
  /** The id is valid in this process. A listener cannot continue from an id of another process. */
  readonly id: string;
  /** JSON. */
  readonly text: string;
}

/** The events of one process. Each listener reads on from its own place, so a slow one costs no memory. */
export class EventFeed {
  readonly #now: () => number;
  readonly #redact: (text: string) => string;
  readonly #mark: string;
  readonly #ring: { readonly at: number; readonly event: FeedEvent }[] = [];
  readonly #listeners = new Set<() => void>();
  #last = 0;
  #relay: ((event: FeedEvent) => void) | undefined;
  /** Called when the first listener comes, and when the last one has gone. */
  onListening: (isListening: boolean) => void = () => undefined;

  /** `now` in ms since 1970. `redact` takes secrets out of names that servers chose. */
  constructor(now: () => number, redact: (text: string) => string = (text) => text) {
    this.#now = now;
    this.#redact = redact;
    this.#mark = now().toString(36);
  }

  /** Adds an event; listeners are called at once. */
  note(event: FeedEvent): void {
    this.noteRelayed(event);
    this.#relay?.(event);
  }

  /** Passes each event of this process on, until it is called with undefined. */
  relay(pass: ((event: FeedEvent) => void) | undefined): void {
    this.#relay = pass;
  }

  /** Adds an event of another process. */
  noteRelayed(event: FeedEvent): void {
    this.#last += 1;
    this.#ring[this.#last % MAX] = { at: this.#now(), event };
    for (const listener of this.#listeners) listener();
  }

  /**
   * Returns the place after the event with this id. Without an id: the present place. For an id of another process:
   * before all stored events.
   */
  placeAfter(id: string | undefined): number {
    if (id === undefined) return this.#last;
    const [mark, seq] = id.split('-');
    return mark === this.#mark && /^\d{1,15}$/.test(seq ?? '') ? Math.min(Number(seq), this.#last) : 0;
  }

  /** Returns the first stored event after a place. */
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
        ...countedFacts(facts),
        ...this.#namesIn(facts),
      }),
    };
  }

  /** Returns which tools are new, removed and changed. */
  #namesIn(facts: Readonly<Record<string, unknown>>): { readonly names?: Readonly<Record<string, readonly string[]>> } {
    const lists = Object.entries(facts).flatMap(([key, value]) =>
      Array.isArray(value) && value.length > 0
        ? [[key === 'tools' ? 'added' : key, (value as string[]).slice(0, MAX_NAMES).map(this.#clean)] as const]
        : [],
    );
    return lists.length === 0 ? {} : { names: Object.fromEntries(lists) };
  }

  readonly #clean = (name: string): string => escapeHostile(this.#redact(name.slice(0, MAX_NAME))).text;

  /** Called with each event until the returned function is called. Must not throw. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#listeners.size === 1) this.onListening(true);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.onListening(false);
    };
  }
}

/**
 * The end of one call. `tool.refused`: it never went to a server. `id` is that of its decision, `exposed` the shown
 * name, `bytes` the size of the sent result. Undefined members are left out of the JSON.
 */
export interface CallEvent {
  readonly event: 'tool.completed' | 'tool.failed' | 'tool.refused';
  readonly id: string;
  readonly server: string | undefined;
  readonly tool: string | undefined;
  readonly exposed: string | undefined;
  readonly principal: string;
  readonly origin: string;
  readonly session: string;
  readonly run: string;
  readonly correlation: string | undefined;
  readonly ms: number;
  readonly bytes: number;
  readonly executed: OutcomeEntry['executed'];
  readonly code: ErrorCode | undefined;
  /** For a failed call: whether the same call may succeed later. */
  readonly retryable: boolean | undefined;
}

/** A change of the list of what needs attention (see facade/attention/attention-list.ts). */
export interface AttentionEvent {
  readonly event: 'attention.added' | 'attention.removed';
  readonly id: string;
  readonly kind: string;
  readonly rank: number;
  readonly title: string;
  readonly subject: string;
}

/** Returns the event of a call that ended at `now` (ms since 1970). */
export function callEvent(end: EndedCall, now: number): CallEvent {
  const { start, caller, exposed, judged, error } = end;
  const { id, principal, session, startedAt } = start;
  const { forwarded, shaped, serverErrorBytes } = end.kind === 'sent' ? end : {};
  const { server = exposed?.server.name, tool = exposed?.entry?.tool.name } = judged?.lowered?.effect ?? {};
  const failed = error !== undefined || serverErrorBytes !== undefined || shaped?.isError === true;
  return {
    event: !failed ? 'tool.completed' : end.kind === 'sent' ? 'tool.failed' : 'tool.refused',
    id,
    server,
    tool,
    exposed: exposed?.name,
    principal: principal.id,
    origin: principal.origin,
    session,
    run: caller?.run ?? session,
    correlation: caller?.correlation,
    ms: now - startedAt,
    bytes: error !== undefined ? 0 : (shaped?.sent ?? serverErrorBytes ?? 0),
    executed: forwarded?.executed ?? 'no',
    code: failed ? (error?.code ?? 'TOOL_FAILED') : undefined,
    retryable: failed ? (error?.retryable ?? false) : undefined,
  };
}
