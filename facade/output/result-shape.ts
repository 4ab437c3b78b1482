/**
 * Shapes a result: cleans it, cuts it to its limit, spills the rest, and adds where it came from. Nothing is lost
 * without a note.
 */

import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import { type JsonDoc, JsonText, joinText, sizeOfText, type WireText } from '../../adapters/rpc/wire-message.ts';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { jsonMember, jsonString } from '../../catalogs/text/json-string.ts';
import { LARGE_INPUT_BYTES, ownEventLoopTurn, runWithinBounds } from '../../catalogs/text/time-slices.ts';
import { isOwnKey, withoutOwnKeys } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';
import { type CutNotice, cutContent, nextCall, type ShapeRequest } from './content-cut.ts';
import { restoreExactNumbers } from './exact-numbers.ts';
import { type Cleaning, cleanResult } from './result-cleaning.ts';
import { cutStructuredContent } from './structured-cut.ts';

/** The text of the result as it leaves, and the sizes for settle and record. */
export interface Shaped extends Cleaning {
  readonly text: WireText;
  readonly sent: number;
  /** The part of `sent` that Tollgate's own members of `_meta` are. Absent: 0. */
  readonly metaBytes?: number;
  readonly cut: boolean;
  readonly spilled: number;
  readonly isError: boolean;
  /** What a person did with a form or an address that a server asked for. */
  readonly action?: 'accept' | 'decline' | 'cancel';
  /** The fallback of a prompt replaced the result of its server. */
  readonly isFallback?: true;
  /** The text has the members of its envelope. */
  readonly enveloped?: true;
}

/**
 * Shapes one result. If nothing was cleaned, cut or noted, the same bytes leave, except `_meta`. If `doc` is not exact,
 * its numbers are held (see exact-numbers.ts): they leave, and are spilled, as they were written. Other work of the
 * event loop runs between the steps of a large result. Throws UPSTREAM_INVALID if the content is no list of objects,
 * STATE_FAILED if the rest cannot be stored.
 */
export function shapeResult(doc: JsonDoc<ToolResult>, request: ShapeRequest): Shaped | Promise<Shaped> {
  const text = JsonText.of(doc);
  if (text.size > LARGE_INPUT_BYTES) return runWithinBounds(text.size, () => inTurns(text, request));
  const cleaned = clean(text, request);
  return finish(text, request, { cleaned, cutting: cut(text, request, cleaned) });
}

async function inTurns(doc: JsonText<ToolResult>, request: ShapeRequest): Promise<Shaped> {
  const cleaned = clean(doc, request);
  if (cleaned.result === undefined && surelyFits(doc, request)) return finish(doc, request, { cleaned });
  await ownEventLoopTurn();
  const cutting = cut(doc, request, cleaned);
  await ownEventLoopTurn();
  return finish(doc, request, { cleaned, cutting });
}

/** A cleaned result, with its notes; no result if no byte had to change. */
interface Cleaned {
  readonly result: ToolResult | undefined;
  readonly done: Cleaning;
}

/**
 * Members by which a revision of the protocol says what a result is. A server cannot speak for Tollgate: with them, a
 * result could ask the client something that was not decided.
 */
const PROTOCOL_MEMBERS = ['resultType', 'inputRequests', 'requestState', 'ttlMs', 'cacheScope'];
/** The one that a result has if it has any of them. */
const RESULT_TYPE = PROTOCOL_MEMBERS.slice(0, 1);

/** Without an envelope, only a result of a revision that has these members loses them. */
function withoutProtocolMembers(doc: JsonText<ToolResult>, { envelope }: ShapeRequest): ToolResult | undefined {
  const telling = envelope === undefined ? RESULT_TYPE : PROTOCOL_MEMBERS;
  if (telling.every((key) => doc.member(key) === undefined)) return undefined;
  return Object.fromEntries(Object.entries(doc.value).filter(([key]) => !PROTOCOL_MEMBERS.includes(key)));
}

function clean(doc: JsonText<ToolResult>, request: ShapeRequest): Cleaned {
  const { form, notes } = request;
  const content = doc.member(form.key);
  if (content !== undefined && !content.hasOnlyObjects)
    throw new TollgateError('UPSTREAM_INVALID', { detail: `The ${form.key} of the result is no list of objects.` });
  const own = withoutProtocolMembers(doc, request);
  const theirs = doc.strings.hasNestedMeta ? withoutForged(own ?? doc.value) : own;
  const { result = theirs, done } = cleanResult(doc, theirs, request);
  const changed = result === undefined || result === doc.value ? undefined : result;
  if (notes.length === 0) return { result: changed, done };
  const whole = changed ?? doc.value;
  const items = [...notes.map(form.note), ...form.itemsOf(whole)];
  return { result: form.withItems(whole, items), done };
}

function cut(doc: JsonText<ToolResult>, request: ShapeRequest, { result }: Cleaned): Cutting | undefined {
  return surelyFits(doc, request) ? undefined : cutResult(result ?? doc.value, request);
}

/** Stands around the members of Tollgate if a server sends no `_meta`; else there is a comma. */
const NEW_META = '"_meta":{},';

function finish(
  doc: JsonText<ToolResult>,
  request: ShapeRequest,
  { cleaned, cutting }: { readonly cleaned: Cleaned; readonly cutting?: Cutting | undefined },
): Shaped {
  const { result, done } = cleaned;
  const meta = metaOf(request.meta, done, cutting);
  const changed = cutting?.result ?? result;
  const made = changed === undefined ? withMeta(doc, meta) : serialise(doc, changed, meta);
  const whole = request.envelope === undefined ? made : withFirstMembers(made, request.envelope.members);
  const text = doc.exact ? whole : restoreExactNumbers(joinText(whole));
  return {
    text,
    sent: sizeOfText(text),
    metaBytes: meta === '' ? 0 : Buffer.byteLength(meta) + (doc.member('_meta') === undefined ? NEW_META.length : 1),
    cut: cutting !== undefined,
    spilled: cutting?.spilled ?? 0,
    isError: doc.memberValue('isError') === true,
    redactions: done.redactions,
    escaped: done.escaped,
    links: done.links,
    ...(request.envelope !== undefined && { enveloped: true }),
  };
}

/**
 * Keys of the result's own `_meta` are removed from its text, so that the others keep their bytes.
 */
function withoutForged(value: ToolResult): ToolResult {
  const { _meta, ...rest } = value;
  const [clean, meta] = [withoutOwnKeys(rest), withoutOwnKeys(_meta)];
  return clean === rest && meta === _meta ? value : { ...clean, ...(meta !== undefined && { _meta: meta }) };
}

/** The JSON of a result is longer than its texts, and each newline in them is an escape there. */
function surelyFits({ size, strings }: JsonText, { cap, mediaBytes }: ShapeRequest): boolean {
  return size <= cap.bytes && (!strings.hasMedia || size <= mediaBytes) && strings.newlines < cap.lines;
}

/** Returns the members of Tollgate in `_meta`, as JSON without braces. */
function metaOf(base: string, done: Cleaning, cutting: Cutting | undefined): string {
  if (done.redactions + done.escaped + done.links === 0 && cutting === undefined) return base;
  const counts =
    jsonMember('tollgate/redacted', done.redactions || undefined) +
    jsonMember('tollgate/escaped', done.escaped || undefined) +
    jsonMember('tollgate/removed', done.links || undefined) +
    (cutting === undefined ? '' : `,"tollgate/cut":${JSON.stringify(cutting.facts)}`);
  return base === '' ? counts.slice(1) : base + counts;
}

interface Cutting {
  readonly result: ToolResult;
  readonly facts: Readonly<Record<string, unknown>>;
  readonly spilled: number;
}

/** Cuts content, structured content and other members; undefined if all of it fits. */
function cutResult(result: ToolResult, request: ShapeRequest): Cutting | undefined {
  const { form } = request;
  const content = cutContent(form.itemsOf(result), request);
  const structured =
    result.structuredContent === undefined ? undefined : cutStructured(result.structuredContent, request);
  const others = cutOthers(result, request);
  const notices = [
    ...content.notices,
    ...(structured?.notice === undefined ? [] : [structured.notice]),
    ...others.notices,
  ];
  if (notices.length === 0) return undefined;
  const whole = form.withItems(others.result, [...content.items, ...notices.map(({ line }) => form.note(line))]);
  const facts = notices.map(({ line: _, ...fact }) => fact);
  const spilled = notices.reduce((sum, notice) => sum + notice.bytes, 0);
  return { result: applyStructured(whole, structured), facts: { parts: facts }, spilled };
}

function applyStructured(
  result: ToolResult,
  structured: { value: unknown; notice?: CutNotice } | undefined,
): ToolResult {
  if (structured?.notice === undefined) return result;
  if (structured.value !== undefined) return { ...result, structuredContent: structured.value };
  const { structuredContent: _, ...rest } = result;
  return { ...rest, isError: true };
}

/** Members that no revision defines, and the server's `_meta`, would otherwise carry what the content may not. */
function cutOthers(
  result: ToolResult,
  request: ShapeRequest,
): { readonly result: ToolResult; readonly notices: readonly CutNotice[] } {
  const { key } = request.form;
  const { [key]: content, structuredContent, isError, ...others } = result;
  const text = JSON.stringify(others);
  if (Buffer.byteLength(text) <= request.cap.bytes) return { result, notices: [] };
  const { handle, bytes } = request.spill.put(text);
  const kept = {
    ...(content === undefined ? {} : { [key]: content }),
    ...(structuredContent === undefined ? {} : { structuredContent }),
    ...(isError === undefined ? {} : { isError }),
  };
  const line = `members besides the content (${bytes} bytes) not shown. ${nextCall(handle, 1, request.reader)}`;
  return { result: kept, notices: [{ line, bytes, spill: handle, offset: 1 }] };
}

/** Structured content that cannot be cut within its schema makes the result an error that says where all of it is. */
function cutStructured(value: unknown, request: ShapeRequest): { value: unknown; notice?: CutNotice } {
  const text = JSON.stringify(value);
  if (Buffer.byteLength(text) <= request.cap.bytes) return { value };
  const { handle, bytes } = request.spill.put(text);
  const smaller = cutStructuredContent(value, request.cap.bytes);
  const valid = smaller !== undefined && (request.validOutput?.(smaller) ?? true);
  const what = valid
    ? `structured content was shortened (${bytes} bytes in total)`
    : `structured content of ${bytes} bytes cannot be shortened within its schema`;
  return {
    value: valid ? smaller : undefined,
    notice: { line: `${what}. ${nextCall(handle, 1, request.reader)}`, bytes, spill: handle, offset: 1 },
  };
}

/**
 * Adds Tollgate's members to `_meta` by splicing, so that every other byte stays as the server wrote it. `meta`: JSON
 * without braces.
 */
export function withMeta(doc: JsonText<ToolResult>, meta: string): WireText {
  const theirs = doc.member('_meta');
  if (theirs !== undefined)
    return doc.splice(theirs.start, theirs.end, metaText(doc.slice(theirs.start, theirs.end), meta));
  return doc.splice(0, 1, `{"_meta":${metaText('', meta)}${doc.isEmpty ? '' : ','}`);
}

/** Returns the text of an object with further members at its beginning. `members`: JSON without braces. */
export function withFirstMembers(text: WireText, members: string): WireText {
  if (typeof text === 'string') return `{${members}${text === '{}' ? '' : ','}${text.slice(1)}`;
  const [first = '', ...rest] = text.filter((part) => part.length > 0);
  return [`{${members},`, typeof first === 'string' ? first.slice(1) : first.subarray(1), ...rest];
}

/**
 * Returns a changed result as text. Unchanged members keep their own text, so that a number that no double can
 * represent survives a cut elsewhere.
 */
function serialise(doc: JsonText<ToolResult>, result: ToolResult, meta: string): WireText {
  const textOf = (key: string, value: unknown): string | Buffer => {
    const member = value === doc.value[key] ? doc.member(key) : undefined;
    return member === undefined ? JSON.stringify(value) : doc.part(member.start, member.end);
  };
  const parts: (string | Buffer)[] = [];
  for (const [key, value] of Object.entries(result))
    if (key !== '_meta') parts.push(`${jsonString(key)}:`, textOf(key, value), ',');
  const theirs = result._meta === undefined ? '' : textOf('_meta', result._meta).toString();
  const whole = ['{', ...parts, `"_meta":${metaText(theirs, meta)}}`];
  return whole.every((part) => typeof part === 'string') ? whole.join('') : whole;
}

/** Names the task of a server. A client that gets a result of a task knows it by Tollgate's own id. */
const RELATED_TASK = 'io.modelcontextprotocol/related-task';

/**
 * A server cannot speak for Tollgate: its keys under `tollgate/` are removed (the fake-approval attack), and so is a
 * value that is no object.
 */
function metaText(theirs: string, ours: string): string {
  if (theirs === '') return `{${ours}}`;
  const own = new Set(jsonMembers(`{${ours}}`).map(({ key }) => key));
  const isKept = ({ key }: { readonly key: string }): boolean =>
    !isOwnKey(key) && !own.has(key) && key !== RELATED_TASK;
  const kept = theirs.startsWith('{') ? jsonMembers(theirs).filter(isKept) : [];
  const parts = kept.map(({ key, start, end }) => `${JSON.stringify(key)}:${theirs.slice(start, end)}`);
  return `{${[...parts, ours].filter((part) => part !== '').join(',')}}`;
}
