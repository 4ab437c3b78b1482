/** Reads recorded traffic for commands, and reports the lines that cannot be read. */
import type { Recording } from '../../audit/recording/decision-recording.ts';
import { readRecordings } from '../../audit/recording/recording-reader.ts';
import type { Config } from '../../config/config.ts';
import type { Io } from '../command-io.ts';
import { readPastTime } from '../durations.ts';

/** How many unreadable lines are shown. */
const SHOWN = 5;

/** Recordings, newest file first. */
export interface Traffic {
  readonly recordings: Iterable<Recording>;
  /** Prints on stderr what could not be read, and returns the number of these lines. Call it after the iteration. */
  tell(): number;
}

/**
 * Reads all recordings, or those since a time: `7d`, or ISO. Throws USAGE, and STATE_FAILED if the key of the
 * recordings is missing.
 */
export function readTraffic(config: Config, since: string | undefined, io: Io): Traffic {
  const now = Date.now();
  const faults: string[] = [];
  const lines = readRecordings(
    { state: config.state, settings: config.audit.recordings, now },
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

/** Returns the part of a decision id that screens show. `policy why` and `audit show` accept it. */
export function shortDecisionId(id: string): string {
  return id.slice(0, 13);
}

/** Returns the message for a command that finds no recordings. */
export function noTraffic(config: Config): string {
  return config.audit.facts !== 'full'
    ? 'Nothing is recorded. Write `audit: {facts: full}` into tollgate.yaml, and let agents work.\n'
    : 'There is no recorded decision in this period.\n';
}
