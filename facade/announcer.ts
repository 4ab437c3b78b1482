/** Owns telling clients that their list has changed: many changes once, and what people decided in other processes too; refuses to bother a session whose list is the same. */
import type { Session } from './facade.ts';
import type { Generation } from './generation.ts';
import type { OpenSession } from './session.ts';

/** Milliseconds in which several changes of lists become one notification. */
const CHANGES_MS = 100;
/** How often it is looked whether somebody decided something elsewhere: a switch, a grant, an upgrade. Calls ask at once all the same. */
const WATCH_MS = 500;

/** What it works on. `onFault` is told of what could not be looked at. */
export interface AnnouncerParts {
  readonly sessions: ReadonlySet<OpenSession>;
  readonly generation: () => Generation;
  readonly onFault: (thrown: unknown) => void;
}

/** The one that speaks to the clients of a facade. */
export class Announcer {
  readonly #parts: AnnouncerParts;
  /** Session → revision of what people had decided when it was looked last. */
  readonly #seen = new WeakMap<OpenSession, string>();
  readonly #watch: NodeJS.Timeout;
  #listener: ((session?: Session) => void) | undefined;
  #everybody: NodeJS.Timeout | undefined;
  #others: NodeJS.Timeout | undefined;
  #isLooking = false;

  constructor(parts: AnnouncerParts) {
    this.#parts = parts;
    this.#watch = setInterval(() => void this.#look(), WATCH_MS).unref();
  }

  /** The listener is told of one session, or of all. */
  onToolsChanged(listener: (session?: Session) => void): void {
    this.#listener = listener;
  }

  /** A server's list has changed: all clients are told once for many changes. */
  noteChange(): void {
    this.#everybody ??= setTimeout(() => {
      this.#everybody = undefined;
      this.#listener?.();
    }, CHANGES_MS);
  }

  /** Something else has taken the place of what lists are made of: those are told whose list has become another one than they were shown. */
  noteSwap(): void {
    this.#others ??= setTimeout(() => {
      this.#others = undefined;
      void this.#compare([...this.#parts.sessions]);
    }, CHANGES_MS);
  }

  close(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#everybody);
    clearTimeout(this.#others);
  }

  async #look(): Promise<void> {
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      const changed: OpenSession[] = [];
      for (const session of this.#parts.sessions) {
        if (session.shown === undefined) continue;
        const { revision } = this.#parts.generation().deps.standing.view(session.principal, session);
        if (this.#seen.get(session) !== revision) changed.push(session);
        this.#seen.set(session, revision);
      }
      await this.#compare(changed);
    } catch (thrown) {
      this.#parts.onFault(thrown);
    } finally {
      this.#isLooking = false;
    }
  }

  async #compare(sessions: readonly OpenSession[]): Promise<void> {
    for (const session of sessions) {
      if (session.shown === undefined || session.closed.aborted) continue;
      const text = await this.#parts.generation().within(({ exposures }) => exposures.tableFor(session.principal, session)).then((table) => table.text, () => undefined);
      if (text !== session.shown) this.#listener?.(session);
    }
  }
}
