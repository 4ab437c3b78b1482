/**
 * Counts what each test file costs, for the table of test/harness/run-report.ts: processor time of the worker and of the
 * processes that it started, processes, and servers. It runs in the worker, before the test file is loaded.
 */
import childProcess, { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { afterAll } from 'vitest';

/** What a file has cost. Processes that a started process starts are not counted. */
export interface FileCosts {
  /** Processor time of the worker, ms. */
  readonly ownMs: number;
  /** Processor time of processes that were started and have ended, ms. */
  readonly startedMs: number;
  /** How many processes were started, by the name of their program. */
  readonly processes: Readonly<Record<string, number>>;
}

declare module 'vitest' {
  interface TaskMeta {
    costs?: FileCosts;
  }
}

/** Linux counts the time of processes in hundredths of a second. */
const TICK_MS = 10;

/** Files share a process, so these counters are installed once and live in it. */
const counters = ((globalThis as { tollgateCounters?: Map<string, number> }).tollgateCounters ??= installCounters());

function installCounters(): Map<string, number> {
  const counts = new Map<string, number>();
  const count = (command: unknown): void => {
    const name = path.basename(String(command).split(' ')[0] ?? '');
    counts.set(name, (counts.get(name) ?? 0) + 1);
  };
  const prototype = ChildProcess.prototype as unknown as { spawn(options: { file: string }): number };
  const { spawn } = prototype;
  prototype.spawn = function (options) {
    count(options.file);
    return spawn.call(this, options);
  };
  const mutable = childProcess as unknown as Record<string, (command: string, ...rest: unknown[]) => unknown>;
  for (const name of ['spawnSync', 'execFileSync', 'execSync']) {
    const original = mutable[name] as (command: string, ...rest: unknown[]) => unknown;
    mutable[name] = (command, ...rest) => {
      count(command);
      return original(command, ...rest);
    };
  }
  syncBuiltinESMExports();
  return counts;
}

interface Reading {
  readonly ownMs: number;
  readonly startedMs: number;
  readonly processes: ReadonlyMap<string, number>;
}

function read(): Reading {
  const { user, system } = process.cpuUsage();
  return { ownMs: (user + system) / 1000, startedMs: startedMs(), processes: new Map(counters) };
}

/** Returns the processor time of the children that have ended, with theirs, ms; 0 if the system does not tell. */
function startedMs(): number {
  try {
    const fields = readFileSync('/proc/self/stat', 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ');
    return (Number(fields[13]) + Number(fields[14])) * TICK_MS;
  } catch {
    return 0;
  }
}

const before = read();

// biome-ignore lint/correctness/noEmptyPattern: Vitest reads the first parameter, and accepts only a pattern.
afterAll(({}, suite) => {
  const after = read();
  const started = [...after.processes].map(
    ([name, count]) => [name, count - (before.processes.get(name) ?? 0)] as const,
  );
  suite.meta.costs = {
    ownMs: Math.round(after.ownMs - before.ownMs),
    startedMs: after.startedMs - before.startedMs,
    processes: Object.fromEntries(started.filter(([, count]) => count > 0)),
  };
});
