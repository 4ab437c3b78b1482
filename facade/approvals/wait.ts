/** Owns the wait itself: a pause that whoever matters may end, and what the client is told meanwhile; refuses to hold a process that wants to end. */

import { setMaxListeners } from 'node:events';

/** How often the client is told that its call is still known, ms. */
const TELL_MS = 5_000;

/** Resolves after `ms`, or as soon as one of the signals is aborted. */
export function pause(ms: number, signals: readonly AbortSignal[]): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      for (const signal of signals) signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    // Many calls of one session wait for its end: that is no leak.
    setMaxListeners(0, ...signals);
    for (const signal of signals) signal.addEventListener('abort', done, { once: true });
    if (signals.some(({ aborted }) => aborted)) done();
  });
}

/** notifications/progress of a call that waits (MCP 2025-11-25, basic/utilities/progress), where the client gave a token. */
export class Progress {
  readonly #send: ((params: Readonly<Record<string, unknown>>) => void) | undefined;
  #next: number;

  constructor(send: ((params: Readonly<Record<string, unknown>>) => void) | undefined, waitMs: number) {
    this.#send = send;
    this.#next = waitMs;
  }

  /** Counts up to 0: the server's own progress of this call comes after it, and progress must only grow. */
  tell(leftMs: number, id: string): void {
    if (leftMs > this.#next) return;
    this.#next = leftMs - TELL_MS;
    this.#send?.({ progress: -Math.ceil(leftMs / 1000), message: `Waiting for a person to approve this call (${id}).` });
  }
}
