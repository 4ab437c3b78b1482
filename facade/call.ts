/** Owns one tools/call: nine stages, one try; refuses by throwing one error type, and answers nothing that is not recorded. */
import { abortable, type JsonDoc, UpstreamError } from '../adapters/port.ts';
import { asTollgateError, TollgateError } from '../catalogs/errors.ts';
import { escapeHostile } from '../catalogs/text.ts';
import type { ToolResult } from '../catalogs/tool.ts';
import type { Validator } from '../catalogs/validate.ts';
import type { Policy, Principal } from '../policies/port.ts';
import { inTurn } from './approvals/wait.ts';
import type { Approvals } from './approvals.ts';
import { bindArgs } from './args.ts';
import { isoTime } from './audit/chain.ts';
import type { AuditLog } from './audit/log.ts';
import type { Budgets, Gate, Lease } from './budget.ts';
import type { CapsConfig } from './config/config.ts';
import { failureAfterCut } from './cut.ts';
import { decide, warningMeta, warningNotes } from './decide.ts';
import type { Exposed, Exposures, Table } from './exposure.ts';
import type { CallRequest, Reply } from './facade.ts';
import type { Grants } from './grants/grants.ts';
import type { RunLabels } from './labels.ts';
import type { Identify } from './manage/identity.ts';
import type { Metrics } from './metrics.ts';
import { type HidePaths, hidePaths } from './output/host-paths.ts';
import { checkHeld, releaseNumbers } from './output/numbers.ts';
import { ServerProgress } from './output/progress.ts';
import type { Redactor } from './output/redact.ts';
import { type Shaped, shape } from './output/shape.ts';
import { READ_SPILL } from './output/spill-tool.ts';
import type { Spills } from './output/spills.ts';
import type { Plans } from './plan.ts';
import { endRecord, factsOf, intentRecord, type Trace } from './record.ts';
import type { Recorder } from './recording/writer.ts';
import { refusal } from './refusal.ts';
import type { Runs } from './runs.ts';
import { grantedBy, keysOf, limitsOf, send } from './send.ts';
import { CORRELATION_KEY, identify, type OpenSession } from './session.ts';
import { sightOf } from './sight.ts';
import type { Standings } from './standing.ts';
import type { WorkspaceFiles } from './workspace-files.ts';

/** What a call needs. Made once by facade/main.ts; `policy` is read once per call, so that a call keeps its revision. */
export interface Deps {
  /** See State.fresh. */
  readonly fresh: () => Promise<void> | undefined;
  readonly files: WorkspaceFiles;
  readonly exposures: Exposures;
  readonly policy: () => Policy;
  readonly budgets: Budgets;
  readonly labels: RunLabels;
  readonly plans: Plans;
  readonly runs: Runs;
  readonly grants: Grants;
  readonly metrics: Metrics;
  readonly identify: Identify;
  readonly standing: Standings;
  readonly approvals: Approvals;
  readonly gateOf: (session: OpenSession) => Gate;
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
  readonly onEnd: (trace: Trace, error: TollgateError | undefined) => void;
}

/** Runs one call through the nine stages of design §2. Never throws. */
export async function callTool(deps: Deps, session: OpenSession, asked: CallRequest): Promise<Reply> {
  const policy = deps.policy();
  const trace: Trace = {
    id: deps.newId(),
    principal: session.principal,
    session: session.id,
    asked: asked.name,
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
      deps.exposures.resolve(caller.principal, request.name, session),
      request.signal,
    ); // 2 resolve
    checkPin(session, (trace.exposed = exposed));
    const given = bindArgs(request.args, exposed.args); // 3 validate
    const owner = { principal: caller.principal.id, run: caller.run };
    const place = { files: deps.files, spills: deps.spills, owner };
    const {
      target,
      target: { exposed: served },
      standing,
      input,
      decision,
      bound,
    } = await decide(deps, { policy, trace, caller, exposed, bound: given, place, request }); // 4 decide
    const caps = deps.capsOf(caller.principal);
    const limits = limitsOf(caps, target, decision.obligations);
    const deadline = deps.now() + limits.timeoutMs;
    release = await deps.gateOf(session).enter({ signal: request.signal, deadline }); // 5 reserve
    lease = await deps.budgets.reserve({
      budgets: [...decision.obligations.budgets, ...standing.budgets],
      keys: keysOf(trace, caller, deps.runs),
      argBytes: trace.argBytes,
      maxOutputBytes: limits.cap.bytes,
      maxWallMs: limits.hardTimeoutMs,
      signal: request.signal,
      deadline,
    });
    deps.audit.appendCall(intentRecord(trace), factsOf(trace, deps.digest));
    trace.intended = true;
    const granted = grantedBy(lease, limits);
    const sight = sightOf(deps, { policy, exposed, bound, place, input, caller, target, standing });
    const known = joinLabels(target.labels, decision.obligations.labels);
    if (known.length > 0) await deps.labels.join(session, caller.run, known);
    const raw = await send(deps, { session, request, trace, target, table, limits: granted, sight }); // 6 call
    const labels = joinLabels(known, raw.labels ?? []);
    const validateOutput = decision.obligations.validateOutput ?? served.server.validateOutput ?? caps.validateOutput;
    const { faults, ...judged } = judgeOutput(raw, served.entry?.output, validateOutput);
    const shaping = shape(raw, {
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
          deps.spills.put(raw.exact ? text : releaseNumbers(text), owner, {
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
    const thrown = failureAfterCut(fault, request.signal, trace.executed);
    failure = failureOf(thrown, trace);
    reply = refusal(thrown, {
      id: trace.id,
      redactor: deps.redactor,
      hidePaths: hide,
      correlation: trace.caller?.correlation,
    });
    if (failure === undefined) trace.errorBytes = Buffer.byteLength(JSON.stringify(reply));
  } finally {
    lease?.settle({ outputBytes: trace.shaped?.sent ?? trace.errorBytes ?? 0, wallMs: trace.upstreamMs ?? 0 }); // 8 settle
    release?.();
    trace.target?.held.close();
  }
  return record(deps, trace, { reply, failure }); // 9 record
}

/** Undefined for the server's own error: the call was made. */
function failureOf(thrown: unknown, trace: Trace): TollgateError | undefined {
  trace.serverError = thrown instanceof UpstreamError;
  return trace.serverError ? undefined : asTollgateError(thrown);
}

/** After a cut, the list of this session shows the tool that reads on, where it is not `read`; the announcer tells the client. */
function resultOf(shaped: Shaped, { reader }: Table, session: OpenSession): Reply {
  if (shaped.spilled > 0 && reader === READ_SPILL) session.reads = READ_SPILL;
  return { kind: 'result', text: shaped.text };
}

/** What cannot be recorded is not returned. */
function record(deps: Deps, trace: Trace, end: { reply: Reply; failure: TollgateError | undefined }): Reply {
  let { reply, failure } = end;
  trace.progress?.end();
  try {
    deps.audit.appendCall(endRecord(trace, { failure, now: deps.now() }), factsOf(trace, deps.digest));
  } catch (cause) {
    failure = new TollgateError(trace.executed === 'no' ? 'AUDIT_FAILED' : 'OUTCOME_UNRECORDED', {
      cause,
      data: { executed: trace.executed !== 'no' },
    });
    reply = refusal(failure, { id: trace.id, redactor: deps.redactor, correlation: trace.caller?.correlation });
  }
  deps.recorder?.note(trace, failure);
  deps.onEnd(trace, failure);
  return reply;
}

/** What waits for a person is told as it is; the progress that the server tells passes a guard, and its errors lose the paths of the host. */
function guard(
  asked: CallRequest,
  trace: Trace,
  { redactor, files }: Deps,
): { readonly request: CallRequest; readonly hide: HidePaths } {
  const hide = hidePaths(files.workspace, asked.args.text);
  if (asked.onProgress === undefined) return { request: asked, hide };
  const { onWait, onProgress } = inTurn(asked.onProgress);
  trace.progress = new ServerProgress(onProgress, redactor);
  return { request: { ...asked, onWait, onProgress: trace.progress.take }, hide };
}

/** Primitives and servers of this process tell paths as the workspace knows them, and what a command printed is data. */
function isForeign({ primitive, server }: Exposed): boolean {
  return primitive === undefined && server.inProcess !== true;
}

/** A definition that changed behind a name since this client was shown it is not called (rug pull). */
function checkPin(session: OpenSession, { name, pin }: Exposed): void {
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
    (raw.exact ? output.check(value) : checkHeld(value, output.check)).length;
  const validOutput = (value: unknown): boolean => faultsOf(value) === 0;
  if (mode === 'off' || raw.value.isError === true) return { faults: 0, validOutput };
  const faults = raw.value.structuredContent === undefined ? 1 : faultsOf(raw.value.structuredContent);
  if (faults > 0 && mode === 'strict') throw new TollgateError('OUTPUT_INVALID');
  return { faults, validOutput };
}

/** HB-07. The version is text of the server. */
function provenance(trace: Trace, told: string | undefined, redactor: Redactor): object {
  const effect = trace.target?.effect;
  const version = told === undefined ? undefined : escapeHostile(redactor.redact(told).value).text;
  return { server: effect?.server, tool: effect?.tool, version, time: isoTime(trace.startedAt), decision: trace.id };
}

function joinLabels(own: readonly string[], obliged: readonly string[]): readonly string[] {
  return obliged.length === 0 ? own : [...new Set([...own, ...obliged])];
}
