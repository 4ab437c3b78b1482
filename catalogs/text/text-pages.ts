/** Pages of a text by lines, for files and spills. A page is never empty, and always says what is missing. */
import { TollgateError } from '../errors/error-table.ts';

/** The beginning of every line that Tollgate adds to a result (one line, in brackets, as a separate content item). */
export const NOTE_PREFIX = '[tollgate: ';

/** Returns a line `[tollgate: …]`. */
export function note(text: string): string {
  return `${NOTE_PREFIX}${text}]`;
}

/**
 * Returns true if a line of `text` is a note of Tollgate: such text was cut, and writing it back would lose the rest.
 */
export function holdsNote(text: string): boolean {
  return text.includes(NOTE_PREFIX) && /^[ \t]*\[tollgate: [^\n]*\][ \t]*\r?$/m.test(text);
}

/** Which lines. `offset` counts from 1, negative from the end; `limit` is at least 1. */
export interface PageRequest {
  readonly offset?: number | undefined;
  readonly limit?: number | undefined;
  /** The most that will be shown, including the note; default 30,000 bytes and 2,000 lines. */
  readonly cap?: { readonly bytes: number; readonly lines: number } | undefined;
}

/** Lines of a text, byte for byte with their ends. `note` is present only if something was left out. */
export interface Page {
  readonly text: string;
  readonly note?: string;
  readonly from: number;
  readonly to: number;
  readonly total: number;
}

const NEWLINE = 10;
const PAGE_LINES = 2000;
const PAGE_BYTES = 30_000;
/** Room for the note, so that it is not cut off. */
export const NOTE_BYTES = 400;
export const NOTE_LINES = 3;

/**
 * Cuts one page out of `text`: whole lines, at most `limit` (default 2000) and 30,000 bytes. If the first line is
 * longer, the page is its first 30,000 bytes. Except for such lines, the joined pages are the text. `label` is the
 * path in the next call that the note suggests. Throws ARGS_INVALID for offset 0 or limit < 1, TOOL_FAILED for an
 * offset past the end.
 */
export function pageText(text: string, request: PageRequest, label: string): Page {
  const total = countLines(text);
  const from = firstOf(request, total);
  if (total === 0) return { text: '', note: note('empty, 0 lines'), from: 1, to: 0, total };
  const { bytes: max, lines } = roomOf(request.cap);
  const wanted = Math.min(total, from - 1 + Math.min(request.limit ?? lines, lines));
  const begin = lineStart(text, from);
  let end = lineEnd(text, begin);
  let bytes = Buffer.byteLength(text.slice(begin, end));
  if (bytes > max) return longLine(text.slice(begin, end), { from, total, label, max });
  let to = from;
  for (; to < wanted; to += 1) {
    const next = lineEnd(text, end);
    const more = Buffer.byteLength(text.slice(end, next));
    if (bytes + more > max) break;
    bytes += more;
    end = next;
  }
  const page = { text: text.slice(begin, end), from, to, total };
  if (from === 1 && to === total) return page;
  const next = to < total ? ` Next: read path=${JSON.stringify(label)} offset=${to + 1}` : '';
  return { ...page, note: note(`lines ${from}-${to} of ${total} (${bytes} B).${next}`) };
}

function roomOf(cap: PageRequest['cap']): { readonly bytes: number; readonly lines: number } {
  const { bytes, lines } = cap ?? { bytes: PAGE_BYTES + NOTE_BYTES, lines: PAGE_LINES + NOTE_LINES };
  return { bytes: Math.max(1, bytes - NOTE_BYTES), lines: Math.max(1, lines - NOTE_LINES) };
}

/**
 * Returns the first line that `offset` means, from 1. Throws as `pageText`. Entries and matches are counted the same
 * way; `unit` is their name in the message.
 */
export function firstOf(request: PageRequest, total: number, unit = 'lines'): number {
  const { offset = 1, limit } = request;
  if (offset === 0)
    throw new TollgateError('ARGS_INVALID', {
      detail: 'offset counts from 1, so 0 is not a line.',
      next: 'Use offset=1, or a negative offset to count from the end.',
    });
  if (limit !== undefined && limit < 1)
    throw new TollgateError('ARGS_INVALID', {
      detail: 'limit must be at least 1.',
      next: 'Omit limit for the default.',
    });
  if (offset < 0) return Math.max(1, total + offset + 1);
  if (offset <= Math.max(1, total)) return offset;
  throw new TollgateError('TOOL_FAILED', {
    detail: `offset=${offset} is past the end: ${total === 1 ? 'there is only one' : `there are ${total} ${unit}`}.`,
    next: `Use an offset from 1 to ${total}, or a negative one.`,
  });
}

/**
 * Returns the number of lines as people count them: a line end ends a line and does not begin one. It makes no list of
 * the lines, because there may be sixteen million.
 */
export function countLines(text: string): number {
  let lines = text === '' || text.endsWith('\n') ? 0 : 1;
  for (let at = 0; at < text.length; at += 1) if (text.charCodeAt(at) === NEWLINE) lines += 1;
  return lines;
}

/** Returns the offset at which a line begins. `line` counts from 1. */
function lineStart(text: string, line: number): number {
  let at = 0;
  for (let left = line - 1; left > 0 && at < text.length; at += 1) if (text.charCodeAt(at) === NEWLINE) left -= 1;
  return at;
}

/** Returns the offset after the end of the line that begins at `start`. */
function lineEnd(text: string, start: number): number {
  const newline = text.indexOf('\n', start);
  return newline === -1 ? text.length : newline + 1;
}

function longLine(line: string, at: { from: number; total: number; label: string; max: number }): Page {
  const bytes = Buffer.from(line);
  let cut = at.max;
  while (((bytes[cut] ?? 0) & 0xc0) === 0x80) cut -= 1;
  const whole = `line ${at.from} of ${at.total}, bytes 1-${cut} of ${bytes.length}.`;
  const command = `sed -n '${at.from}p' ${quote(at.label)} | tail -c +${cut + 1} | head -c ${at.max}`;
  const rest = at.label.includes('://')
    ? `read action="search" path=${JSON.stringify(at.label)} pattern="…"`
    : `bash command=${JSON.stringify(command)}`;
  const next = at.from < at.total ? ` Lines after it: offset=${at.from + 1}` : '';
  return {
    text: bytes.toString('utf8', 0, cut),
    note: note(`${whole} Next: ${rest}${next}`),
    from: at.from,
    to: at.from,
    total: at.total,
  };
}

function quote(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
