/**
 * Keeps text from outside in its rows: it is wrapped before the terminal wraps it, and deceptive letters are marked.
 * Such a text never begins a row of Tollgate.
 */
import type { Io } from './command-io.ts';
import { MAX_COLUMNS, wrapRow, wrapWords } from './print.ts';

export { letterMarks, marked } from '../../catalogs/text/readable-text.ts';

const MIN_COLUMNS = 40;
/** Begins each row that continues the row above. */
const CONTINUATION = '    | ';

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
