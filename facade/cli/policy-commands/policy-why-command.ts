/** Owns `tollgate policy why`: finds the call that is meant, and has its decision explained; prints no secret and starts no call. */
import { join } from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { Explanation, PolicyParts } from '../../../policies/authoring/authoring-port.ts';
import type { CallDecision, CallInput, Principal } from '../../../policies/port.ts';
import { AUDIT_INDEX } from '../../audit/audit-index.ts';
import { type IndexedRecord, openAuditReader } from '../../audit/audit-reader.ts';
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
import { parseArgs } from '../serving/try-command.ts';
import type { Wiring } from '../wiring.ts';
import { auditText, explanationText } from './policy-why-view.ts';

/** `call` is a tool's name, `last`, or a decision id. */
export interface WhyOptions extends CommonOptions {
  readonly call: string;
  readonly args?: string;
  readonly as?: string;
}

/** What the parts of the command share. */
interface Asking {
  readonly options: WhyOptions;
  readonly config: Config;
  readonly parts: PolicyParts;
  readonly io: Io;
  readonly wiring: Wiring;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Exit code 0 whatever the decision was, 1 where there is none of that id. Throws as `try`, STATE_FAILED for recordings without a key. */
export async function runWhy(options: WhyOptions, io: Io, wiring: Wiring): Promise<number> {
  const config = readConfig(options, io);
  const asking: Asking = {
    options,
    config,
    io,
    wiring,
    parts: policyParts(config, options.opa === undefined ? {} : { opa: options.opa }),
  };
  const from: Recordings = { state: config.state, settings: config.recording, now: Date.now() };
  if (options.call === 'last') return whyRecorded(asking, readLast(from));
  if (!ID.test(options.call)) return whyWritten(asking);
  const recording = findRecording(from, options.call);
  return recording === undefined ? whyAudited(asking) : whyRecorded(asking, recording);
}

async function whyWritten(asking: Asking): Promise<number> {
  const { options, config, io, wiring } = asking;
  const principal = askedPrincipal(config, options, io);
  const { input, remarks } = await withAssembled(asking, async (assembled) => lower(assembled, { principal, options }));
  const explanation = await wiring.authoring.explain(asking.parts, input);
  return show(asking, { call: options.call, explanation, remarks });
}

async function withAssembled<T>(
  { config, options, io, wiring }: Asking,
  work: (assembled: AssembledFacade) => Promise<T>,
): Promise<T> {
  let answer: T | undefined;
  await withFacade({ config, options, io, assemble: wiring.assemble }, async (assembled) => {
    answer = await work(assembled);
    return EXIT.ok;
  });
  return answer as T;
}

/** By the stages of a real call. A tool that is hidden from this principal is explained all the same: that is what one would ask. */
async function lower(
  assembled: AssembledFacade,
  { principal, options }: { readonly principal: Principal; readonly options: WhyOptions },
): Promise<{ readonly input: CallInput; readonly remarks: readonly string[] }> {
  const { deps, catalog, config } = assembled;
  const doc = parseArgs(options.args ?? '{}', 'policy why');
  const around = { principal, run: 'why', labels: [], time: new Date(deps.now()).toISOString() };
  try {
    const { exposed } = await deps.nameTables.resolve(principal, options.call);
    const {
      effect,
      argsText,
      pathHandles: held,
    } = await lowerCall(exposed, bindArguments(doc, exposed.args), {
      files: deps.files,
      spills: deps.spills,
      owner: { principal: principal.id, run: 'why' },
      labels: [],
    });
    held.close();
    return { input: { ...around, effect, argsText }, remarks: [] };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'UNKNOWN_TOOL') throw thrown;
    const { effect, argsText } = draftCall({ config, served: catalog.servers }, principal, {
      tool: options.call,
      args: doc.value as Readonly<Record<string, unknown>>,
    });
    return {
      input: { ...around, effect, argsText },
      remarks: [
        'This tool is hidden from this principal: a call of it is answered like a call of a tool that does not exist.',
      ],
    };
  }
}

async function whyRecorded(asking: Asking, recording: Recording | undefined): Promise<number> {
  const { config, io, wiring } = asking;
  if (recording === undefined) {
    io.stderr(
      config.recording.mode === 'off'
        ? 'Nothing is recorded. Write `recording: {mode: last}` into tollgate.yaml to ask about the last call.\n'
        : 'No decision of the time that is kept is recorded.\n',
    );
    return EXIT.unexpected;
  }
  if (!isWhole(recording)) {
    io.stderr(
      `The arguments of this call (${recording.argChars} characters) were too large to be kept, so that it cannot be explained by its facts.\n`,
    );
    return whyAudited({ ...asking, options: { ...asking.options, call: recording.id } });
  }
  const explanation = await wiring.authoring.explain(asking.parts, recording.input);
  return show(asking, {
    call: recording.exposed,
    id: recording.id,
    input: recording.input,
    explanation,
    remarks: remarksOf(recording, explanation),
  });
}

/** Rules may be others than then. */
function remarksOf({ revision, decision, failed }: Recording, explanation: Explanation): readonly string[] {
  if (decision === undefined) return [`No decision was made then: ${failed ?? ''}`];
  if (revision === explanation.revision) return [];
  return [
    `The policy has changed since. Then it was ${told(decision)}; what follows is how the policy of now decides.`,
  ];
}

function told({ outcome, reasons }: CallDecision): string {
  return `${outcome} by ${reasons.map(({ id }) => id).join(', ')}`;
}

/** The audit keeps no facts: it can name the rules, and they name what they read. */
async function whyAudited(asking: Asking): Promise<number> {
  const { options, config, io, wiring } = asking;
  const found = findRecords(config, options.call);
  const first = found[0];
  if (first === undefined) {
    io.stderr(`There is no decision ${options.call}, neither recorded nor in the audit.\n`);
    return EXIT.unexpected;
  }
  const reasons = 'reasons' in first.record ? (first.record.reasons ?? []) : [];
  const reads = await wiring.authoring.readsOf(
    asking.parts,
    reasons.map(({ id }) => id),
  );
  const rules = reasons.map((reason) => ({ ...reason, reads: reads.get(reason.id) ?? [] }));
  io.stdout(
    options.json === true ? json({ id: options.call, record: first.record, rules }) : auditText(first.record, rules),
  );
  io.stderr(
    'The audit keeps no facts. With `recording: {mode: on}` in tollgate.yaml they are kept, encrypted, and this command shows which of them decided and what would have changed it.\n',
  );
  return EXIT.ok;
}

function findRecords(config: Config, id: string): readonly IndexedRecord[] {
  const reader = openAuditReader(config.audit.folder, join(config.state, AUDIT_INDEX));
  try {
    return [...reader.all({ id })];
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

function show({ config, options, io }: Asking, shown: Shown): number {
  const clean = createConceal(config)({ ...shown.explanation });
  for (const remark of shown.remarks) io.stderr(`${remark}\n`);
  const call = {
    call: shown.call,
    ...(shown.id === undefined ? {} : { id: shown.id }),
    ...(shown.input === undefined ? {} : { principal: shown.input.principal.id, time: shown.input.time }),
  };
  io.stdout(options.json === true ? json({ ...call, ...clean }) : explanationText(io, call, clean));
  return EXIT.ok;
}
