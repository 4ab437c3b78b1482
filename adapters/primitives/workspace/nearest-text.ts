/** Finds the text of a file that is most similar to an old_string that was not found. */
import { headOf } from './file-text.ts';

const PLACES = 3;
const AROUND = 2;
const MAX_LINE = 200;
const MAX_CHARS = 1800;
/** Most characters and lines that are compared, so that this costs no more than the edit. */
const COMPARED_CHARS = 1_000_000;
const COMPARED_LINES = 20_000;
const MIN_SIMILARITY = 0.5;

/** Returns up to three places with line numbers and text, at most 2 KB, or '' if nothing is similar. */
export function nearestText(text: string, wanted: string): string {
  const key = wanted
    .split('\n')
    .map((line) => line.trim())
    .reduce((best, line) => (line.length > best.length ? line : best), '')
    .slice(0, MAX_LINE);
  if (key === '') return '';
  const lines = text.slice(0, COMPARED_CHARS).split('\n', COMPARED_LINES);
  const wantedPairs = pairsOf(key);
  const scored = lines
    .map((line, index) => ({ index, score: similarity(wantedPairs, line.trim().slice(0, MAX_LINE)) }))
    .filter(({ score }) => score >= MIN_SIMILARITY)
    .sort((a, b) => b.score - a.score || a.index - b.index);
  const chosen: number[] = [];
  for (const { index } of scored) {
    if (chosen.length < PLACES && chosen.every((other) => Math.abs(other - index) > AROUND * 2)) chosen.push(index);
  }
  return headOf(chosen.map((index) => excerpt(lines, index)).join('\n'), MAX_CHARS);
}

function excerpt(lines: readonly string[], index: number): string {
  const from = Math.max(0, index - AROUND);
  const shown = lines.slice(from, index + AROUND + 1).map((line) => line.replace(/\r$/, ''));
  const body = shown.map((line) => (line.length > MAX_LINE ? `${headOf(line, MAX_LINE)}…` : line)).join('\n');
  return `lines ${from + 1}-${from + shown.length}:\n${body}`;
}

function pairsOf(text: string): ReadonlyMap<string, number> {
  const pairs = new Map<string, number>();
  const packed = text.replace(/\s+/g, ' ');
  for (let at = 0; at < Math.max(1, packed.length - 1); at += 1) {
    const pair = packed.slice(at, at + 2);
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  return pairs;
}

/** Returns the Dice coefficient of the character pairs: 1 for equal texts, 0 for nothing in common. */
function similarity(wanted: ReadonlyMap<string, number>, line: string): number {
  if (line === '') return 0;
  const other = pairsOf(line);
  let shared = 0;
  for (const [pair, count] of other) shared += Math.min(count, wanted.get(pair) ?? 0);
  const size = (pairs: ReadonlyMap<string, number>): number =>
    [...pairs.values()].reduce((sum, count) => sum + count, 0);
  return (2 * shared) / (size(wanted) + size(other));
}
