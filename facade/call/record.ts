/**
 * Stage 9, record: the last record of a call, made from how it ended. A reply that cannot be recorded is not returned.
 */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { type CallEntry, callEntryText } from '../audit/audit-chain.ts';
import type { AuditReason, BudgetEntry } from '../audit/audit-entry.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { HiddenBy } from '../exposure/exposed-tool.ts';
import type { Redactor } from '../output/redactor.ts';
import type { ProgressCounts } from '../output/server-progress.ts';
import type { Reply } from '../serve/facade-port.ts';
import { callFactsText, type KnownCall, obligationsOf, reasonPlace } from './call-facts.ts';
import type { ForwardedCall } from './forward.ts';
import { refusalReply } from './refusal.ts';
import type { Shaped } from './shape.ts';

/** A call that no server was asked for. */
export interface RefusedCall extends KnownCall {
  readonly kind: 'refused';
  readonly error: TollgateError;
}

/** A call whose intent was recorded. */
export interface SentCall extends KnownCall {
  readonly kind: 'sent';
  readonly factsText: string;
  readonly forwarded: ForwardedCall;
  readonly shaped?: Shaped | undefined;
  /**
   * Present if the server answered with a JSON-RPC error: the size of that answer, which counts in budgets as a result
   * does.
   */
  readonly serverErrorBytes?: number | undefined;
  /** Progress notifications of the server, if the client asked for them. */
  readonly progress?: ProgressCounts | undefined;
  readonly error?: TollgateError | undefined;
}

/** How a call ended: the one source of its last record, its metrics, its event and its recording. */
export type EndedCall = RefusedCall | SentCall;

/** What stage 9 needs. */
export interface RecordDependencies {
  readonly audit: Pick<AuditLog, 'appendCall'>;
  /** Returns a keyed digest. */
  readonly digest: (text: string) => string;
  readonly redactor: Redactor;
  readonly now: () => number;
  /** Keeps decisions for replay. Absent if recording is off. */
  readonly recorder?: { note(end: EndedCall): void };
  /** Counts and logs the end of each call. Never throws. */
  readonly onEnd: (end: EndedCall) => void;
}

/**
 * Writes the last record of a call and returns its reply. A reply that cannot be recorded is replaced by a refusal.
 * Never throws.
 */
export async function record(deps: RecordDependencies, ended: EndedCall, reply: Reply): Promise<Reply> {
  let end = ended;
  let recorded = reply;
  try {
    const factsText = end.kind === 'sent' ? end.factsText : callFactsText(end, deps.digest);
    await deps.audit.appendCall(callEntryText(finalRecord(end, deps.now())), factsText);
  } catch (cause) {
    const executed = end.kind === 'sent' && end.forwarded.executed !== 'no';
    const error = new TollgateError(executed ? 'OUTCOME_UNRECORDED' : 'AUDIT_FAILED', { cause, data: { executed } });
    end = { ...end, error };
    recorded = refusalReply(error, { id: end.start.id, redactor: deps.redactor, correlation: end.caller?.correlation });
  }
  deps.recorder?.note(end);
  deps.onEnd(end);
  return recorded;
}

/** Returns the last record of a call: an outcome after an intent, otherwise the refusal by a budget or the decision. */
function finalRecord(end: EndedCall, now: number): CallEntry {
  const ms = now - end.start.startedAt;
  if (end.kind === 'sent') return outcomeRecord(end, ms);
  const { code, data } = end.error;
  if (code === 'BUDGET_EXCEEDED' || code === 'RATE_LIMITED')
    return { type: 'budget', code, ms, outcome: 'deny', ...budgetFields(data) };
  return {
    type: 'decision',
    code,
    ms,
    outcome: outcomeOf(code),
    reasons: end.judged?.decision === undefined ? reasonsOf(end.error) : undefined,
    obligations: obligationsOf(end.judged),
    sizes: { args: end.start.argBytes },
  };
}

/** Returns the reasons of a refusal before the policy was asked, such as a capability that an owner has not added. */
function reasonsOf({ cause, data }: TollgateError): readonly AuditReason[] | undefined {
  if (cause instanceof HiddenBy) return cause.reasons.map(reasonPlace);
  return Array.isArray(data.reasons) ? data.reasons.map(reasonPlace) : undefined;
}

function outcomeRecord(
  { start, forwarded, shaped, serverErrorBytes, progress, error }: SentCall,
  ms: number,
): CallEntry {
  const { executed, upstreamMs, rawBytes, scope, answer } = forwarded;
  return {
    type: 'outcome',
    code: error?.code,
    ms,
    outcome: error === undefined ? 'allow' : 'error',
    executed,
    upstreamMs,
    whose: scope,
    hits: answer?.hits,
    sizes: { args: start.argBytes, raw: rawBytes, sent: shaped?.sent, spilled: shaped?.spilled },
    cut: shaped?.cut,
    isError: serverErrorBytes !== undefined ? true : shaped?.isError,
    redactions: shaped?.redactions,
    escaped: shaped?.escaped,
    removed: shaped !== undefined && shaped.links > 0 ? shaped.links : undefined,
    progress: progress !== undefined && Object.values(progress).some((count) => count > 0) ? progress : undefined,
  };
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
