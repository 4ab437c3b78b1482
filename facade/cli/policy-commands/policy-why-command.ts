/** Runs `policy why`: explains the decision on a call, recorded or written by the user. It makes no call. */
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Explanation, PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import type { CallInput, Principal } from '../../../policies/port.ts';
import { AUDIT_INDEX, type IndexedRecord } from '../../audit/index/audit-index.ts';
import { openAuditReader } from '../../audit/index/audit-reader.ts';
import { isWhole, type Recording } from '../../audit/recording/decision-recording.ts';
import { findRecording, type Recordings, readLast } from '../../audit/recording/recording-reader.ts';
import { createConceal } from '../../audit/recording/recording-redaction.ts';
import { draftCall } from '../../call/lowering/draft-call.ts';
import { lowerCall } from '../../call/lowering/lowered-call.ts';
import { bindArguments } from '../../call/validate.ts';
import type { Config } from '../../config/config.ts';
import type { AssembledFacade } from '../../runtime/assembled-facade.ts';
import { policyParts } from '../../runtime/policy-parts.ts';
import { askedPrincipal, type CommonOptions, readConfig, withFacade } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { json } from '../print.ts';
import { parseArgs } from '../serving/call-arguments.ts';
import type { Wiring } from '../wiring.ts';
import { auditText, explanationText } from './policy-why-view.ts';

/** Options of `policy why`. */
export interface WhyOptions extends CommonOptions {
  /** The name of a tool, `KIND:SERVER` for another request, `last`, or a decision id, which may be short. */
  readonly call: string;
  readonly args?: string;
  readonly as?: string;
}

/** One run of the command. */
interface WhyRun {
  readonly options: WhyOptions;
  readonly config: Config;
  readonly parts: PolicyParts;
  readonly io: Io;
  readonly wiring: Wiring;
}

/** A decision id, or the part of it that screens show. */
const ID = /^[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?$/i;

/**
 * Exit code 0 for every decision, 1 if there is no decision with this id. Throws as `try`, and STATE_FAILED if the key
 * of the recordings is missing.
 */
export async function runWhy(options: WhyOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const run: WhyRun = { options, config, io, wiring, parts: policyParts(config, options) };
  const from: Recordings = { state: config.state, settings: config.audit.recordings, now: Date.now() };
  if (options.call === 'last') return whyRecorded(run, readLast(from));
  if (options.call.includes(':')) return whyRequest(run);
  if (!ID.test(options.call)) return whyWritten(run);
  const recording = findRecording(from, options.call)?.recording;
  return recording === undefined ? whyAudited(run) : whyRecorded(run, recording);
}

async function whyWritten(run: WhyRun): Promise<number> {
  const { options, config, io, wiring } = run;
  const principal = askedPrincipal(config, options, io);
  return withFacade({ config, options, io, assemble: wiring.assemble }, async (assembled) => {
    const { input, remarks } = await lower(assembled, { principal, options });
    const explanation = await wiring.authoring.explain(run.parts, input);
    return show(run, { call: options.call, explanation, remarks });
  });
}

/** Explains a request of another kind than a call. No server is needed: the facts are those that the user writes. */
async function whyRequest(run: WhyRun): Promise<number> {
  const { options, config, io, wiring, parts } = run;
  const { call, args } = options;
  const { effect, argsText } = await wiring.authoring.effectOf(parts, {
    target: call,
    ...(args === undefined ? {} : { detail: args }),
  });
  const principal = askedPrincipal(config, options, io);
  const time = new Date().toISOString();
  const input: CallInput = { principal, run: 'why', labels: [], time, effect, argsText };
  const explanation = await wiring.authoring.explain(parts, input);
  return show(run, { call, explanation, remarks: [] });
}

/** Lowers the call by the stages of a real call. A tool that is hidden from the principal is explained too. */
async function lower(
  assembled: AssembledFacade,
  { principal, options }: { readonly principal: Principal; readonly options: WhyOptions },
): Promise<{ readonly input: CallInput; readonly remarks: readonly string[] }> {
  const { deps, catalog, config } = assembled;
  const doc = parseArgs(options.args ?? '{}', 'policy why');
  const context = { principal, run: 'why', labels: [], time: new Date(deps.now()).toISOString() };
  try {
    const { exposed } = await deps.nameTables.resolve(principal, options.call);
    const { effect, argsText, pathHandles } = await lowerCall(exposed, bindArguments(doc, exposed.args), {
      files: deps.files,
      spills: deps.spills,
      owner: { principal: principal.id, run: 'why' },
      labels: [],
    });
    pathHandles.close();
    return { input: { ...context, effect, argsText }, remarks: [] };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'UNKNOWN_TOOL') throw thrown;
    const { effect, argsText } = draftCall({ config, served: catalog.servers }, principal, {
      tool: options.call,
      args: doc.value as Readonly<Record<string, unknown>>,
    });
    return {
      input: { ...context, effect, argsText },
      remarks: ['This tool is hidden from this principal. A call of it gets the same answer as an unknown tool.'],
    };
  }
}

async function whyRecorded(run: WhyRun, recording: Recording | undefined): Promise<number> {
  const { config, io, wiring } = run;
  if (recording === undefined) {
    io.stderr(
      config.audit.facts !== 'full'
        ? 'Nothing is recorded. Write `audit: {facts: full}` into tollgate.yaml to ask about the last call.\n'
        : 'No decision is recorded.\n',
    );
    return EXIT.unexpected;
  }
  if (!isWhole(recording)) {
    io.stderr(
      `The arguments of this call (${recording.argChars} characters) were too large to be recorded.\n` +
        'The facts of the decision are therefore unknown.\n',
    );
    return whyAudited({ ...run, options: { ...run.options, call: recording.id } });
  }
  const explanation = await wiring.authoring.explain(run.parts, recording.input);
  return show(run, {
    call: recording.exposed,
    id: recording.id,
    input: recording.input,
    explanation,
    remarks: [...remarksOf(recording, explanation), ...laterEnd(config, recording)],
  });
}

/** Tells that the policy is no longer the one that decided. */
function remarksOf({ revision, decision, failed }: Recording, explanation: Explanation): readonly string[] {
  if (decision === undefined) return [`The policy failed at the time of the call: ${failed ?? ''}`];
  if (revision === explanation.revision) return [];
  const rules = decision.reasons.map(({ id }) => id).join(', ');
  return [
    `The policy has changed since the call. It was ${decision.outcome} by ${rules}.`,
    'What follows is the decision of the present policy.',
  ];
}

/** A call that the rules allowed can be refused or fail later: by a budget, a switch, its server. */
function laterEnd(config: Config, { id, decision }: Recording): readonly string[] {
  if (decision?.outcome !== 'allow') return [];
  const codes = findRecords(config, id).flatMap(({ record }) => ('code' in record ? [record.code] : []));
  const code = codes.find((one) => one !== undefined);
  return code === undefined ? [] : [`The rules allowed this call. It ended with ${code}: tollgate audit show ${id}`];
}

/** The audit log has no facts: it names the rules, and the rules name the facts that they read. */
async function whyAudited(run: WhyRun): Promise<number> {
  const { options, config, io, wiring } = run;
  const found = findRecords(config, options.call);
  const first = found[0];
  if (first === undefined) {
    io.stderr(`There is no decision ${options.call} in the recordings or in the audit log.\n`);
    return EXIT.unexpected;
  }
  const reasons = 'reasons' in first.record ? (first.record.reasons ?? []) : [];
  const reads = await wiring.authoring.readsOf(
    run.parts,
    reasons.map(({ id }) => id),
  );
  const rules = reasons.map((reason) => ({ ...reason, reads: reads.get(reason.id) ?? [] }));
  io.stdout(
    options.json === true ? json({ id: options.call, record: first.record, rules }) : auditText(first.record, rules),
  );
  io.stderr(
    'The audit log has no arguments, so this command cannot show which of them decided.\n' +
      'Write `audit: {facts: full}` into tollgate.yaml to keep them, encrypted.\n',
  );
  return EXIT.ok;
}

function findRecords(config: Config, id: string): readonly IndexedRecord[] {
  const reader = openAuditReader(config.audit.folder, join(config.state, AUDIT_INDEX));
  try {
    return reader.find(id);
  } finally {
    reader.close();
  }
}

interface Shown {
  readonly call: string;
  readonly id?: string;
  readonly input?: CallInput;
  readonly explanation: Explanation;
  readonly remarks: readonly string[];
}

function show({ config, options, io }: WhyRun, shown: Shown): number {
  const clean = createConceal(config)({ ...shown.explanation });
  for (const remark of shown.remarks) io.stderr(`${remark}\n`);
  const call = {
    call: shown.call,
    ...(shown.id !== undefined && { id: shown.id }),
    ...(shown.input !== undefined && { principal: shown.input.principal.id, time: shown.input.time }),
  };
  io.stdout(options.json === true ? json({ ...call, ...clean }) : explanationText(io, call, clean));
  return EXIT.ok;
}
