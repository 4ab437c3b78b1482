/** The row of completion/complete: suggestions for an argument of a prompt or of a resource template. */
import { abortable } from '../../adapters/port.ts';
import { isObject, sizeOfDoc } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { LowerStep } from '../call/decide.ts';
import type { ResolveStep } from '../call/resolve.ts';
import { type ShapeStep, shape } from '../call/shape.ts';
import { bindArguments } from '../call/validate.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import { EMPTY_TABLE } from '../exposure/name-table.ts';
import type { ExposedPrompt } from '../exposure/prompt-tables.ts';
import { type ResultForm, TOOL_FORM } from '../output/result-forms.ts';
import type { CallRequest } from '../serve/facade-port.ts';
import { callOfServer, type Operation } from './operation.ts';

const METHOD = 'completion/complete';
/** The most suggestions of one answer (MCP 2025-11-25, server/utilities/completion). */
const MAX_VALUES = 100;
const TEXT = { type: 'string', maxLength: 8192 };
const ARGUMENTS = {
  type: 'object',
  properties: {
    ref: { type: 'object', properties: { type: TEXT, name: TEXT, uri: TEXT } },
    argument: { type: 'object', required: ['name', 'value'], properties: { name: TEXT, value: TEXT } },
    context: { type: 'object', properties: { arguments: { type: 'object', additionalProperties: TEXT } } },
  },
  required: ['ref', 'argument'],
  additionalProperties: false,
};
const VALIDATOR = createValidator(ARGUMENTS);

/** Finds the server of the prompt or template, as for a request of it. */
const resolveCompletion: ResolveStep = async ({ prompts, resources }, { principal, session }, { args, signal }) => {
  const { type, name, uri } = refOf(args);
  if (type === 'ref/prompt' && typeof name === 'string') {
    const exposed = await abortable(prompts.resolve(principal, name, session), signal);
    return { table: EMPTY_TABLE, exposed: completable(exposed, { name: (exposed as ExposedPrompt).prompt.name }) };
  }
  if (type === 'ref/resource' && typeof uri === 'string') {
    const exposed = await abortable(resources.resolve(principal, uri, session), signal);
    return { table: EMPTY_TABLE, exposed: completable(exposed, exposed.args.lift({ uri }).args) };
  }
  throw new TollgateError('WIRE_PARAMS', { detail: 'params.ref names neither a prompt nor a resource template.' });
};

function refOf({ value }: CallRequest['args']): Readonly<Record<string, unknown>> {
  const { ref } = (value ?? {}) as { readonly ref?: unknown };
  return isObject(ref) ? ref : {};
}

/** `own`: the name or URI by which the server itself knows it. */
function completable(exposed: ExposedTool, own: Readonly<Record<string, unknown>>): ExposedTool {
  const lift = (
    args: Readonly<Record<string, unknown>>,
  ): { args: Readonly<Record<string, unknown>>; changed: boolean } => {
    const { type } = args.ref as { readonly type: string };
    const { ref: _, _meta, ...rest } = args;
    return { args: { ref: { type, ...own }, ...rest }, changed: true };
  };
  const { maxBytes } = exposed.args;
  return { ...exposed, name: METHOD, args: { schema: ARGUMENTS, validator: VALIDATOR, lift, pins: {}, maxBytes } };
}

const lowerCompletion: LowerStep = (exposed, bound) =>
  callOfServer(exposed, bound, {
    method: METHOD,
    effect: { kind: 'completion', verb: 'read', server: exposed.server.name, tool: METHOD, paths: [], urls: [] },
  });

/** The strings of a completion are no items of content. */
const COMPLETION_FORM: ResultForm = {
  ...TOOL_FORM,
  itemsOf: () => [],
  withItems: (result) => result,
};
/** Bytes of a completion besides its values. */
const FRAME_BYTES = 100;

/** Cuts the list of values to what may be shown. Everything else about the result is the same as for a tool. */
const shapeCompletion: ShapeStep = (deps, call) => {
  const { answer, limits } = call;
  const { completion } = answer.value as { readonly completion?: unknown };
  const { values, total } = isObject(completion) ? completion : {};
  if (!Array.isArray(values) || values.some((value) => typeof value !== 'string'))
    throw new TollgateError('UPSTREAM_INVALID', { detail: 'The answer holds no list of suggestions.' });
  const uncapped = { ...call, limits: { ...limits, cap: { bytes: Infinity, lines: Infinity } } };
  if (values.length <= MAX_VALUES && sizeOfDoc(answer) <= limits.cap.bytes)
    return shape(deps, uncapped, COMPLETION_FORM);
  const shown = firstWithin(values as readonly string[], limits.cap.bytes - FRAME_BYTES);
  const value = { completion: { values: shown, ...(Number.isSafeInteger(total) && { total }), hasMore: true } };
  const cutAnswer = { text: JSON.stringify(value), value: value as unknown as ToolResult, exact: true };
  return andThen(shape(deps, { ...uncapped, answer: cutAnswer }, COMPLETION_FORM), (shaped) => ({
    ...shaped,
    cut: true,
  }));
};

/** Returns the first of the values, as many as have `bytes` bytes as JSON. */
function firstWithin(values: readonly string[], bytes: number): readonly string[] {
  let room = bytes;
  const isShown = (value: string): boolean => {
    room -= value.length < room ? Buffer.byteLength(JSON.stringify(value)) + 1 : room + 1;
    return room >= 0;
  };
  const first = values.slice(0, MAX_VALUES);
  const end = first.findIndex((value) => !isShown(value));
  return end === -1 ? first : first.slice(0, end);
}

/** Completes one argument. */
export const COMPLETION: Operation = {
  kind: 'completion',
  resolve: resolveCompletion,
  serverOf: ({ prompts, resources }, principal, { args }) => {
    const { name, uri } = refOf(args);
    if (typeof name === 'string') return prompts.serverOf(principal, name);
    return typeof uri === 'string' ? resources.serverOf(principal, uri) : undefined;
  },
  bind: bindArguments,
  lower: lowerCompletion,
  shape: shapeCompletion,
};
