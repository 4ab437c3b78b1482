/** The row of completion/complete: suggestions for an argument of a prompt or of a resource template. */
import { abortable } from '../../adapters/port.ts';
import { isObject, sizeOfText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { escapeHostile } from '../../catalogs/text/hostile-text.ts';
import { createValidator } from '../../catalogs/validation/validator.ts';
import type { LowerStep } from '../call/decide.ts';
import type { ResolveStep } from '../call/resolve.ts';
import type { ShapeStep } from '../call/shape.ts';
import { bindArguments } from '../call/validate.ts';
import type { ExposedTool } from '../exposure/exposed-tool.ts';
import { EMPTY_TABLE } from '../exposure/name-table.ts';
import type { ExposedPrompt } from '../exposure/prompt-tables.ts';
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
  const { ref } = (args.value ?? {}) as { readonly ref?: unknown };
  const { type, name, uri } = isObject(ref) ? ref : {};
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

/** Keeps what the protocol defines of the answer: texts, redacted and escaped, within the cap. */
const shapeCompletion: ShapeStep = ({ redactor }, { answer, limits }) => {
  const { completion } = answer.value as { readonly completion?: unknown };
  const { values, total, hasMore } = isObject(completion) ? completion : {};
  if (!Array.isArray(values) || values.some((value) => typeof value !== 'string'))
    throw new TollgateError('UPSTREAM_INVALID', { detail: 'The answer holds no list of suggestions.' });
  let [redactions, escaped, room] = [0, 0, limits.cap.bytes];
  const shown: string[] = [];
  for (const value of values.slice(0, MAX_VALUES) as readonly string[]) {
    if (value.length > room) break;
    const redacted = redactor.redact(value);
    const clean = escapeHostile(redacted.value);
    redactions += redacted.count;
    escaped += clean.count;
    room -= Buffer.byteLength(clean.text);
    if (room >= 0) shown.push(clean.text);
  }
  const cut = shown.length < values.length;
  const text = JSON.stringify({
    completion: {
      values: shown,
      ...(Number.isSafeInteger(total) && { total }),
      ...((cut || typeof hasMore === 'boolean') && { hasMore: cut || hasMore }),
    },
  });
  return { text, sent: sizeOfText(text), cut, spilled: 0, isError: false, redactions, escaped, links: 0 };
};

/** Completes one argument. */
export const COMPLETION: Operation = {
  kind: 'completion',
  resolve: resolveCompletion,
  bind: bindArguments,
  lower: lowerCompletion,
  shape: shapeCompletion,
};
