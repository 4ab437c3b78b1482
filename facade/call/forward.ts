/** Stage 6, forward: sends the call to its server, and finds out whether it ran. */
import { type CallerIdentity, type ServerAnswer, type UpstreamCall, UpstreamError } from '../../adapters/port.ts';
import { type CancelSignal, cancelReason } from '../../adapters/rpc/cancellation.ts';
import { sizeOfDoc } from '../../adapters/rpc/wire-message.ts';
import { OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { whileInPlace } from '../../catalogs/readers/path-handles.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import { isOwnKey } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Policy } from '../../policies/port.ts';
import type { OutcomeEntry } from '../audit/audit-entry.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import type { Identify } from '../internal-servers/caller-identity.ts';
import { markExactNumbers } from '../output/exact-numbers.ts';
import type { LogCounts } from '../output/server-messages.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { RequestTrace } from '../serve/request-trace.ts';
import type { AllowedCall } from './decide.ts';
import type { Caller } from './identify.ts';
import { type ReadScope, type ReadScopeDependencies, readScopeOf } from './read-scope.ts';
import type { CallLimits } from './reserve.ts';
import { joinLabels, type RunLabels } from './run-labels.ts';
import { openServerChannel, type ServerChannel, type ServerChannelDependencies } from './server-channel.ts';

/** What stage 6 needs. */
export interface ForwardDependencies extends ReadScopeDependencies, ServerChannelDependencies {
  readonly identify: Identify;
  readonly labels: Pick<RunLabels, 'join'>;
  readonly now: () => number;
}

/** A call whose intent is recorded. */
export interface ForwardRequest {
  readonly policy: Policy;
  readonly caller: Caller;
  readonly table: NameTable;
  /** The tool as it was resolved: a search may find files of another server. */
  readonly exposed: ExposedTool;
  readonly allowed: AllowedCall;
  readonly limits: CallLimits;
  readonly request: CallRequest;
  readonly trace?: RequestTrace | undefined;
}

/** The facts of stage 6. Exactly one of `answer` and `failure` is present. */
export interface ForwardedCall {
  /** Whether the server ran the call; `unknown` after a crash or a timeout. */
  readonly executed: OutcomeEntry['executed'];
  readonly upstreamMs?: number | undefined;
  readonly rawBytes?: number | undefined;
  /** For a server of this process: whose entries it was asked for. */
  readonly scope?: CallerIdentity['scope'] | undefined;
  readonly answer?: ServerAnswer | undefined;
  readonly failure?: unknown;
  /** Log messages of the server that reached the client. */
  readonly logs?: LogCounts | undefined;
}

/** Returns the server's answer. Throws the failure of a call that has none. */
export function serverAnswer({ answer, failure }: ForwardedCall): ServerAnswer {
  if (answer === undefined) throw failure;
  return answer;
}

/**
 * Sends the call. Labels are added to the run before the server is reached, because its progress and errors are its
 * data as well. Never throws: `failure` is what the adapter or a late refusal (a stop, a revocation) threw. Never
 * retries.
 */
export async function forward(deps: ForwardDependencies, call: ForwardRequest): Promise<ForwardedCall> {
  const { caller, table, allowed } = call;
  const { lowered, decision } = allowed;
  let scope: ForwardedCall['scope'];
  let sentAt: number | undefined;
  let upstreamMs: number | undefined;
  let raw: ServerAnswer | undefined;
  call.trace?.enter('forward');
  const channel = openServerChannel(deps, { caller, server: lowered.exposed.server, request: call.request });
  try {
    const readScope = readScopeOf(deps, call);
    const labels = joinLabels(lowered.labels, decision.obligations.labels);
    if (labels.length > 0) await deps.labels.join(caller.session, caller.run, labels);
    const identity = lowered.exposed.server.inProcess === true ? await deps.identify(caller, table) : undefined;
    scope = identity?.scope;
    // A stop or a revocation may have come while the call waited for its turn or its budget.
    const refreshing = deps.refresh();
    if (refreshing !== undefined) await refreshing;
    const { effect, args } = lowered;
    deps.preconditions.judge({ caller, effect, args });
    const recheck = async (): Promise<void> => {
      await deps.refresh();
      deps.preconditions.judge({ caller, effect, args });
    };
    const { server, tool } = effect;
    call.request.onForward?.({ decision: caller.decision, server, tool, recheck });
    sentAt = deps.now();
    raw = await send(call, readScope, { identity, channel });
    upstreamMs = deps.now() - sentAt;
    // A server of this process may not notice that its call was ended.
    if (isEnded(call.request.signal)) throw cancelReason(call.request.signal);
    if (raw.labels !== undefined) await deps.labels.join(caller.session, caller.run, raw.labels);
    const rawBytes = sizeOfDoc(raw);
    if (rawBytes > LARGE_INPUT_BYTES) await ownEventLoopTurn();
    return { executed: 'yes', upstreamMs, rawBytes, scope, answer: withMarkedNumbers(raw), logs: channel.logs() };
  } catch (thrown) {
    const failure = await channel.judge(thrown);
    if (sentAt !== undefined) upstreamMs ??= deps.now() - sentAt;
    const executed = raw !== undefined ? 'yes' : executedAfter(failure, sentAt !== undefined);
    return { executed, upstreamMs, rawBytes: raw && sizeOfDoc(raw), scope, failure, logs: channel.logs() };
  }
}

function send(
  { caller, allowed: { lowered }, limits, request, trace }: ForwardRequest,
  { mayRead, confinement, outsideFolders }: ReadScope,
  { identity, channel }: { readonly identity: CallerIdentity | undefined; readonly channel: ServerChannel },
): Promise<ServerAnswer> {
  const { destination, pathHandles, effect } = lowered;
  if (destination.kind === 'own') return destination.answer(limits);
  const { taskSupport } = destination;
  const call: UpstreamCall = {
    method: destination.method,
    tool: destination.tool,
    args: destination.args,
    id: caller.decision,
    scope: caller.session.id,
    profiles: caller.principal.profiles,
    run: caller.run,
    signal: request.signal,
    timeoutMs: limits.timeoutMs,
    hardTimeoutMs: limits.hardTimeoutMs,
    cap: limits.cap,
    meta: sentMeta(request.meta, lowered.exposed.server, trace),
    onSent: trace && ((id, session) => trace.sent(id, session)),
    pathHandles: destination.kind === 'backend' ? pathHandles : undefined,
    mayRead,
    outsideFolders,
    confinement,
    identity,
    asTask: taskSupport === 'required' || (taskSupport === 'optional' && request.onTask !== undefined),
    onTask: request.onTask,
    onProgress: request.onProgress,
    clientCapabilities: channel.clientCapabilities,
    onRequest: channel.onRequest,
    onLog: channel.onLog,
    logLevel: channel.logLevel,
  };
  return destination.kind === 'backend'
    ? destination.server.call(call)
    : whileInPlace(pathHandles, effect.verb, () => destination.server.call(call));
}

/** Returns whether a suspension ended the call. A caller that cancelled gets no answer anyway. */
function isEnded(signal: CancelSignal): boolean {
  return signal.aborted && cancelReason(signal).code === 'SUSPENDED';
}

function executedAfter(failure: unknown, isSent: boolean): ForwardedCall['executed'] {
  if (!isSent) return 'no';
  if (failure instanceof UpstreamError) return 'yes';
  if (!(failure instanceof TollgateError)) return 'unknown';
  if (NOT_SENT.has(failure.code)) return 'no';
  return ANSWERED.has(failure.code) ? 'yes' : 'unknown';
}

/** Codes of failures after the server answered. Those of code: its calls have records of their own. */
const ANSWERED: ReadonlySet<string> = new Set([
  'CODE_SYNTAX',
  'CODE_FAILED',
  'CODE_LIMIT',
  'CODE_CRASHED',
  'CODE_DIVERGED',
  'APPROVAL_REQUIRED',
  'UPSTREAM_REQUEST_DENIED',
  'URL_ELICITATION_DENIED',
  'CLIENT_CAPABILITY',
]);
/** Codes with which an adapter says that it sent nothing. */
const NOT_SENT: ReadonlySet<string> = new Set([
  ...OWNER_CORRECTABLE,
  'SERVER_UNAVAILABLE',
  'SWITCHED_OFF',
  'INIT_FAILED',
  'NOT_SUPPORTED',
  'ARGS_INVALID',
  'PIN_MISMATCH',
  'UNKNOWN_TOOL',
  'BUDGET_EXCEEDED',
]);

/**
 * Later stages work on parsed values, where a number that a double would round is a marked string (see
 * exact-numbers.ts).
 */
function withMarkedNumbers(raw: ServerAnswer): ServerAnswer {
  if (raw.exact) return raw;
  const text = markExactNumbers(raw.text);
  return { ...raw, text, value: JSON.parse(text) as ToolResult };
}

/**
 * Returns the `_meta` of a call for its server: that of the client without Tollgate's keys, and with the trace context
 * of this call. Baggage may name users, so it goes only to servers whose owner wants that.
 */
function sentMeta(
  meta: CallRequest['meta'],
  { trace: shares }: ServedServer,
  trace: RequestTrace | undefined,
): UpstreamCall['meta'] {
  const context = shares === undefined ? undefined : trace?.sending();
  if (meta === undefined) return context;
  const isDropped = (key: string): boolean =>
    isOwnKey(key) ||
    (key === 'baggage' && shares !== 'baggage') ||
    (context !== undefined && (key === 'traceparent' || key === 'tracestate'));
  return { ...Object.fromEntries(Object.entries(meta).filter(([key]) => !isDropped(key))), ...context };
}
