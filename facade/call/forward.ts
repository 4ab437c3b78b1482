/** Owns what one call may take and how it goes to its server; refuses to widen what the configuration allows. */

import { type ServerAnswer, UpstreamError } from '../../adapters/port.ts';
import { OWNER_CORRECTABLE, TollgateError } from '../../catalogs/errors/error-table.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn } from '../../catalogs/text/time-slices.ts';
import { isOwnKey } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Obligations } from '../../policies/port.ts';
import type { BudgetKeys, Lease } from '../budget/budgets.ts';
import type { CapsConfig } from '../config/config.ts';
import type { NameTable } from '../exposure/name-table.ts';
import { markExactNumbers } from '../output/exact-numbers.ts';
import type { Cap } from '../output/text-cut.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import type { Runs } from '../serve/host/host-runs.ts';
import type { CallDependencies } from './call.ts';
import type { Caller, OpenSession } from './identify.ts';
import type { LoweredCall } from './lowering/lowered-call.ts';
import type { readScopeOf } from './read-scope.ts';
import type { CallTrace } from './record.ts';

/** What one call may take. Milliseconds. */
export interface CallLimits {
  readonly cap: Cap;
  readonly timeoutMs: number;
  readonly hardTimeoutMs: number;
}

/** Obligations tighten; they never widen what the configuration allows. */
export function callLimitsOf(caps: CapsConfig, target: LoweredCall, obligations: Obligations): CallLimits {
  const cap = {
    bytes: Math.min(caps.bytes, obligations.caps.bytes ?? caps.bytes),
    lines: Math.min(caps.lines, obligations.caps.lines ?? caps.lines),
  };
  const bound = Math.min(obligations.timeoutMs ?? Infinity, caps.timeoutMs ?? Infinity);
  return { cap, timeoutMs: Math.min(target.timeoutMs, bound), hardTimeoutMs: Math.min(target.hardTimeoutMs, bound) };
}

/** A budget that is nearly spent grants less than the cap; the reply keeps to it. */
export function limitsGrantedBy(lease: Lease, limits: CallLimits): CallLimits {
  return {
    ...limits,
    cap: { ...limits.cap, bytes: Math.min(limits.cap.bytes, lease.outputBytes) },
    timeoutMs: Math.min(limits.timeoutMs, lease.wallMs),
    hardTimeoutMs: Math.min(limits.hardTimeoutMs, lease.wallMs),
  };
}

/** What budgets count by. A run that a client names counts with its session: a new name must not refresh a budget. */
export function budgetKeysOf(
  trace: CallTrace,
  { run, session, principal }: Caller,
  runs: Pick<Runs, 'isOwned'>,
): BudgetKeys {
  const effect = trace.lowered?.effect;
  const server = effect?.server ?? '';
  const { id, origin } = principal;
  return {
    run: runs.isOwned(principal, run) ? run : session.id,
    session: session.id,
    principal: id,
    server,
    tool: `${server}.${effect?.tool ?? ''}`,
    origin,
    // An owner's host speaks for many origins as one principal; each of them is counted by itself. Ids hold no line end.
    sessions: session.onBehalf === true ? `${id}\n${origin}` : id,
  };
}

/** A call that may be made. */
interface Sending {
  readonly session: OpenSession;
  readonly request: CallRequest;
  readonly trace: CallTrace;
  readonly target: LoweredCall;
  readonly table: NameTable;
  readonly limits: CallLimits;
  readonly sight: ReturnType<typeof readScopeOf>;
}

/** Stage 6: sends the call, and notes whether it has run and what it found. The run carries the labels of it from then on. Throws what the adapter throws. */
export async function forwardCall(
  deps: Pick<CallDependencies, 'now' | 'fresh' | 'preconditions' | 'identify' | 'labels'>,
  call: Sending,
): Promise<ServerAnswer> {
  const { session, request, trace, target, table, limits, sight } = call;
  const { caller, exposed } = trace;
  const identity =
    caller === undefined || exposed?.server.inProcess !== true ? undefined : await deps.identify(caller, table);
  trace.whose = identity?.scope;
  // A stop or a revocation that came while the call waited for its turn or its budget.
  await deps.fresh();
  if (caller !== undefined) deps.preconditions.judge({ caller, effect: target.effect, args: target.args });
  const began = deps.now();
  trace.executed = 'unknown';
  try {
    const raw = await target.send(
      {
        id: trace.id,
        scope: session.id,
        signal: request.signal,
        timeoutMs: limits.timeoutMs,
        hardTimeoutMs: limits.hardTimeoutMs,
        cap: limits.cap,
        ...sight,
        ...(identity === undefined ? {} : { identity }),
        ...(request.meta === undefined ? {} : { meta: withoutOurs(request.meta) }),
        ...(request.onProgress === undefined ? {} : { onProgress: request.onProgress }),
      },
      limits.cap,
    );
    trace.executed = 'yes';
    trace.rawBytes = Buffer.byteLength(raw.text);
    trace.hits = raw.hits;
    if (raw.labels !== undefined && caller !== undefined) await deps.labels.join(session, caller.run, raw.labels);
    if (raw.text.length > LARGE_INPUT_BYTES) await ownEventLoopTurn();
    // What follows works on parsed values: a number that a double would round stands there as a marked string (see shape).
    return raw.exact ? raw : held(raw);
  } catch (thrown) {
    if (thrown instanceof UpstreamError || (thrown instanceof TollgateError && ANSWERED.has(thrown.code)))
      trace.executed = 'yes';
    if (thrown instanceof TollgateError && NOT_SENT.has(thrown.code)) trace.executed = 'no';
    throw thrown;
  } finally {
    trace.upstreamMs = deps.now() - began;
  }
}

/** Refusals of what the server answered. */
const ANSWERED: ReadonlySet<string> = new Set(['UPSTREAM_REQUEST_DENIED', 'URL_ELICITATION_DENIED']);
/** Refusals of an adapter that say that nothing was sent. */
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

function held(raw: ServerAnswer): ServerAnswer {
  const text = markExactNumbers(raw.text);
  return { ...raw, text, value: JSON.parse(text) as ToolResult };
}

function withoutOurs(meta: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(meta).filter(([key]) => !isOwnKey(key)));
}
