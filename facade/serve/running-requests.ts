/** The requests of one session that have no answer yet. A cancelled one ends, or gets a replacement for its answer. */
import { Cancellation } from '../../adapters/rpc/cancellation.ts';
import type { WireText } from '../../adapters/rpc/wire-message.ts';
import { isInterrupted } from '../call/refusal.ts';

/** How long a cancelled call may take to end and be recorded before it is answered anyway. */
const SETTLE_MS = 2000;

/** How an answer is written. */
export interface AnswerTexts<T> {
  readonly text: (answer: T) => WireText | undefined;
  /** Writes the refusal of work that failed, or that did not end after it was cancelled. */
  readonly refuse: (thrown: unknown) => WireText;
}

/** Requests by a key that their client can name to cancel one. */
export class RunningRequests {
  readonly #running = new Map<unknown, Cancellation>();
  /** Called when nothing runs any more. */
  #onIdle: (() => void)[] = [];

  get size(): number {
    return this.#running.size;
  }

  has(key: unknown): boolean {
    return this.#running.has(key);
  }

  /** Returns false after the answer, because another request may have the key then. */
  isOpen(key: unknown, signal: unknown): boolean {
    const cancel = this.#running.get(key);
    return cancel !== undefined && cancel === signal && !cancel.aborted;
  }

  /**
   * Runs the work of a request and returns its answer; undefined if its client cancelled it. If it is cancelled and its
   * work does not end, the answer is a replacement: the call may have run then.
   */
  run<T>(
    key: unknown,
    work: (signal: Cancellation) => Promise<T>,
    { text, refuse }: AnswerTexts<T>,
  ): Promise<WireText | undefined> {
    const cancel = new Cancellation();
    this.#running.set(key, cancel);
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const end = (answer: WireText | undefined): void => {
        if (this.#running.get(key) !== cancel) return;
        clearTimeout(timer);
        // An old map may refer to `cancel` until the next complete garbage collection.
        cancel.removeEventListener('abort', onAbort);
        this.#running.delete(key);
        // A cancelled request gets no answer (MCP, cancellation).
        resolve(cancel.aborted && !isInterrupted(cancel) ? undefined : answer);
        if (this.#running.size === 0) for (const tell of this.#onIdle.splice(0)) tell();
      };
      const fail = (thrown: unknown): void => end(refuse(thrown));
      const onAbort = (): void => void (timer = setTimeout(() => fail(cancel.reason), SETTLE_MS));
      cancel.addEventListener('abort', onAbort);
      work(cancel).then((answer) => end(text(answer)), fail);
    });
  }

  cancel(key: unknown, reason: Error): void {
    this.#running.get(key)?.abort(reason);
  }

  cancelAll(reason: Error): void {
    for (const cancel of this.#running.values()) cancel.abort(reason);
  }

  /** Resolves when nothing runs. */
  idle(): Promise<void> {
    return this.#running.size === 0 ? Promise.resolve() : new Promise((resolve) => void this.#onIdle.push(resolve));
  }
}
