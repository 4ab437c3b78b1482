/** Owns what is done to every string of a result before it is cut: secrets out, hostile characters made visible, local links removed. */
import { escapeHostile } from '../../catalogs/text.ts';
import type { ContentItem, ToolResult } from '../../catalogs/tool.ts';
import type { Redactor } from './redact.ts';

/** Counts of what was done, for `_meta` and the record. */
export interface Cleaning {
  redactions: number;
  escaped: number;
  links: number;
}

/** Schemes that a client could open on its own machine or run. */
const LOCAL_SCHEME = /^\s*(file|javascript|data|vbscript|about):/i;
/** Anything but plain ASCII; most results are nothing else, and this is half the cost of asking exactly. */
const NOT_PLAIN = /[^\n\t\x20-\x7e]/;
/** Raw controls, DEL and C1, zero width, bidi, BOM, tags. */
const SUSPECT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/u;
/** Escapes of JSON that may stand for one of them. */
const ESCAPES = ['\\u', '\\b', '\\f', '\\r'];

/**
 * Cleans one result. Returns the very same object when nothing had to change, so that its bytes can pass as they came.
 * `raw` leaves characters as they are (asked for by the client, not by the model); secrets and links go in any case.
 */
export function cleanResult(text: string, result: ToolResult, options: { redactor: Redactor; raw: boolean }): { result: ToolResult; done: Cleaning } {
  const done: Cleaning = { redactions: 0, escaped: 0, links: 0 };
  const secret = options.redactor.touches(text);
  const hostile = !options.raw && maybeHostile(text);
  const linked = text.includes('resource_link');
  if (!secret && !hostile && !linked) return { result, done };
  const cleanString = (string: string): string => {
    const redacted = secret ? options.redactor.redact(string) : { value: string, count: 0 };
    const escaped = hostile ? escapeHostile(redacted.value) : { text: redacted.value, count: 0 };
    done.redactions += redacted.count;
    done.escaped += escaped.count;
    return escaped.text;
  };
  const walked = mapStrings(result, cleanString) as ToolResult;
  const cleaned = linked ? { ...walked, content: (walked.content ?? []).map((item) => withoutLocalLink(item, done)) } : walked;
  return { result: done.redactions + done.escaped + done.links === 0 ? result : cleaned, done };
}

function maybeHostile(json: string): boolean {
  return (NOT_PLAIN.test(json) && SUSPECT.test(json)) || ESCAPES.some((escape) => json.includes(escape));
}

/** A link to a file of the server's machine is no use to the model and leaks a path, or worse (OUTPUT_URI_SCHEME). */
function withoutLocalLink(item: ContentItem, done: Cleaning): ContentItem {
  if (item.type !== 'resource_link' || typeof item['uri'] !== 'string' || !LOCAL_SCHEME.test(item['uri'])) return item;
  done.links += 1;
  const scheme = item['uri'].trim().split(':', 1)[0];
  return { type: 'text', text: `[tollgate: a link with the scheme ${scheme}: was removed]` };
}

/** Maps every string and key of a JSON value; a part in which nothing changes stays the very same object, so that its own text can be kept. */
export function mapStrings(value: unknown, map: (string: string) => string): unknown {
  if (typeof value === 'string') return map(value);
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) {
    const items = value.map((item) => mapStrings(item, map));
    return items.some((item, index) => item !== value[index]) ? items : value;
  }
  let changed = false;
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => {
    const next: [string, unknown] = [map(key), mapStrings(item, map)];
    changed ||= next[0] !== key || next[1] !== item;
    return next;
  });
  return changed ? Object.fromEntries(entries) : value;
}
