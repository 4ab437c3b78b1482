/**
 * Edits `_meta` of a result and its text: Tollgate's keys are added, forged ones removed, and every other byte stays.
 */
import { jsonMembers } from '../../adapters/rpc/message-parser.ts';
import type { JsonDoc } from '../../adapters/rpc/wire-message.ts';
import { isOwnKey } from '../../catalogs/tools/own-meta-keys.ts';
import type { ToolResult } from '../../catalogs/tools/tool-definition.ts';

/** Adds Tollgate's keys to `_meta` by splicing, so that every other byte stays as the server wrote it. */
export function withMeta(text: string, value: ToolResult, meta: Readonly<Record<string, unknown>>): string {
  const span = '_meta' in value ? jsonMembers(text).find((member) => member.key === '_meta') : undefined;
  if (span !== undefined)
    return `${text.slice(0, span.start)}${metaText(text.slice(span.start, span.end), meta)}${text.slice(span.end)}`;
  const comma = Object.keys(value).length === 0 ? '' : ',';
  return `{"_meta":${metaText('', meta)}${comma}${text.slice(text.indexOf('{') + 1)}`;
}

/**
 * Returns a changed result as text. Unchanged members keep their own text, so that a number that no double can
 * represent survives a cut elsewhere.
 */
export function serialise(
  doc: JsonDoc<ToolResult>,
  result: ToolResult,
  meta: Readonly<Record<string, unknown>>,
): string {
  const spans = new Map(jsonMembers(doc.text).map((member) => [member.key, doc.text.slice(member.start, member.end)]));
  const textOf = (key: string, value: unknown): string =>
    (value === doc.value[key] ? spans.get(key) : undefined) ?? JSON.stringify(value);
  const parts = Object.entries(result)
    .filter(([key]) => key !== '_meta')
    .map(([key, value]) => `${JSON.stringify(key)}:${textOf(key, value)}`);
  const theirs = result._meta === undefined ? '' : textOf('_meta', result._meta);
  return `{${[...parts, `"_meta":${metaText(theirs, meta)}`].join(',')}}`;
}

/**
 * A server cannot speak for Tollgate: its keys under `tollgate/` are removed (the fake-approval attack), and so is a
 * value that is no object.
 */
function metaText(theirs: string, ours: Readonly<Record<string, unknown>>): string {
  if (theirs === '') return JSON.stringify(ours);
  const kept = theirs.startsWith('{') ? jsonMembers(theirs).filter(({ key }) => !isOwnKey(key)) : [];
  const parts = kept.map(({ key, start, end }) => `${JSON.stringify(key)}:${theirs.slice(start, end)}`);
  return `{${[...parts, JSON.stringify(ours).slice(1, -1)].filter((part) => part !== '').join(',')}}`;
}
