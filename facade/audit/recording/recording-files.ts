/** The files of recordings: their names, and when they are removed. */
import { rmSync, statSync } from 'node:fs';
import path from 'node:path';
import type { RecordingsConfig } from '../../config/config.ts';
import { namesIn } from '../chain-lines.ts';

const HOUR_MS = 3_600_000;
const FORM = /^(\d{13})-(\d+)\.jsonl$/;

/** How much is kept. */
export interface RecordingBounds {
  readonly keepMs: number;
  readonly maxBytes: number;
  /**
   * How long lines are added to one file. Whole files are removed, so a line stays at most this much longer than
   * `keepMs`.
   */
  readonly spanMs: number;
  /** Bytes after which a file is followed by the next. */
  readonly fileBytes: number;
}

/** A file; `start` is the time of its first line or before it, ms. */
export interface RecordingFile {
  readonly path: string;
  readonly name: string;
  readonly start: number;
}

/** The folder of the recordings, in the state folder. */
export function recordingFolder(state: string): string {
  return path.join(state, 'recording');
}

/** Returns the limits of a configuration. */
export function recordingBounds({ keepMs, maxBytes }: RecordingsConfig): RecordingBounds {
  return {
    keepMs,
    maxBytes,
    spanMs: Math.min(HOUR_MS, keepMs / 4),
    fileBytes: Math.min(8 * 1024 * 1024, maxBytes / 8),
  };
}

/** Returns the name of a file of this process. */
export function recordingFileName(start: number): string {
  return `${String(start).padStart(13, '0')}-${process.pid}.jsonl`;
}

/** Returns the files, oldest first. A missing folder has none. */
export function listRecordingFiles(folder: string): readonly RecordingFile[] {
  return namesIn(folder)
    .sort()
    .flatMap((name) => {
      const start = FORM.exec(name)?.[1];
      return start === undefined ? [] : [{ path: path.join(folder, name), name, start: Number(start) }];
    });
}

/**
 * Removes files that are too old, and the oldest if there is too much. Another process may do the same. Throws what
 * node:fs throws.
 */
export function sweepRecordings(folder: string, bounds: RecordingBounds, now: number): void {
  const dead = now - bounds.keepMs - bounds.spanMs;
  const live = listRecordingFiles(folder).filter((file) => file.start > dead || rmSync(file.path, { force: true }));
  let bytes = 0;
  for (const file of live.reverse()) {
    bytes += statSync(file.path, { throwIfNoEntry: false })?.size ?? 0;
    if (bytes > bounds.maxBytes) rmSync(file.path, { force: true });
  }
}
