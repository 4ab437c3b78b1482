/** Owns the settings of what is kept for some time: recordings of decisions, and what runs leave; the schema has refused other forms already. */
import type { WrittenConfig } from '../written-config.ts';

/** What is kept of decisions so that they can be explained and replayed (docs/policies.md). */
export interface RecordingConfig {
  /** Default `off`. `last` keeps a quarter of an hour, whatever `keepMs` says. */
  readonly mode: 'off' | 'last' | 'on';
  /** Milliseconds after which a recording is removed; default seven days. */
  readonly keepMs: number;
  /** Bytes of all recordings, above which the oldest go; default 256 MiB. */
  readonly maxBytes: number;
}

/** How long what runs leave is kept (docs/configuration.md). */
export interface RunsConfig {
  /** Milliseconds after which a spill, or a run that a host did not end, is removed; default one day. */
  readonly keepMs: number;
}

const KEEP = '7d';
const RUNS_KEEP = '1d';
const MAX_BYTES = 268_435_456;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The settings with their defaults: nothing is kept unless somebody says so. */
export function buildRecording(written: WrittenConfig['recording'] = {}): RecordingConfig {
  return { mode: written.mode ?? 'off', keepMs: msOf(written.keep ?? KEEP), maxBytes: written.maxBytes ?? MAX_BYTES };
}

/** The settings of runs with their defaults. */
export function buildRuns(written: WrittenConfig['runs'] = {}): RunsConfig {
  return { keepMs: msOf(written.keep ?? RUNS_KEEP) };
}

/** Milliseconds of a time such as `12h`. */
function msOf(keep: string): number {
  return Number.parseInt(keep, 10) * (UNITS[keep.slice(-1)] ?? 0);
}
