/**
 * Notifies clients that their tool list has changed, also if another process decided the change. Many changes become
 * one notification. A session with an unchanged list gets none.
 */

import type { OpenSession, ShownList } from '../call/identify.ts';
import type { Snapshot } from '../runtime/config-snapshot.ts';
import type { ClientNotice, Session } from '../serve/facade-port.ts';
import { listText } from './list-tools.ts';
import { LIST_WAIT_MS } from './server-definitions.ts';

/** Milliseconds within which several changes of lists become one notification. */
const CHANGES_MS = 100;
/**
 * Milliseconds between checks for decisions of other processes, such as a switch, a grant or an upgrade. A call checks
 * them itself.
 */
const WATCH_MS = 500;

/** The parts that an announcer uses. `onFault` is called with the error of a check. */
export interface AnnouncerParts {
  readonly sessions: ReadonlySet<OpenSession>;
  readonly snapshot: () => Snapshot;
  /** Returns a text that changes whenever a consent to a server does. */
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
  readonly #noticeListeners = new Set<(notice: ClientNotice, session?: Session) => void>();
  #allTimer: NodeJS.Timeout | undefined;
  #compareTimer: NodeJS.Timeout | undefined;
  #isChecking = false;

  constructor(parts: AnnouncerParts) {
    this.#parts = parts;
    this.#watch = setInterval(() => void this.#check(), WATCH_MS).unref();
  }

  /** Sets the listener. It is called for one session, or for all. */
  onToolsChanged(listener: (session?: Session) => void): void {
    this.#listener = listener;
  }

  /** Adds a listener for other notifications. It is called for one session, or for all. */
  onNotice(listener: (notice: ClientNotice, session?: Session) => void): void {
    this.#noticeListeners.add(listener);
  }

  /** Passes a notification on. */
  tell(notice: ClientNotice, session?: Session): void {
    for (const listener of this.#noticeListeners) listener(notice, session);
  }

  /** Notes that a server's list has changed. All clients get one notification for many changes. */
  noteChange(): void {
    this.#allTimer ??= setTimeout(() => {
      this.#allTimer = undefined;
      this.#listener?.();
    }, CHANGES_MS);
  }

  /**
   * Notes that the snapshot was replaced. A client whose new list differs from the one that it was shown gets a
   * notification.
   */
  noteSwap(): void {
    this.#compareTimer ??= setTimeout(() => {
      this.#compareTimer = undefined;
      this.#compare([...this.#parts.sessions]).catch(this.#parts.onFault);
    }, CHANGES_MS);
  }

  /** Returns a text of all decisions that a list depends on. Throws STATE_FAILED. */
  basisOf(session: OpenSession, consented = this.#parts.consented()): string {
    const { number, deps } = this.#parts.snapshot();
    const { revision } = deps.preconditions.view(session.principal, session);
    return `${number}\n${consented}\n${session.reads ?? ''}\n${session.finds}\n${revision}`;
  }

  close(): void {
    clearInterval(this.#watch);
    clearTimeout(this.#allTimer);
    clearTimeout(this.#compareTimer);
  }

  async #check(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    try {
      const consented = this.#parts.consented();
      await this.#compare([...this.#parts.sessions].filter((session) => this.#isOutdated(session, consented)));
    } catch (thrown) {
      this.#parts.onFault(thrown);
    } finally {
      this.#isChecking = false;
    }
  }

  /**
   * Returns whether a decision was made since the list was made, or since it was last compared. The time of the check
   * alone is not enough. Between two checks a person may switch off, a client may list, and a person may switch on
   * again.
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
        .snapshot()
        .within(({ nameTables: exposures }) => exposures.tableFor(session.principal, session, LIST_WAIT_MS))
        .then(
          (table) => listText(table, session),
          () => undefined,
        );
      if (text !== session.shown.text) this.#listener?.(session);
    }
  }
}
