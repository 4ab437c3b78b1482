/** The unit in which a long text is cut and read on: a line, or a part of a very long line. */

/**
 * Longest part of a line, in UTF-16 units. JSON without newlines is read on in such parts. With four bytes for each
 * unit and the footer of a page, one part fits into the smallest `caps.bytes` (1,024), so every page of a spill makes
 * progress.
 */
export const SEGMENT_CHARS = 200;
const NEWLINE = 10;
const NEAR_CHARS = 16;
const FIRST_ENDS = 64;

/**
 * Returns the end offsets of the segments of `text`; segment n (from 1) is `text.slice(ends[n - 2] ?? 0, ends[n -
 * 1])`. The joined segments are the text again. No segment splits a surrogate pair. Stops after `max` segments. The
 * offsets are in a typed array: a list of numbers takes twice the memory and three times the time.
 */
export function segmentEnds(text: string, max = Infinity): Uint32Array {
  let ends: Uint32Array = new Uint32Array(Math.min(FIRST_ENDS, text.length));
  let count = 0;
  let lineEnd = 0;
  for (let at = 0; at < text.length && count < max; count += 1) {
    if (at === lineEnd) lineEnd = endOfLine(text, at);
    if (lineEnd - at <= SEGMENT_CHARS + 1) at = lineEnd;
    else at += isHighHalf(text.charCodeAt(at + SEGMENT_CHARS - 1)) ? SEGMENT_CHARS - 1 : SEGMENT_CHARS;
    if (count === ends.length) ends = doubled(ends);
    ends[count] = at;
  }
  return ends.subarray(0, count);
}

/** Returns true for the first half of a surrogate pair. */
function isHighHalf(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff;
}

function doubled(ends: Uint32Array): Uint32Array {
  const more = new Uint32Array(ends.length * 2);
  more.set(ends);
  return more;
}

/** The first units are read one by one: a native search for each of many short lines costs five times as much. */
function endOfLine(text: string, start: number): number {
  const near = Math.min(text.length, start + NEAR_CHARS);
  for (let at = start; at < near; at += 1) if (text.charCodeAt(at) === NEWLINE) return at + 1;
  const newline = text.indexOf('\n', near);
  return newline === -1 ? text.length : newline + 1;
}
