/**
 * The watchdog thread. It ends this process when the main thread has used seconds of processor time without a turn of its event loop:
 * neither a deadline nor `off`, `kill` or SIGTERM can act on such a process. Processor time counts, because a machine that was
 * suspended did not get stuck. The end is SIGKILL, so sandboxes end as they do whenever this process dies (decision 46).
 */
import { readFileSync, write } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { openAudit } from '../audit/audit-log.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import { Stops } from '../state/stop-file.ts';
import { BEAT_MS, type WatchdogData } from './watchdog.ts';

/** Milliseconds of processor time without a turn, and with a reason to stop. */
const LIMIT_MS = 5_000;
const STOP_LIMIT_MS = 2_000;
/** How long record and message may take before the process ends without them. */
const LAST_WORDS_MS = 1_000;

/** Why a process is to stop. */
type Stop = 'signal' | 'parent' | 'switch';

const { state, audit, parentIsClient, turns } = workerData as WatchdogData;
const counter = new Int32Array(turns);
const parent = process.ppid;
const seen = { turns: -1, cpuMs: 0, at: Date.now() };
let signalled = false;
let ending = false;

/** Processor time of the main thread, whose id on Linux is that of the process; of all threads where the system does not tell. */
function mainCpuMs(): number {
  try {
    return Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1'), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  }
}

/** Why this process is to stop; undefined when there is no reason. */
function reasonToStop(): Stop | undefined {
  if (signalled) return 'signal';
  if (parentIsClient && process.ppid !== parent) return 'parent';
  return isSwitchedOff() ? 'switch' : undefined;
}

/** True when a switch was thrown since the last turn. The file is opened only for a main thread that is stuck. */
function isSwitchedOff(): boolean {
  try {
    const stops = new Stops(state);
    try {
      return new KillSwitch({ stops }).isThrownSince(seen.at - 2 * BEAT_MS);
    } finally {
      stops.close();
    }
  } catch {
    return false;
  }
}

function look(): void {
  if (ending) return;
  const cpuMs = mainCpuMs();
  const now = Atomics.load(counter, 0);
  if (now !== seen.turns) {
    Object.assign(seen, { turns: now, cpuMs, at: Date.now() });
    return;
  }
  const used = cpuMs - seen.cpuMs;
  if (used < STOP_LIMIT_MS) return;
  const stop = reasonToStop();
  if (used < LIMIT_MS && stop === undefined) return;
  ending = true;
  void end(Math.round(used), stop);
}

async function end(cpuMs: number, stop: Stop | undefined): Promise<void> {
  try {
    await Promise.race([lastWords(cpuMs, stop), new Promise((resolve) => setTimeout(resolve, LAST_WORDS_MS))]);
  } finally {
    process.kill(process.pid, 'SIGKILL');
  }
}

async function lastWords(cpuMs: number, stop: Stop | undefined): Promise<void> {
  const limitMs = stop === undefined ? LIMIT_MS : STOP_LIMIT_MS;
  let recorded = '';
  try {
    // A chain of its own: that of the main thread may be in the middle of a record.
    const log = openAudit(audit);
    log.append({
      type: 'process',
      event: 'stuck',
      outcome: 'error',
      cpuMs,
      limitMs,
      ...(stop === undefined ? {} : { reason: stop }),
    });
    await log.close();
  } catch {
    recorded = ' This could not be recorded in the audit log.';
  }
  const why = stop === undefined ? '' : ` It was to stop (${stop}).`;
  const line = `Tollgate ends this process: its main thread used ${cpuMs} ms of processor time without answering anyone (at most ${limitMs} ms).${why}${recorded} Start it again.\n`;
  // Not writeSync: a client that does not read must not hold up the end.
  await new Promise((resolve) => write(2, line, resolve));
}

/**
 * Node passes signals to listeners of the main thread only, which is stuck. libuv passes them to each loop that asks; what asks it is an
 * internal binding that may go away. Without it the longer limit holds.
 */
function hearSignals(): void {
  interface SignalHandle {
    onsignal: () => void;
    start(signal: number): number;
    unref(): void;
  }
  process.noDeprecation = true;
  try {
    const { Signal } = (process as unknown as { binding(name: string): { Signal: new () => SignalHandle } }).binding(
      'signal_wrap',
    );
    for (const number of [2, 15]) {
      const handle = new Signal();
      handle.onsignal = () => (signalled = true);
      handle.start(number);
      handle.unref();
    }
  } catch {
    // Said above.
  }
}

hearSignals();
setInterval(look, BEAT_MS);
