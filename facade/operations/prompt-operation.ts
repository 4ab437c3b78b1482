/** The row of prompts/get. The result must match its template, so that a server cannot put its own words into it. */
import { abortable, type ServerAnswer } from '../../adapters/port.ts';
import { JsonText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { andThen } from '../../catalogs/text/awaitable.ts';
import type { RawPrompt } from '../../catalogs/tools/definition-schema.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import type { LowerStep } from '../call/decide.ts';
import type { ResolveStep } from '../call/resolve.ts';
import { type ShapeStep, shape } from '../call/shape.ts';
import { bindArguments } from '../call/validate.ts';
import { EMPTY_TABLE } from '../exposure/name-table.ts';
import type { ExposedPrompt } from '../exposure/prompt-tables.ts';
import { PROMPT_FORM } from '../output/result-forms.ts';
import { callOfServer, type Operation } from './operation.ts';
import { fillText, matchesTemplate, type PromptArguments, textMessage } from './prompt-template.ts';

const resolvePrompt: ResolveStep = async ({ prompts }, { principal, session }, { name, signal }) => {
  const exposed = await abortable(prompts.resolve(principal, name, session), signal);
  const listedPin = session.listed.get(`prompt ${exposed.name}`);
  if (listedPin !== undefined && listedPin !== exposed.pin) throw new TollgateError('PIN_MISMATCH');
  return { table: EMPTY_TABLE, exposed };
};

const lowerPrompt: LowerStep = (exposed, bound) => {
  const { server } = exposed;
  const { name } = (exposed as ExposedPrompt).prompt;
  const text = `{"name":${JSON.stringify(name)},"arguments":${bound.doc.text}}`;
  return callOfServer(exposed, bound, {
    method: 'prompts/get',
    effect: { kind: 'prompt', verb: 'read', server: server.name, tool: name, paths: [], urls: [] },
    args: { text, value: { name, arguments: bound.doc.value }, exact: bound.doc.exact },
  });
};

/** Replaces a result that does not match by the fallback, or refuses it (CY-20). */
const shapePrompt: ShapeStep = (deps, call) => {
  const { effect, args, exposed } = call.allowed.lowered;
  const template = deps.promptTemplate(`${effect.server}.${effect.tool}`);
  const { messages } = call.answer.value;
  if (template === undefined)
    throw new TollgateError('PROMPT_INVALID', {
      detail: `No template is declared for prompt "${effect.server}.${effect.tool}".`,
      next: `The owner declares one: prompts: {${effect.server}.${effect.tool}: {template: ...}} in tollgate.yaml.`,
    });
  if (matchesTemplate(template.template, args, messages))
    return shape(
      deps,
      { ...call, answer: withoutOtherText(call.answer, (exposed as ExposedPrompt).prompt) },
      PROMPT_FORM,
    );
  if (template.fallback === undefined) throw new TollgateError('PROMPT_INVALID');
  const replaced = { ...call, answer: fallbackAnswer(template.fallback, args), isFallback: true as const };
  return andThen(shape(deps, replaced, PROMPT_FORM), (shaped) => ({ ...shaped, isFallback: true }));
};

/** Members other than the checked messages could carry other text to the model. The others keep their text. */
function withoutOtherText(answer: ServerAnswer, { description }: RawPrompt): ServerAnswer {
  const doc = JsonText.of(answer);
  const kept = Object.entries(answer.value).filter(
    ([key, value]) => key === 'messages' || key === '_meta' || (key === 'description' && value === description),
  );
  const textOf = (key: string): string => {
    const member = doc.member(key);
    return member === undefined ? '' : doc.slice(member.start, member.end);
  };
  return {
    ...answer,
    text: `{${kept.map(([key]) => `"${key}":${textOf(key)}`).join(',')}}`,
    value: Object.fromEntries(kept) as ToolResult,
  };
}

function fallbackAnswer(fallback: string, args: PromptArguments): ServerAnswer {
  const value = { messages: [textMessage(fillText(fallback, args))] };
  return { text: JSON.stringify(value), value: value as unknown as ToolResult, exact: true };
}

/** Gets one prompt of a server. */
export const PROMPT_GET: Operation = {
  kind: 'prompt',
  resolve: resolvePrompt,
  serverOf: ({ prompts }, principal, { name }) => prompts.serverOf(principal, name),
  bind: bindArguments,
  lower: lowerPrompt,
  shape: shapePrompt,
};
