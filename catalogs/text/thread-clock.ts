/**
 * Reads the processor time of threads, and limits work by it: a limit of real time refuses harmless work on a busy
 * machine. Only Linux tells the time of one thread.
 */
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

let ownClock: ThreadClock | undefined;

/**
 * Returns the processor time of the calling thread since it started, ms; of the whole process if the system does not
 * count per thread.
 */
export function threadMs(): number {
  ownClock ??= openThreadClock(ownThread());
  const ms = ownClock.ms();
  if (ms !== undefined) return ms;
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** The kernel updates the time of a running thread at its ticks, so it may be late by this time, ms. */
const TICK_MS = 10;
/** A script is started again with twice the real time, at most this often. */
const MAX_RETRIES = 6;

/**
 * Runs a script of `vm` with a limit of processor time, ms. The timeout of `vm` counts real time: if it ends a script
 * that had less processor time, the script starts again with twice the timeout. Throws what `run` throws, which is
 * `ERR_SCRIPT_EXECUTION_TIMEOUT` at the limit.
 */
export function runWithinMs<T>(limitMs: number, run: (timeoutMs: number) => T): T {
  for (let retry = 0; ; retry += 1) {
    const began = threadMs();
    try {
      return run(Math.ceil(limitMs * 2 ** retry));
    } catch (thrown) {
      const isStarved = isScriptTimeout(thrown) && threadMs() - began < limitMs - TICK_MS;
      if (!isStarved || retry >= MAX_RETRIES) throw thrown;
    }
  }
}

/** Returns true for the error of `vm` when a script has run too long. */
export function isScriptTimeout(thrown: unknown): boolean {
  return (thrown as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
}

function tryOpen(file: string): number | undefined {
  try {
    return openSync(file, 'r');
  } catch {
    return undefined;
  }
}
