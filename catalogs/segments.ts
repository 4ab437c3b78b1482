/** Owns the unit in which a long text is cut and read on: a line, or a piece of a line that is too long to be one. */

/**
 * Longest piece, in UTF-16 units. A line of JSON without newlines is read on in such pieces. With four bytes for each unit and the
 * footer of a page, one piece fits into the smallest `caps.bytes` (1,024), so every page of a spill makes progress.
 */
export const SEGMENT_CHARS = 200;
const NEWLINE = 10;
const NEAR_CHARS = 16;

/**
 * End offsets of the segments of `text`; segment n (from 1) is `text.slice(ends[n - 2] ?? 0, ends[n - 1])`. Pieces joined
 * without anything between them are the text again. No piece splits a surrogate pair. With `most`,
 * stops there or one later, which tells only that there are more.
 */
export function segmentEnds(text: string, most = Infinity): readonly number[] {
  const ends: number[] = [];
  let start = 0;
  while (start < text.length && ends.length < most) {
    const lineEnd = endOfLine(text, start);
    while (lineEnd - start > SEGMENT_CHARS + 1 && ends.length < most) {
      const code = text.charCodeAt(start + SEGMENT_CHARS - 1);
      start += code >= 0xd800 && code <= 0xdbff ? SEGMENT_CHARS - 1 : SEGMENT_CHARS;
      ends.push(start);
    }
    ends.push(lineEnd);
    start = lineEnd;
  }
  return ends;
}

/** The first units are read one by one: a native search for each of many short lines costs five times as much. */
function endOfLine(text: string, start: number): number {
  const near = Math.min(text.length, start + NEAR_CHARS);
  for (let at = start; at < near; at += 1) if (text.charCodeAt(at) === NEWLINE) return at + 1;
  const newline = text.indexOf('\n', near);
  return newline === -1 ? text.length : newline + 1;
}
