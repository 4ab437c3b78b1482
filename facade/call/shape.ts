/**
 * Stage 7, shape: the server's answer is checked against its output schema, then redacted, labelled, capped and
 * spilled.
 */
import type { ServerAnswer } from '../../adapters/port.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import type { Awaitable } from '../../catalogs/text/awaitable.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { jsonMember, jsonString } from '../../catalogs/text/json-string.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { Validator } from '../../catalogs/validation/validator.ts';
import type { Principal } from '../../policies/port.ts';
import { isoTime } from '../audit/audit-chain.ts';
import type { CapsConfig } from '../config/config.ts';
import type { WrittenPrompt } from '../config/written-config.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import type { NameTable } from '../exposure/name-table.ts';
import type { ServedServer } from '../exposure/served-server.ts';
import { checkMarkedNumbers, restoreExactNumbers } from '../output/exact-numbers.ts';
import type { HidePaths } from '../output/host-paths.ts';
import type { Redactor } from '../output/redactor.ts';
import { RESOURCE_READER, type ResultForm, TOOL_FORM } from '../output/result-forms.ts';
import { type Shaped, shapeResult } from '../output/result-shape.ts';
import type { Spills } from '../output/spills.ts';
import { READ_SPILL } from '../output/spills.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import { type AllowedCall, warningMeta, warningNotes } from './decide.ts';
import { type Caller, CORRELATION_KEY } from './identify.ts';
import type { CallLimits } from './reserve.ts';
import { joinLabels } from './run-labels.ts';

export type { Shaped } from '../output/result-shape.ts';

/** What stage 7 needs. */
export interface ShapeDependencies {
  readonly redactor: Redactor;
  readonly spills: Spills;
  /** Returns the template of a prompt, by `server.prompt`. */
  readonly promptTemplate: (id: string) => WrittenPrompt | undefined;
  /** Returns a URI of a server as a principal sees it. */
  readonly shownUri: (principal: Principal, server: ServedServer, uri: string) => string;
}

/** A call that its server has answered. */
export interface ShapeCall {
  readonly caller: Caller;
  readonly table: NameTable;
  readonly allowed: AllowedCall;
  readonly answer: ServerAnswer;
  /** The answer is the fallback of the owner, because that of the server did not match its template. */
  readonly isFallback?: true;
  readonly caps: CapsConfig;
  readonly limits: CallLimits;
  readonly request: CallRequest;
  readonly hidePaths: HidePaths;
}

/** How the answer to an operation is shaped. Throws what `shape` throws. */
export type ShapeStep = (deps: ShapeDependencies, call: ShapeCall) => Awaitable<Shaped>;

/**
 * Shapes the answer of a server for the client. After a cut, the session's list shows the tool that reads the rest, if
 * that is not `read`. Throws OUTPUT_INVALID, UPSTREAM_INVALID and STATE_FAILED.
 */
export function shape(
  { redactor, spills, shownUri }: ShapeDependencies,
  call: ShapeCall,
  form: ResultForm = TOOL_FORM,
): Awaitable<Shaped> {
  const { caller, table, allowed, answer, caps, limits, request } = call;
  const { lowered, decision, bound } = allowed;
  const { exposed } = lowered;
  const owner = { principal: caller.principal.id, run: caller.run };
  const labels = joinLabels(lowered.labels, decision.obligations.labels, answer.labels);
  const validateOutput = decision.obligations.validateOutput ?? exposed.server.validateOutput ?? caps.validateOutput;
  const warnings = warningMeta(decision);
  const { faults, validOutput } = checkOutput(answer, exposed.entry?.output, validateOutput);
  const noteSpill = (shaped: Shaped): Shaped => {
    if (shaped.spilled > 0 && table.reader === READ_SPILL) caller.session.reads = READ_SPILL;
    return shaped;
  };
  const shaping = shapeResult(answer, {
    form,
    envelope: request.envelope,
    shownUri: (uri) => shownUri(caller.principal, exposed.server, uri),
    cap: limits.cap,
    mediaBytes: caps.media,
    headShare: lowered.headShare,
    redactor,
    raw: request.meta?.['tollgate/raw'] === true,
    reader: form === TOOL_FORM ? table.reader : RESOURCE_READER,
    ownNotes: exposed.primitive !== undefined,
    hidePaths: isForeign(exposed) ? call.hidePaths : undefined,
    spill: {
      put: (text) =>
        spills.put(answer.exact ? text : restoreExactNumbers(text), owner, {
          effect: lowered.effect,
          labels,
          maxBytes: caps.spillBytes,
        }),
    },
    meta:
      `"tollgate/provenance":${provenanceText(caller, lowered.effect, serverVersion(exposed, redactor))}` +
      (labels.length > 0 ? `,"tollgate/labels":${JSON.stringify(labels)}` : '') +
      jsonMember('tollgate/outputInvalid', faults > 0 ? faults : undefined) +
      jsonMember('tollgate/fallback', call.isFallback) +
      (warnings === undefined ? '' : `,"tollgate/warnings":${JSON.stringify(warnings)}`) +
      jsonMember(CORRELATION_KEY, caller.correlation) +
      (request.envelope === undefined ? '' : `,${request.envelope.meta}`),
    notes: form !== TOOL_FORM ? [] : warnings === undefined ? bound.notes : [...bound.notes, ...warningNotes(decision)],
    validOutput,
  });
  return shaping instanceof Promise ? shaping.then(noteSpill) : noteSpill(shaping);
}

/**
 * Primitives and in-process servers name paths relative to the workspace, and the output of a command is data: only
 * others' errors lose host paths.
 */
function isForeign({ primitive, server }: ExposedTool): boolean {
  return primitive === undefined && server.inProcess !== true;
}

/**
 * Mode `warn` counts the faults for `_meta`, `strict` withholds the result (HE-06). A result that is an error is not
 * checked.
 */
function checkOutput(
  answer: JsonDoc<ToolResult>,
  output: Validator | undefined,
  mode: 'off' | 'warn' | 'strict',
): { readonly faults: number; readonly validOutput?: ((value: unknown) => boolean) | undefined } {
  if (output === undefined) return { faults: 0 };
  const faultsOf = (value: unknown): number =>
    (answer.exact ? output.check(value) : checkMarkedNumbers(value, output.check)).length;
  const validOutput = (value: unknown): boolean => faultsOf(value) === 0;
  if (mode === 'off' || answer.value.isError === true) return { faults: 0, validOutput };
  const { structuredContent } = answer.value;
  const faults = structuredContent === undefined ? 1 : faultsOf(structuredContent);
  if (faults > 0 && mode === 'strict') throw new TollgateError('OUTPUT_INVALID');
  return { faults, validOutput };
}

/** The version is text of the server. */
function serverVersion({ server }: ExposedTool, redactor: Redactor): string | undefined {
  const version = server.adapter.info()?.version;
  return version === undefined ? undefined : escapeHostile(redactor.redact(version).value).text;
}

/** Returns where the result comes from (HB-07), as JSON. */
function provenanceText(
  { decision, startedAt }: Caller,
  { server, tool }: AllowedCall['lowered']['effect'],
  version: string | undefined,
): string {
  return (
    `{"server":${jsonString(server)},"tool":${jsonString(tool)}${jsonMember('version', version)}` +
    `,"time":"${isoTime(startedAt)}","decision":${jsonString(decision)}}`
  );
}
