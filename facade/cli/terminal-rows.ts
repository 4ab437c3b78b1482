/**
 * Keeps text from outside in its rows: it is wrapped before the terminal wraps it, and deceptive letters are marked.
 * Such a text never begins a row of Tollgate.
 */
import type { Io } from './command-io.ts';
import { printable } from './print.ts';

/** The width if the terminal does not tell it. */
const WIDTH = 100;
const NARROWEST = 40;
/** Begins each row that continues the row above. */
const ON = '    | ';

/**
 * Alphabets with letters that look like letters of another one. Japanese and Chinese mix with Latin in ordinary words,
 * so they are not here.
 */
const SCRIPTS = ['Latin', 'Greek', 'Cyrillic', 'Armenian', 'Cherokee', 'Coptic', 'Lisu', 'Hebrew', 'Arabic'].map(
  (script) => new RegExp(`\\p{Script=${script}}`, 'u'),
);

/**
 * Returns printable rows, none wider than the terminal (default 100). A terminal that wraps by itself would start a new
 * row with any text.
 */
export function inRows({ isTTY, out }: Pick<Io, 'isTTY' | 'out'>, text: string): string {
  const columns = isTTY ? (out as { readonly columns?: number }).columns : undefined;
  const width = Math.max(NARROWEST, columns ?? WIDTH);
  return text
    .split('\n')
    .map((row) => folded(row, width))
    .join('\n');
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

/** Breaks at a space if one is near. */
function folded(row: string, width: number): string {
  if (row.length * 2 <= width) return row;
  const rows: string[] = [];
  let letters = [...row];
  for (let end = endOf(letters, width); end < letters.length; end = endOf(letters, width)) {
    const blank = letters.lastIndexOf(' ', end - 1) + 1;
    const at = blank > end / 2 ? blank : end;
    rows.push(letters.slice(0, at).join(''));
    letters = [...ON, ...letters.slice(at)];
  }
  return [...rows, letters.join('')].join('\n');
}

/** Returns how many letters fit. A letter outside ASCII counts twice, because it may be two columns wide. */
function endOf(letters: readonly string[], width: number): number {
  let columns = 0;
  const at = letters.findIndex((letter) => (columns += letter > '~' ? 2 : 1) > width);
  return at === -1 ? letters.length : at;
}
