/** Faults of policies: where each one is, what was found, and what to write instead. */
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { editDistance } from '../../catalogs/text/edit-distance.ts';

/** A fault at its place. Line and column count from 1. */
export interface PolicyProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

/** Returns a list with one problem. */
export function problemAt(place: Omit<PolicyProblem, 'message'>, message: string): readonly PolicyProblem[] {
  return [{ ...place, message }];
}

/** Returns `file:line:col: message`. */
export function formatProblem({ file, line, column, message }: PolicyProblem): string {
  return `${file}:${line}:${column}: ${message}`;
}

/** Throws POLICY_INVALID with every problem, ordered by file and line. Does nothing if there is no problem. */
export function refuseProblems(unsorted: readonly PolicyProblem[]): void {
  const problems = [...unsorted].sort((a, b) => comparePlaces(a, b) || a.column - b.column);
  const [first, ...others] = problems;
  if (first === undefined) return;
  const more = others.length === 0 ? '' : ` (and ${others.length} more)`;
  throw new TollgateError('POLICY_INVALID', { detail: formatProblem(first) + more, data: { problems } });
}

/** Orders by file, then by line. */
export function comparePlaces(
  a: Pick<PolicyProblem, 'file' | 'line'>,
  b: Pick<PolicyProblem, 'file' | 'line'>,
): number {
  if (a.file !== b.file) return a.file < b.file ? -1 : 1;
  return a.line - b.line;
}

/** Returns the problems of a POLICY_INVALID error; none for any other error. */
export function problemsOf(thrown: unknown): readonly PolicyProblem[] {
  const problems =
    thrown instanceof TollgateError && thrown.code === 'POLICY_INVALID' ? thrown.data.problems : undefined;
  return Array.isArray(problems) ? (problems as readonly PolicyProblem[]) : [];
}

/** Returns ` Did you mean "x"?` if a known word is at most two edits away, otherwise an empty string. */
export function suggest(word: string, known: Iterable<string>): string {
  const near = [...known]
    .map((candidate) => ({ candidate, distance: editDistance(word, candidate) }))
    .sort((a, b) => a.distance - b.distance)[0];
  return near !== undefined && near.distance <= 2 && near.distance < word.length
    ? ` Did you mean "${near.candidate}"?`
    : '';
}
