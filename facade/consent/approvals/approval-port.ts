/**
 * The port to the people who approve calls, independent of how they are asked, and the words for the rules that ask.
 */
import type { CallDecision, Effect, Reason } from '../../../policies/port.ts';
import type { Caller } from '../../call/identify.ts';

/** A call that the policy asks a person about. */
export interface CallToApprove {
  readonly caller: Caller;
  readonly effect: Effect;
  /** The arguments of the tool that is really called, as the policy saw them. */
  readonly argsText: string;
  /** The bound arguments, as they will be sent. They differ if the tool behind a primitive has other arguments. */
  readonly sentText: string;
  readonly decision: CallDecision;
  readonly revision: string;
  /** Pin of the definition that will be called. */
  readonly pin: string;
  readonly signal: AbortSignal;
  /** See CallRequest. */
  readonly drained?: AbortSignal;
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
  /** Throws if a decision made beforehand refuses the call by now (see Standings). */
  readonly stands: () => unknown;
}

/** The approvals of calls. */
export interface Approvals {
  /**
   * Resolves with the id of the approval that this call has used; or with undefined if a person has decided while it
   * waited: then the call is decided again. Throws APPROVAL_REQUIRED, DENIED, PIN_MISMATCH, CANCELLED, AUDIT_FAILED,
   * STATE_FAILED, and what refuses its server or the call by now, because no one is asked about a call that cannot run.
   */
  obtain(call: CallToApprove): Promise<string | undefined>;
}

/** Returns the first three rules, in words. */
export function explainReasons(reasons: readonly Reason[]): string {
  return (
    reasons
      .slice(0, 3)
      .map((reason) => `rule ${reason.id}: ${reason.message}`)
      .join('; ') || 'policy.'
  );
}

/** File names are only for the admin; ids and messages go to the caller. */
export function publicReasons(reasons: readonly Reason[]): readonly { id: string; message: string }[] {
  return reasons.slice(0, 8).map(({ id, message }) => ({ id, message }));
}
