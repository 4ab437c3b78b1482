/** Owns how much processor time a thread of this process has had; refuses to guess where the system does not say (anywhere but Linux). */
import { closeSync, openSync, readlinkSync, readSync } from 'node:fs';

/** Reads one thread's processor time. */
export interface ThreadClock {
  /** Milliseconds since the thread began. Undefined: unknown. */
  ms(): number | undefined;
  close(): void;
}

/** For a thread to ask about itself: its id in this process, or undefined where the system has no such thing. */
export function ownThread(): number | undefined {
  try {
    const id = Number(readlinkSync('/proc/thread-self').split('/').at(-1));
    return Number.isSafeInteger(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

/** The clock of a thread of this process; one that knows nothing where there is none. The file stays open: one read of it takes microseconds. */
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
