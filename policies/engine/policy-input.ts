/**
 * Writes the input documents of a policy. They contain the exact bytes of the arguments, which cannot pass for other
 * fields.
 */

import { createHash } from 'node:crypto';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { canonicalUri } from '../../catalogs/readers/urls.ts';
import { isJsonObject } from '../../catalogs/schemas/json-schema.ts';
import {
  type CallArguments,
  type CallInput,
  type Effect,
  INPUT_VERSION,
  type ListTool,
  type Principal,
} from '../port.ts';
import { readClocks } from '../rules/time-windows.ts';

/** Arguments with more characters are projected. */
const PROJECT_ABOVE = 64 * 1024;
/** Strings with more characters are replaced in a projection. */
const LONG_TEXT = 4 * 1024;
/** Characters of a replaced string that remain visible. */
const HEAD = 1024;

/** How the input of a call is written. */
interface InputOptions {
  /**
   * If the arguments have more than 64 KiB, replace each string over 4 KiB by `{tollgate_long: true, bytes, sha256,
   * head}`. The library treats such a value as unreadable: it matches rules that deny or ask, and no rule that allows.
   */
  readonly project: boolean;
  /** The time zones in rules, because WebAssembly knows no zones. */
  readonly zones?: readonly string[] | undefined;
  /** The parsed arguments, if known. Then their text is not checked again. */
  readonly args?: CallArguments | undefined;
}

/**
 * Returns the input of a call; see policies/schemas/input.json. Throws POLICY_FAILED if the arguments are not one JSON
 * object.
 */
export function callInputText(input: CallInput, options: InputOptions): string {
  const { principal, run, effect, labels, time, plan = 'none' } = input;
  const { kind = 'tool', verb, server, tool, paths, urls, command, spill } = effect;
  const args = argumentsText(input, options);
  const context = {
    version: INPUT_VERSION,
    phase: 'call',
    principal: pickPrincipal(principal),
    run,
    labels,
    time,
    clock: readClocks(options.zones ?? [], time),
    plan,
  };
  const own = requestFacts(effect);
  const facts = { kind, verb, server, tool, paths, urls, command, ...(spill === true ? { spill } : {}), ...own };
  return `${JSON.stringify(context).slice(0, -1)},"effect":${JSON.stringify(facts).slice(0, -1)},"arguments":${args}}}`;
}

/** What only other requests than calls of tools have. Throws POLICY_FAILED for a call, whose rules read none of it. */
function requestFacts({ kind = 'tool', uri, asks }: Effect): object | undefined {
  if (uri === undefined && asks === undefined) return undefined;
  if (kind === 'tool')
    throw new TollgateError('POLICY_FAILED', { detail: 'A call of a tool has no URI and asks nothing of the client.' });
  const { mode, fields, maxTokens } = asks ?? {};
  return {
    ...(uri === undefined ? {} : { uri, address: canonicalUri(uri) }),
    ...(asks === undefined ? {} : { asks: { mode, fields, maxTokens } }),
  };
}

/** The parts of a call that conditions of YAML rules read; see `part` in lib/facts.rego. */
export const CALL_PARTS = ['paths', 'urls', 'command', 'labels', 'arguments', 'clock', 'uri', 'asks'] as const;

/** One of `CALL_PARTS`. */
export type CallPart = (typeof CALL_PARTS)[number];

/**
 * Returns the input of `tollgate/fired/answer`: the numbers of rules, and the parts of a call that they read. Throws
 * POLICY_FAILED if the arguments are read and are not one JSON object.
 */
export function firedInputText(
  input: CallInput,
  { rules, parts }: { readonly rules: readonly number[]; readonly parts: readonly CallPart[] },
  options: InputOptions,
): string {
  const { paths, urls, command } = input.effect;
  const effect: string[] = [];
  let request: object | undefined;
  let text = `{"rules":[${rules.join()}]`;
  for (const part of parts) {
    if (part === 'paths') effect.push(`"paths":${JSON.stringify(paths)}`);
    else if (part === 'urls') effect.push(`"urls":${JSON.stringify(urls)}`);
    else if (part === 'arguments') effect.push(`"arguments":${argumentsText(input, options)}`);
    else if (part === 'labels') text += `,"labels":${JSON.stringify(input.labels)}`;
    else if (part === 'clock') text += `,"clock":${JSON.stringify(readClocks(options.zones ?? [], input.time))}`;
    else if (part === 'uri' || part === 'asks') request = { kind: input.effect.kind, ...requestFacts(input.effect) };
    else if (command !== undefined) effect.push(`"command":${JSON.stringify(command)}`);
  }
  if (request !== undefined) effect.push(JSON.stringify(request).slice(1, -1));
  return `${text},"effect":{${effect.join()}}}`;
}

function argumentsText({ argsText }: CallInput, { project, args }: InputOptions): string {
  if (args === undefined) requireObject(argsText);
  return project && argsText.length > PROJECT_ABOVE ? projectLongTexts(argsText) : argsText;
}

/** Returns the input of a list decision. `blind`: the user's Rego is not evaluated, and each of its rules may match. */
export function listInputText(principal: Principal, tools: readonly ListTool[], blind = false): string {
  const entries = tools.map(({ kind = 'tool', server, tool, verb, verbs = [verb], facts, primitive }) => ({
    kind,
    server,
    tool,
    verbs,
    facts,
    primitive,
  }));
  const list = { version: INPUT_VERSION, phase: 'list', principal: pickPrincipal(principal), tools: entries };
  return JSON.stringify(blind ? { ...list, blind } : list);
}

/** Leaves out keys that are not declared. Otherwise a policy might begin to trust them. */
export function pickPrincipal({ id, role, groups, profiles, origin, owner = false }: Principal): Principal {
  return { id, role, groups, profiles, origin, owner };
}

/** Without this check, arguments such as `{}},"principal":{…` could write their own principal. */
function requireObject(text: string): void {
  try {
    if (isJsonObject(JSON.parse(text))) return;
  } catch (thrown) {
    throw new TollgateError('POLICY_FAILED', { detail: 'The arguments are not JSON.', cause: thrown });
  }
  throw new TollgateError('POLICY_FAILED', { detail: 'The arguments are not an object.' });
}

/** Works on the text, so that numbers and everything else keep their spelling. `text` is valid JSON. */
function projectLongTexts(text: string): string {
  const parts: string[] = [];
  let copied = 0;
  for (let open = text.indexOf('"'); open >= 0; ) {
    const end = endOfText(text, open);
    if (end - open > LONG_TEXT && !/^\s*:/.test(text.slice(end, end + 64))) {
      parts.push(text.slice(copied, open), longMarker(JSON.parse(text.slice(open, end)) as string));
      copied = end;
    }
    open = text.indexOf('"', end);
  }
  return parts.join('') + text.slice(copied);
}

/** Returns the offset after the closing quote of the string that begins at `open`. */
function endOfText(text: string, open: number): number {
  let close = text.indexOf('"', open + 1);
  while (isEscaped(text, close)) close = text.indexOf('"', close + 1);
  return close + 1;
}

function isEscaped(text: string, at: number): boolean {
  let slashes = 0;
  while (text[at - 1 - slashes] === '\\') slashes += 1;
  return slashes % 2 === 1;
}

function longMarker(text: string): string {
  const bytes = Buffer.from(text, 'utf8');
  const cut = text.slice(0, HEAD);
  const head = /[\uD800-\uDBFF]$/.test(cut) ? cut.slice(0, -1) : cut;
  return JSON.stringify({
    tollgate_long: true,
    bytes: bytes.byteLength,
    sha256: createHash('sha256').update(bytes).digest('hex'),
    head,
  });
}
