/**
 * Records the decisions of this process: encrypted at once, written a moment later. It never delays or changes a call,
 * and reports when it cannot keep a recording.
 */
import { mkdirSync } from 'node:fs';
import { appendFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { EndedCall } from '../../call/record.ts';
import type { AuditConfig } from '../../config/config.ts';
import { readKeyFile } from '../key-files.ts';
import { recordingOf } from './decision-recording.ts';
import { RECORDING_KEY, sealRecording } from './recording-encryption.ts';
import {
  type RecordingBounds,
  recordingBounds,
  recordingFileName,
  recordingFolder,
  sweepRecordings,
} from './recording-files.ts';

/** Lines of this many milliseconds are written together. A killed process loses them. */
const WRITE_MS = 50;
/** Bytes that wait for a disk that does not take them. Later recordings are not kept. */
const MAX_WAITING = 16 * 1024 * 1024;
const SWEEP_MS = 3_600_000;

/** Keeps decisions. No method throws. */
export interface Recorder {
  /**
   * Keeps the decision of a call. Returns the keyed digest of what is kept, for the record of the call; undefined if
   * nothing is.
   */
  note(end: EndedCall): string | undefined;
  /** Writes what waits. */
  flush(): Promise<void>;
  close(): Promise<void>;
}

/** What a recorder is opened with. */
export interface RecorderOptions {
  readonly state: string;
  readonly settings: Pick<AuditConfig, 'facts' | 'recordings'>;
  /** Keyed digest, see key-files.ts. */
  readonly digest: (text: string) => string;
  readonly now: () => number;
  /** Called once, until recording works again. Never throws. */
  readonly onFault: (error: TollgateError) => void;
}

/**
 * Removes recordings that are too old, whatever the setting. Returns undefined unless `facts` is `full`. Throws
 * STATE_FAILED if no key or folder can be made then, so that the user learns of it now.
 */
export function openRecorder(options: RecorderOptions): Recorder | undefined {
  const { state, settings, now } = options;
  try {
    sweepRecordings(recordingFolder(state), recordingBounds(settings.recordings), now());
    if (settings.facts !== 'full') return undefined;
    mkdirSync(recordingFolder(state), { recursive: true, mode: 0o700 });
    return new Writer(options, readKeyFile(state, RECORDING_KEY));
  } catch (cause) {
    throw cause instanceof TollgateError
      ? cause
      : new TollgateError('STATE_FAILED', { detail: 'The folder of the recordings cannot be used.', cause });
  }
}

class Writer implements Recorder {
  readonly #options: RecorderOptions;
  readonly #key: Buffer;
  readonly #bounds: RecordingBounds;
  readonly #folder: string;
  readonly #sweeper: NodeJS.Timeout;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  #last: Promise<void> = Promise.resolve();
  #file = { path: '', start: Number.NEGATIVE_INFINITY, bytes: 0 };
  #failing = false;

  constructor(options: RecorderOptions, key: Buffer) {
    this.#options = options;
    this.#key = key;
    this.#bounds = recordingBounds(options.settings.recordings);
    this.#folder = recordingFolder(options.state);
    this.#sweeper = setInterval(
      () => this.#guard(() => this.#sweep()),
      Math.min(SWEEP_MS, this.#bounds.spanMs),
    ).unref();
  }

  note(end: EndedCall): string | undefined {
    let digest: string | undefined;
    void this.#guard(() => {
      const recording = recordingOf(end);
      if (recording === undefined) return;
      const text = JSON.stringify(recording);
      const line = sealRecording(text, this.#key, this.#options.now());
      if (this.#waitingBytes + line.length > MAX_WAITING) throw new Error('the disk does not take what waits');
      this.#waiting.push(line);
      this.#waitingBytes += line.length;
      this.#timer ??= setTimeout(() => void this.flush(), WRITE_MS).unref();
      digest = this.#options.digest(text);
    });
    return digest;
  }

  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#last = this.#last.then(() => this.#guard(() => this.#write()));
    return this.#last;
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    await this.flush();
  }

  async #write(): Promise<void> {
    if (this.#waiting.length === 0) return;
    const text = this.#waiting.join('');
    this.#waiting = [];
    this.#waitingBytes = 0;
    const now = this.#options.now();
    if (now - this.#file.start >= this.#bounds.spanMs || this.#file.bytes >= this.#bounds.fileBytes) this.#begin(now);
    // Opened by its name each time, because another process may have removed the file.
    await appendFile(this.#file.path, text, { mode: 0o600 });
    this.#file.bytes += text.length;
    this.#failing = false;
  }

  #begin(now: number): void {
    this.#sweep();
    const start = now > this.#file.start ? now : this.#file.start + 1;
    this.#file = { path: path.join(this.#folder, recordingFileName(start)), start, bytes: 0 };
  }

  #sweep(): void {
    sweepRecordings(this.#folder, this.#bounds, this.#options.now());
  }

  /** An error here loses a recording, never a call. */
  #guard(work: () => void | Promise<void>): Promise<void> | undefined {
    const told = (cause: unknown): void => {
      if (this.#failing) return;
      this.#failing = true;
      const { code } = cause as NodeJS.ErrnoException;
      this.#options.onFault(
        new TollgateError('STATE_FAILED', {
          detail: `A decision could not be recorded${code === undefined ? '' : ` (${code})`}.`,
          cause,
        }),
      );
    };
    try {
      return work()?.catch(told);
    } catch (cause) {
      told(cause);
      return undefined;
    }
  }
}
