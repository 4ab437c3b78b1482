/**
 * Keeps text from outside in its rows: it is wrapped before the terminal wraps it, and deceptive letters are marked.
 * Such a text never begins a row of Tollgate.
 */
import type { Io } from './command-io.ts';
import { MAX_COLUMNS, printable, wrapRow, wrapWords } from './print.ts';

const MIN_COLUMNS = 40;
/** Begins each row that continues the row above. */
const CONTINUATION = '    | ';

/**
 * Alphabets with letters that look like letters of another one. Japanese and Chinese mix with Latin in ordinary words,
 * so they are not here.
 */
const SCRIPTS = ['Latin', 'Greek', 'Cyrillic', 'Armenian', 'Cherokee', 'Coptic', 'Lisu', 'Hebrew', 'Arabic'].map(
  (script) => new RegExp(`\\p{Script=${script}}`, 'u'),
);

/**
 * Breaks printable text into rows that are not wider than the terminal, and not wider than 100 columns. A terminal that
 * breaks rows by itself would begin a new row with any text.
 */
export function inRows(io: Pick<Io, 'isTTY' | 'out'>, text: string): string {
  const columns = screenColumns(io.isTTY, io.out);
  return text
    .split('\n')
    .flatMap((row) => wrapRow(row, columns, CONTINUATION))
    .join('\n');
}

/** Returns the width to which text is broken: that of the terminal, from 40 to 100 columns. */
export function screenColumns(isTTY: boolean, stream: object): number {
  const { columns = 0 } = stream as { readonly columns?: number };
  // Some terminals report a width of 0.
  return isTTY && columns > 0 ? Math.min(MAX_COLUMNS, Math.max(MIN_COLUMNS, columns)) : MAX_COLUMNS;
}

/**
 * Breaks the lines of a message at words. A line that begins with two spaces and the name of a program (`commands`)
 * stays whole, because people copy it; so does an address on its own line, and a line of JSON.
 */
export function wrapMessage(text: string, columns: number, commands: readonly string[]): string {
  const isWhole = (line: string): boolean =>
    line.startsWith('{') ||
    /^ {2}https?:\/\/\S+$/.test(line) ||
    commands.some((command) => line.startsWith(`  ${command} `));
  return text
    .split('\n')
    .map((line) => {
      const indent = /^ */.exec(line)?.[0] ?? '';
      return isWhole(line) ? line : wrapWords(line, columns, `${indent}  `);
    })
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
