/** Reads how long recordings of decisions and data of runs are kept. The schema has validated the values. */
import type { RecordingConfig, RunsConfig } from '../config.ts';
import type { WrittenConfig } from '../written-config.ts';

const KEEP = '7d';
const RUNS_KEEP = '1d';
const MAX_BYTES = 268_435_456;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Returns the settings with their defaults. Nothing is recorded by default. */
export function buildRecording(written: WrittenConfig['recording'] = {}): RecordingConfig {
  return { mode: written.mode ?? 'off', keepMs: msOf(written.keep ?? KEEP), maxBytes: written.maxBytes ?? MAX_BYTES };
}

/** Returns the settings of runs with their defaults. */
export function buildRuns(written: WrittenConfig['runs'] = {}): RunsConfig {
  return { keepMs: msOf(written.keep ?? RUNS_KEEP) };
}

/** Returns the milliseconds of a duration such as `12h`. */
function msOf(keep: string): number {
  return Number.parseInt(keep, 10) * (UNITS[keep.slice(-1)] ?? 0);
}
