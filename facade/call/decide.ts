/**
 * Stage 4, decide: the policy judges the lowered call. Only a literal allow, or an ask that a grant or a person
 * answered, goes on.
 */
import { isDeepStrictEqual } from 'node:util';
import { abortSignalOf } from '../../adapters/rpc/cancellation.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { CallDecision, CallInput, Policy, ShadowReason } from '../../policies/port.ts';
import { isoTime } from '../audit/audit-chain.ts';
import {
  type Approvals,
  type CallToApprove,
  explainReasons,
  publicReasons,
} from '../consent/approvals/approval-port.ts';
import type { RunPlans } from '../consent/plan-mode.ts';
import type { CallPreconditions, Preconditions } from '../consent/preconditions.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { Spills } from '../output/spills.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { RequestTrace } from '../serve/request-trace.ts';
import type { Caller } from './identify.ts';
import type { LoweredCall, LoweringContext } from './lowering/lowered-call.ts';
import type { WorkspaceFiles } from './lowering/workspace-files.ts';
import type { RunLabels } from './run-labels.ts';
import type { BindStep, BoundArguments } from './validate.ts';

/** What stage 4 needs. */
export interface DecideDependencies {
  /** Reads what other processes changed in the shared state. See `State.refresh`. */
  readonly refresh: () => Promise<void> | undefined;
  readonly files: WorkspaceFiles;
  readonly spills: Spills;
  readonly labels: Pick<RunLabels, 'of'>;
  readonly preconditions: Pick<Preconditions, 'judge'>;
  readonly plans: Pick<RunPlans, 'of'>;
  readonly approvals: Pick<Approvals, 'obtain'>;
  /** Present for calls of code. */
  readonly gate?: CallGate;
  readonly now: () => number;
}

/** What a run of code adds to the decision on its own calls. It can only make the outcome stricter. */
export interface CallGate {
  /** A person is asked even about a call that the policy allows. */
  readonly asksAlways: boolean;
  /** Called with each call that may run. Throws the refusal of a call that must not run now. */
  readonly admit: (lowered: LoweredCall) => void;
}

/** How an operation is lowered to the effect that the policy judges. Throws what `lowerCall` throws. */
export type LowerStep = (
  exposed: ExposedTool,
  bound: BoundArguments,
  context: LoweringContext,
) => Awaitable<LoweredCall>;

/** What the decision needs of an operation. */
export interface DecideSteps {
  readonly bind: BindStep;
  readonly lower: LowerStep;
}

/** A call with bound arguments that the policy has not judged yet. */
export interface DecisionRequest {
  readonly operation: DecideSteps;
  readonly policy: Policy;
  readonly caller: Caller;
  readonly exposed: ExposedTool;
  readonly bound: BoundArguments;
  readonly request: CallRequest;
  readonly trace?: RequestTrace | undefined;
}

/** An allowed call. The caller of `decide` closes `lowered.pathHandles`. */
export interface AllowedCall {
  readonly lowered: LoweredCall;
  readonly preconditions: CallPreconditions;
  readonly input: CallInput;
  readonly decision: CallDecision;
  /** The id of the approval or grant that answered an ask. */
  readonly consent?: string | undefined;
  /** The arguments that will be sent, with the values that rules pin. */
  readonly bound: BoundArguments;
}

/** The facts of stage 4. A call with a `refusal` may not go on, and has the facts that were known by then. */
export type JudgedCall = Readonly<Facts> & { readonly refusal?: unknown };

/** Returns the facts of an allowed call. Throws the refusal of any other. */
export function allowedCall(judged: JudgedCall): AllowedCall {
  if ('refusal' in judged) throw judged.refusal;
  return judged as AllowedCall;
}

/** Facts of one call that change each time that it is judged. */
type Facts = { -readonly [Key in keyof AllowedCall]?: AllowedCall[Key] | undefined };

/**
 * Judges a call until nothing about it changes any more. A call that waited for a person is lowered and judged again:
 * links, labels, grants and the time may have changed (TOCTOU). A call that rules add pinned arguments to is judged
 * again with them. Never throws: the refusal is DENIED, POLICY_FAILED, or what lowering, preconditions and approvals
 * throw.
 */
export function decide(deps: DecideDependencies, call: DecisionRequest): Awaitable<JudgedCall> {
  // All members from the start: an object that grows costs more.
  const facts: Facts = {
    lowered: undefined,
    preconditions: undefined,
    input: undefined,
    decision: undefined,
    consent: undefined,
    bound: call.bound,
  };
  call.trace?.enter('decide');
  try {
    const isAllowed = judgeOnce(deps, call, { facts, at: call.caller.startedAt });
    return isAllowed === true ? facts : judgeAgain(deps, call, { facts, isAllowed });
  } catch (refusal) {
    return { ...facts, refusal };
  }
}

/** Waits for the first judgement, and judges the call until it may go on. Never throws. */
async function judgeAgain(
  deps: DecideDependencies,
  call: DecisionRequest,
  { facts, isAllowed }: { readonly facts: Facts; readonly isAllowed: Awaitable<boolean> },
): Promise<JudgedCall> {
  try {
    for (let judged = await isAllowed; !judged; ) judged = await judgeOnce(deps, call, { facts, at: deps.now() });
    return facts;
  } catch (refusal) {
    return { ...facts, refusal };
  }
}

/** The facts of a call so far, and the time of this judgement in ms since 1970. */
interface Judgement {
  readonly facts: Facts;
  readonly at: number;
}

/** Returns true if the call may go on with `facts`, false if it must be judged again. Throws the refusal. */
function judgeOnce(deps: DecideDependencies, call: DecisionRequest, judgement: Judgement): Awaitable<boolean> {
  const { operation, exposed, bound: given, caller } = call;
  const { principal, run, session } = caller;
  const { facts } = judgement;
  return andThen(deps.refresh(), () => {
    facts.lowered?.pathHandles.close();
    const labels = deps.labels.of(session, run);
    const owner = { principal: principal.id, run };
    const context = { files: deps.files, spills: deps.spills, owner, labels };
    return andThen(operation.lower(exposed, facts.bound ?? given, context), (lowered) => {
      facts.lowered = lowered;
      // Labels only grow: another call added one while the route was chosen.
      if (exposed.routedServers !== undefined && !isDeepStrictEqual(deps.labels.of(session, run), labels)) return false;
      return askPolicy(deps, call, { facts, at: judgement.at, lowered });
    });
  });
}

/** Asks the policy about a lowered call. Returns and throws what `judgeOnce` does. */
function askPolicy(
  deps: DecideDependencies,
  { operation, policy, caller, bound: given, request, trace }: DecisionRequest,
  { facts, at, lowered }: Judgement & Pick<AllowedCall, 'lowered'>,
): Awaitable<boolean> {
  const { principal, run, session } = caller;
  const { exposed, effect, argsText, args } = lowered;
  const { bound = given } = facts;
  const recheck = (): CallPreconditions => deps.preconditions.judge({ caller, effect, args });
  const preconditions = (facts.preconditions = recheck());
  const labels = deps.labels.of(session, run);
  return andThen(deps.plans.of(principal, run), (plan) => {
    const input = (facts.input = { effect, argsText, principal, run, labels, time: isoTime(at), plan });
    return andThen(policy.call(input, args), (decision) => {
      facts.decision = decision;
      refuse(decision);
      const pinned = pin({ operation, bound, decision, args, exposed, request, isAgain: bound !== given });
      if (pinned !== undefined) {
        facts.bound = pinned;
        return false;
      }
      // A continued call has its own approval, or waits for it: a second one would never be used.
      const { gate, approvals } = deps;
      const isFree = decision.outcome === 'allow' && gate?.asksAlways !== true;
      if (isFree) gate?.admit(lowered);
      if (isFree || request.isContinued === true) return true;
      const asked = { caller, effect, argsText, sentText: bound.doc.text, decision, revision: policy.revision };
      const consent =
        (gate?.asksAlways === true ? undefined : preconditions.grant) ??
        approvals.obtain({ ...asked, pin: exposed.pin, recheck, ...waiting(request) });
      return andThen(consent instanceof Promise ? (trace?.waiting(consent) ?? consent) : consent, (given) => {
        facts.consent = given;
        if (given !== undefined) gate?.admit(lowered);
        return given !== undefined;
      });
    });
  });
}

function refuse(decision: CallDecision): void {
  // Any other outcome is a deny.
  if (decision.outcome !== 'allow' && decision.outcome !== 'ask') {
    const remediation = decision.reasons.find((reason) => reason.remediation !== undefined)?.remediation;
    throw new TollgateError('DENIED', {
      detail: `Refused by ${explainReasons(decision.reasons)}`,
      ...(remediation === undefined ? {} : { next: remediation }),
      data: { reasons: publicReasons(decision.reasons) },
    });
  }
}

interface Pinning extends Pick<DecisionRequest, 'operation' | 'bound' | 'exposed' | 'request'> {
  readonly decision: CallDecision;
  /** The arguments of the tool that is called. */
  readonly args: Readonly<Record<string, unknown>>;
  /** True if the pins of rules were added before. */
  readonly isAgain: boolean;
}

/**
 * Returns the arguments with the pins of rules, to be judged again; undefined if the call has them all. Pins are added
 * once. If rules pin other values then, or if the backend names its arguments differently, the call is refused. Throws
 * POLICY_FAILED and ARGS_INVALID.
 */
function pin({ operation, decision, args, exposed, request, isAgain }: Pinning): BoundArguments | undefined {
  const { pins } = decision.obligations;
  const missing = Object.keys(pins).find(
    (name) => !isDeepStrictEqual(Object.getOwnPropertyDescriptor(args, name)?.value, pins[name]),
  );
  if (missing === undefined) return undefined;
  if (isAgain)
    throw new TollgateError('POLICY_FAILED', {
      detail: `The policy pins argument ${missing} to a value that the call does not carry.`,
    });
  return operation.bind(request.args, { ...exposed.args, pins: { ...exposed.args.pins, ...pins } });
}

type WaitingPart = 'signal' | 'drained' | 'onProgress' | 'ask' | 'client';

/** Returns the parts of a request that a wait for a person needs. */
function waiting({ signal, drained, onWait, ask, client }: CallRequest): Pick<CallToApprove, WaitingPart> {
  return {
    signal: abortSignalOf(signal),
    ...(drained !== undefined && { drained }),
    ...(onWait !== undefined && { onProgress: onWait }),
    ...(ask !== undefined && { ask }),
    ...(client !== undefined && { client }),
  };
}

/**
 * Returns the rules in mode `warn` that would have refused the call or asked a person. A warning about an allow would
 * not help the caller.
 */
function warnings({ shadow }: CallDecision): readonly ShadowReason[] {
  return shadow.length === 0 ? shadow : shadow.filter(({ mode, would }) => mode === 'warn' && would !== 'allow');
}

/** Returns the lines before the result that say what rules in mode `warn` would have done. */
export function warningNotes(decision: CallDecision): readonly string[] {
  return warnings(decision)
    .slice(0, 3)
    .map(
      ({ id, message, would }) =>
        `warning: rule ${id} would ${would === 'deny' ? 'refuse this call' : 'ask a person first'}: ${message}`,
    );
}

/** Returns the same warnings for `_meta`. */
export function warningMeta(decision: CallDecision): readonly object[] | undefined {
  const found = warnings(decision);
  return found.length === 0 ? undefined : found.slice(0, 8).map(({ id, message, would }) => ({ id, message, would }));
}
