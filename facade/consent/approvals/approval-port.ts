/** The port to the people who approve calls, whatever asks them. It also formats the reasons of the rules that ask. */
import type { JsonObject } from '../../../adapters/rpc/wire-message.ts';
import type { CallDecision, Effect, Reason } from '../../../policies/port.ts';
import type { Caller } from '../../call/identify.ts';
import type { AskClient } from '../../serve/facade-port.ts';
import type { AskingRun } from './loop-approval.ts';

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
  /** See `CallRequest`. */
  readonly drained?: AbortSignal;
  readonly onProgress?: (params: Readonly<Record<string, unknown>>) => void;
  readonly ask?: AskClient;
  /** The capabilities that the client declared with this request. Default: those of the session. */
  readonly client?: JsonObject;
  /** Present if code makes the call. */
  readonly asking?: AskingRun;
  /** Throws if a precondition refuses the call now (see facade/consent/preconditions.ts). */
  readonly recheck: () => unknown;
}

/** The approvals of calls. */
export interface Approvals {
  /**
   * Resolves with the id of the approval that this call has used. Resolves with undefined if a person decided while the
   * call waited; the call must then be decided again.
   * Throws APPROVAL_REQUIRED, DENIED, PIN_MISMATCH, CANCELLED, AUDIT_FAILED, STATE_FAILED. Also throws any refusal of
   * the server or of the call, because no person is asked about a call that cannot run.
   */
  obtain(call: CallToApprove): Promise<string | undefined>;
  /**
   * Resolves with the id of the existing approval that this call has used; undefined if there is none. Asks no one.
   * Throws what `obtain` throws, and LOOP_SPENT, LOOP_LATE, LOOP_MISMATCH.
   */
  use(call: CallToApprove): Promise<string | undefined>;
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
