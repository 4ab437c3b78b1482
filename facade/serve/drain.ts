/** Waits for running calls at the end of the process, for a limited time. A second signal ends the wait. */

/** The time that running calls have once the process is told to stop. */
export interface Drain {
  /** Milliseconds. */
  readonly drainMs: number;
  /** Calls the listener when a second signal comes. The returned function removes the listener. */
  readonly onUrge?: ((listener: () => void) => () => void) | undefined;
}

/** Resolves when the work has ended, the time is over, or a second signal comes. */
export async function drained(work: Promise<unknown>, { drainMs, onUrge }: Drain): Promise<void> {
  if (drainMs <= 0) return;
  let over = (): void => undefined;
  const end = new Promise<void>((resolve) => (over = resolve));
  const timer = setTimeout(over, drainMs);
  const release = onUrge?.(over);
  await Promise.race([work, end]);
  clearTimeout(timer);
  release?.();
}
