/**
 * The watchdog thread. It ends this process when the main thread uses seconds of CPU time without a turn of its event
 * loop. No deadline, `off`, `kill` or SIGTERM could end such a process. It counts CPU time, because a suspended machine
 * is not stuck. It uses SIGKILL, after which sandboxes end as always when this process dies (decision 46).
 */
import { readFileSync, write } from 'node:fs';
import { workerData } from 'node:worker_threads';
import { openAudit } from '../audit/audit-log.ts';
import { KillSwitch } from '../consent/switch/kill-switch.ts';
import { Stops } from '../state/stop-file.ts';
import { BEAT_MS, type WatchdogData } from './watchdog.ts';

/** Milliseconds of CPU time that the main thread may use without a turn of its event loop. */
const LIMIT_MS = 5_000;
/** The same, if the process has been told to stop. */
const STOP_LIMIT_MS = 2_000;
/** How long the record and the message may take before the process ends without them. */
const REPORT_MS = 1_000;

/** Why the process is told to stop. */
type Stop = 'signal' | 'parent' | 'switch';

const { state, audit, parentIsClient, turns } = workerData as WatchdogData;
const counter = new Int32Array(turns);
const parent = process.ppid;
const lastTurn = { turns: -1, cpuMs: 0, at: Date.now() };
let signalled = false;
let ending = false;

/**
 * CPU time of the main thread, whose id on Linux is that of the process; of all threads if the system does not tell.
 */
function mainCpuMs(): number {
  try {
    return Number.parseInt(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'latin1'), 10) / 1e6;
  } catch {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  }
}

/** Returns why this process is told to stop; undefined if there is no reason. */
function reasonToStop(): Stop | undefined {
  if (signalled) return 'signal';
  if (parentIsClient && process.ppid !== parent) return 'parent';
  return isSwitchedOff() ? 'switch' : undefined;
}

/** Returns true if something was switched off since the last turn. The file is opened only for a stuck main thread. */
function isSwitchedOff(): boolean {
  try {
    const stops = new Stops(state);
    try {
      return new KillSwitch({ stops }).isThrownSince(lastTurn.at - 2 * BEAT_MS);
    } finally {
      stops.close();
    }
  } catch {
    return false;
  }
}

function checkTurns(): void {
  if (ending) return;
  const cpuMs = mainCpuMs();
  const now = Atomics.load(counter, 0);
  if (now !== lastTurn.turns) {
    Object.assign(lastTurn, { turns: now, cpuMs, at: Date.now() });
    return;
  }
  const used = cpuMs - lastTurn.cpuMs;
  if (used < STOP_LIMIT_MS) return;
  const reason = reasonToStop();
  if (used < LIMIT_MS && reason === undefined) return;
  ending = true;
  void end(Math.round(used), reason);
}

async function end(cpuMs: number, reason: Stop | undefined): Promise<void> {
  try {
    await Promise.race([report(cpuMs, reason), new Promise((resolve) => setTimeout(resolve, REPORT_MS))]);
  } finally {
    process.kill(process.pid, 'SIGKILL');
  }
}

async function report(cpuMs: number, reason: Stop | undefined): Promise<void> {
  const limitMs = reason === undefined ? LIMIT_MS : STOP_LIMIT_MS;
  let recorded = '';
  try {
    // A separate chain, because the main thread may be in the middle of a record.
    const log = openAudit(audit);
    log.append({
      type: 'process',
      event: 'stuck',
      outcome: 'error',
      cpuMs,
      limitMs,
      ...(reason === undefined ? {} : { reason: reason }),
    });
    await log.close();
  } catch {
    recorded = ' This could not be recorded in the audit log.';
  }
  const why = reason === undefined ? '' : ` It was told to stop (${reason}).`;
  const line =
    `Tollgate ends this process: its main thread used ${cpuMs} ms of CPU time without answering (the limit is ` +
    `${limitMs} ms).${why}${recorded} Start it again.\n`;
  // Asynchronous, because a client that does not read must not delay the end.
  await new Promise((resolve) => write(2, line, resolve));
}

/**
 * Notices SIGINT and SIGTERM. Node gives signals only to the main thread, which is stuck. libuv gives them to each loop
 * that asks, through an internal binding that may be removed. Without it the longer limit applies.
 */
function listenForSignals(): void {
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
    // Signals stay unnoticed.
  }
}

listenForSignals();
setInterval(checkTurns, BEAT_MS);
