/** The path of a call: nine stages in order, and the only place that catches what they throw. */
import { UpstreamError } from '../../adapters/port.ts';
import { errorJson } from '../../adapters/rpc/wire-message.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import type { Operation } from '../operations/operation.ts';
import type { CallRequest, Reply } from '../serve/facade-port.ts';
import type { RequestTrace } from '../serve/request-trace.ts';
import { type ClientChannelDependencies, openClientChannel } from './client-channel.ts';
import { allowedCall, type DecideDependencies, decide, type JudgedCall } from './decide.ts';
import { type ForwardDependencies, type ForwardedCall, forward, serverAnswer } from './forward.ts';
import { type Caller, callStart, identify, type OpenSession } from './identify.ts';
import { endedCall, type RecordDependencies, record } from './record.ts';
import { failureAfterInterruption, refusalReply } from './refusal.ts';
import { type CallCaps, type ReserveDependencies, type ReservedCall, reserve, settle } from './reserve.ts';
import { type ResolveDependencies, type ResolvedTool, refusedServer } from './resolve.ts';
import type { ShapeDependencies, Shaped } from './shape.ts';

/**
 * What the stages need together; each stage declares its own part. A call reads `policy` once, so that it keeps its
 * revision.
 */
export type CallDependencies = ClientChannelDependencies &
  ResolveDependencies &
  DecideDependencies &
  ReserveDependencies &
  ForwardDependencies &
  ShapeDependencies &
  RecordDependencies & {
    readonly policy: () => Policy;
    /** Returns the caps of a principal's profiles. */
    readonly capsOf: (principal: Principal) => CallCaps;
    readonly newId: () => string;
    /** Begins to follow a request that is made during a call. Absent while telemetry is off. */
    readonly followInner?: ((request: CallRequest) => RequestTrace | undefined) | undefined;
  };

/**
 * Runs one request of a session through the nine stages of docs/request-path.md. `operation` says what differs between
 * methods of MCP. Never throws.
 */
export async function perform(
  deps: CallDependencies,
  { session, operation }: { readonly session: OpenSession; readonly operation: Operation },
  asked: CallRequest,
): Promise<Reply> {
  const policy = deps.policy();
  const start = callStart(deps, { session, kind: operation.kind, revision: policy.revision }, asked);
  const running = session.calls.begin(asked.signal);
  const { request, progress, hidePaths } = openClientChannel(deps, { ...asked, signal: running.signal });
  const trace = asked.trace ?? deps.followInner?.(asked);
  trace?.begin(start.id);
  let caller: Caller | undefined;
  let resolved: ResolvedTool | undefined;
  let judged: JudgedCall | undefined;
  let reserved: ReservedCall | undefined;
  let forwarded: ForwardedCall | undefined;
  let shaped: Shaped | undefined;
  let reply: Reply;
  let failure: unknown;
  try {
    caller = identify(session, request, start); // 1 identify
    const resolving = operation.resolve(deps, caller, request); // 2 resolve
    resolved = resolving instanceof Promise ? await resolving : resolving;
    const { table, exposed } = resolved;
    const bound = operation.bind(request.args, exposed.args); // 3 validate
    const judging = decide(deps, { operation, policy, caller, exposed, bound, request, trace }); // 4 decide
    judged = judging instanceof Promise ? await judging : judging;
    const allowed = allowedCall(judged);
    const caps = deps.capsOf(caller.principal);
    trace?.enter('reserve');
    const reserving = reserve(deps, { start, caller, allowed, caps, signal: request.signal }); // 5 reserve
    reserved = reserving instanceof Promise ? await reserving : reserving;
    await reserved.recorded;
    const { limits } = reserved;
    forwarded = await forward(deps, { policy, caller, table, exposed, allowed, limits, request, trace }); // 6 forward
    const answer = serverAnswer(forwarded);
    const answered = { caller, table, allowed, answer, caps, limits, request, hidePaths };
    trace?.enter('shape');
    const shaping = operation.shape(deps, answered); // 7 shape
    shaped = shaping instanceof Promise ? await shaping : shaping;
    reply = { kind: 'result', text: shaped.text, ...(shaped.enveloped && { enveloped: true }) };
  } catch (thrown) {
    failure = failureAfterInterruption(thrown, request.signal, forwarded?.executed ?? 'no');
    const { redactor } = deps;
    const { correlation } = caller ?? {};
    reply = refusalReply(failure, { id: start.id, redactor, hidePaths, kind: operation.kind, correlation });
  }
  const serverErrorBytes =
    failure instanceof UpstreamError && reply.kind === 'error' ? Buffer.byteLength(errorJson(reply.error)) : undefined;
  const outputBytes = shaped?.sent ?? serverErrorBytes ?? 0;
  trace?.enter('settle');
  settle(reserved, { outputBytes, wallMs: forwarded?.upstreamMs ?? 0 }); // 8 settle
  judged?.lowered?.pathHandles.close();
  progress?.end();
  running.end();
  const exposed = judged?.lowered?.exposed ?? resolved?.exposed;
  const server =
    judged?.lowered === undefined ? refusedServer(deps, operation, { exposed, session, asked }) : undefined;
  const known = { start, caller, exposed, judged, server, progress: progress?.counts };
  const end = endedCall(known, { reserved, forwarded, shaped, serverErrorBytes, failure });
  return await record(deps, end, reply); // 9 record
}
