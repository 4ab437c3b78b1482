/** Owns how faults of policies are told: file, line and column, what was seen, what to write; all of them at once. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';

/** A fault at its place; line and column count from 1. */
export interface PolicyProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

/** `file:line:col: message`. */
export function formatProblem({ file, line, column, message }: PolicyProblem): string {
  return `${file}:${line}:${column}: ${message}`;
}

/** POLICY_INVALID with every problem, in the order of files and lines; throws nothing when there is none. */
export function refuseProblems(unsorted: readonly PolicyProblem[]): void {
  const problems = [...unsorted].sort((a, b) =>
    a.file === b.file ? a.line - b.line || a.column - b.column : a.file < b.file ? -1 : 1,
  );
  const [first, ...others] = problems;
  if (first === undefined) return;
  const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
  throw new TollgateError('POLICY_INVALID', { detail: formatProblem(first) + more, data: { problems } });
}

/** The problems that a refused load carries; none for everything else that was thrown. */
export function problemsOf(thrown: unknown): readonly PolicyProblem[] {
  const problems =
    thrown instanceof TollgateError && thrown.code === 'POLICY_INVALID' ? thrown.data.problems : undefined;
  return Array.isArray(problems) ? (problems as readonly PolicyProblem[]) : [];
}

/** ` Did you mean "x"?` when a known word is at most two edits away, else nothing. */
export function suggest(word: string, known: Iterable<string>): string {
  const near = [...known]
    .map((candidate) => ({ candidate, distance: editDistance(word, candidate) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return near !== undefined && near.distance <= 2 && near.distance < word.length
    ? ` Did you mean "${near.candidate}"?`
    : '';
}

/** Levenshtein distance; words of more than 64 characters count as far apart, so that hostile keys cost nothing. */
function editDistance(a: string, b: string): number {
  if (a.length > 64 || b.length > 64) return 64;
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (const [i, char] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...b].entries()) {
      next.push(Math.min((row[j] ?? 0) + (char === other ? 0 : 1), (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 64;
}
