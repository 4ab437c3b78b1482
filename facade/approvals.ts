/** Owns the wait of a call for a person; refuses calls that nobody has approved exactly as they are. */
import { TollgateError } from '../catalogs/errors.ts';
import type { CallDecision, Effect, Reason } from '../policies/port.ts';
import type { Caller } from './session.ts';

/** A call that the policy asks a person about. */
export interface AskedCall {
  readonly caller: Caller;
  readonly effect: Effect;
  /** The bound arguments, as they will be sent. */
  readonly argsText: string;
  readonly decision: CallDecision;
  readonly revision: string;
  /** Pin of the definition that will be called. */
  readonly pin: string;
  readonly signal: AbortSignal;
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
}

/** The approvals of calls. */
export interface Approvals {
  /** Resolves with the id of the approval that this call has used up. Throws APPROVAL_REQUIRED, DENIED, CANCELLED, AUDIT_FAILED, STATE_FAILED. */
  obtain(call: AskedCall): Promise<string>;
}

/** Nobody is asked: every call is refused. */
export const NO_APPROVALS: Approvals = {
  obtain: async ({ caller, decision }) => {
    throw new TollgateError('APPROVAL_REQUIRED', {
      detail: `A person must approve this call first, so it was not made: ${explain(decision.reasons)} Approval id ${caller.decision}.`,
      data: { approval: caller.decision, reasons: publicReasons(decision.reasons) },
    });
  },
};

/** The first three rules, in words. */
export function explain(reasons: readonly Reason[]): string {
  return reasons.slice(0, 3).map((reason) => `rule ${reason.id}: ${reason.message}`).join('; ') || 'policy.';
}

/** File names stay with the admin; ids and messages go to the caller. */
export function publicReasons(reasons: readonly Reason[]): readonly { id: string; message: string }[] {
  return reasons.slice(0, 8).map(({ id, message }) => ({ id, message }));
}
