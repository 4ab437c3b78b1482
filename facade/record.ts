/** Owns what is written down of a call: intent before, outcome after, the decision alone where nothing ran; never a payload. */
import type { Identity } from '../adapters/port.ts';
import type { TollgateError } from '../catalogs/errors.ts';
import type { CallDecision, CallInput, Effect, Principal, Reason } from '../policies/port.ts';
import type { AuditObligations, AuditReason, BudgetEntry, CallFacts, DecisionEntry, IntentEntry, OutcomeEntry } from './audit/entry.ts';
import type { Shaped } from './output/shape.ts';
import type { Exposed } from './exposure.ts';
import type { Target } from './target.ts';
import type { Caller } from './session.ts';

/** What is known of a call so far; stages add to it, records read it. */
export interface Trace {
  readonly id: string;
  readonly principal: Principal;
  readonly session: string;
  readonly asked: string;
  readonly argBytes: number;
  readonly startedAt: number;
  readonly revision: string;
  caller?: Caller;
  exposed?: Exposed;
  target?: Target;
  /** What the policy is told beside the target. */
  input?: Omit<CallInput, 'effect' | 'argsText'>;
  decision?: CallDecision;
  /** Ids of the budgets beside those of the policy. */
  budgets?: readonly string[];
  /** Id of the approval or grant that answered an ask. */
  consent?: string | undefined;
  facts?: CallFacts;
  intended?: boolean;
  executed: 'no' | 'yes' | 'unknown';
  upstreamMs?: number;
  rawBytes?: number;
  /** Of a server that runs in this process: whose rows it was asked for, and how many it found. */
  whose?: Identity['scope'] | undefined;
  hits?: number | undefined;
  shaped?: Shaped;
  /** The server answered with a JSON-RPC error of its own. */
  serverError?: boolean;
}

/** The fields that every record of a call has; from the intent on they stay as they are. */
function factsOf(trace: Trace, digest: (text: string) => string): CallFacts {
  if (trace.facts !== undefined) return trace.facts;
  const effect = trace.target?.effect;
  const { id, role, profiles, origin } = trace.principal;
  return {
    id: trace.id,
    principal: { id, role, profiles, origin },
    session: trace.session,
    run: trace.caller?.run ?? trace.session,
    exposed: trace.exposed?.name ?? trace.asked,
    revision: trace.revision,
    ...(effect === undefined ? {} : { server: effect.server, tool: effect.tool, verb: effect.verb, effectDigest: effectDigest(effect, trace.target?.argsText ?? '', digest) }),
    ...(trace.consent === undefined ? {} : { consent: trace.consent }),
    ...(trace.decision === undefined ? {} : { reasons: trace.decision.reasons.map(place) }),
    ...(trace.decision === undefined || trace.decision.shadow.length === 0 ? {} : { shadow: trace.decision.shadow.map((reason) => ({ ...place(reason), would: reason.would, mode: reason.mode })) }),
  };
}

function place({ id, file, line }: Reason): AuditReason {
  return { id, ...(file === undefined ? {} : { file }), ...(line === undefined ? {} : { line }) };
}

/** Keyed, so that low-entropy arguments cannot be guessed from the log; equal effects give equal digests. */
export function effectDigest(effect: Effect, argsText: string, digest: (text: string) => string): string {
  return digest(JSON.stringify([effect, argsText]));
}

function obligationsOf({ decision, budgets: more = [] }: Pick<Trace, 'decision' | 'budgets'>): { obligations?: AuditObligations } {
  if (decision === undefined) return {};
  const { caps, timeoutMs, pins, budgets, labels } = decision.obligations;
  return { obligations: { ...caps, ...(timeoutMs === undefined ? {} : { timeoutMs }), pins: Object.keys(pins), budgets: [...budgets.map((budget) => budget.id), ...more], labels } };
}

/** Before the server is reached. */
export function intentRecord(trace: Trace, digest: (text: string) => string): IntentEntry {
  trace.facts = factsOf(trace, digest);
  return { type: 'intent', ...trace.facts, outcome: 'allow', ...obligationsOf(trace), sizes: { args: trace.argBytes } };
}

/** After all: an outcome where an intent stands, else the refusal by a budget or the decision without a call. */
export function endRecord(trace: Trace, end: { failure: TollgateError | undefined; now: number; digest: (text: string) => string }): OutcomeEntry | BudgetEntry | DecisionEntry {
  const code = end.failure?.code;
  const ms = end.now - trace.startedAt;
  const facts = factsOf(trace, end.digest);
  if (trace.intended === true) return { type: 'outcome', ...facts, ...(code === undefined ? {} : { code }), ms, outcome: end.failure === undefined ? 'allow' : 'error', ...outcomeFields(trace) };
  if (code === 'BUDGET_EXCEEDED' || code === 'RATE_LIMITED') return { type: 'budget', ...facts, code, ms, outcome: 'deny', ...budgetFields(end.failure?.data ?? {}) };
  return { type: 'decision', ...facts, ...(code === undefined ? {} : { code }), ms, outcome: outcomeOf(code), ...(trace.decision === undefined && reasonsOf(end.failure)), ...obligationsOf(trace), sizes: { args: trace.argBytes } };
}

/** Of a refusal that came before the policy: what an owner has not added is a reason too. */
function reasonsOf(failure: TollgateError | undefined): Pick<DecisionEntry, 'reasons'> {
  const reasons = failure?.data['reasons'];
  return Array.isArray(reasons) ? { reasons: reasons.map(({ id }: Reason) => ({ id })) } : {};
}

function outcomeFields(trace: Trace): Pick<OutcomeEntry, 'executed' | 'sizes' | 'cut' | 'isError' | 'redactions' | 'escaped' | 'upstreamMs' | 'whose' | 'hits'> {
  const { shaped, rawBytes, upstreamMs, whose, hits } = trace;
  return {
    executed: trace.executed,
    ...(upstreamMs === undefined ? {} : { upstreamMs }),
    ...(whose === undefined ? {} : { whose }),
    ...(hits === undefined ? {} : { hits }),
    sizes: { args: trace.argBytes, ...(rawBytes === undefined ? {} : { raw: rawBytes }), ...(shaped === undefined ? {} : { sent: shaped.sent, spilled: shaped.spilled }) },
    ...(shaped === undefined ? {} : { cut: shaped.cut, isError: shaped.isError, redactions: shaped.redactions, escaped: shaped.escaped }),
    ...(trace.serverError === true ? { isError: true } : {}),
  };
}

function budgetFields(data: Readonly<Record<string, unknown>>): Pick<BudgetEntry, 'budget' | 'scope' | 'unit' | 'limit' | 'left'> {
  const text = (name: string): string => String(data[name] ?? '');
  const number = (name: string): number => Number(data[name] ?? 0);
  return { budget: text('budget'), scope: text('scope'), unit: text('unit'), limit: number('limit'), left: number('left') };
}

function outcomeOf(code: string | undefined): 'ask' | 'deny' | 'error' {
  if (code === 'APPROVAL_REQUIRED') return 'ask';
  return code === 'DENIED' || code === 'UNKNOWN_TOOL' ? 'deny' : 'error';
}
