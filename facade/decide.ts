/** Owns what a decision means for a call: only a literal allow, or an ask that a person has answered, goes on, and pins are checked against what will be sent. */
import { isDeepStrictEqual } from 'node:util';
import { TollgateError } from '../catalogs/errors.ts';
import type { CallDecision, ShadowReason } from '../policies/port.ts';
import { explain, publicReasons, type Approvals, type AskedCall } from './approvals.ts';
import type { Standing } from './standing.ts';

/**
 * Refuses what is denied, and lets a person or a grant answer what is asked. Resolves with the id of the approval or grant that
 * did, undefined when nothing was asked. Throws DENIED, what `approvals` throws, and POLICY_FAILED for a pin that the call does not carry.
 */
export async function consent(call: AskedCall, { args, standing, approvals }: { args: Readonly<Record<string, unknown>>; standing: Standing; approvals: Approvals }): Promise<string | undefined> {
  const { decision } = call;
  // Anything but the two words that can go on is a deny.
  if (decision.outcome !== 'allow' && decision.outcome !== 'ask') {
    const remediation = decision.reasons.find((reason) => reason.remediation !== undefined)?.remediation;
    throw new TollgateError('DENIED', { detail: `Refused by ${explain(decision.reasons)}`, ...(remediation === undefined ? {} : { next: remediation }), data: { reasons: publicReasons(decision.reasons) } });
  }
  for (const [name, value] of Object.entries(decision.obligations.pins)) {
    if (isDeepStrictEqual(Object.getOwnPropertyDescriptor(args, name)?.value, value)) continue;
    throw new TollgateError('POLICY_FAILED', { detail: `The policy pins argument ${name} to a value that the call does not carry.` });
  }
  return decision.outcome === 'allow' ? undefined : (standing.grant ?? approvals.obtain(call));
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
