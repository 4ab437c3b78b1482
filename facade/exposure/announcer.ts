/**
 * Tells clients that their tool list has changed: many changes as one notification, also changes that other processes
 * decided. A session whose list is the same is not told.
 */

import type { OpenSession, ShownList } from '../call/identify.ts';
import type { Snapshot } from '../runtime/config-snapshot.ts';
import type { Session } from '../serve/facade-port.ts';
import { LIST_WAIT_MS, listText } from './list-tools.ts';

/** Milliseconds in which several changes of lists become one notification. */
const CHANGES_MS = 100;
/** How often other processes' decisions are checked: a switch, a grant, an upgrade. Calls check them at once anyway. */
const WATCH_MS = 500;

/** What it works on. `onFault` is called with an error of a check. */
export interface AnnouncerParts {
  readonly sessions: ReadonlySet<OpenSession>;
  readonly generation: () => Snapshot;
  /** The consents to servers; another text when they have changed. */
  readonly consented: () => string;
  readonly onFault: (thrown: unknown) => void;
}

/** Notifies the clients of a facade. */
export class Announcer {
  readonly #parts: AnnouncerParts;
  /** Session → the state of decisions when its list was last compared. */
  readonly #seen = new WeakMap<OpenSession, { readonly shown: ShownList; readonly basis: string }>();
  readonly #watch: NodeJS.Timeout;
  #listener: ((session?: Session) => void) | undefined;
  #everybody: NodeJS.Timeout | undefined;
  #others: NodeJS.Timeout | undefined;
  #isLooking = false;

  constructor(parts: AnnouncerParts) {
    this.#parts = parts;
    this.#watch = setInterval(() => void this.#look(), WATCH_MS).unref();
  }

  /** The listener is called for one session, or for all. */
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

  /**
   * The configuration or policy behind the lists was replaced: clients whose list differs from the one they were shown
   * are told.
   */
  noteSwap(): void {
    this.#others ??= setTimeout(() => {
      this.#others = undefined;
      this.#compare([...this.#parts.sessions]).catch(this.#parts.onFault);
    }, CHANGES_MS);
  }

  /** Returns the state of all decisions that a list depends on. Throws STATE_FAILED. */
  basisOf(session: OpenSession, consented = this.#parts.consented()): string {
    const { number, deps } = this.#parts.generation();
    return `${number}\n${consented}\n${session.reads ?? ''}\n${deps.preconditions.view(session.principal, session).revision}`;
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
      const consented = this.#parts.consented();
      await this.#compare([...this.#parts.sessions].filter((session) => this.#isOutdated(session, consented)));
    } catch (thrown) {
      this.#parts.onFault(thrown);
    } finally {
      this.#isLooking = false;
    }
  }

  /**
   * Returns whether something was decided since the list was made, or since it was last compared. The time of the list
   * counts, not only that of the check: between two checks a person may switch off, a client may list, and a person may
   * switch on again.
   */
  #isOutdated(session: OpenSession, consented: string): boolean {
    const { shown } = session;
    if (shown === undefined) return false;
    const seen = this.#seen.get(session);
    return this.basisOf(session, consented) !== (seen?.shown === shown ? seen : shown).basis;
  }

  async #compare(sessions: readonly OpenSession[]): Promise<void> {
    for (const session of sessions) {
      if (session.shown === undefined || session.closed.aborted) continue;
      this.#seen.set(session, { shown: session.shown, basis: this.basisOf(session) });
      const text = await this.#parts
        .generation()
        .within(({ nameTables: exposures }) => exposures.tableFor(session.principal, session, LIST_WAIT_MS))
        .then(
          (table) => listText(table, session),
          () => undefined,
        );
      if (text !== session.shown.text) this.#listener?.(session);
    }
  }
}
