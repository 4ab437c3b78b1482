/**
 * Finds characters that hide, reorder or control a terminal. They are removed or written visibly before a text reaches
 * a model or a terminal.
 */
import { TollgateError } from '../errors/error-table.ts';
import { longPattern } from './long-pattern.ts';

/** C0 except TAB, LF and CR; DEL and C1. */
const CONTROLS = String.raw`\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f`;
/**
 * Zero-width characters, bidi overrides, embeddings and isolates, invisible operators, selectors, interlinear marks.
 */
const INVISIBLE = String.raw`\u180e\u200b-\u200d\u202a-\u202e\u2060-\u2064\u2066-\u206f
  \ufe00-\ufe0f\ufeff\ufff9-\ufffb`;
/**
 * Every tag and every supplementary selector begins with U+DB40. No flag `u`, because this test runs over every
 * result.
 */
const QUICK = longPattern()`[${CONTROLS}${INVISIBLE}\udb40]`;
/** Matches the same characters one by one, and surrogates that stand alone. */
const EACH = longPattern('g')`
  [${CONTROLS}${INVISIBLE}]|\udb40[\udc00-\udfff]
  |[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]`;

/** For each code unit: 0 if it has not been asked for, 1 if it is not suspect, 2 if it is. */
const suspects = new Uint8Array(0x10000);

/** Returns true for a code unit with which a character that `escapeHostile` writes out may begin. */
export function isSuspect(unit: number): boolean {
  if (suspects[unit] === 0) suspects[unit] = QUICK.test(String.fromCharCode(unit)) ? 2 : 1;
  return suspects[unit] === 2;
}

type Ranges = readonly (readonly [number, number])[];
/** Pictographs and regional letters, generously. */
const PICTOGRAPHS: Ranges = [
  [0x1f000, 0x1faff],
  [0x2190, 0x2bff],
  [0x3030, 0x303d],
  [0x3297, 0x3299],
  [0xa9, 0xae],
  [0x203c, 0x203c],
  [0x2049, 0x2049],
  [0x2100, 0x214f],
];
/**
 * What may come before a selector or joiner of an emoji besides a pictograph: itself a selector, a keycap mark, a
 * digit, # or *.
 */
const EMOJI_PARTS: Ranges = [
  [0xfe0e, 0xfe0f],
  [0x20e3, 0x20e3],
  [0x30, 0x39],
  [0x23, 0x23],
  [0x2a, 0x2a],
];
/**
 * Scripts in which joiners are part of the spelling: Arabic to N'Ko, Indic, Myanmar, Khmer, Mongolian, Arabic forms.
 */
const JOINING: Ranges = [
  [0x600, 0x8ff],
  [0x900, 0xdff],
  [0x1000, 0x109f],
  [0x1780, 0x18af],
  [0xfb50, 0xfdff],
  [0xfe70, 0xfefe],
];
/** Scripts that separate words with a zero-width space: Thai, Lao, Tibetan, Myanmar, Khmer. */
const SPACELESS: Ranges = [
  [0xe00, 0xfff],
  [0x1000, 0x109f],
  [0x1780, 0x17ff],
];
const TAGS: Ranges = [[0xe0020, 0xe007f]];
const FLAG_LETTERS: Ranges = [
  [0xe0030, 0xe0039],
  [0xe0061, 0xe007a],
];
const IDEOGRAPHS: Ranges = [
  [0x2e80, 0x2fff],
  [0x3400, 0x9fff],
  [0xf900, 0xfaff],
  [0x20000, 0x3ffff],
];

/** A whole escape sequence: CSI, OSC up to its end, or ESC and one character. */
const ANSI = longPattern('g')`
  (?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]
  |(?:\u001b\]|\u009d)[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -~]?`;

/** What `cleanDescription` changes: many spaces, carriage returns, ends of comments, spaces around the text. */
const UNTIDY = /[ \t]{3}|\r|[ \t]\n|\n{3}|\*\/|^\s|\s$/;

/**
 * Returns the hostile characters of a text with their places. Joiners inside emoji, Indic and Arabic text are spelling.
 */
export function findHostile(text: string): readonly { readonly index: number; readonly char: string }[] {
  const found: { readonly index: number; readonly char: string }[] = [];
  eachHostile(text, (index, end) => found.push({ index, char: text.slice(index, end) }));
  return found;
}

/**
 * Calls `visit` with the bounds of each hostile character. It makes no object for each, because a result can contain
 * twenty million.
 */
function eachHostile(text: string, visit: (index: number, end: number) => void): void {
  if (!QUICK.test(text) && isWhole(text)) return;
  EACH.lastIndex = 0;
  while (EACH.test(text)) {
    const end = EACH.lastIndex;
    // A match is one unit, or a pair that begins with U+DB40.
    const isPair = text.charCodeAt(end - 2) === 0xdb40 && (text.charCodeAt(end - 1) & 0xfc00) === 0xdc00;
    const index = end - (isPair ? 2 : 1);
    if (!belongs(text, index, end)) visit(index, end);
  }
}

/** Returns true if every surrogate is part of a pair. */
function isWhole(text: string): boolean {
  return (text as unknown as { isWellFormed(): boolean }).isWellFormed();
}

/** Returns true if a suspect character is part of an ordinary spelling. */
function belongs(text: string, index: number, end: number): boolean {
  const code = text.codePointAt(index) ?? 0;
  if (code < 0x200b || (code >= 0x202a && code < 0xfe00)) return false;
  const before = codeBefore(text, index);
  const after = text.codePointAt(end) ?? 0x20;
  if (code === 0x200b) return within(before, SPACELESS) && within(after, SPACELESS);
  if (code === 0x200c) return within(before, JOINING);
  if (code === 0x200d)
    return within(before, JOINING)
      ? within(after, JOINING)
      : (within(before, PICTOGRAPHS) || before === 0xfe0f) && within(after, PICTOGRAPHS);
  // One selector after a base is presentation; several carry hidden bytes.
  if (code >= 0xfe0e && code <= 0xfe0f)
    return within(before, PICTOGRAPHS) || (before < 0xfe00 && within(before, EMOJI_PARTS));
  if (code <= 0xfe0f || code >= 0xe0100) return within(before, IDEOGRAPHS);
  if (code === 0xfeff) return index === 0;
  return code >= 0xe0020 && code <= 0xe007f && insideFlag(text, index);
}

function within(code: number, ranges: Ranges): boolean {
  return ranges.some(([first, last]) => code >= first && code <= last);
}

/** Tag characters are legal only in the flag of a region: 🏴, three to six tags, and a cancel tag. */
function insideFlag(text: string, index: number): boolean {
  let start = index;
  // Each tag takes two places; a flag has at most seven of them.
  while (start > 0 && index - start < 14 && within(codeBefore(text, start), TAGS)) start -= 2;
  if (codeBefore(text, start) !== 0x1f3f4) return false;
  let end = start;
  while (end - start < 12 && within(text.codePointAt(end) ?? 0, FLAG_LETTERS)) end += 2;
  return end - start >= 6 && text.codePointAt(end) === 0xe007f && index <= end;
}

function codeBefore(text: string, index: number): number {
  const low = text.charCodeAt(index - 1);
  const wide = low >= 0xdc00 && low <= 0xdfff && index > 1;
  return index === 0 ? 0x20 : (text.codePointAt(index - (wide ? 2 : 1)) ?? 0x20);
}

/**
 * Writes hostile characters visibly, as `\u{1B}`, for results. Legal text comes back as the same string: letters of all
 * scripts, emoji sequences, CRLF. `count` is the number of written-out characters. Throws UPSTREAM_TOO_LARGE if it is
 * more than MAX_HOSTILE.
 */
export function escapeHostile(text: string): { readonly text: string; readonly count: number } {
  return rewriteHostile(text, escapeCode);
}

function rewriteHostile(
  text: string,
  write: (code: number) => string,
): { readonly text: string; readonly count: number } {
  let parts: string[] = [];
  const chunks: string[] = [];
  let from = 0;
  let count = 0;
  eachHostile(text, (index, end) => {
    if (index > from) parts.push(text.slice(from, index));
    parts.push(write(text.codePointAt(index) ?? 0));
    from = end;
    count += 1;
    if (count > MAX_HOSTILE) throw tooHostile();
    if (parts.length < MAX_PARTS) return;
    chunks.push(parts.join(''));
    parts = [];
  });
  return count === 0 ? { text, count } : { text: `${chunks.join('')}${parts.join('')}${text.slice(from)}`, count };
}

/** Limit of hostile characters in one result. Each costs a tenth of a microsecond, and up to ten times its bytes. */
export const MAX_HOSTILE = 2_000_000;

/** Returns the error for a text with more hostile characters. */
export function tooHostile(): TollgateError {
  return new TollgateError('UPSTREAM_TOO_LARGE', {
    detail: `The text contains more than ${MAX_HOSTILE} control or hidden characters.`,
  });
}

/** Parts are joined when they are this many, so that millions of them are never in memory. */
const MAX_PARTS = 10_000;
const escapes = new Map<number, string>();

/** Returns a code point written visibly. There are few different ones, so the map stays small. */
function escapeCode(code: number): string {
  const known = escapes.get(code);
  if (known !== undefined) return known;
  const text = `\\u{${code.toString(16).toUpperCase()}}`;
  escapes.set(code, text);
  return text;
}

/** Returns the text without terminal escape sequences, each removed completely. The same string if there are none. */
export function withoutEscapes(text: string): string {
  return text.replace(ANSI, '');
}

/**
 * Returns a description that is safe to show (HA-22): escape sequences, control and hidden characters removed, `*` +
 * `/` divided (it would end a comment in generated code), spaces reduced, cut at `max` characters (1,024 in portable
 * projections, 2,000 in approvals) at a whole code point.
 */
export function cleanDescription(text: string, { max }: { readonly max: number }): string {
  const visible = QUICK.test(text) || !isWhole(text) ? removeHostile(withoutEscapes(text)) : text;
  // Spaces are reduced first, because the later expressions would be quadratic in them.
  const plain = UNTIDY.test(visible)
    ? visible
        .replace(/[ \t]{3,}/g, ' ')
        .replace(/\r\n?/g, '\n')
        .replace(/[ \t]{1,2}$/gm, '')
        .replace(/\n{3,}/g, '\n\n')
        .replaceAll('*/', '*\\/')
        .trim()
    : visible;
  if (plain.length <= max) return plain;
  if (max < 2) return '';
  const end = /[\ud800-\udbff]/.test(plain.charAt(max - 2)) ? max - 2 : max - 1;
  return `${plain.slice(0, end)}…`;
}

function removeHostile(text: string): string {
  return rewriteHostile(text, (code) => (code >= 0xd800 && code <= 0xdfff ? '\ufffd' : '')).text;
}

/**
 * Returns the description of a tool for a model: generated rules first, because a cut must not lose them; a text made
 * from the name if there is none, because some providers refuse an empty one.
 */
export function toolDescription(
  tool: { readonly name: string; readonly description?: string; readonly hints?: readonly string[] },
  max = 1024,
): string {
  const rules = (tool.hints ?? []).join('; ');
  const prose = cleanDescription(tool.description ?? '', { max }) || `Tool ${tool.name.replace(/[_-]+/g, ' ')}.`;
  return cleanDescription(rules === '' ? prose : `Rules: ${rules}.\n${prose}`, { max });
}
