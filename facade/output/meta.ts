/** Owns `_meta` of a result and its text: our keys go in, forged ones go out, every other byte stays as it came. */
import type { JsonDoc } from '../../adapters/port.ts';
import { members } from '../../adapters/rpc/json.ts';
import type { ToolResult } from '../../catalogs/tool.ts';

/** Adds our keys to `_meta` by splicing, so that every other byte stays as the server wrote it. */
export function withMeta(text: string, value: ToolResult, meta: Readonly<Record<string, unknown>>): string {
  const ours = JSON.stringify(meta).slice(1, -1);
  const present = value._meta !== undefined && value._meta !== null && typeof value._meta === 'object';
  if (!('_meta' in value)) return Object.keys(value).length === 0 ? `{"_meta":{${ours}}}` : `{"_meta":{${ours}},${text.slice(text.indexOf('{') + 1)}`;
  if (!present || Object.keys(value._meta).some((key) => key.startsWith('tollgate/'))) return JSON.stringify({ ...value, _meta: mergeMeta(value._meta, meta) });
  const span = members(text).find((member) => member.key === '_meta');
  if (span === undefined) return JSON.stringify({ ...value, _meta: mergeMeta(value._meta, meta) });
  const open = text.indexOf('{', span.start) + 1;
  const comma = Object.keys(value._meta).length === 0 ? '' : ',';
  return `${text.slice(0, open)}${ours}${comma}${text.slice(open)}`;
}

/** A server cannot speak for Tollgate: its keys under `tollgate/` are dropped (the fake-approval attack). */
function mergeMeta(theirs: unknown, ours: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const kept = theirs !== null && typeof theirs === 'object' ? Object.entries(theirs).filter(([key]) => !key.startsWith('tollgate/')) : [];
  return Object.fromEntries([...kept, ...Object.entries(ours)]);
}

/** A changed result as text. Members that did not change keep their own text, so that a number no double can hold survives a cut elsewhere. */
export function serialise(doc: JsonDoc<ToolResult>, result: ToolResult, meta: Readonly<Record<string, unknown>>): string {
  const spans = new Map(members(doc.text).map((member) => [member.key, doc.text.slice(member.start, member.end)]));
  const parts = Object.entries(result).filter(([key]) => key !== '_meta').map(([key, value]) => {
    const own = value === doc.value[key] ? spans.get(key) : undefined;
    return `${JSON.stringify(key)}:${own ?? JSON.stringify(value)}`;
  });
  return `{${[...parts, `"_meta":${JSON.stringify(mergeMeta(result._meta, meta))}`].join(',')}}`;
}
