/** Owns what a decision means for a call: only a literal allow goes on, and pins are checked against what will be sent. */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../catalogs/errors.ts';
import type { CallDecision, Reason, ShadowReason } from '../policies/port.ts';

/** Refuses what is not allowed. `approval` is the id that a person will be shown. */
export function enforce(decision: CallDecision, args: Readonly<Record<string, unknown>>, approval: string): void {
  if (decision.outcome === 'deny') {
    const remediation = decision.reasons.find((reason) => reason.remediation !== undefined)?.remediation;
    throw new TollgateError('DENIED', { detail: `Refused by ${explain(decision.reasons)}`, ...(remediation === undefined ? {} : { next: remediation }), data: { reasons: publicReasons(decision.reasons) } });
  }
  if (decision.outcome !== 'allow') {
    throw new TollgateError('APPROVAL_REQUIRED', {
      detail: `A person must approve this call first, so it was not made: ${explain(decision.reasons)} Approval id ${approval}.`,
      data: { approval, reasons: publicReasons(decision.reasons) },
    });
  }
  for (const [name, value] of Object.entries(decision.obligations.pins)) {
    if (isDeepStrictEqual(Object.getOwnPropertyDescriptor(args, name)?.value, value)) continue;
    throw new TollgateError('POLICY_FAILED', { detail: `The policy pins argument ${name} to a value that the call does not carry.` });
  }
}

/** Rules in mode warn that would have refused the call or asked a person. A warning that something would be allowed says nothing to its caller. */
function warnings({ shadow }: CallDecision): readonly ShadowReason[] {
  return shadow.filter(({ mode, would }) => mode === 'warn' && would !== 'allow');
}

/** Lines before the result: what rules in mode warn would have done. */
export function warningNotes(decision: CallDecision): readonly string[] {
  return warnings(decision).slice(0, 3).map(({ id, message, would }) => `warning: rule ${id} would ${would === 'deny' ? 'refuse this call' : 'ask a person first'}: ${message}`);
}

/** The same for `_meta`. */
export function warningMeta(decision: CallDecision): { readonly 'tollgate/warnings'?: readonly object[] } {
  const found = warnings(decision);
  return found.length === 0 ? {} : { 'tollgate/warnings': found.slice(0, 8).map(({ id, message, would }) => ({ id, message, would })) };
}

function explain(reasons: readonly Reason[]): string {
  return reasons.slice(0, 3).map((reason) => `rule ${reason.id}: ${reason.message}`).join('; ') || 'policy.';
}

/** File names stay with the admin; ids and messages go to the caller. */
function publicReasons(reasons: readonly Reason[]): readonly { id: string; message: string }[] {
  return reasons.slice(0, 8).map(({ id, message }) => ({ id, message }));
}
