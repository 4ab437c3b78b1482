/** Owns the replacing of text in text; refuses every match that is not certain, since a wrong edit is worse than none. */
import { nearestPlaces } from './nearest.ts';

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
export interface Place {
  readonly start: number;
  readonly end: number;
}

/** The new text with its places and what was adjusted, or why nothing was changed. */
export type EditOutcome =
  | { readonly text: string; readonly places: readonly Place[]; readonly notes: readonly string[] }
  | { readonly refusal: { readonly what: string; readonly next: string } };

interface Match extends Place {
  readonly replacement: string;
}

interface Found {
  readonly matches: readonly Match[];
  readonly notes: readonly string[];
}

const SHOWN_LINES = 20;

/**
 * Applies exact replacements. A match is accepted in this order: the same characters; the same text with the file's own line
 * ends; the same after pasted line numbers are taken off every line. Anything else is refused with real text to copy from.
 * Everything outside the places stays as it was. Pure.
 */
export function applyEdit(text: string, args: EditArgs): EditOutcome {
  const steps = [args, ...(args.edits ?? [])];
  let current = text;
  let places: readonly Place[] = [];
  const notes: string[] = [];
  for (const [index, step] of steps.entries()) {
    const outcome = replaceOnce(current, step);
    if ('refusal' in outcome) return steps.length === 1 ? outcome : inStep(outcome.refusal, index + 1, steps.length);
    places = [...places.map((place) => shift(place, outcome.cuts)), ...outcome.places];
    current = outcome.text;
    notes.push(...outcome.notes);
  }
  if (current === text) return refuse('The edits change nothing: the text is the same afterwards.', 'Give the text as it is and as it should be.');
  return { text: current, places: [...places].sort((a, b) => a.start - b.start), notes };
}

/** The line, from 1, on which an offset stands. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at !== -1 && at < offset; at = text.indexOf('\n', at + 1)) line += 1;
  return line;
}

function refuse(what: string, next: string): { refusal: { what: string; next: string } } {
  return { refusal: { what, next } };
}

function inStep(refusal: { what: string; next: string }, step: number, steps: number): EditOutcome {
  return refuse(`Edit ${step} of ${steps}, nothing was changed: ${refusal.what}`, refusal.next);
}

/** A later replacement moves the places before it that stand behind it. */
function shift(place: Place, cuts: readonly Match[]): Place {
  const delta = cuts.filter((cut) => cut.end <= place.start).reduce((sum, cut) => sum + cut.replacement.length - (cut.end - cut.start), 0);
  return { start: place.start + delta, end: place.end + delta };
}

type StepOutcome = { text: string; places: readonly Place[]; notes: readonly string[]; cuts: readonly Match[] } | ReturnType<typeof refuse>;

function replaceOnce(text: string, step: Replacement): StepOutcome {
  if (step.old_string === '') return refuse('old_string is empty.', 'Give the text to replace; to write a whole file use write.');
  if (step.old_string === step.new_string) return refuse('old_string and new_string are the same.', 'Give the text as it should be in new_string.');
  if (step.replace_all === true && step.line !== undefined) return refuse('replace_all and line contradict each other.', 'Give one of them.');
  const found = findMatches(text, step);
  if (found.matches.length === 0) return nothingFound(text, step.old_string);
  const chosen = choose(text, found.matches, step);
  if ('refusal' in chosen) return chosen;
  let result = '';
  let at = 0;
  const places: Place[] = [];
  for (const match of chosen) {
    result += text.slice(at, match.start);
    places.push({ start: result.length, end: result.length + match.replacement.length });
    result += match.replacement;
    at = match.end;
  }
  return { text: result + text.slice(at), places, notes: found.notes, cuts: chosen };
}

function choose(text: string, matches: readonly Match[], step: Replacement): readonly Match[] | ReturnType<typeof refuse> {
  if (step.replace_all === true) return withoutOverlap(matches);
  if (matches.length === 1) return matches;
  const lines = matches.map((match) => lineAt(text, match.start));
  const list = lines.slice(0, SHOWN_LINES).join(', ') + (lines.length > SHOWN_LINES ? ', …' : '');
  const wanted = step.line;
  if (wanted === undefined) {
    return refuse(`old_string occurs ${matches.length} times, starting on lines ${list}.`, 'Add lines around it until it is unique, or give line=…, or replace_all=true.');
  }
  const distance = Math.min(...lines.map((line) => Math.abs(line - wanted)));
  const nearest = matches.filter((_, index) => Math.abs((lines[index] ?? 0) - wanted) === distance);
  if (nearest.length === 1) return nearest;
  return refuse(`${nearest.length} of the ${matches.length} occurrences (lines ${list}) are equally near to line ${wanted}.`, 'Give the line on which the right one starts, or add text around it.');
}

function withoutOverlap(matches: readonly Match[]): readonly Match[] {
  const kept: Match[] = [];
  for (const match of matches) if (match.start >= (kept.at(-1)?.end ?? 0)) kept.push(match);
  return kept;
}

function findMatches(text: string, step: Replacement): Found {
  const exact = matchesOf(text, step);
  if (exact.length > 0) return { matches: exact, notes: [] };
  const bare = withoutNumbers(step);
  const matches = bare === undefined ? [] : matchesOf(text, bare);
  return { matches, notes: matches.length > 0 ? ['line numbers that stood before each line of old_string were taken off'] : [] };
}

/** Exact occurrences (overlapping ones count), else those that differ in line ends only. */
function matchesOf(text: string, step: Replacement): readonly Match[] {
  const eol = majorityEol(text);
  const exact: Match[] = [];
  const replacement = eol === '\r\n' && !/(?<!\r)\n/.test(step.old_string) ? withEol(step.new_string, eol) : step.new_string;
  for (let at = text.indexOf(step.old_string); at !== -1; at = text.indexOf(step.old_string, at + 1)) {
    exact.push({ start: at, end: at + step.old_string.length, replacement });
  }
  if (exact.length > 0 || !step.old_string.includes('\n')) return exact;
  const pattern = new RegExp(step.old_string.split(/\r?\n/).map(escapePattern).join('\\r?\\n'), 'g');
  return [...text.matchAll(pattern)].map((hit) => {
    const own = /\r?\n/.exec(hit[0])?.[0] ?? eol;
    return { start: hit.index, end: hit.index + hit[0].length, replacement: withEol(step.new_string, own) };
  });
}

function majorityEol(text: string): string {
  const all = text.split('\n').length - 1;
  const crlf = text.split('\r\n').length - 1;
  return crlf * 2 > all ? '\r\n' : '\n';
}

function withEol(text: string, eol: string): string {
  return text.replace(/\r?\n/g, () => eol);
}

function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}

const NUMBERED = /^[ \t]*(\d+)(?:\t|: ?|→| ?\| ?)/;

/** Takes off `12: `, `12 | ` or `12<tab>` when every line of old_string has one and they count up by one. */
function withoutNumbers(step: Replacement): Replacement | undefined {
  const lines = step.old_string.replace(/\r?\n$/, '').split('\n');
  const numbers = lines.map((line) => NUMBERED.exec(line)?.[1]);
  const first = Number(numbers[0]);
  if (!numbers.every((number, index) => number !== undefined && Number(number) === first + index)) return undefined;
  const strip = (text: string): string => text.split('\n').map((line) => line.replace(NUMBERED, '')).join('\n');
  const replaced = step.new_string.replace(/\r?\n$/, '').split('\n');
  const old = strip(step.old_string);
  if (old.trim() === '') return undefined;
  return { ...step, old_string: old, new_string: replaced.every((line) => NUMBERED.test(line)) ? strip(step.new_string) : step.new_string };
}

function nothingFound(text: string, old: string): ReturnType<typeof refuse> {
  const places = nearestPlaces(text, old);
  if (places === '') return refuse('old_string does not occur in the file, and nothing is like it.', 'Read the file and copy the text exactly.');
  return refuse('old_string does not occur in the file. Nothing was changed.', `Copy the text exactly from the file. The nearest places:\n${places}`);
}
