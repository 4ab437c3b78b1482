/**
 * Watches the list in a process that serves agents: tells hosts and the owner what was added and what is gone, and
 * reports the process to the others. It never delays a call.
 */
import type { AttentionEvent, EventFeed } from '../serve/host/event-feed.ts';
import type { State } from '../state/state-port.ts';
import type { AttentionItem } from './attention-list.ts';

/** A process that serves agents. `since`: ISO 8601. */
export interface ProcessReport {
  readonly pid: number;
  readonly since: string;
  readonly sessions: number;
}

/** What a watch works with. */
export interface WatchParts {
  readonly state: State;
  readonly list: () => Promise<readonly AttentionItem[]>;
  readonly feed: Pick<EventFeed, 'note'>;
  readonly sessions: () => number;
  /** Sends notices of new items. Called once for each item over all processes. Never throws. */
  readonly notify: (added: readonly AttentionItem[], all: readonly AttentionItem[]) => void;
  readonly onFault: (thrown: unknown) => void;
  readonly now: () => number;
}

/** Poll interval of the state, and the longest time between two lists if it does not change, ms. */
const [LOOK_MS, LONGEST_MS] = [2_000, 15_000];
const [TOLD, PROCESSES] = ['attention-told', 'process'];
/** An item that was told and is gone for so long may be told again, ms: it may only have been gone for one look. */
const FORGET_MS = 600_000;

/** The watch of one process. */
export class AttentionWatch {
  readonly #parts: WatchParts;
  readonly #since: string;
  #known: ReadonlyMap<string, AttentionItem> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #isReported = false;
  #basis = '';
  #lastFault = '';
  #computedAt = Number.NEGATIVE_INFINITY;
  #looking: Promise<void> | undefined;

  constructor(parts: WatchParts) {
    this.#parts = parts;
    this.#since = new Date(parts.now()).toISOString();
  }

  /** Looks at once, and then every two seconds. */
  start(): void {
    this.#timer ??= setInterval(() => void this.look(), LOOK_MS).unref();
    void this.look();
  }

  /** Computes the list and tells what has changed. Never rejects. */
  look(): Promise<void> {
    return (this.#looking ??= this.#look().finally(() => (this.#looking = undefined)));
  }

  async #look(): Promise<void> {
    try {
      const { state } = this.#parts;
      const now = performance.now();
      await state.refresh();
      // On a full disk it cannot be written, and hosts still hear of the list.
      await this.#report().catch(this.#fault);
      const basis = `${state.stamp()} ${state.stops.stamp()}`;
      if (basis === this.#basis && now - this.#computedAt < LONGEST_MS) return;
      [this.#basis, this.#computedAt] = [basis, now];
      await this.#compare();
    } catch (thrown) {
      this.#fault(thrown);
    }
  }

  /** Reports each fault once in a row, because the next look meets it again. */
  readonly #fault = (thrown: unknown): void => {
    const message = String(thrown);
    if (message !== this.#lastFault) this.#parts.onFault(thrown);
    this.#lastFault = message;
  };

  /** Stops, and withdraws the report of this process. Never throws. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
    const { state, onFault } = this.#parts;
    if (this.#isReported) await (async () => state.remove(PROCESSES, state.mark()))().catch(onFault);
  }

  async #report(): Promise<void> {
    const { state, sessions } = this.#parts;
    const text = JSON.stringify({ pid: process.pid, since: this.#since, sessions: sessions() } satisfies ProcessReport);
    // Others remove the report of a process that was silent for too long.
    if (text === state.get(PROCESSES, state.mark())) return;
    const dead = [...state.list(PROCESSES).keys()].filter((mark) => !state.isAlive(mark));
    for (const mark of dead) await state.remove(PROCESSES, mark);
    await state.put(PROCESSES, state.mark(), text);
    this.#isReported = true;
  }

  async #compare(): Promise<void> {
    const items = await this.#parts.list();
    const before = this.#known;
    const now = new Map(items.map((item) => [item.id, item]));
    this.#known = now;
    for (const item of before?.values() ?? []) if (!now.has(item.id)) this.#tell('attention.removed', item);
    if (before !== undefined) for (const item of items) if (!before.has(item.id)) this.#tell('attention.added', item);
    await this.#notifyNew(items);
  }

  #tell(event: AttentionEvent['event'], { id, kind, rank, title, subject }: AttentionItem): void {
    this.#parts.feed.note({ event, id, kind, rank, title, subject });
  }

  /** The state remembers what was told, so that of several processes one tells, and a restart repeats nothing. */
  async #notifyNew(items: readonly AttentionItem[]): Promise<void> {
    const { state, notify, now } = this.#parts;
    const at = now();
    const told = state.list(TOLD);
    const added: AttentionItem[] = [];
    for (const item of items)
      if (!told.has(item.id) && (await state.swap(TOLD, item.id, { to: String(at) }))) added.push(item);
    const present = new Set(items.map(({ id }) => id));
    for (const [id, text] of told) {
      const isPresent = present.has(id);
      // The time of an item that is still there is renewed now and then, and that of one that is gone grows old.
      if (isPresent && at - Number(text) > FORGET_MS / 2) await state.put(TOLD, id, String(at));
      if (!isPresent && at - Number(text) > FORGET_MS) await state.remove(TOLD, id);
    }
    if (added.length > 0) notify(added, items);
  }
}

/** Returns the processes that serve agents, the oldest first. Throws STATE_FAILED. */
export function readProcesses(state: Pick<State, 'list' | 'isAlive'>): readonly ProcessReport[] {
  return [...state.list(PROCESSES)]
    .filter(([mark]) => state.isAlive(mark))
    .map(([, text]) => JSON.parse(text) as ProcessReport)
    .sort((one, other) => (one.since < other.since ? -1 : 1));
}
