/** The tables of the benchmark: their form, which docs/performance.md repeats, and how they are printed. */

/** The form of a table. The head of the first column names what the rows are. */
export interface TableShape {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly string[];
}

/** How a part measures. `say` reports progress. */
export interface Plan {
  readonly quick: boolean;
  readonly say: (text: string) => void;
}

/** The cells of each table, by row and without the name of the row, and the figures that goals are about. */
export interface Measured {
  readonly cells: readonly (readonly (readonly string[])[])[];
  readonly figures?: Readonly<Record<string, number>>;
}

/** A part of the benchmark, which `--only=NAME` runs alone. */
export interface Part {
  readonly name: string;
  readonly tables: readonly TableShape[];
  readonly measure: (plan: Plan) => Promise<Measured>;
}

/** A measured table. `part` is undefined for the table of goals, which is about all parts. */
export interface FilledTable extends TableShape {
  readonly part: string | undefined;
  readonly cells: readonly (readonly string[])[];
}

/** Returns the command that prints the tables of a part. */
export function commandOf(part: string | undefined): string {
  return part === undefined ? 'npm run bench' : `npm run bench -- --only=${part}`;
}

/** Returns a number and its ratio to the SDK pass-through. */
export function withRatio(value: number, ratio: number, digits = 0): string {
  return `${value.toFixed(digits)} (${ratio.toFixed(2)})`;
}

const WIDTH = 100;

/** Returns a table for a terminal, at most 100 columns wide. Long names of rows are broken. */
export function plainTable({ title, head, rows, cells }: FilledTable): string {
  const lines = [head, ...rows.map((name, index) => [name, ...(cells[index] ?? [])])];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  const others = widths.slice(1).reduce((sum, width) => sum + width + 2, 0);
  const first = Math.min(widths[0] ?? 0, WIDTH - others);
  const text = lines.map(([name = '', ...values]) => {
    const [start = '', ...rest] = wrapped(name, first);
    const padded = values.map((value, column) => value.padStart((widths[column + 1] ?? 0) + 2));
    return [start.padEnd(first) + padded.join(''), ...rest.map((more) => `  ${more}`)].join('\n');
  });
  return `${title}\n${'-'.repeat(title.length)}\n${text.join('\n')}\n`;
}

function wrapped(name: string, width: number): readonly string[] {
  const lines: string[] = [];
  for (const word of name.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length + 3 <= width) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines.length === 1 || name.length <= width ? [name] : lines;
}

/** Returns a table as the section of docs/performance.md that it is. */
export function markdownTable({ part, title, head, rows, cells }: FilledTable): string {
  const line = (words: readonly string[]): string => `| ${words.join(' | ')} |\n`;
  return (
    `## ${title}\n\n\`${commandOf(part)}\`\n\n${line(head)}|${'---|'.repeat(head.length)}\n` +
    rows.map((name, index) => line([name, ...(cells[index] ?? [])])).join('')
  );
}
