/** Prints tables, JSON and colour. No name from outside can control the terminal. */
import { styleText } from 'node:util';
import { DECEIVING, printable } from '../../catalogs/text/readable-text.ts';
import type { Io } from './command-io.ts';

export { plural, printable } from '../../catalogs/text/readable-text.ts';

/** Where a command prints. `isTTY`: a person reads it, so it has colour. */
export type CliIo = Pick<Io, 'stdout' | 'stderr' | 'isTTY'>;

export type Colour = 'green' | 'yellow' | 'red' | 'magenta' | 'dim' | 'bold';

/** A cell: text, or text in a colour. */
export type Cell = string | { readonly text: string; readonly colour: Colour };

/** The most columns of a row, also on a wider terminal, because long rows are hard to read. */
export const MAX_COLUMNS = 100;
/** The most letters of a cell. */
const MAX_CELL = 300;
/** The least columns to which a table narrows a column. */
const MIN_COLUMN = 12;

const DECEIVING_JSON = new RegExp(`(?!\n)(?:${DECEIVING.source})`, 'gu');

/** Returns the arguments as a line that a shell splits into the same arguments. */
export function commandLine(words: readonly string[]): string {
  return words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)).join(' ');
}

/** Adds colour if a person reads the output. */
export function paint(io: Pick<CliIo, 'isTTY'>, colour: Colour, text: string): string {
  return io.isTTY ? styleText(colour, text) : text;
}

/**
 * Breaks a row at spaces, so that no row has more than `width` columns. `begin` begins each further row. No letter is
 * lost: the space stays at the end of its row.
 */
export function wrapRow(row: string, width: number, begin: string): readonly string[] {
  if (row.length * 2 <= width) return [row];
  const rows: string[] = [];
  let letters = [...row];
  for (let end = lettersIn(letters, width); end < letters.length; end = lettersIn(letters, width)) {
    const space = letters.lastIndexOf(' ', end - 1) + 1;
    const next = letters.indexOf(' ', space);
    const wordLength = (next === -1 ? letters.length : next) - space;
    // A word that is longer than a row is broken where the row ends.
    const at = space > begin.length && wordLength <= width - begin.length ? space : end;
    rows.push(letters.slice(0, at).join(''));
    letters = [...begin, ...letters.slice(at)];
  }
  return [...rows, letters.join('')];
}

/** Breaks a line at words, to rows without spaces at their ends. */
export function wrapWords(line: string, width: number, begin: string): string {
  return wrapRow(line, width, begin)
    .map((row, at, rows) => (at === rows.length - 1 ? row : row.trimEnd()))
    .join('\n');
}

/** Returns how many letters fit into `width` columns. */
function lettersIn(letters: readonly string[], width: number): number {
  let columns = 0;
  const at = letters.findIndex((letter) => (columns += columnsOfLetter(letter)) > width);
  return at === -1 ? letters.length : at;
}

/** A letter that is not Latin counts as two columns, because it may be that wide. */
function columnsOfLetter(letter: string): 1 | 2 {
  return letter <= '\u024f' || letter === '…' ? 1 : 2;
}

function columnsOf(text: string): number {
  return [...text].reduce((sum, letter) => sum + columnsOfLetter(letter), 0);
}

/**
 * Returns a table with aligned columns of at most 100 columns in total. Cells are made printable. A long cell continues
 * in its column, so a text from outside never begins a row. Columns that are empty in every row are left out.
 */
export function table(
  io: Pick<CliIo, 'isTTY'>,
  columns: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const filled = columns.flatMap((_name, at) =>
    rows.length === 0 || rows.some((row) => cellOf(row[at] ?? '').text !== '') ? [at] : [],
  );
  const head = columns.map((name): Cell => ({ text: name, colour: 'dim' }));
  const lines = [head, ...rows].map((row) => filled.map((at) => row[at] ?? ''));
  const longest = (at: number, measure: (text: string) => number): number =>
    Math.max(...lines.map((line) => measure(cellOf(line[at] ?? '').text)));
  const widths = fitWidths(
    filled.map((_, at) => longest(at, columnsOf)),
    filled.map((_, at) => longest(at, (text) => Math.max(...text.split(' ').map(columnsOf)))),
  );
  return lines.map((line) => tableRow(io, line, widths)).join('');
}

/** Narrows the widest columns until the row fits. If words must be broken, those are the longest ones. */
function fitWidths(natural: readonly number[], longestWords: readonly number[]): readonly number[] {
  const available = MAX_COLUMNS - 2 * (natural.length - 1);
  for (const whole of [...longestWords, 0].sort((a, b) => b - a))
    for (let widest = Math.max(...natural); widest >= MIN_COLUMN; widest -= 1) {
      const least = longestWords.map((width) => (width <= whole ? width : 0));
      const widths = natural.map((width, at) => Math.min(width, Math.max(widest, least[at] ?? 0)));
      if (widths.reduce((sum, width) => sum + width, 0) <= available) return widths;
    }
  return natural.map((width) => Math.min(width, MIN_COLUMN));
}

/** Returns one row with columns of the given widths. It has as many lines as its longest cell. */
export function tableRow(io: Pick<CliIo, 'isTTY'>, row: readonly Cell[], widths: readonly number[]): string {
  const cells = row.map(cellOf);
  const parts = cells.map(({ text }, at) => wrapRow(text, widths[at] ?? 0, at === 0 ? '  ' : ''));
  const height = Math.max(...parts.map((lines) => lines.length));
  return Array.from({ length: height }, (_, line) => {
    const texts = cells
      .map(({ colour }, at) => {
        const text = (parts[at]?.[line] ?? '').trimEnd();
        const padding = ' '.repeat(Math.max(0, (widths[at] ?? 0) - columnsOf(text)));
        return (colour === undefined || text === '' ? text : paint(io, colour, text)) + padding;
      })
      .join('  ');
    return `${texts.trimEnd()}\n`;
  }).join('');
}

/** Where a command prints its result, and whether as JSON. */
export interface ResultTarget {
  readonly io: CliIo;
  readonly options: { readonly json?: true };
}

/** Prints the result of an act: with --json the data on stdout, else the message on stderr. */
export function printResult({ io, options }: ResultTarget, data: unknown, message: string): void {
  if (options.json === true) io.stdout(json(data));
  else io.stderr(`${message}\n`);
}

/** A list: as data, as a table, and what is said if it is empty or (`summary`) after the table. */
export interface Listing {
  readonly data: unknown;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly Cell[])[];
  readonly empty: string;
  readonly summary?: string;
}

/** Prints a list: data or a table on stdout, messages on stderr. */
export function printList({ io, options }: ResultTarget, { data, columns, rows, empty, summary }: Listing): void {
  if (options.json === true) io.stdout(json(data));
  else if (rows.length === 0) io.stderr(`${empty}\n`);
  else {
    io.stdout(table(io, columns, rows));
    if (summary !== undefined) io.stderr(`${summary}\n`);
  }
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

interface PlainCell {
  readonly text: string;
  readonly colour?: Colour;
}

function cellOf(cell: Cell): PlainCell {
  const { text, ...rest } = typeof cell === 'string' ? { text: cell } : cell;
  const letters = [...printable(text)];
  return {
    text: letters.length > MAX_CELL ? `${letters.slice(0, MAX_CELL - 1).join('')}…` : letters.join(''),
    ...rest,
  };
}
