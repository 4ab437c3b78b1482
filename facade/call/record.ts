/**
 * Stage 9, record: the last record of a call, made from how it ended. A reply that cannot be recorded is not returned.
 */
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonMember } from '../../catalogs/text/json-string.ts';
import { type CallEntry, type CallEntryText, callEntryText } from '../audit/audit-chain.ts';
import type { AuditReason, BudgetEntry, DecisionEntry } from '../audit/audit-entry.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import { HiddenBy } from '../exposure/exposed-tool.ts';
import type { Redactor } from '../output/redactor.ts';
import type { ProgressCounts } from '../output/server-progress.ts';
import type { Reply } from '../serve/facade-port.ts';
import { callFactsText, type KnownCall, obligationsOf, reasonPlace } from './call-facts.ts';
import type { FactNames } from './fact-names.ts';
import type { ForwardedCall } from './forward.ts';
import { refusalReply } from './refusal.ts';
import type { ReservedCall } from './reserve.ts';
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

/** What stages 5 to 7 left behind. */
interface CallEnd extends Pick<SentCall, 'shaped' | 'serverErrorBytes'> {
  readonly reserved: ReservedCall | undefined;
  readonly forwarded: ForwardedCall | undefined;
  readonly failure: unknown;
}

/** Returns how a call ended. A JSON-RPC error of the server is an answer, and no failure of the call. */
export function endedCall(
  { start, caller, exposed, judged, server, progress }: KnownCall & Pick<SentCall, 'progress'>,
  { reserved, forwarded, shaped, serverErrorBytes, failure }: CallEnd,
): EndedCall {
  if (reserved === undefined || forwarded === undefined)
    return { kind: 'refused', start, caller, exposed, judged, server, error: asTollgateError(failure) };
  const { factsText } = reserved;
  const error = failure === undefined || serverErrorBytes !== undefined ? undefined : asTollgateError(failure);
  return {
    kind: 'sent',
    start,
    caller,
    exposed,
    judged,
    factsText,
    forwarded,
    shaped,
    serverErrorBytes,
    progress,
    error,
  };
}

/** What stage 9 needs. */
export interface RecordDependencies {
  readonly audit: Pick<AuditLog, 'appendCall'>;
  /** Returns a keyed digest. */
  readonly digest: (text: string) => string;
  readonly redactor: Redactor;
  readonly now: () => number;
  /** Keeps decisions for replay. Absent if recording is off. */
  readonly recorder?: { note(end: EndedCall): string | undefined };
  readonly factNames: FactNames;
  /** Counts and logs the end of each call, and what is answered. Never throws. */
  readonly onEnd: (end: EndedCall, answered: Reply) => void;
}

/**
 * Writes the last record of a call and returns its reply. A reply that cannot be recorded is replaced by a refusal.
 * Never throws.
 */
export async function record(deps: RecordDependencies, ended: EndedCall, reply: Reply): Promise<Reply> {
  let end = ended;
  let answer = reply;
  try {
    const factsText = end.kind === 'sent' ? end.factsText : callFactsText(end, deps.digest);
    const recorded = deps.recorder?.note(end);
    const digest = recorded === undefined ? '' : `,"recorded":"${recorded}"`;
    await deps.audit.appendCall(finalRecordText(end, deps) + digest, factsText);
  } catch (cause) {
    const executed = end.kind === 'sent' && end.forwarded.executed !== 'no';
    const error = new TollgateError(executed ? 'OUTCOME_UNRECORDED' : 'AUDIT_FAILED', { cause, data: { executed } });
    end = { ...end, error };
    const { id, kind } = end.start;
    answer = refusalReply(error, { id, kind, redactor: deps.redactor, correlation: end.caller?.correlation });
  }
  deps.onEnd(end, answer);
  return answer;
}

/**
 * Returns the text of the last record of a call: an outcome after an intent, otherwise the refusal by a budget or the
 * decision.
 */
function finalRecordText(end: EndedCall, { now, factNames }: RecordDependencies): CallEntryText {
  const ms = now() - end.start.startedAt;
  if (end.kind === 'sent') return outcomeText(end, ms);
  return callEntryText(refusalRecord(end, ms)) + factNames(end.judged?.lowered);
}

function refusalRecord(end: RefusedCall, ms: number): CallEntry {
  const { code, data } = end.error;
  if (code === 'BUDGET_EXCEEDED' || code === 'RATE_LIMITED')
    return { type: 'budget', code, ms, outcome: 'deny', ...budgetFields(data) };
  return {
    type: 'decision',
    code,
    ms,
    outcome: outcomeOf(end.error),
    reasons: end.judged?.decision === undefined ? reasonsOf(end.error) : undefined,
    obligations: obligationsOf(end.judged),
    sizes: { args: end.start.argBytes },
    ...refusalIn(end.error),
  };
}

/** Returns why the server could not be used, if Tollgate or a person refused it. */
function refusalIn({ code, data }: TollgateError): Pick<DecisionEntry, 'refusal'> {
  if (code === 'SERVER_UNAVAILABLE' && data.killed === true) return { refusal: 'killed' };
  return typeof data.refusal === 'string' ? { refusal: data.refusal } : {};
}

/** Returns the reasons of a refusal before the policy was asked, such as a capability that an owner has not added. */
function reasonsOf({ cause, data }: TollgateError): readonly AuditReason[] | undefined {
  if (cause instanceof HiddenBy) return cause.reasons.map(reasonPlace);
  return Array.isArray(data.reasons) ? data.reasons.map(reasonPlace) : undefined;
}

/** Returns the text of an `OutcomeEntry` without its facts. Nearly every call has one, so no object is made for it. */
function outcomeText(
  { start, forwarded, shaped, serverErrorBytes, progress, error }: SentCall,
  ms: number,
): CallEntryText {
  const { executed, upstreamMs, rawBytes, scope, answer, logs } = forwarded;
  const counts = progress !== undefined && Object.values(progress).some((count) => count > 0) ? progress : undefined;
  const result = error === undefined ? '"allow"' : `"error"${jsonMember('refusal', refusalIn(error).refusal)}`;
  const sizes = `{"args":${start.argBytes}${jsonMember('raw', rawBytes)}`;
  return (
    `"type":"outcome"${jsonMember('code', error?.code)},"ms":${ms},"outcome":${result},"executed":"${executed}"` +
    jsonMember('upstreamMs', upstreamMs) +
    (scope === undefined ? '' : `,"whose":${JSON.stringify(scope)}`) +
    jsonMember('hits', answer?.hits) +
    (shaped === undefined ? `,"sizes":${sizes}}` : shapedMembers(shaped, sizes)) +
    jsonMember('isError', serverErrorBytes !== undefined ? true : shaped?.isError) +
    (counts === undefined ? '' : `,"progress":${JSON.stringify(counts)}`) +
    (logs === undefined ? '' : `,"logs":${JSON.stringify(logs)}`)
  );
}

function shapedMembers(shaped: Shaped, sizes: string): string {
  const { sent, spilled, cut, redactions, escaped, links, action, isFallback } = shaped;
  return (
    `,"sizes":${sizes},"sent":${sent},"spilled":${spilled}},"cut":${cut},"redactions":${redactions}` +
    `,"escaped":${escaped}${jsonMember('removed', links > 0 ? links : undefined)}` +
    jsonMember('action', action) +
    jsonMember('fallback', isFallback)
  );
}

function budgetFields(
  data: Readonly<Record<string, unknown>>,
): Pick<BudgetEntry, 'budget' | 'scope' | 'unit' | 'limit' | 'left' | 'window' | 'resetsAt'> {
  const text = (name: string): string => String(data[name] ?? '');
  const number = (name: string): number => Number(data[name] ?? 0);
  return {
    budget: text('budget'),
    scope: text('scope'),
    unit: text('unit'),
    limit: number('limit'),
    left: number('left'),
    ...(data.window === undefined ? {} : { window: number('window') }),
    ...(data.resetsAt === undefined ? {} : { resetsAt: text('resetsAt') }),
  };
}

function outcomeOf({ code, cause }: TollgateError): 'ask' | 'deny' | 'error' {
  if (code === 'APPROVAL_REQUIRED') return 'ask';
  return code === 'DENIED' || code === 'UNKNOWN_TOOL' || cause instanceof HiddenBy ? 'deny' : 'error';
}
