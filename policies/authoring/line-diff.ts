/** Owns the comparison of two texts line by line; keeps only what changed, with a few lines around it. */

/** A line: kept, gone or new. `line` is its number in the first text, or where it comes in. */
export interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly line: number;
  readonly text: string;
}

const CONTEXT = 2;

/** The shortest way from `before` to `after`, by the longest common subsequence; quadratic, so for files that people write. */
export function diffLines(before: readonly string[], after: readonly string[]): readonly DiffLine[] {
  const common = lengths(before, after);
  const lines: DiffLine[] = [];
  for (let [i, j] = [0, 0]; i < before.length || j < after.length; ) {
    const same = i < before.length && j < after.length && before[i] === after[j];
    const gone =
      !same && i < before.length && (j === after.length || (common[i + 1]?.[j] ?? 0) >= (common[i]?.[j + 1] ?? 0));
    lines.push({ sign: same ? ' ' : gone ? '-' : '+', line: i + 1, text: (same || gone ? before[i] : after[j]) ?? '' });
    if (same || gone) i += 1;
    if (same || !gone) j += 1;
  }
  return lines.filter((_, at) =>
    lines.slice(Math.max(at - CONTEXT, 0), at + CONTEXT + 1).some(({ sign }) => sign !== ' '),
  );
}

/** At [i][j] the length of the longest common subsequence of what comes from there. */
function lengths(before: readonly string[], after: readonly string[]): readonly Uint32Array[] {
  const table = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      const [row, below] = [table[i], table[i + 1]] as [Uint32Array, Uint32Array];
      row[j] = before[i] === after[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return table;
}
