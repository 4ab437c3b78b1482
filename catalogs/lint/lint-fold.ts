/**
 * Normalizes a text for the description audit: replaces look-alike letters by Latin ones, and decodes hidden messages
 * and encodings.
 */
import { findHostile } from '../text/hostile-text.ts';
import { longPattern } from '../text/long-pattern.ts';

/** Letters of other scripts, each followed by the Latin letter that it looks like. */
const TWINS = pairs(`
  аaеeоoрpсcуyхxіiјjѕsԁdһhԛqԝwӏlАAВBЕEЗ3КKМMНHОOРPСCТTУYХXІIЈJ
  ЅSԌGΑAΒBΕEΖZΗHΙIΚKΜMΝNΟOΡPΤTΥYΧXαaοoνvιiκkρpυuҮYүyվuօoսuոnցg
  հhᎪAᎬEᎷMᏢPᎢTᏙVᎻHᏟCꓲIꓳOꓔTꓮA
`);
const TWIN_LETTERS = [...TWINS.keys()].join('');
const TWIN = new RegExp(`[${TWIN_LETTERS}]`, 'gu');
/**
 * Words with a look-alike next to a Latin letter, or three look-alikes and nothing else in a text that is Latin
 * otherwise.
 */
const MIXED = new RegExp(`[A-Za-z][${TWIN_LETTERS}]|[${TWIN_LETTERS}][A-Za-z]`, 'u');
const WHOLE = new RegExp(`(?<!\\p{L})[${TWIN_LETTERS}]{3,}(?!\\p{L})`, 'u');
/**
 * Letters in another form: mathematical, full-width, circled, squared, small capitals; marks on Latin letters that no
 * spelling composes.
 */
const STYLED = longPattern('u')`
  [\u{1d400}-\u{1d7cb}\u{1f130}-\u{1f149}\u{1f150}-\u{1f169}\u{1f170}-\u{1f189}]
  |[\uff21-\uff3a\uff41-\uff5a\u249c-\u24e9\u1d00-\u1d22]
  |[\u{210a}-\u{2113}\u{211b}-\u{211d}\u{212c}-\u{2138}]`;
const STACKED = /[a-z][\u0300-\u036f]/iu;
/** Digits and signs inside words. */
const LEET = pairs('0o1i3e4a5s7t@a$s');
const LEET_WORD = /(?<![a-z013457@$])[a-z013457@$]+/gi;
const SPACED = /(?<![a-z])(?:[a-z] ){3,60}[a-z](?![a-z])/gi;
const WRAPPED = /[ \t]{0,8}\r?\n[ \t]{0,40}(?=[a-z])/g;
const SMALL_CAPITALS = pairs('ᴀaʙbᴄcᴅdᴇeɢgʜhɪiᴊjᴋkʟlᴍmɴnᴏoᴘpʀrᴛtᴜuᴠvᴡwʏyᴢz');
const ASCII = /^[\t\n\r -~]*$/;

/** Returns a map from the first character of each pair to the second, a Latin letter or digit. */
function pairs(text: string): ReadonlyMap<string, string> {
  return new Map([...text.matchAll(/(\S)([A-Za-z\d])/gu)].map(([, from = '', to = '']) => [from, to]));
}

/** Returns true if letters stand in for others. */
export function isConfusable(text: string): boolean {
  if (ASCII.test(text)) return false;
  if (STYLED.test(text) || MIXED.test(text)) return true;
  if (STACKED.test(text.normalize('NFC'))) return true;
  return WHOLE.test(text) && isLatin(text);
}

/** Returns true if most letters are Latin. */
function isLatin(text: string): boolean {
  const latin = text.match(/[a-z]/gi)?.length ?? 0;
  return latin > (text.match(/(?![a-z])\p{L}/giu)?.length ?? 0);
}

/**
 * Returns the text as a reader sees it: look-alike letters as Latin ones, letters with spaces between them joined,
 * hidden characters removed.
 */
export function fold(text: string): string {
  if (ASCII.test(text)) return joinLines(text);
  const shown = withoutHidden(text).replace(/[\u{1f130}-\u{1f149}\u{1f150}-\u{1f169}\u{1f170}-\u{1f189}]/gu, (letter) =>
    String.fromCharCode(65 + (((letter.codePointAt(0) ?? 0) - 0x1f130) % 32)),
  );
  const plain = shown.normalize('NFKD').replace(/[\u0300-\u036f]/g, '');
  return joinLines(
    plain
      .replace(TWIN, (letter) => TWINS.get(letter) ?? letter)
      .replace(/[\u0250-\u02af\u1d00-\u1d22]/g, (letter) => SMALL_CAPITALS.get(letter) ?? letter),
  );
}

/** Returns a second reading: digits in words as the letters that they resemble. The same text if there are none. */
export function unleet(text: string): string {
  return !/[a-z][013457@$]|[013457@$][a-z]/i.test(text)
    ? text
    : text.replace(LEET_WORD, (word) =>
        /^\d+[a-z]{1,3}$|^\d+$/i.test(word) ? word : [...word].map((letter) => LEET.get(letter) ?? letter).join(''),
      );
}

/** Joins letters with spaces between them, and the lines of a wrapped sentence. */
function joinLines(text: string): string {
  return text.replace(SPACED, (word) => word.replaceAll(' ', '')).replace(WRAPPED, ' ');
}

function withoutHidden(text: string): string {
  let shown = '';
  let from = 0;
  for (const { index, char } of findHostile(text)) {
    shown += text.slice(from, index);
    from = index + char.length;
  }
  return (shown + text.slice(from)).replace(/[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0]/g, '');
}

/**
 * Returns what invisible characters spell: tags are ASCII with other code points, the supplementary selectors are
 * bytes. Undefined for less than four.
 */
export function hiddenMessage(text: string): string | undefined {
  if (!/[\udb40]/.test(text)) return undefined;
  const letters = [...text].flatMap((char) => {
    const code = char.codePointAt(0) ?? 0;
    if (code >= 0xe0020 && code <= 0xe007e) return [String.fromCharCode(code - 0xe0000)];
    return code >= 0xe0100 && code <= 0xe01ef ? [String.fromCharCode(code - 0xe0100 + 16)] : [];
  });
  return letters.length < 4 ? undefined : letters.join('');
}

/** Base64, hexadecimal, percent signs, or escapes of a string literal. */
const BLOB = longPattern('g')`
  (?<![\w+/%\\-])(?:[A-Za-z0-9+/_-]{24,}={0,2}|(?:[0-9a-fA-F]{2}[ :]?){16,}
  |(?:[^\s%]{0,3}%[0-9a-fA-F]{2}){6,}[^\s%]{0,40}
  |(?:\\x[0-9a-fA-F]{2}|\\u00[0-9a-fA-F]{2}){6,})`;

/** Returns encoded parts that decode to text of words, at most eight of them. */
export function decodedBlobs(text: string): readonly { readonly blob: string; readonly plain: string }[] {
  if (text.length < 24) return [];
  const found: { readonly blob: string; readonly plain: string }[] = [];
  for (const [blob] of text.matchAll(BLOB)) {
    const plain = decode(blob);
    if (plain !== undefined) found.push({ blob, plain });
    if (found.length === 8) break;
  }
  return found;
}

function decode(blob: string): string | undefined {
  const bare = blob.replace(/[ :]/g, '');
  if (blob.startsWith('\\')) return readable(Buffer.from(blob.replace(/\\x|\\u00/g, ''), 'hex').toString('latin1'));
  if (blob.includes('%'))
    return readable(
      blob.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))),
    );
  if (/^[0-9a-f]+$/i.test(bare)) return readable(Buffer.from(bare, 'hex').toString('latin1'));
  return readable(Buffer.from(blob, 'base64').toString('latin1'));
}

/** Text of at least two words that is almost completely printable. Anything else is a hash, an id or an image. */
function readable(text: string): string | undefined {
  const printable = text.match(/[\t\n\r -~]/g)?.length ?? 0;
  return printable >= text.length * 0.95 && /[a-z]{2}[ ,:/|]{1,3}[-~./"']{0,4}[a-z]{2}/i.test(text) ? text : undefined;
}
