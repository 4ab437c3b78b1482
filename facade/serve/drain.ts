/** How long an end may take: a bounded wait that a second signal ends. */

/** How long running calls may continue once the process is told to stop. */
export interface Drain {
  /** Milliseconds. */
  readonly drainMs: number;
  /** Calls the listener when a second signal comes; the returned function undoes that. */
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
