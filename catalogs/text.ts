/** Owns the characters that may reach a model or a terminal: what hides, reorders or drives a terminal is removed or written visibly. */

// C0 but TAB, LF and CR; DEL and C1; bidi overrides, embeddings and isolates; zero-width; invisible operators; tags; half pairs; interlinear marks; selectors of runs.
const SUSPECT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u180e\u200b-\u200d\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb\ud800-\udfff\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]/u;
const EACH_SUSPECT = new RegExp(SUSPECT.source, 'gu');
const EMOJI = /\p{Extended_Pictographic}|\p{Emoji_Modifier}|\p{Regional_Indicator}|[\u200d\ufe0f\u20e3#*0-9]/u;
const PICTOGRAPH = /\p{Extended_Pictographic}|\p{Regional_Indicator}/u;
/** Scripts in which joiners are spelling. */
const JOINING = /[\p{Script=Arabic}\p{Script=Syriac}\p{Script=Mongolian}\p{Script=Nko}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Gurmukhi}\p{Script=Gujarati}\p{Script=Oriya}\p{Script=Tamil}\p{Script=Telugu}\p{Script=Kannada}\p{Script=Malayalam}\p{Script=Sinhala}\p{Script=Khmer}\p{Script=Myanmar}]/u;
/** Scripts that part words with a zero-width space. */
const SPACELESS = /[\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]/u;
// A whole escape sequence: CSI, OSC up to its end, or ESC and one character.
const ANSI = /(?:\u001b\[|\u009b)[0-?]*[ -/]*[@-~]|(?:\u001b\]|\u009d)[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c)?|\u001b[ -~]?/g;

/** What makes a description worth a second look: blank runs, lone returns, ends of comments, blanks around it. */
const UNTIDY = /[ \t]{3}|\r|[ \t]\n|\n{3}|\*\/|^\s|\s$/;

/** The hostile characters of a text with their places; joiners inside emoji, Indic and Arabic runs are spelling, not hiding. */
export function findHostile(text: string): readonly { readonly index: number; readonly char: string }[] {
  if (!SUSPECT.test(text)) return [];
  return [...text.matchAll(EACH_SUSPECT)].filter((match) => !belongs(text, match.index, match[0])).map((match) => ({ index: match.index, char: match[0] }));
}

/** True where a suspect character is part of an ordinary spelling. */
function belongs(text: string, index: number, char: string): boolean {
  const before = codePointBefore(text, index);
  const after = String.fromCodePoint(text.codePointAt(index + char.length) ?? 0x20);
  const code = char.codePointAt(0) ?? 0;
  if (code === 0x200b) return SPACELESS.test(before) && SPACELESS.test(after);
  if (code === 0x200c || code === 0x200d) return (JOINING.test(before) && (JOINING.test(after) || code === 0x200c)) || (code === 0x200d && EMOJI.test(before) && PICTOGRAPH.test(after));
  // One selector after a base is presentation; a run of them carries hidden bytes.
  if (code >= 0xfe00 && code <= 0xfe0f) return code >= 0xfe0e ? isBase(before) : isIdeograph(before) || /\p{Script=Mongolian}|\p{Sm}/u.test(before);
  if (code >= 0xe0100) return isIdeograph(before);
  if (code === 0xfeff) return index === 0;
  return code >= 0xe0020 && code <= 0xe007f && insideFlag(text, index);
}

function isBase(char: string): boolean {
  return EMOJI.test(char) && char !== '\ufe0f' && char !== '\u200d' || /\p{So}|\p{Sm}|\p{Po}/u.test(char);
}

function isIdeograph(char: string): boolean {
  return /\p{Script=Han}/u.test(char);
}

/** Tag characters are legal in exactly one place: a subdivision flag, 🏴 and at most six tags with a cancel tag. */
function insideFlag(text: string, index: number): boolean {
  const start = text.lastIndexOf('\u{1f3f4}', index);
  const flag = start < 0 ? null : /^\u{1f3f4}[\u{e0030}-\u{e0039}\u{e0061}-\u{e007a}]{3,6}\u{e007f}/u.exec(text.slice(start, start + 20));
  return flag !== null && index < start + flag[0].length;
}

function codePointBefore(text: string, index: number): string {
  const low = text.charCodeAt(index - 1);
  const wide = low >= 0xdc00 && low <= 0xdfff;
  return index === 0 ? ' ' : text.slice(index - (wide ? 2 : 1), index);
}

/**
 * Writes hostile characters visibly, as `\u{1B}`, for results (design §6). Legal text comes back as the same string:
 * letters of all scripts, emoji sequences, CRLF. `count` is the number of characters that were written out.
 */
export function escapeHostile(text: string): { readonly text: string; readonly count: number } {
  const found = findHostile(text);
  if (found.length === 0) return { text, count: 0 };
  const parts: string[] = [];
  let from = 0;
  for (const { index, char } of found) {
    parts.push(text.slice(from, index), `\\u{${(char.codePointAt(0) ?? 0).toString(16).toUpperCase()}}`);
    from = index + char.length;
  }
  parts.push(text.slice(from));
  return { text: parts.join(''), count: found.length };
}

/**
 * A description that is safe to show (HA-22): escape sequences, control and hidden characters removed, `*` + `/`
 * broken (it would end a comment in generated code), blank runs shortened, cut at `max` characters (1,024 in portable
 * projections, 2,000 in approvals) on a whole code point.
 */
export function cleanDescription(text: string, { max }: { readonly max: number }): string {
  const visible = SUSPECT.test(text) ? removeHostile(text.replace(ANSI, '')) : text;
  // Blank runs go first: the later expressions would be quadratic in them.
  const plain = UNTIDY.test(visible) ? visible.replace(/[ \t]{3,}/g, ' ').replace(/\r\n?/g, '\n').replace(/[ \t]{1,2}$/gm, '').replace(/\n{3,}/g, '\n\n').replaceAll('*/', '*\\/').trim() : visible;
  if (plain.length <= max) return plain;
  if (max < 2) return '';
  const end = /[\ud800-\udbff]/.test(plain.charAt(max - 2)) ? max - 2 : max - 1;
  return `${plain.slice(0, end)}…`;
}

function isLoneSurrogate(char: string): boolean {
  return /^\p{Surrogate}$/u.test(char);
}

function removeHostile(text: string): string {
  let cleaned = '';
  let from = 0;
  for (const { index, char } of findHostile(text)) {
    cleaned += text.slice(from, index) + (isLoneSurrogate(char) ? '\ufffd' : '');
    from = index + char.length;
  }
  return cleaned + text.slice(from);
}

/**
 * The description that a model reads for a tool: generated rules first, because a cut must not lose them
 * (schema-primitives A6.17); a text made from the name when there is none, because some providers refuse an empty one.
 */
export function toolDescription(tool: { readonly name: string; readonly description?: string; readonly hints?: readonly string[] }, max = 1024): string {
  const rules = (tool.hints ?? []).join('; ');
  const prose = cleanDescription(tool.description ?? '', { max }) || `Tool ${tool.name.replace(/[_-]+/g, ' ')}.`;
  return cleanDescription(rules === '' ? prose : `Rules: ${rules}.\n${prose}`, { max });
}
