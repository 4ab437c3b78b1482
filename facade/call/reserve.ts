/**
 * Stages 5 and 8, reserve and settle: a concurrency slot, a lease on every budget, and the intent record before the
 * server is reached.
 */
import type { CancelSignal } from '../../adapters/rpc/cancellation.ts';
import { type Awaitable, andThen } from '../../catalogs/text/awaitable.ts';
import type { Obligations, Principal } from '../../policies/port.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { BudgetKeys, LeaseRequest } from '../budget/budget-claims.ts';
import type { Budgets, BudgetUse, Lease } from '../budget/budgets.ts';
import type { ConcurrencyLimit } from '../budget/concurrency-limit.ts';
import type { ProcessGate } from '../budget/process-gate.ts';
import type { WaitLimit } from '../budget/queue-place.ts';
import type { CapsConfig } from '../config/config.ts';
import type { Cap } from '../output/text-cut.ts';
import { callFactsText, intentRecord } from './call-facts.ts';
import type { AllowedCall } from './decide.ts';
import type { FactNames } from './fact-names.ts';
import type { Caller, CallStart, OpenSession } from './identify.ts';
import type { LoweredCall, OwnLimits } from './lowering/lowered-call.ts';

/** What stage 5 needs. */
export interface ReserveDependencies {
  readonly concurrencyLimitOf: (session: OpenSession) => ConcurrencyLimit;
  /** The limit for the calls of all sessions. Requests of servers and calls of code have the place of their call. */
  readonly processGate: Pick<ProcessGate, 'enter' | 'takeRoom'>;
  /** The limit for calls of code, which have no place among the others: their run waits for them. */
  readonly codeLimitOf?: (session: OpenSession) => ConcurrencyLimit;
  readonly budgets: Pick<Budgets, 'reserve'>;
  /** Tells whether the run belongs to this principal. */
  readonly runs: { isOwned(principal: Principal, run: string): boolean };
  readonly audit: Pick<AuditLog, 'appendCall'>;
  readonly factNames: FactNames;
  /** Returns a keyed digest, for records. */
  readonly digest: (text: string) => string;
  readonly now: () => number;
}

/** An allowed call that asks for its budgets. */
export interface ReserveRequest {
  readonly start: CallStart;
  readonly caller: Caller;
  readonly allowed: AllowedCall;
  readonly caps: CallCaps;
  readonly signal: CancelSignal;
}

/** The caps of a principal. `forCode`: the limit of a result for code, which replaces that of a result for models. */
export type CallCaps = CapsConfig & { readonly forCode?: Cap };

/** What one call may use. */
export type CallLimits = OwnLimits;

/** A call whose budgets are reserved. It may go on when `recorded` resolves. */
export interface ReservedCall {
  readonly limits: CallLimits;
  /** The facts that every record of this call states, as JSON. */
  readonly factsText: string;
  readonly lease: Lease;
  readonly releaseSlot: () => void;
  /** Resolves when the intent record is written. Rejects with AUDIT_FAILED. */
  readonly recorded: Promise<void>;
}

/**
 * Reserves what the call may use and seals the intent record. Throws RATE_LIMITED, BUDGET_EXCEEDED, CANCELLED,
 * STATE_FAILED and AUDIT_FAILED; nothing stays reserved then.
 */
export function reserve(deps: ReserveDependencies, call: ReserveRequest): Awaitable<ReservedCall> {
  const { start, caller, allowed, caps, signal } = call;
  const limits = callLimits(caps, allowed.lowered, allowed.decision.obligations);
  const share = shareOf(caller);
  const takeRoom = (): (() => void) => deps.processGate.takeRoom(share, start.argBytes);
  const patience = { signal, deadline: deps.now() + limits.timeoutMs, takeRoom };
  return andThen(enterLimits(deps, caller, patience), (releaseSlot) => {
    try {
      const leasing = deps.budgets.reserve(leaseRequest(deps, call, { limits, patience }));
      if (!(leasing instanceof Promise)) return recordIntent(deps, call, { limits, lease: leasing, releaseSlot });
      return leasing
        .then((lease) => recordIntent(deps, call, { limits, lease, releaseSlot }))
        .catch((thrown: unknown) => giveUp(thrown, releaseSlot));
    } catch (thrown) {
      return giveUp(thrown, releaseSlot);
    }
  });
}

/** Takes the call's place in its session, and then its place in the process. */
function enterLimits(
  { concurrencyLimitOf, codeLimitOf, processGate }: ReserveDependencies,
  caller: Caller,
  patience: WaitLimit,
): Awaitable<() => void> {
  // A request of a server has its place in that of its call, which waits for it.
  if (caller.parent !== undefined) return codeLimitOf?.(caller.session).enter(patience) ?? NO_SLOT;
  return andThen(concurrencyLimitOf(caller.session).enter(patience), (leaveSession) => {
    const leaveBoth =
      (leaveProcess: () => void): (() => void) =>
      () => {
        leaveProcess();
        leaveSession();
      };
    try {
      const entering = processGate.enter(shareOf(caller), patience);
      if (!(entering instanceof Promise)) return leaveBoth(entering);
      return entering.then(leaveBoth, (thrown: unknown) => giveUp(thrown, leaveSession));
    } catch (thrown) {
      return giveUp(thrown, leaveSession);
    }
  });
}

/**
 * Returns who shares places and budgets of sessions with the caller. An owner's host acts for many origins as one
 * principal; each origin counts separately. Ids contain no line break.
 */
function shareOf({ session, principal: { id, origin } }: Caller): string {
  return session.onBehalf === true ? `${id}\n${origin}` : id;
}

const NO_SLOT = (): void => undefined;

function giveUp(thrown: unknown, releaseSlot: () => void): never {
  releaseSlot();
  throw thrown;
}

function leaseRequest(
  deps: ReserveDependencies,
  { start, caller, allowed: { lowered, decision, preconditions } }: ReserveRequest,
  { limits, patience }: { readonly limits: CallLimits; readonly patience: WaitLimit },
): LeaseRequest {
  const { budgets } = decision.obligations;
  return {
    budgets: preconditions.budgets.length === 0 ? budgets : [...budgets, ...preconditions.budgets],
    keys: budgetKeys(deps, lowered, caller),
    argBytes: start.argBytes,
    maxOutputBytes: limits.cap.bytes,
    maxWallMs: limits.hardTimeoutMs,
    ...patience,
  };
}

function recordIntent(
  deps: ReserveDependencies,
  { start, caller, allowed }: ReserveRequest,
  { limits, lease, releaseSlot }: Pick<ReservedCall, 'limits' | 'lease' | 'releaseSlot'>,
): ReservedCall {
  try {
    const known = { start, caller, exposed: allowed.lowered.exposed, judged: allowed };
    const factsText = callFactsText(known, deps.digest);
    const intent = intentRecord(allowed, start.argBytes) + deps.factNames(allowed.lowered);
    const recorded = deps.audit.appendCall(intent, factsText);
    return { limits: limitsWithin(lease, limits), factsText, lease, releaseSlot, recorded };
  } catch (thrown) {
    lease.settle({ outputBytes: 0, wallMs: 0 });
    throw thrown;
  }
}

/** Replaces the reservation by the real use and frees the slot. Does nothing for a call that reserved nothing. */
export function settle(reserved: ReservedCall | undefined, used: BudgetUse): void {
  reserved?.lease.settle(used);
  reserved?.releaseSlot();
}

/** Obligations can only tighten what the configuration allows. */
function callLimits(caps: CallCaps, lowered: LoweredCall, obligations: Obligations): CallLimits {
  const cap = { bytes: capOf('bytes', caps, obligations), lines: capOf('lines', caps, obligations) };
  const longest = Math.min(obligations.timeoutMs ?? Infinity, caps.timeoutMs ?? Infinity);
  return {
    cap,
    timeoutMs: Math.min(lowered.timeoutMs, longest),
    hardTimeoutMs: Math.min(lowered.hardTimeoutMs, longest),
  };
}

/** The policy repeats the cap of the profile. Only a stricter one, of a rule, is about results for code as well. */
function capOf(unit: keyof Cap, caps: CallCaps, obligations: Obligations): number {
  const cap = Math.min(caps[unit], obligations.caps[unit] ?? caps[unit]);
  return caps.forCode !== undefined && cap === caps[unit] ? caps.forCode[unit] : cap;
}

/** A budget that is nearly spent grants less than the cap. */
function limitsWithin(lease: Lease, limits: CallLimits): CallLimits {
  const { cap, timeoutMs, hardTimeoutMs } = limits;
  if (lease.outputBytes >= cap.bytes && lease.wallMs >= Math.max(timeoutMs, hardTimeoutMs)) return limits;
  return {
    cap: { lines: cap.lines, bytes: Math.min(cap.bytes, lease.outputBytes) },
    timeoutMs: Math.min(timeoutMs, lease.wallMs),
    hardTimeoutMs: Math.min(hardTimeoutMs, lease.wallMs),
  };
}

/**
 * Returns the keys that budgets count by. A run that a client names counts with its session: a new name must not renew
 * a budget.
 */
function budgetKeys(
  { runs }: Pick<ReserveDependencies, 'runs'>,
  { effect: { server, tool } }: LoweredCall,
  caller: Caller,
): BudgetKeys {
  const { run, session, principal } = caller;
  const { id, origin } = principal;
  return {
    run: runs.isOwned(principal, run) ? run : session.id,
    session: session.id,
    principal: id,
    server,
    tool: `${server}.${tool}`,
    origin,
    sessions: shareOf(caller),
  };
}
