/** Prints tables, JSON and colour. No name from outside can control the terminal. */
import { styleText } from 'node:util';
import type { Io } from './command-io.ts';

/** Where a command prints. `isTTY`: a person reads it, so it has colour. */
export type CliIo = Pick<Io, 'stdout' | 'stderr' | 'isTTY'>;

export type Colour = 'green' | 'yellow' | 'red' | 'magenta' | 'dim' | 'bold';

/** A cell: text, or text in a colour. */
export type Cell = string | { readonly text: string; readonly colour: Colour };

const MAX_CELL = 60;

/**
 * Characters that a terminal or a reader would not show as they are: control characters, half code points, invisible
 * characters, spaces other than the ASCII one.
 */
const UNSEEN = String.raw`\p{C}\p{DI}\p{Zl}\p{Zp}\u2800\u{a0}\u{1680}\u2000-\u200a\u202f\u205f\u3000`;
/** Blocks of right-to-left letters. One such letter reverses the text next to it. */
const LEFTWARD = String.raw`\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}`;
/** Marks that stand on no letter, enclose a letter, or are so many that they cover the rows above and below. */
const MARKS = String.raw`\p{Me}|(?<![\p{L}\p{M}])\p{M}+|\p{M}{3,}`;
const DECEIVING = new RegExp(`[${UNSEEN}${LEFTWARD}]|${MARKS}`, 'gu');
const DECEIVING_JSON = new RegExp(`(?!\n)(?:${DECEIVING.source})`, 'gu');

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

/** Returns the arguments as a line that a shell splits into the same arguments. */
export function commandLine(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(' ');
}

/** Adds colour if a person reads the output. */
export function paint(io: Pick<CliIo, 'isTTY'>, colour: Colour, text: string): string {
  return io.isTTY ? styleText(colour, text) : text;
}

/** Returns a table with aligned columns, one row per line. Cells are made printable and cut to 60 characters. */
export function table(
  io: Pick<CliIo, 'isTTY'>,
  columns: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const head = columns.map((name): Cell => ({ text: name, colour: 'dim' }));
  const lines = [head, ...rows].map((row) => row.map(cellOf));
  const widths = columns.map((_, at) => Math.max(...lines.map((line) => [...(line[at]?.text ?? '')].length)));
  const format = (line: readonly { text: string; colour?: Colour }[]): string =>
    line
      .map(({ text, colour }, at) => {
        const padding = at === line.length - 1 ? '' : ' '.repeat((widths[at] ?? 0) - [...text].length);
        return (colour === undefined ? text : paint(io, colour, text)) + padding;
      })
      .join('  ')
      .trimEnd();
  return `${lines.map(format).join('\n')}\n`;
}

/** Returns one value as indented JSON. */
export function json(value: unknown): string {
  // Escaped for a terminal, which must not obey it. A JSON parser reads the same text.
  return `${JSON.stringify(value, null, 2).replace(DECEIVING_JSON, (found) =>
    found
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  )}\n`;
}

function cellOf(cell: Cell): { readonly text: string; readonly colour?: Colour } {
  const { text, ...rest } = typeof cell === 'string' ? { text: cell } : cell;
  const letters = [...printable(text)];
  return {
    text: letters.length > MAX_CELL ? `${letters.slice(0, MAX_CELL - 1).join('')}…` : letters.join(''),
    ...rest,
  };
}
