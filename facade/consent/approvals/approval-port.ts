/** Owns the port to the people who approve calls, and the words for the rules that ask; refuses to know how they are asked. */
import type { CallDecision, Effect, Reason } from '../../../policies/port.ts';
import type { Caller } from '../../call/identify.ts';

/** A call that the policy asks a person about. */
export interface CallToApprove {
  readonly caller: Caller;
  readonly effect: Effect;
  /** The arguments of the tool that is really called, as the policy saw them. */
  readonly argsText: string;
  /** The bound arguments, as they will be sent: other ones where a primitive is served by tools of other arguments. */
  readonly sentText: string;
  readonly decision: CallDecision;
  readonly revision: string;
  /** Pin of the definition that will be called. */
  readonly pin: string;
  readonly signal: AbortSignal;
  /** See CallRequest. */
  readonly drained?: AbortSignal;
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
  /** Throws when what people decided beforehand refuses the call by now (see Standings). */
  readonly stands: () => unknown;
}

/** The approvals of calls. */
export interface Approvals {
  /**
   * Resolves with the id of the approval that this call has used up, or, when it has waited and somebody has decided, with
   * undefined: then the call is judged anew. Throws APPROVAL_REQUIRED, DENIED, PIN_MISMATCH, CANCELLED, AUDIT_FAILED, STATE_FAILED, and what
   * refuses its server or the call by now: nobody is asked about what cannot run.
   */
  obtain(call: CallToApprove): Promise<string | undefined>;
}

/** The first three rules, in words. */
export function explainReasons(reasons: readonly Reason[]): string {
  return (
    reasons
      .slice(0, 3)
      .map((reason) => `rule ${reason.id}: ${reason.message}`)
      .join('; ') || 'policy.'
  );
}

/** File names stay with the admin; ids and messages go to the caller. */
export function publicReasons(reasons: readonly Reason[]): readonly { id: string; message: string }[] {
  return reasons.slice(0, 8).map(({ id, message }) => ({ id, message }));
}
