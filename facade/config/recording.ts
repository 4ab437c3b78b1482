/** Owns the settings of recording: what is kept of decisions, and for how long; the schema has refused other forms already. */
import type { RecordingConfig } from './config.ts';
import type { Written } from './written.ts';

const KEEP = '7d';
const MAX_BYTES = 268_435_456;
const UNITS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The settings with their defaults: nothing is kept unless somebody says so. */
export function buildRecording(written: Written['recording'] = {}): RecordingConfig {
  const keep = written.keep ?? KEEP;
  return { mode: written.mode ?? 'off', keepMs: Number.parseInt(keep, 10) * (UNITS[keep.slice(-1)] ?? 0), maxBytes: written.maxBytes ?? MAX_BYTES };
}
