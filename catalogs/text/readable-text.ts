/**
 * Writes texts from outside so that a person reads what they are: characters that deceive are written out, words that
 * mix alphabets are marked.
 */

/**
 * Characters that a terminal or a reader would not show as they are: control characters, half code points, invisible
 * characters, spaces other than the ASCII one.
 */
const INVISIBLE = String.raw`\p{C}\p{DI}\p{Zl}\p{Zp}\u2800\u{a0}\u{1680}\u2000-\u200a\u202f\u205f\u3000`;
/** Blocks of right-to-left letters. One such letter reverses the text next to it. */
const RIGHT_TO_LEFT = String.raw`\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}`;
/** Marks that stand on no letter, enclose a letter, or are so many that they cover the rows above and below. */
const MARKS = String.raw`\p{Me}|(?<![\p{L}\p{M}])\p{M}+|\p{M}{3,}`;
/** Matches each of them. */
export const DECEIVING = new RegExp(`[${INVISIBLE}${RIGHT_TO_LEFT}]|${MARKS}`, 'gu');

/**
 * Alphabets with letters that look like letters of another one. Japanese and Chinese mix with Latin in ordinary words,
 * so they are not here.
 */
const SCRIPTS = ['Latin', 'Greek', 'Cyrillic', 'Armenian', 'Cherokee', 'Coptic', 'Lisu', 'Hebrew', 'Arabic'].map(
  (script) => new RegExp(`\\p{Script=${script}}`, 'u'),
);

/**
 * Escapes each character that a terminal or a reader would not show as it is, or would show in another place, as
 * `\u{…}`.
 */
export function printable(text: string): string {
  return /^[\x20-\x7e]*$/.test(text)
    ? text
    : text.replace(DECEIVING, (found) =>
        [...found].map((letter) => `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`).join(''),
      );
}

/** A count with its noun: `1 rule`, `2 rules`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Describes the letters of a text that is not plain ASCII: words that mix alphabets are named, with those letters. */
export function letterMarks(text: string): readonly string[] {
  if (/^[\x20-\x7e\n\t]*$/.test(text)) return [];
  const words = text.match(/[\p{L}\p{M}\p{N}_-]+/gu) ?? [];
  const mixed = [...new Set(words.filter((word) => SCRIPTS.filter((script) => script.test(word)).length > 1))].slice(
    0,
    3,
  );
  const plain = (word: string): string =>
    printable(word.slice(0, 60)).replace(
      /[^\x20-\x7e]/gu,
      (letter) => `\\u{${(letter.codePointAt(0) ?? 0).toString(16)}}`,
    );
  return ['not all ASCII', ...(mixed.length === 0 ? [] : [`mixes scripts: ${mixed.map(plain).join(' ')}`])];
}

/** Returns printable text, followed by the marks of its letters. */
export function marked(text: string): string {
  const marks = letterMarks(text);
  return `${printable(text)}${marks.length === 0 ? '' : `  (${marks.join(', ')})`}`;
}
