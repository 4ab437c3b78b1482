/** Reads the processor time of a thread in this process. Only Linux supports this. */
import { closeSync, openSync, readlinkSync, readSync } from 'node:fs';

/** The processor time of one thread. */
export interface ThreadClock {
  /** Milliseconds since the start of the thread. Undefined if unknown. */
  ms(): number | undefined;
  close(): void;
}

/** Returns the id of the calling thread; undefined if the system does not give one. */
export function ownThread(): number | undefined {
  try {
    const id = Number(readlinkSync('/proc/thread-self').split('/').at(-1));
    return Number.isSafeInteger(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Opens the clock of a thread. Without a thread, its time is unknown. The file stays open: one read takes microseconds.
 */
export function openThreadClock(thread: number | undefined): ThreadClock {
  const file = thread === undefined ? undefined : tryOpen(`/proc/self/task/${thread}/schedstat`);
  if (file === undefined) return { ms: () => undefined, close: () => undefined };
  const buffer = Buffer.alloc(64);
  let open = true;
  return {
    ms: () => {
      try {
        const nanoseconds = open
          ? Number.parseInt(buffer.toString('latin1', 0, readSync(file, buffer, 0, buffer.length, 0)), 10)
          : NaN;
        return Number.isNaN(nanoseconds) ? undefined : nanoseconds / 1e6;
      } catch {
        return undefined;
      }
    },
    close: () => {
      if (open) closeSync(file);
      open = false;
    },
  };
}

function tryOpen(file: string): number | undefined {
  try {
    return openSync(file, 'r');
  } catch {
    return undefined;
  }
}
