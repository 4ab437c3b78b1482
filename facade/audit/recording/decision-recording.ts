/**
 * The recording of one decision: the input of the policy and its answer. It has no results, and no call without a
 * decision.
 */
import { type CallDecision, type CallInput, INPUT_VERSION } from '../../../policies/port.ts';
import type { EndedCall } from '../../call/record.ts';

/** Arguments with more characters are not kept. Such a recording can be shown, but not replayed. */
export const MAX_ARGS = 256 * 1024;

/** One decision. `input` lacks `argsText` if the arguments were too large to keep. */
export interface Recording {
  /** Version of the policy's input, see policies/port.ts. */
  readonly version: number;
  /** The decision id, as in the audit. */
  readonly id: string;
  /** The name that was called. */
  readonly exposed: string;
  readonly revision: string;
  readonly input: Omit<CallInput, 'argsText'> & { readonly argsText?: string };
  readonly argChars: number;
  /** Absent when the policy gave no decision; `failed` then says why. */
  readonly decision?: CallDecision;
  readonly failed?: string;
}

/** A recording with the complete input of the policy: it can be decided again. */
export type WholeRecording = Recording & { readonly input: CallInput };

/** Returns true if the arguments were kept. */
export function isWhole(recording: Recording): recording is WholeRecording {
  return recording.input.argsText !== undefined;
}

/** Returns the recording of a call; undefined if the policy was not asked. */
export function recordingOf(end: EndedCall): Recording | undefined {
  const { input, decision } = end.judged ?? {};
  if (input === undefined) return undefined;
  const { argsText, ...rest } = input;
  return {
    version: INPUT_VERSION,
    id: end.start.id,
    exposed: end.exposed?.name ?? end.start.requestedName,
    revision: end.start.revision,
    input: { ...rest, ...(argsText.length > MAX_ARGS ? {} : { argsText }) },
    argChars: argsText.length,
    ...(decision === undefined ? { failed: end.error?.message ?? 'The policy gave no decision.' } : { decision }),
  };
}
