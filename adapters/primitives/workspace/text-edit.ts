/** Replaces text in a text. Ambiguous matches are refused, because a wrong edit is worse than none. */
import { MAX_INPUT_BYTES, TimeSlices } from '../../../catalogs/text/time-slices.ts';
import { nearestText } from './nearest-text.ts';
import { occurrences } from './occurrences.ts';

/** One replacement, with the argument names of catalogs/primitives/schemas.json. */
export interface Replacement {
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all?: boolean | undefined;
  readonly line?: number | undefined;
}

/** The arguments of `edit`. `edits` are applied in order after the first replacement, all or none. */
export interface EditArgs extends Replacement {
  readonly edits?: readonly Replacement[] | undefined;
}

/** UTF-16 offsets of new text in the result. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

/**
 * The new text, its first places in order (at most 1,000), the number of all places, and notes on what was adjusted.
 */
export interface EditedText {
  readonly text: string;
  readonly places: readonly TextRange[];
  readonly count: number;
  readonly notes: readonly string[];
}

/** The edited text, or the reason why nothing was changed. */
export type EditOutcome = EditedText | { readonly refusal: { readonly what: string; readonly next: string } };

/** Ascending places to replace. There can be a million, so each is no object of its own. */
interface Matches {
  readonly starts: readonly number[];
  readonly endOf: (index: number) => number;
  readonly replacementOf: (index: number) => string;
}

interface Found {
  readonly matches: Matches;
  readonly notes: readonly string[];
}

const NEWLINE = 10;
const RETURN = 13;
const SHOWN_LINES = 20;
/** Most places that are kept for the result, which shows 20 of them. */
const KEPT_PLACES = 1_000;
/** Most places of one replacement, because each costs memory. */
const MAX_MATCHES = 1_000_000;

/**
 * Applies replacements. A match is accepted if it has, in this order: the same characters; the same text with the line
 * ends of the file; the same text without pasted line numbers. Otherwise the edit is refused and shows the most similar
 * text. Text outside the places does not change. Each replacement takes linear time. Other calls can run between
 * the search and the replacement. Throws the reason of the signal when it is aborted.
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
    const outcome = await replaceOnce(current, step, pace);
    if ('refusal' in outcome) return steps.length === 1 ? outcome : inStep(outcome.refusal, index + 1, steps.length);
    places = firstPlaces(movePlaces(places, outcome.cuts), outcome.places);
    count += outcome.cuts.starts.length;
    current = outcome.text;
    for (const note of outcome.notes) notes.add(note);
  }
  if (current === text)
    return refuse(
      'The edits change nothing: the text is the same afterwards.',
      'Set old_string to the present text and new_string to the text that replaces it.',
    );
  return { text: current, places, count, notes: [...notes] };
}

/** Returns the line numbers, from 1, of ascending offsets. */
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

/** Returns the positions of places after later replacements. Both lists ascend. */
function movePlaces(places: readonly TextRange[], cuts: Matches): readonly TextRange[] {
  let at = 0;
  let delta = 0;
  return places.map((place) => {
    for (; at < cuts.starts.length && cuts.endOf(at) <= place.start; at += 1) delta += growth(cuts, at);
    return { start: place.start + delta, end: place.end + delta };
  });
}

/** Returns by how much one replacement makes the text longer. */
function growth({ starts, endOf, replacementOf }: Matches, index: number): number {
  return replacementOf(index).length - (endOf(index) - (starts[index] as number));
}

function firstPlaces(before: readonly TextRange[], added: readonly TextRange[]): readonly TextRange[] {
  if (before.length === 0) return added;
  return [...before, ...added].sort((a, b) => a.start - b.start).slice(0, KEPT_PLACES);
}

type StepOutcome =
  | { text: string; places: readonly TextRange[]; notes: readonly string[]; cuts: Matches }
  | ReturnType<typeof refuse>;

async function replaceOnce(text: string, step: Replacement, pace: TimeSlices): Promise<StepOutcome> {
  if (step.old_string === '')
    return refuse('old_string is empty.', 'Set it to the text to replace. To write a whole file, use write.');
  if (step.old_string === step.new_string)
    return refuse('old_string and new_string are the same.', 'Set new_string to the text that replaces old_string.');
  if (step.replace_all === true && step.line !== undefined)
    return refuse('replace_all and line cannot be used together.', 'Use one of them.');
  const found = findMatches(text, step);
  if (pace.isDue) await pace.rest();
  const { length } = found.matches.starts;
  if (length === 0) return nothingFound(text, step.old_string);
  if (length > MAX_MATCHES)
    return refuse(
      `old_string occurs more than ${MAX_MATCHES} times.`,
      'Include more text around it, or change the file with a program in bash.',
    );
  const chosen = choose(text, found.matches, step);
  if ('refusal' in chosen) return chosen;
  const size = chosen.starts.reduce((sum, _, index) => sum + growth(chosen, index), text.length);
  if (size > MAX_INPUT_BYTES)
    return refuse(
      `The result would have ${size} characters. At most ${MAX_INPUT_BYTES} are allowed.`,
      'Use a shorter new_string.',
    );
  return { ...replaceMatches(text, chosen), notes: found.notes, cuts: chosen };
}

function replaceMatches(
  text: string,
  chosen: Matches,
): { readonly text: string; readonly places: readonly TextRange[] } {
  let edited = '';
  const places: TextRange[] = [];
  let at = 0;
  let delta = 0;
  for (const [index, start] of chosen.starts.entries()) {
    const replacement = chosen.replacementOf(index);
    edited += text.slice(at, start) + replacement;
    if (places.length < KEPT_PLACES) places.push({ start: start + delta, end: start + delta + replacement.length });
    delta += growth(chosen, index);
    at = chosen.endOf(index);
  }
  return { text: edited + text.slice(at), places };
}

function choose(text: string, matches: Matches, step: Replacement): Matches | ReturnType<typeof refuse> {
  const { starts } = matches;
  if (step.replace_all === true || starts.length === 1) return matches;
  const lines = linesAt(text, starts);
  const list = lines.slice(0, SHOWN_LINES).join(', ') + (lines.length > SHOWN_LINES ? ', …' : '');
  const wanted = step.line;
  if (wanted === undefined) {
    return refuse(
      `old_string occurs ${starts.length} times, starting on lines ${list}.`,
      'Include more lines around it until it is unique, or set line=… or replace_all=true.',
    );
  }
  const distance = lines.reduce((least, line) => Math.min(least, Math.abs(line - wanted)), Infinity);
  const nearest = [...starts.keys()].filter((index) => Math.abs((lines[index] ?? 0) - wanted) === distance);
  const [only = 0] = nearest;
  if (nearest.length === 1)
    return {
      starts: starts.slice(only, only + 1),
      endOf: () => matches.endOf(only),
      replacementOf: () => matches.replacementOf(only),
    };
  return refuse(
    `${nearest.length} of the ${starts.length} occurrences (lines ${list}) are equally near to line ${wanted}.`,
    'Set line to the line on which the right one starts, or include more text around it.',
  );
}

function findMatches(text: string, step: Replacement): Found {
  const exact = matchesOf(text, step);
  const bare = exact.starts.length > 0 ? undefined : withoutNumbers(step);
  if (bare === undefined) return { matches: exact, notes: [] };
  const matches = matchesOf(text, bare);
  return {
    matches,
    notes: matches.starts.length > 0 ? ['line numbers at the start of each line of old_string were removed'] : [],
  };
}

/**
 * Returns exact occurrences, else those that differ only in line ends. Includes overlapping ones, unless all are
 * replaced.
 */
function matchesOf(text: string, step: Replacement): Matches {
  const eol = majorityEol(text);
  const replacement =
    eol === '\r\n' && !/(?<!\r)\n/.test(step.old_string) ? withEol(step.new_string, eol) : step.new_string;
  const search = { overlap: step.replace_all !== true, limit: MAX_MATCHES + 1 };
  const starts = occurrences(text, { needle: step.old_string, ...search });
  const exact: Matches = {
    starts,
    endOf: (index) => (starts[index] as number) + step.old_string.length,
    replacementOf: () => replacement,
  };
  if (starts.length > 0 || !step.old_string.includes('\n')) return exact;
  if (!text.includes('\r\n') && !step.old_string.includes('\r\n')) return exact;
  const wanted = withEol(step.old_string, '\n');
  const plain = occurrences(withEol(text, '\n'), { needle: wanted, ...search });
  return plain.length === 0 ? exact : matchesInOriginal(text, { starts: plain, length: wanted.length, step, eol });
}

/**
 * Maps places from the text with LF line ends to the original text. Each replacement gets the first line end of its
 * place.
 */
function matchesInOriginal(
  text: string,
  { starts, length, step, eol }: { starts: readonly number[]; length: number; step: Replacement; eol: string },
): Matches {
  const at = originalOffsets(text, starts);
  const ends = originalOffsets(
    text,
    starts.map((start) => start + length),
  );
  const [lf, crlf] = [withEol(step.new_string, '\n'), withEol(step.new_string, '\r\n')];
  const isLf = at.map((start, index) => {
    const newline = text.indexOf('\n', start);
    const isIn = newline !== -1 && newline < (ends[index] as number);
    return isIn ? !(text[newline - 1] === '\r' && newline > start) : eol === '\n';
  });
  return {
    starts: at,
    endOf: (index) => ends[index] as number,
    replacementOf: (index) => (isLf[index] === true ? lf : crlf),
  };
}

/** Maps ascending offsets from the text with LF line ends to the original text. */
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

/** Removes `12: `, `12 | ` or `12<tab>` if every line of old_string starts with one and the numbers are consecutive. */
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
      'old_string does not occur in the file, and no text is similar to it.',
      'Read the file and copy the text exactly.',
    );
  return refuse(
    'old_string does not occur in the file. Nothing was changed.',
    `Copy the text exactly from the file. The nearest places:\n${places}`,
  );
}
