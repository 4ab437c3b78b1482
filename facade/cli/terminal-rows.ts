/** Owns how text from outside keeps to its rows: broken by us where the terminal would, and marked where its letters deceive; refuses to let it begin a row of ours. */
import type { Io } from './command-io.ts';
import { printable } from './print.ts';

/** Where nobody says how wide the terminal is. */
const WIDTH = 100;
const NARROWEST = 40;
/** Begins each row that goes on with the one above. */
const ON = '    | ';

/** Alphabets with letters that look like those of another one; Japanese and Chinese mix with Latin in ordinary words. */
const SCRIPTS = ['Latin', 'Greek', 'Cyrillic', 'Armenian', 'Cherokee', 'Coptic', 'Lisu', 'Hebrew', 'Arabic'].map(
  (script) => new RegExp(`\\p{Script=${script}}`, 'u'),
);

/** Printed rows, none wider than the terminal (without one: 100): a terminal that wraps by itself makes a new row of whatever comes next. */
export function inRows({ isTTY, out }: Pick<Io, 'isTTY' | 'out'>, text: string): string {
  const columns = isTTY ? (out as { readonly columns?: number }).columns : undefined;
  const width = Math.max(NARROWEST, columns ?? WIDTH);
  return text
    .split('\n')
    .map((row) => folded(row, width))
    .join('\n');
}

/** What the letters of a text are, where they are not plain ASCII: words that mix alphabets by name, those letters written out. */
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

/** Printable, with the marks of its letters behind it. */
export function marked(text: string): string {
  const marks = letterMarks(text);
  return `${printable(text)}${marks.length === 0 ? '' : `  (${marks.join(', ')})`}`;
}

/** At a blank where one is near. */
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

/** How many letters fit. What is not ASCII counts twice: it may be two columns wide. */
function endOf(letters: readonly string[], width: number): number {
  let columns = 0;
  const at = letters.findIndex((letter) => (columns += letter > '~' ? 2 : 1) > width);
  return at === -1 ? letters.length : at;
}
