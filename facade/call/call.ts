/** Owns one tools/call: nine stages, one try; refuses by throwing one error type, and answers nothing that is not recorded. */
import { abortable, type JsonDoc, UpstreamError } from '../../adapters/port.ts';
import { asTollgateError, TollgateError } from '../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Validator } from '../../catalogs/validation/argument-validation.ts';
import type { Policy, Principal } from '../../policies/port.ts';
import { isoTime } from '../audit/audit-chain.ts';
import type { AuditLog } from '../audit/audit-log.ts';
import type { Recorder } from '../audit/recording/recorder.ts';
import type { Budgets, ConcurrencyLimit, Lease } from '../budget/budgets.ts';
import type { CapsConfig } from '../config/config.ts';
import type { Approvals } from '../consent/approvals/approval-port.ts';
import { mergeProgress } from '../consent/approvals/approval-wait.ts';
import type { Grants } from '../consent/grants/grant-store.ts';
import type { RunPlans } from '../consent/plan-mode.ts';
import type { Preconditions } from '../consent/preconditions.ts';
import type { ExposedTool, NameTable, NameTables } from '../exposure/name-table.ts';
import type { Identify } from '../internal-servers/caller-identity.ts';
import { checkMarkedNumbers, restoreExactNumbers } from '../output/exact-numbers.ts';
import { type HidePaths, hidePaths } from '../output/host-paths.ts';
import type { Redactor } from '../output/redactor.ts';
import { type Shaped, shapeResult } from '../output/result-shape.ts';
import { ServerProgress } from '../output/server-progress.ts';
import { READ_SPILL } from '../output/spill-tool.ts';
import type { Spills } from '../output/spills.ts';
import type { Metrics } from '../runtime/metrics/metrics.ts';
import type { CallRequest, Reply } from '../serve/facade-port.ts';
import type { Runs } from '../serve/host/host-runs.ts';
import { decide, warningMeta, warningNotes } from './decide.ts';
import { budgetKeysOf, callLimitsOf, forwardCall, limitsGrantedBy } from './forward.ts';
import { CORRELATION_KEY, identify, type OpenSession } from './identify.ts';
import { failureAfterInterruption } from './interruption.ts';
import type { WorkspaceFiles } from './lowering/workspace-files.ts';
import { readScopeOf } from './read-scope.ts';
import { type CallTrace, callFactsText, finalRecord, intentRecord } from './record.ts';
import { refusalReply } from './refusal.ts';
import type { RunLabels } from './run-labels.ts';
import { bindArguments } from './validate.ts';

/** What a call needs. Made once by facade/main.ts; `policy` is read once per call, so that a call keeps its revision. */
export interface CallDependencies {
  /** See State.fresh. */
  readonly fresh: () => Promise<void> | undefined;
  readonly files: WorkspaceFiles;
  readonly nameTables: NameTables;
  readonly policy: () => Policy;
  readonly budgets: Budgets;
  readonly labels: RunLabels;
  readonly plans: RunPlans;
  readonly runs: Runs;
  readonly grants: Grants;
  readonly metrics: Metrics;
  readonly identify: Identify;
  readonly preconditions: Preconditions;
  readonly approvals: Approvals;
  readonly concurrencyLimitOf: (session: OpenSession) => ConcurrencyLimit;
  readonly audit: AuditLog;
  /** Keyed digest for records. */
  readonly digest: (text: string) => string;
  readonly spills: Spills;
  readonly redactor: Redactor;
  /** Caps of a principal's profiles. */
  readonly capsOf: (principal: Principal) => CapsConfig;
  readonly now: () => number;
  readonly newId: () => string;
  /** Keeps decisions; absent when recording is off. */
  readonly recorder?: Recorder;
  /** Told of every end, for metrics and the log of the process. Never throws. */
  readonly onEnd: (trace: CallTrace, error: TollgateError | undefined) => void;
}

/** Runs one call through the nine stages of design §2. Never throws. */
export async function callTool(deps: CallDependencies, session: OpenSession, asked: CallRequest): Promise<Reply> {
  const policy = deps.policy();
  const trace: CallTrace = {
    id: deps.newId(),
    principal: session.principal,
    session: session.id,
    requestedName: asked.name,
    argBytes: Buffer.byteLength(asked.args.text),
    startedAt: deps.now(),
    revision: policy.revision,
    executed: 'no',
  };
  const { request, hide } = guard(asked, trace, deps);
  let lease: Lease | undefined;
  let release: (() => void) | undefined;
  let reply: Reply;
  let failure: TollgateError | undefined;
  try {
    const caller = (trace.caller = identify(session, request, { decision: trace.id, now: trace.startedAt })); // 1 identify
    const { table, exposed } = await abortable(
      deps.nameTables.resolve(caller.principal, request.name, session),
      request.signal,
    ); // 2 resolve
    checkPin(session, (trace.exposed = exposed));
    const given = bindArguments(request.args, exposed.args); // 3 validate
    const owner = { principal: caller.principal.id, run: caller.run };
    const place = { files: deps.files, spills: deps.spills, owner };
    const {
      lowered: target,
      lowered: { exposed: served },
      preconditions: standing,
      input,
      decision,
      bound,
    } = await decide(deps, { policy, trace, caller, exposed, bound: given, place, request }); // 4 decide
    const caps = deps.capsOf(caller.principal);
    const limits = callLimitsOf(caps, target, decision.obligations);
    const deadline = deps.now() + limits.timeoutMs;
    release = await deps.concurrencyLimitOf(session).enter({ signal: request.signal, deadline }); // 5 reserve
    lease = await deps.budgets.reserve({
      budgets: [...decision.obligations.budgets, ...standing.budgets],
      keys: budgetKeysOf(trace, caller, deps.runs),
      argBytes: trace.argBytes,
      maxOutputBytes: limits.cap.bytes,
      maxWallMs: limits.hardTimeoutMs,
      signal: request.signal,
      deadline,
    });
    deps.audit.appendCall(intentRecord(trace), callFactsText(trace, deps.digest));
    trace.intended = true;
    const granted = limitsGrantedBy(lease, limits);
    const sight = readScopeOf(deps, {
      policy,
      exposed,
      bound,
      place,
      input,
      caller,
      lowered: target,
      preconditions: standing,
    });
    const known = joinLabels(target.labels, decision.obligations.labels);
    if (known.length > 0) await deps.labels.join(session, caller.run, known);
    const raw = await forwardCall(deps, { session, request, trace, target, table, limits: granted, sight }); // 6 call
    const labels = joinLabels(known, raw.labels ?? []);
    const validateOutput = decision.obligations.validateOutput ?? served.server.validateOutput ?? caps.validateOutput;
    const { faults, ...judged } = judgeOutput(raw, served.entry?.output, validateOutput);
    const shaping = shapeResult(raw, {
      // 7 shape
      cap: granted.cap,
      mediaBytes: caps.media,
      headShare: target.headShare,
      redactor: deps.redactor,
      raw: request.meta?.['tollgate/raw'] === true,
      reader: table.reader,
      ownNotes: served.primitive !== undefined,
      hidePaths: isForeign(served) ? hide : undefined,
      spill: {
        put: (text) =>
          deps.spills.put(raw.exact ? text : restoreExactNumbers(text), owner, {
            effect: target.effect,
            labels,
            maxBytes: caps.spillBytes,
          }),
      },
      meta: {
        'tollgate/provenance': provenance(trace, served.server.adapter.info()?.version, deps.redactor),
        'tollgate/labels': labels.length > 0 ? labels : undefined,
        'tollgate/outputInvalid': faults > 0 ? faults : undefined,
        'tollgate/warnings': warningMeta(decision),
        [CORRELATION_KEY]: caller.correlation,
      },
      notes: [...bound.notes, ...warningNotes(decision)],
      ...judged,
    });
    reply = resultOf((trace.shaped = shaping instanceof Promise ? await shaping : shaping), table, session);
  } catch (fault) {
    const thrown = failureAfterInterruption(fault, request.signal, trace.executed);
    failure = failureOf(thrown, trace);
    reply = refusalReply(thrown, {
      id: trace.id,
      redactor: deps.redactor,
      hidePaths: hide,
      correlation: trace.caller?.correlation,
    });
    if (failure === undefined) trace.errorBytes = Buffer.byteLength(JSON.stringify(reply));
  } finally {
    lease?.settle({ outputBytes: trace.shaped?.sent ?? trace.errorBytes ?? 0, wallMs: trace.upstreamMs ?? 0 }); // 8 settle
    release?.();
    trace.lowered?.pathHandles.close();
  }
  return record(deps, trace, { reply, failure }); // 9 record
}

/** Undefined for the server's own error: the call was made. */
function failureOf(thrown: unknown, trace: CallTrace): TollgateError | undefined {
  trace.serverError = thrown instanceof UpstreamError;
  return trace.serverError ? undefined : asTollgateError(thrown);
}

/** After a cut, the list of this session shows the tool that reads on, where it is not `read`; the announcer tells the client. */
function resultOf(shaped: Shaped, { reader }: NameTable, session: OpenSession): Reply {
  if (shaped.spilled > 0 && reader === READ_SPILL) session.reads = READ_SPILL;
  return { kind: 'result', text: shaped.text };
}

/** What cannot be recorded is not returned. */
function record(
  deps: CallDependencies,
  trace: CallTrace,
  end: { reply: Reply; failure: TollgateError | undefined },
): Reply {
  let { reply, failure } = end;
  trace.progress?.end();
  try {
    deps.audit.appendCall(finalRecord(trace, { failure, now: deps.now() }), callFactsText(trace, deps.digest));
  } catch (cause) {
    failure = new TollgateError(trace.executed === 'no' ? 'AUDIT_FAILED' : 'OUTCOME_UNRECORDED', {
      cause,
      data: { executed: trace.executed !== 'no' },
    });
    reply = refusalReply(failure, { id: trace.id, redactor: deps.redactor, correlation: trace.caller?.correlation });
  }
  deps.recorder?.note(trace, failure);
  deps.onEnd(trace, failure);
  return reply;
}

/** What waits for a person is told as it is; the progress that the server tells passes a guard, and its errors lose the paths of the host. */
function guard(
  asked: CallRequest,
  trace: CallTrace,
  { redactor, files }: CallDependencies,
): { readonly request: CallRequest; readonly hide: HidePaths } {
  const hide = hidePaths(files.workspace, asked.args.text);
  if (asked.onProgress === undefined) return { request: asked, hide };
  const { onWait, onProgress } = mergeProgress(asked.onProgress);
  trace.progress = new ServerProgress(onProgress, redactor);
  return { request: { ...asked, onWait, onProgress: trace.progress.take }, hide };
}

/** Primitives and servers of this process tell paths as the workspace knows them, and what a command printed is data. */
function isForeign({ primitive, server }: ExposedTool): boolean {
  return primitive === undefined && server.inProcess !== true;
}

/** A definition that changed behind a name since this client was shown it is not called (rug pull). */
function checkPin(session: OpenSession, { name, pin }: ExposedTool): void {
  const listed = session.listed.get(name);
  if (listed !== undefined && listed !== pin) throw new TollgateError('PIN_MISMATCH');
}

/** HE-06: `warn` counts the faults for `_meta`, `strict` withholds the result. A result that is an error is not judged. */
function judgeOutput(
  raw: JsonDoc<ToolResult>,
  output: Validator | undefined,
  mode: 'off' | 'warn' | 'strict',
): { readonly faults: number; readonly validOutput?: (value: unknown) => boolean } {
  if (output === undefined) return { faults: 0 };
  const faultsOf = (value: unknown): number =>
    (raw.exact ? output.check(value) : checkMarkedNumbers(value, output.check)).length;
  const validOutput = (value: unknown): boolean => faultsOf(value) === 0;
  if (mode === 'off' || raw.value.isError === true) return { faults: 0, validOutput };
  const faults = raw.value.structuredContent === undefined ? 1 : faultsOf(raw.value.structuredContent);
  if (faults > 0 && mode === 'strict') throw new TollgateError('OUTPUT_INVALID');
  return { faults, validOutput };
}

/** HB-07. The version is text of the server. */
function provenance(trace: CallTrace, told: string | undefined, redactor: Redactor): object {
  const effect = trace.lowered?.effect;
  const version = told === undefined ? undefined : escapeHostile(redactor.redact(told).value).text;
  return { server: effect?.server, tool: effect?.tool, version, time: isoTime(trace.startedAt), decision: trace.id };
}

function joinLabels(own: readonly string[], obliged: readonly string[]): readonly string[] {
  return obliged.length === 0 ? own : [...new Set([...own, ...obliged])];
}
