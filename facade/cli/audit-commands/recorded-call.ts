/** The recorded arguments of a call: decrypted, compared with the digest in the log, and without secrets. */
import type { IndexedRecord } from '../../audit/index/audit-index.ts';
import { createDigest, findKeyFile } from '../../audit/key-files.ts';
import type { Recording } from '../../audit/recording/decision-recording.ts';
import { findRecording } from '../../audit/recording/recording-reader.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import type { Config } from '../../config/config.ts';

/** What became of the recording of a call. Only one that is `kept` is what the log says it is. */
export type RecordedArguments =
  | { readonly state: 'kept'; readonly recording: Recording; readonly args: unknown }
  | { readonly state: 'none' | 'early' | 'deleted' | 'changed' };

/** Says what a state means, for people. */
export const RECORDED_STATES: Readonly<Record<Exclude<RecordedArguments['state'], 'kept'>, string>> = {
  none: 'not recorded: audit.facts was not full',
  early: 'not recorded: the call ended before the policy decided, or came before audit.facts was full',
  deleted: 'deleted: the log has the digest of a recording that is no longer there, or was lost with its process',
  changed: 'CHANGED: the recording is not what the log has the digest of, so it is not shown',
};

/** Returns the recorded arguments of a call. Throws STATE_FAILED if the key of recordings is missing. */
export function recordedCall(config: Config, found: readonly IndexedRecord[]): RecordedArguments {
  const record = found.map((one) => one.record as { readonly id?: string; readonly recorded?: unknown });
  const recorded = record.find((one) => typeof one.recorded === 'string');
  if (recorded === undefined) return { state: config.audit.facts === 'full' ? 'early' : 'none' };
  const from = { state: config.state, settings: config.audit.recordings, now: Date.now() };
  const opened = findRecording(from, String(recorded.id));
  if (opened === undefined) return { state: 'deleted' };
  const key = findKeyFile(config.state, 'audit.key');
  if (key === undefined || createDigest(key)(opened.text) !== recorded.recorded) return { state: 'changed' };
  const { recording } = opened;
  const { argsText } = recording.input;
  const args = argsText === undefined ? undefined : createConceal(config)(JSON.parse(argsText) as unknown);
  return { state: 'kept', recording, args };
}
