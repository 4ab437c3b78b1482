/** Owns how long an end may take: a bounded wait that a second signal ends. */

/** How long running calls may go on once the process is to stop. */
export interface Drain {
  /** Milliseconds. */
  readonly drainMs: number;
  /** Has the listener told when somebody is in a hurry (a second signal); the answer ends that. */
  readonly onUrge?: ((listener: () => void) => () => void) | undefined;
}

/** Resolves when the work has ended, the time is over, or somebody is in a hurry. */
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
