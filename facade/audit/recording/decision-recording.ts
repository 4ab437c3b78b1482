/**
 * Owns what is recorded of one decision: exactly what the policy was told and what it answered; refuses results, and
 * calls that no policy was asked about.
 */
import { type CallDecision, type CallInput, INPUT_VERSION } from '../../../policies/port.ts';
import type { EndedCall } from '../../call/record.ts';

/** Characters of arguments above which they are not kept: such a recording can be shown, and not be replayed. */
export const MAX_ARGS = 256 * 1024;

/** One decision. `input` without `argsText` is that of a call whose arguments were too large to keep. */
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
  /** Absent when the policy gave none; `failed` then says why. */
  readonly decision?: CallDecision;
  readonly failed?: string;
}

/** A recording with all that the policy was told: it can be decided anew. */
export type WholeRecording = Recording & { readonly input: CallInput };

/** True when the arguments were kept. */
export function isWhole(recording: Recording): recording is WholeRecording {
  return recording.input.argsText !== undefined;
}

/** What is to be kept of a call; undefined where the policy was not asked. */
export function recordingOf(end: EndedCall): Recording | undefined {
  const { input, decision } = end.judged ?? {};
  if (input === undefined) return undefined;
  const { argsText, ...rest } = input;
  return {
    version: INPUT_VERSION,
    id: end.id,
    exposed: end.exposed?.name ?? end.requestedName,
    revision: end.revision,
    input: { ...rest, ...(argsText.length > MAX_ARGS ? {} : { argsText }) },
    argChars: argsText.length,
    ...(decision === undefined ? { failed: end.error?.message ?? 'The policy gave no decision.' } : { decision }),
  };
}
