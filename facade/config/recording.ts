/** Owns the settings of recording: what is kept of decisions, and for how long; the schema has refused other forms already. */
import type { Written } from './written.ts';

/** What is kept of decisions so that they can be explained and replayed (docs/policies.md). */
export interface RecordingConfig {
  /** Default `off`. `last` keeps a quarter of an hour, whatever `keepMs` says. */
  readonly mode: 'off' | 'last' | 'on';
  /** Milliseconds after which a recording is removed; default seven days. */
  readonly keepMs: number;
  /** Bytes of all recordings, above which the oldest go; default 256 MiB. */
  readonly maxBytes: number;
}

const KEEP = '7d';
const MAX_BYTES = 268_435_456;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The settings with their defaults: nothing is kept unless somebody says so. */
export function buildRecording(written: Written['recording'] = {}): RecordingConfig {
  const keep = written.keep ?? KEEP;
  return { mode: written.mode ?? 'off', keepMs: Number.parseInt(keep, 10) * (UNITS[keep.slice(-1)] ?? 0), maxBytes: written.maxBytes ?? MAX_BYTES };
}
