/** Owns what a decision means for a call: only a literal allow, or an ask that a person has answered, goes on, and pins are checked against what will be sent. */
import { isDeepStrictEqual } from 'node:util';
import { abortSignalOf } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallDecision, Policy, ShadowReason } from '../../policies/port.ts';
import { isoTime } from '../audit/audit-chain.ts';
import { type CallToApprove, explainReasons, publicReasons } from '../consent/approvals/approval-port.ts';
import type { CallPreconditions } from '../consent/preconditions.ts';
import type { ExposedTool } from '../exposure/name-table.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { CallDependencies } from './call.ts';
import type { Caller } from './identify.ts';
import { type LoweredCall, type LoweringContext, lowerCall } from './lowering/lowered-call.ts';
import type { CallTrace } from './record.ts';
import { type BoundArguments, bindArguments } from './validate.ts';

/** One bound call, and what it is judged by. */
export interface DecisionRequest {
  readonly policy: Policy;
  readonly trace: CallTrace;
  readonly caller: Caller;
  readonly exposed: ExposedTool;
  readonly bound: BoundArguments;
  readonly place: Omit<LoweringContext, 'labels'>;
  readonly request: CallRequest;
}

/** What a call may go on with. */
export interface DecidedCall {
  readonly lowered: LoweredCall;
  readonly preconditions: CallPreconditions;
  readonly input: NonNullable<CallTrace['input']>;
  readonly decision: CallDecision;
  /** The arguments as they will be sent, with what rules have pinned. */
  readonly bound: BoundArguments;
}

/**
 * Stage 4. Refuses what is denied, and lets a grant or a person answer what is asked. A call that has waited for a person is judged
 * anew from its effect on: links, labels, grants and the hour may be others by then (TOCTOU). Throws DENIED, POLICY_FAILED for a pin
 * that the call does not carry, and what the target, the grants and the approvals throw.
 */
export async function decide(
  deps: Pick<CallDependencies, 'fresh' | 'preconditions' | 'labels' | 'plans' | 'approvals' | 'now'>,
  { policy, trace, caller, exposed: asked, bound: first, place, request }: DecisionRequest,
): Promise<DecidedCall> {
  let bound = first;
  const { principal, run, session } = caller;
  for (let at = trace.startedAt; ; at = deps.now()) {
    const renewal = deps.fresh();
    if (renewal !== undefined) await renewal;
    trace.lowered?.pathHandles.close();
    const labels = deps.labels.of(session, run);
    const aimed = lowerCall(asked, bound, { ...place, labels });
    const target = (trace.lowered = aimed instanceof Promise ? await aimed : aimed);
    const { effect, argsText, args } = target;
    const exposed = (trace.exposed = target.exposed);
    const current = deps.labels.of(session, run);
    // Labels only grow: another call brought one in while the route was looked for.
    if (asked.routedServers !== undefined && !isDeepStrictEqual(current, labels)) continue;
    const standing = deps.preconditions.judge({ caller, effect, args });
    trace.budgets = standing.budgets.map(({ id }) => id);
    const input = (trace.input = {
      effect,
      argsText,
      principal,
      run,
      labels: current,
      time: isoTime(at),
      plan: await deps.plans.of(principal, run),
    });
    const decision = (trace.decision = await policy.call(input));
    refuse(decision);
    const pinned = pin({ bound, decision, args, exposed, request, isAgain: bound !== first });
    if (pinned !== undefined) {
      bound = pinned;
      continue;
    }
    if (decision.outcome === 'ask')
      trace.consent =
        standing.grant ??
        (await deps.approvals.obtain({
          caller,
          effect,
          argsText,
          sentText: bound.doc.text,
          decision,
          revision: policy.revision,
          pin: exposed.pin,
          stands: () => deps.preconditions.judge({ caller, effect, args }),
          ...waiting(request),
        }));
    if (decision.outcome === 'allow' || trace.consent !== undefined)
      return { lowered: target, preconditions: standing, input, decision, bound };
  }
}

function refuse(decision: CallDecision): void {
  // Anything but the two words that can go on is a deny.
  if (decision.outcome !== 'allow' && decision.outcome !== 'ask') {
    const remediation = decision.reasons.find((reason) => reason.remediation !== undefined)?.remediation;
    throw new TollgateError('DENIED', {
      detail: `Refused by ${explainReasons(decision.reasons)}`,
      ...(remediation === undefined ? {} : { next: remediation }),
      data: { reasons: publicReasons(decision.reasons) },
    });
  }
}

interface Pinning extends Pick<DecisionRequest, 'bound' | 'exposed' | 'request'> {
  readonly decision: CallDecision;
  /** Of the tool that is really called. */
  readonly args: Readonly<Record<string, unknown>>;
  /** Pins of rules were put in before. */
  readonly isAgain: boolean;
}

/**
 * The arguments with what rules have pinned, to be judged again; undefined if the call carries all pins. They are put in once: rules
 * that pin other arguments then, and a backend whose arguments have other names, refuse the call. Throws POLICY_FAILED, ARGS_INVALID.
 */
function pin({ decision, args, exposed, request, isAgain }: Pinning): BoundArguments | undefined {
  const { pins } = decision.obligations;
  const missing = Object.keys(pins).find(
    (name) => !isDeepStrictEqual(Object.getOwnPropertyDescriptor(args, name)?.value, pins[name]),
  );
  if (missing === undefined) return undefined;
  if (isAgain)
    throw new TollgateError('POLICY_FAILED', {
      detail: `The policy pins argument ${missing} to a value that the call does not carry.`,
    });
  return bindArguments(request.args, { ...exposed.args, pins: { ...exposed.args.pins, ...pins } });
}

/** What a wait for a person needs of the request. */
function waiting({ signal, drained, onWait }: CallRequest): Pick<CallToApprove, 'signal' | 'drained' | 'onProgress'> {
  return {
    signal: abortSignalOf(signal),
    ...(drained !== undefined && { drained }),
    ...(onWait !== undefined && { onProgress: onWait }),
  };
}

/** Rules in mode warn that would have refused the call or asked a person. A warning that something would be allowed says nothing to its caller. */
function warnings({ shadow }: CallDecision): readonly ShadowReason[] {
  return shadow.length === 0 ? shadow : shadow.filter(({ mode, would }) => mode === 'warn' && would !== 'allow');
}

/** Lines before the result: what rules in mode warn would have done. */
export function warningNotes(decision: CallDecision): readonly string[] {
  return warnings(decision)
    .slice(0, 3)
    .map(
      ({ id, message, would }) =>
        `warning: rule ${id} would ${would === 'deny' ? 'refuse this call' : 'ask a person first'}: ${message}`,
    );
}

/** The same for `_meta`. */
export function warningMeta(decision: CallDecision): readonly object[] | undefined {
  const found = warnings(decision);
  return found.length === 0 ? undefined : found.slice(0, 8).map(({ id, message, would }) => ({ id, message, would }));
}
