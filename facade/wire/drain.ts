/** Owns how long an end may take: a bounded wait that a second signal ends. */

/** How long running calls may go on once the process is to stop. */
export interface Drain {
  /** Milliseconds. */
  readonly drainMs: number;
  /** Aborted to stop at once: a second signal, or a signal after the client has said its last word. */
  readonly hurry?: AbortSignal;
}

/** Resolves when the work has ended, the time is over, or somebody is in a hurry. */
export async function drained(work: Promise<unknown>, { drainMs, hurry }: Drain): Promise<void> {
  if (drainMs <= 0 || hurry?.aborted === true) return;
  let over = (): void => undefined;
  const end = new Promise<void>((resolve) => (over = resolve));
  const timer = setTimeout(over, drainMs);
  hurry?.addEventListener('abort', over, { once: true });
  await Promise.race([work, end]);
  clearTimeout(timer);
  hurry?.removeEventListener('abort', over);
}
