/** Owns how commands get at recorded traffic: by time, each line that cannot be read told of; refuses to go on without any. */
import type { Recording } from '../../audit/recording/decision-recording.ts';
import { readRecordings } from '../../audit/recording/recording-reader.ts';
import type { Config } from '../../config/config.ts';
import type { Io } from '../command-io.ts';
import { readPastTime } from '../durations.ts';

const SHOWN = 5;

/** Recordings, newest file first. */
export interface Traffic {
  readonly recordings: Iterable<Recording>;
  /** Says on stderr what could not be read; answers how many lines. */
  tell(): number;
}

/** All that are kept, or those since a time: `7d`, or ISO. Throws USAGE, STATE_FAILED where the key is gone. */
export function readTraffic(config: Config, since: string | undefined, io: Io): Traffic {
  const now = Date.now();
  const faults: string[] = [];
  const lines = readRecordings(
    { state: config.state, settings: config.recording, now },
    since === undefined ? 0 : readPastTime(since, now),
  );
  function* recordings(): Generator<Recording> {
    for (const line of lines) {
      if ('recording' in line) yield line.recording;
      else faults.push(`${line.file}:${line.line}: ${line.fault}`);
    }
  }
  return {
    recordings: recordings(),
    tell: () => {
      for (const fault of faults.slice(0, SHOWN)) io.stderr(`skipped ${fault}\n`);
      if (faults.length > SHOWN) io.stderr(`skipped ${faults.length - SHOWN} more lines\n`);
      return faults.length;
    },
  };
}

/** What to write where there is no traffic. */
export function noTraffic(config: Config): string {
  return config.recording.mode === 'off'
    ? 'Nothing is recorded. Write `recording: {mode: on, keep: 7d}` into tollgate.yaml, and let agents work.\n'
    : 'No decision of this time is recorded.\n';
}
