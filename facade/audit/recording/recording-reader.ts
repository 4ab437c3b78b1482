/** Reads recordings, newest file first. It makes no key, and reports every line that it cannot read. */
import { readFileSync } from 'node:fs';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import { unlessMissing } from '../../../catalogs/readers/missing-files.ts';
import type { RecordingsConfig } from '../../config/config.ts';
import { findKeyFile } from '../key-files.ts';
import type { Recording } from './decision-recording.ts';
import { type OpenedRecording, openRecording, RECORDING_KEY, recordingTime } from './recording-encryption.ts';
import { listRecordingFiles, type RecordingFile, recordingBounds, recordingFolder } from './recording-files.ts';

/** Where recordings are, and how old they may be. */
export interface Recordings {
  readonly state: string;
  readonly settings: RecordingsConfig;
  /** ms since 1970. */
  readonly now: number;
}

/** A recording, or a line that could not be read; `line` counts from 1. */
export type ReadLine = OpenedRecording | { readonly file: string; readonly line: number; readonly fault: string };

/**
 * Yields the lines not older than `since` (ms) and the retention: newest file first, in a file newest line first. One
 * file is in memory at a time. Throws STATE_FAILED if there are files and no key.
 */
export function* readRecordings(from: Recordings, since = 0): Generator<ReadLine> {
  const { keepMs, spanMs } = recordingBounds(from.settings);
  const oldest = Math.max(since, from.now - keepMs);
  const files = listRecordingFiles(recordingFolder(from.state))
    .filter(({ start }) => start >= oldest - spanMs)
    .reverse();
  if (files.length === 0) return;
  const key = requireKey(from.state);
  for (const file of files) {
    const lines = readLines(file);
    for (let at = lines.length - 1; at >= 0; at -= 1) {
      const text = lines[at] ?? '';
      if ((recordingTime(text) ?? oldest) < oldest) continue;
      const opened = openRecording(text, key);
      yield typeof opened === 'string' ? { file: file.name, line: at + 1, fault: opened } : opened;
    }
  }
}

/**
 * Returns the newest recording of all processes. Skips lines that cannot be read; throws STATE_FAILED if that leaves
 * none.
 */
export function readLast(from: Recordings): Recording | undefined {
  const { keepMs } = recordingBounds(from.settings);
  const ends = listRecordingFiles(recordingFolder(from.state)).flatMap((file) => {
    const lines = readLines(file).filter((line) => (recordingTime(line) ?? from.now) >= from.now - keepMs);
    return lines.length === 0 ? [] : [newestOf(lines, requireKey(from.state))];
  });
  const read = ends.filter((one) => one !== undefined);
  if (ends.length > 0 && read.length === 0)
    throw new TollgateError('STATE_FAILED', {
      detail: 'No recording can be read: all were written with another key, or changed.',
      next: 'Restore the key, or delete the folder `recording` in the state folder.',
    });
  return read.sort((a, b) => b.at - a.at)[0]?.recording;
}

/** Returns the recording of a decision id. Throws STATE_FAILED. */
export function findRecording(from: Recordings, id: string): OpenedRecording | undefined {
  for (const line of readRecordings(from)) if ('recording' in line && line.recording.id.startsWith(id)) return line;
  return undefined;
}

function newestOf(lines: readonly string[], key: Buffer): OpenedRecording | undefined {
  for (let at = lines.length - 1; at >= 0; at -= 1) {
    const opened = openRecording(lines[at] ?? '', key);
    if (typeof opened !== 'string') return opened;
  }
  return undefined;
}

function requireKey(state: string): Buffer {
  const key = findKeyFile(state, RECORDING_KEY);
  if (key !== undefined) return key;
  throw new TollgateError('STATE_FAILED', {
    detail: `There are recordings, but their key ${RECORDING_KEY} is missing in the state folder.`,
    next: 'Restore the key, or delete the folder `recording` there.',
  });
}

/** Returns the lines of a file; none if it was removed meanwhile. */
function readLines(file: RecordingFile): string[] {
  const lines = unlessMissing(() => readFileSync(file.path, 'utf8').split('\n')) ?? [];
  if (lines.at(-1) === '') lines.pop();
  return lines;
}
