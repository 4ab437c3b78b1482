/** Owns what is written down of a call: intent before, outcome after, the decision alone where nothing ran; never a payload. */
import type { CallerIdentity } from '../../adapters/port.ts';
import type { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { CallDecision, CallInput, Effect, Principal, Reason } from '../../policies/port.ts';
import type { CallEntry, Unsealed, WithUndefined } from '../audit/audit-chain.ts';
import type { AuditObligations, AuditReason, BudgetEntry, CallFacts } from '../audit/audit-entry.ts';
import type { ExposedTool } from '../exposure/name-table.ts';
import { HiddenBy } from '../exposure/unknown-tool.ts';
import type { Shaped } from '../output/result-shape.ts';
import type { ProgressCounts, ServerProgress } from '../output/server-progress.ts';
import type { Caller } from './identify.ts';
import type { LoweredCall } from './lowering/lowered-call.ts';

/** What is known of a call so far; stages add to it, records read it. */
export interface CallTrace {
  readonly id: string;
  readonly principal: Principal;
  readonly session: string;
  readonly requestedName: string;
  readonly argBytes: number;
  readonly startedAt: number;
  readonly revision: string;
  caller?: Caller;
  exposed?: ExposedTool;
  lowered?: LoweredCall;
  /** What the policy is told. */
  input?: CallInput;
  decision?: CallDecision;
  /** Ids of the budgets beside those of the policy. */
  budgets?: readonly string[];
  /** Id of the approval or grant that answered an ask. */
  consent?: string | undefined;
  /** What all its records say, as text. */
  facts?: string;
  intended?: boolean;
  executed: 'no' | 'yes' | 'unknown';
  upstreamMs?: number;
  rawBytes?: number;
  /** Of a server that runs in this process: whose rows it was asked for, and how many it found. */
  whose?: CallerIdentity['scope'] | undefined;
  hits?: number | undefined;
  shaped?: Shaped;
  /** Absent where the client asked for no progress. */
  progress?: ServerProgress;
  /** The server answered with a JSON-RPC error of its own. */
  serverError?: boolean;
  /** What that error brings to the client: it counts in budgets as a result does. */
  errorBytes?: number;
}

/** The text of what every record of a call says. It is made for the first of them, and stays as it is. */
export function callFactsText(trace: CallTrace, digest: (text: string) => string): string {
  return (trace.facts ??= JSON.stringify(gatherFacts(trace, digest)));
}

function gatherFacts(
  {
    id,
    principal,
    session,
    caller,
    exposed,
    requestedName: asked,
    revision,
    lowered: target,
    consent,
    decision,
  }: CallTrace,
  digest: (text: string) => string,
): WithUndefined<Unsealed<CallFacts>> {
  const effect = target?.effect;
  return {
    id,
    principal: { id: principal.id, role: principal.role, profiles: principal.profiles, origin: principal.origin },
    session,
    run: caller?.run ?? session,
    correlation: caller?.correlation,
    exposed: exposed?.name ?? asked,
    revision,
    server: effect?.server,
    tool: effect?.tool,
    verb: effect?.verb,
    effectDigest: effect === undefined ? undefined : effectDigest(effect, target?.argsText ?? '', digest),
    consent,
    reasons: decision?.reasons.map(place),
    shadow:
      decision === undefined || decision.shadow.length === 0
        ? undefined
        : decision.shadow.map((reason) => ({ ...place(reason), would: reason.would, mode: reason.mode })),
    parent: undefined,
  };
}

function place({ id, file, line }: Reason): AuditReason {
  if (file === undefined) return { id };
  return line === undefined ? { id, file } : { id, file, line };
}

/** Keyed, so that low-entropy arguments cannot be guessed from the log; equal effects give equal digests. */
export function effectDigest(effect: Effect, argsText: string, digest: (text: string) => string): string {
  return digest(JSON.stringify([effect, argsText]));
}

function obligationsOf({
  decision,
  budgets: more = [],
}: Pick<CallTrace, 'decision' | 'budgets'>): AuditObligations | undefined {
  if (decision === undefined) return undefined;
  const { caps, timeoutMs, pins, budgets, labels } = decision.obligations;
  return {
    bytes: caps.bytes,
    lines: caps.lines,
    timeoutMs,
    pins: Object.keys(pins),
    budgets: budgets.map((budget) => budget.id).concat(more),
    labels,
  };
}

/** Before the server is reached. */
export function intentRecord(trace: CallTrace): CallEntry {
  return { type: 'intent', outcome: 'allow', obligations: obligationsOf(trace), sizes: { args: trace.argBytes } };
}

/** After all: an outcome where an intent stands, else the refusal by a budget or the decision without a call. */
export function finalRecord(
  trace: CallTrace,
  { failure, now }: { readonly failure: TollgateError | undefined; readonly now: number },
): CallEntry {
  const code = failure?.code;
  const ms = now - trace.startedAt;
  if (trace.intended === true) return outcomeRecord(trace, code, ms);
  if (code === 'BUDGET_EXCEEDED' || code === 'RATE_LIMITED')
    return { type: 'budget', code, ms, outcome: 'deny', ...budgetFields(failure?.data ?? {}) };
  return {
    type: 'decision',
    code,
    ms,
    outcome: outcomeOf(code),
    reasons: trace.decision === undefined ? reasonsOf(failure) : undefined,
    obligations: obligationsOf(trace),
    sizes: { args: trace.argBytes },
  };
}

/** Of a refusal that came before the policy: what an owner has not added is a reason too. */
function reasonsOf(failure: TollgateError | undefined): readonly AuditReason[] | undefined {
  if (failure?.cause instanceof HiddenBy) return failure.cause.reasons.map(place);
  const reasons = failure?.data.reasons;
  return Array.isArray(reasons) ? reasons.map(place) : undefined;
}

function outcomeRecord(
  { shaped, rawBytes, upstreamMs, whose, hits, executed, argBytes, serverError, progress }: CallTrace,
  code: TollgateError['code'] | undefined,
  ms: number,
): CallEntry {
  return {
    type: 'outcome',
    code,
    ms,
    outcome: code === undefined ? 'allow' : 'error',
    executed,
    upstreamMs,
    whose,
    hits,
    sizes: { args: argBytes, raw: rawBytes, sent: shaped?.sent, spilled: shaped?.spilled },
    cut: shaped?.cut,
    isError: serverError === true ? true : shaped?.isError,
    redactions: shaped?.redactions,
    escaped: shaped?.escaped,
    ...(shaped !== undefined && shaped.links > 0 && { removed: shaped.links }),
    progress: progressOf(progress?.counts),
  };
}

/** Only what was done is written down. */
function progressOf(counts: ProgressCounts | undefined): ProgressCounts | undefined {
  return counts !== undefined && Object.values(counts).some((count) => count > 0) ? counts : undefined;
}

function budgetFields(
  data: Readonly<Record<string, unknown>>,
): Pick<BudgetEntry, 'budget' | 'scope' | 'unit' | 'limit' | 'left'> {
  const text = (name: string): string => String(data[name] ?? '');
  const number = (name: string): number => Number(data[name] ?? 0);
  return {
    budget: text('budget'),
    scope: text('scope'),
    unit: text('unit'),
    limit: number('limit'),
    left: number('left'),
  };
}

function outcomeOf(code: string | undefined): 'ask' | 'deny' | 'error' {
  if (code === 'APPROVAL_REQUIRED') return 'ask';
  return code === 'DENIED' || code === 'UNKNOWN_TOOL' ? 'deny' : 'error';
}
