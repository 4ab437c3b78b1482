/** Starts the thread that ends this process when its main thread is stuck. The main thread counts its turns for it. */
import { Worker } from 'node:worker_threads';
import { threadFile } from '../../catalogs/programs/own-code.ts';
import type { AuditOptions } from '../audit/audit-log.ts';

/** What the thread needs to judge the process, and to record its end. */
export interface WatchdogSettings {
  /** The state folder, with the switches of `off` and `kill`. */
  readonly state: string;
  readonly audit: Pick<AuditOptions, 'folder' | 'rotateBytes' | 'replica'>;
  /** True when the end of the parent process is a reason to stop: it is the client. */
  readonly parentIsClient: boolean;
}

/** What the thread is started with. */
export interface WatchdogData extends WatchdogSettings {
  /** One counter; it grows while the event loop turns. */
  readonly turns: SharedArrayBuffer;
}

/** Milliseconds between two increments, and between two checks. */
export const BEAT_MS = 250;

/** Heap of the thread. It holds a few numbers. */
const HEAP_MB = 64;

/** Starts the watchdog. It does not keep the process running. `tell` gets one line if the watchdog fails. */
export function startWatchdog(settings: WatchdogSettings, tell: (line: string) => void): void {
  const turns = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT);
  const counter = new Int32Array(turns);
  const workerData: WatchdogData = { ...settings, turns };
  // The thread may not print to stdout, because MCP uses it.
  const thread = new Worker(threadFile('watchdog-thread'), {
    workerData,
    execArgv: [],
    stdout: true,
    stderr: true,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MB },
  });
  thread.once('error', (error) =>
    tell(`The watchdog has failed (${error.message}). A call that blocks the process is no longer ended.\n`),
  );
  thread.unref();
  setInterval(() => Atomics.add(counter, 0, 1), BEAT_MS).unref();
}
