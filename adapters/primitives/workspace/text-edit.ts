/** Owns the replacing of text in text; refuses every match that is not certain, since a wrong edit is worse than none. */

import { MAX_INPUT_BYTES, TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { nearestText } from './nearest-text.ts';
import { occurrences } from './occurrences.ts';

/** One replacement, named as in catalogs/primitives/schemas.json. */
export interface Replacement {
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all?: boolean | undefined;
  readonly line?: number | undefined;
}

/** The arguments of `edit`; `edits` are applied after the first, in order, all or nothing. */
export interface EditArgs extends Replacement {
  readonly edits?: readonly Replacement[] | undefined;
}

/** Where the new text stands in the result, by UTF-16 offsets. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

/** The new text, its first places in order (at most 1,000), the number of all, and what was adjusted. */
export interface EditedText {
  readonly text: string;
  readonly places: readonly TextRange[];
  readonly count: number;
  readonly notes: readonly string[];
}

/** What was edited, or why nothing was changed. */
export type EditOutcome = EditedText | { readonly refusal: { readonly what: string; readonly next: string } };

interface Match extends TextRange {
  readonly replacement: string;
}

interface Found {
  readonly matches: readonly Match[];
  readonly notes: readonly string[];
}

const NEWLINE = 10;
const RETURN = 13;
const SHOWN_LINES = 20;
/** Places kept for the answer, which shows 20 of them. */
const KEPT_PLACES = 1_000;
/** Places that one replacement may have: each costs memory. */
const MAX_MATCHES = 1_000_000;

/**
 * Applies exact replacements. A match is accepted in this order: the same characters; the same text with the file's own line
 * ends; the same after pasted line numbers are taken off every line. Anything else is refused with real text to copy from.
 * Everything outside the places stays as it was. Each replacement takes linear time; between them other calls have their
 * turn. Throws the signal's reason when it is aborted.
 */
export async function applyEdit(text: string, args: EditArgs, signal?: AbortSignal): Promise<EditOutcome> {
  const steps = [args, ...(args.edits ?? [])];
  let current = text;
  let places: readonly TextRange[] = [];
  let count = 0;
  const notes = new Set<string>();
  const pace = new TimeSlices(signal);
  for (const [index, step] of steps.entries()) {
    if (pace.isDue) await pace.rest();
    const outcome = replaceOnce(current, step);
    if ('refusal' in outcome) return steps.length === 1 ? outcome : inStep(outcome.refusal, index + 1, steps.length);
    places = firstPlaces(moved(places, outcome.cuts), outcome.places);
    count += outcome.cuts.length;
    current = outcome.text;
    for (const note of outcome.notes) notes.add(note);
  }
  if (current === text)
    return refuse(
      'The edits change nothing: the text is the same afterwards.',
      'Give the text as it is and as it should be.',
    );
  return { text: current, places, count, notes: [...notes] };
}

/** The lines, from 1, on which ascending offsets stand. */
export function linesAt(text: string, offsets: readonly number[]): readonly number[] {
  let [line, at] = [1, 0];
  return offsets.map((offset) => {
    for (; at < offset; at += 1) if (text.charCodeAt(at) === NEWLINE) line += 1;
    return line;
  });
}

function refuse(what: string, next: string): { refusal: { what: string; next: string } } {
  return { refusal: { what, next } };
}

function inStep(refusal: { what: string; next: string }, step: number, steps: number): EditOutcome {
  return refuse(`Edit ${step} of ${steps}, nothing was changed: ${refusal.what}`, refusal.next);
}

/** Where places stand after later replacements before them. Both lists ascend. */
function moved(places: readonly TextRange[], cuts: readonly Match[]): readonly TextRange[] {
  let at = 0;
  let delta = 0;
  return places.map((place) => {
    for (let cut = cuts[at]; cut !== undefined && cut.end <= place.start; cut = cuts[at]) {
      delta += cut.replacement.length - (cut.end - cut.start);
      at += 1;
    }
    return { start: place.start + delta, end: place.end + delta };
  });
}

function firstPlaces(before: readonly TextRange[], added: readonly TextRange[]): readonly TextRange[] {
  if (before.length === 0) return added;
  return [...before, ...added].sort((a, b) => a.start - b.start).slice(0, KEPT_PLACES);
}

type StepOutcome =
  | { text: string; places: readonly TextRange[]; notes: readonly string[]; cuts: readonly Match[] }
  | ReturnType<typeof refuse>;

function replaceOnce(text: string, step: Replacement): StepOutcome {
  if (step.old_string === '')
    return refuse('old_string is empty.', 'Give the text to replace; to write a whole file use write.');
  if (step.old_string === step.new_string)
    return refuse('old_string and new_string are the same.', 'Give the text as it should be in new_string.');
  if (step.replace_all === true && step.line !== undefined)
    return refuse('replace_all and line contradict each other.', 'Give one of them.');
  const found = findMatches(text, step);
  if (found.matches.length === 0) return nothingFound(text, step.old_string);
  if (found.matches.length > MAX_MATCHES)
    return refuse(
      `old_string occurs more than ${MAX_MATCHES} times.`,
      'Add text around it, or change the file with a program: bash.',
    );
  const chosen = choose(text, found.matches, step);
  if ('refusal' in chosen) return chosen;
  const length = chosen.reduce(
    (sum, { start, end, replacement }) => sum + replacement.length - (end - start),
    text.length,
  );
  if (length > MAX_INPUT_BYTES)
    return refuse(
      `The result would have ${length} characters; at most ${MAX_INPUT_BYTES} are written.`,
      'Give a shorter new_string.',
    );
  return { ...replaced(text, chosen), notes: found.notes, cuts: chosen };
}

function replaced(
  text: string,
  chosen: readonly Match[],
): { readonly text: string; readonly places: readonly TextRange[] } {
  const parts: string[] = [];
  const places: TextRange[] = [];
  let at = 0;
  let delta = 0;
  for (const { start, end, replacement } of chosen) {
    parts.push(text.slice(at, start), replacement);
    if (places.length < KEPT_PLACES) places.push({ start: start + delta, end: start + delta + replacement.length });
    delta += replacement.length - (end - start);
    at = end;
  }
  return { text: parts.join('') + text.slice(at), places };
}

function choose(
  text: string,
  matches: readonly Match[],
  step: Replacement,
): readonly Match[] | ReturnType<typeof refuse> {
  if (step.replace_all === true || matches.length === 1) return matches;
  const lines = linesAt(
    text,
    matches.map((match) => match.start),
  );
  const list = lines.slice(0, SHOWN_LINES).join(', ') + (lines.length > SHOWN_LINES ? ', …' : '');
  const wanted = step.line;
  if (wanted === undefined) {
    return refuse(
      `old_string occurs ${matches.length} times, starting on lines ${list}.`,
      'Add lines around it until it is unique, or give line=…, or replace_all=true.',
    );
  }
  const distance = lines.reduce((least, line) => Math.min(least, Math.abs(line - wanted)), Infinity);
  const nearest = matches.filter((_, index) => Math.abs((lines[index] ?? 0) - wanted) === distance);
  if (nearest.length === 1) return nearest;
  return refuse(
    `${nearest.length} of the ${matches.length} occurrences (lines ${list}) are equally near to line ${wanted}.`,
    'Give the line on which the right one starts, or add text around it.',
  );
}

function findMatches(text: string, step: Replacement): Found {
  const exact = matchesOf(text, step);
  if (exact.length > 0) return { matches: exact, notes: [] };
  const bare = withoutNumbers(step);
  const matches = bare === undefined ? [] : matchesOf(text, bare);
  return {
    matches,
    notes: matches.length > 0 ? ['line numbers that stood before each line of old_string were taken off'] : [],
  };
}

/** Exact occurrences, else those that differ in line ends only. Overlapping ones count, unless all are to be replaced. */
function matchesOf(text: string, step: Replacement): readonly Match[] {
  const eol = majorityEol(text);
  const replacement =
    eol === '\r\n' && !/(?<!\r)\n/.test(step.old_string) ? withEol(step.new_string, eol) : step.new_string;
  const search = { overlap: step.replace_all !== true, most: MAX_MATCHES + 1 };
  const exact = occurrences(text, { needle: step.old_string, ...search });
  if (exact.length > 0) return exact.map((start) => ({ start, end: start + step.old_string.length, replacement }));
  if (!step.old_string.includes('\n') || !(text.includes('\r\n') || step.old_string.includes('\r\n'))) return [];
  const wanted = withEol(step.old_string, '\n');
  const plain = occurrences(withEol(text, '\n'), { needle: wanted, ...search });
  return plain.length === 0 ? [] : inOwnEol(text, { starts: plain, length: wanted.length, step, eol });
}

/** The same places in the text with its own line ends, each to be replaced with the first line end that it has. */
function inOwnEol(
  text: string,
  { starts, length, step, eol }: { starts: readonly number[]; length: number; step: Replacement; eol: string },
): readonly Match[] {
  const at = originalOffsets(text, starts);
  const ends = originalOffsets(
    text,
    starts.map((start) => start + length),
  );
  const [lf, crlf] = [withEol(step.new_string, '\n'), withEol(step.new_string, '\r\n')];
  return starts.map((_, index) => {
    const [start = 0, end = 0] = [at[index], ends[index]];
    const newline = text.indexOf('\n', start);
    const own = newline === -1 || newline >= end ? eol : text[newline - 1] === '\r' && newline > start ? '\r\n' : '\n';
    return { start, end, replacement: own === '\n' ? lf : crlf };
  });
}

/** Where ascending offsets of the text with LF line ends stand in the text itself. */
function originalOffsets(text: string, offsets: readonly number[]): readonly number[] {
  let removed = 0;
  let next = text.indexOf('\r\n');
  return offsets.map((offset) => {
    for (; next !== -1 && next - removed < offset; next = text.indexOf('\r\n', next + 2)) removed += 1;
    return offset + removed;
  });
}

function majorityEol(text: string): string {
  let [all, crlf] = [0, 0];
  for (let at = 0; at < text.length; at += 1) {
    if (text.charCodeAt(at) !== NEWLINE) continue;
    all += 1;
    if (text.charCodeAt(at - 1) === RETURN) crlf += 1;
  }
  return crlf * 2 > all ? '\r\n' : '\n';
}

function withEol(text: string, eol: string): string {
  return text.replace(/\r?\n/g, () => eol);
}

const NUMBERED = /^[ \t]*(\d+)(?:\t|: ?|→| ?\| ?)/;

/** Takes off `12: `, `12 | ` or `12<tab>` when every line of old_string has one and they count up by one. */
function withoutNumbers(step: Replacement): Replacement | undefined {
  const lines = step.old_string.replace(/\r?\n$/, '').split('\n');
  const numbers = lines.map((line) => NUMBERED.exec(line)?.[1]);
  const first = Number(numbers[0]);
  if (!numbers.every((number, index) => number !== undefined && Number(number) === first + index)) return undefined;
  const strip = (text: string): string =>
    text
      .split('\n')
      .map((line) => line.replace(NUMBERED, ''))
      .join('\n');
  const replaced = step.new_string.replace(/\r?\n$/, '').split('\n');
  const old = strip(step.old_string);
  if (old.trim() === '') return undefined;
  return {
    ...step,
    old_string: old,
    new_string: replaced.every((line) => NUMBERED.test(line)) ? strip(step.new_string) : step.new_string,
  };
}

function nothingFound(text: string, old: string): ReturnType<typeof refuse> {
  const places = nearestText(text, old);
  if (places === '')
    return refuse(
      'old_string does not occur in the file, and nothing is like it.',
      'Read the file and copy the text exactly.',
    );
  return refuse(
    'old_string does not occur in the file. Nothing was changed.',
    `Copy the text exactly from the file. The nearest places:\n${places}`,
  );
}
