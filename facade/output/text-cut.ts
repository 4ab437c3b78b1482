/**
 * Cuts a text: between segments, keeping the head, or head and tail for command output. It never cuts inside a
 * character.
 */
import { segmentEnds } from '../../catalogs/text/text-segments.ts';

/** Limits of one result towards the model. */
export interface Cap {
  readonly bytes: number;
  readonly lines: number;
}

/** The parts of a cut text: head, gap and tail joined are the text. Segments are counted from 1. */
export interface Cut {
  readonly head: string;
  readonly tail: string;
  readonly gap: { readonly first: number; readonly last: number; readonly bytes: number };
  readonly segments: number;
}

/** Returns true if the text obeys the limit. Cheap for short texts, which most are. */
export function fitsCap(text: string, cap: Cap): boolean {
  if (text.length > cap.bytes || Buffer.byteLength(text) > cap.bytes) return false;
  return text.length <= cap.lines || segmentEnds(text, cap.lines + 1).length <= cap.lines;
}

/** Cuts a text that does not fit. `share` is the part of the limit for the head: 1 keeps only the head. */
export function cutText(text: string, cap: Cap, share: number): Cut {
  const ends = segmentEnds(text);
  const sizeOf = (n: number): number => Buffer.byteLength(text.slice(ends[n - 1] ?? 0, ends[n]));
  const headCap = { bytes: Math.floor(cap.bytes * share), lines: Math.floor(cap.lines * share) };
  let kept = 0;
  for (let bytes = 0; kept < ends.length && kept < headCap.lines; kept += 1) {
    bytes += sizeOf(kept);
    if (bytes > headCap.bytes) break;
  }
  const tailCap = { bytes: cap.bytes - headCap.bytes, lines: cap.lines - headCap.lines };
  let from = ends.length;
  for (let bytes = 0; from > kept && ends.length - from < tailCap.lines; from -= 1) {
    bytes += sizeOf(from - 1);
    if (bytes > tailCap.bytes) break;
  }
  const headEnd = ends[kept - 1] ?? 0;
  const tailStart = ends[from - 1] ?? 0;
  return {
    head: text.slice(0, headEnd),
    tail: text.slice(tailStart),
    gap: { first: kept + 1, last: from, bytes: Buffer.byteLength(text.slice(headEnd, tailStart)) },
    segments: ends.length,
  };
}
