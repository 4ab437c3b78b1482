/** The files of recordings: their names, and when they are removed. */
import { rmSync, statSync } from 'node:fs';
import path from 'node:path';
import type { RecordingConfig } from '../../config/config.ts';
import { namesIn } from '../chain-lines.ts';

/** How long mode `last` keeps a decision. */
const LAST_MS = 15 * 60_000;
/** Bytes of all recordings in mode `last`. */
const LAST_BYTES = 16 * 1024 * 1024;
const HOUR_MS = 3_600_000;
const FORM = /^(\d{13})-(\d+)\.jsonl$/;

/** How much is kept, by the mode. `off` keeps what an earlier mode wrote until it is too old. */
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
export function recordingBounds({ mode, keepMs, maxBytes }: RecordingConfig): RecordingBounds {
  const keep = mode === 'last' ? Math.min(keepMs, LAST_MS) : keepMs;
  const most = mode === 'last' ? Math.min(maxBytes, LAST_BYTES) : maxBytes;
  return {
    keepMs: keep,
    maxBytes: most,
    spanMs: Math.min(HOUR_MS, keep / 4),
    fileBytes: Math.min(8 * 1024 * 1024, most / 8),
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
