/** Formats Rego with `opa fmt`. YAML and data are not changed. */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { findOpa, runOpa } from '../rego/opa-program.ts';
import { listVisibleFiles } from '../rego/rego-files.ts';

/** The files to format, and the wanted result. */
export interface FormatRequest {
  /** Files and folders, absolute. */
  readonly paths: readonly string[];
  /** `text` also returns the formatted files, `diff` the lines that differ. No file is written. */
  readonly how: 'text' | 'check' | 'diff';
  /** Value of --opa on the command line. */
  readonly opa?: string;
}

/** The result. Paths are absolute. */
export interface FormatReport {
  /** Rego files that are not formatted. */
  readonly changed: readonly string[];
  /** Number of all Rego files. */
  readonly files: number;
  /** YAML files. They are not formatted. */
  readonly left: readonly string[];
  /** With `diff`: the lines that would change. */
  readonly diffs: readonly { readonly file: string; readonly lines: readonly DiffLine[] }[];
  /** With `text`: the formatted files. */
  readonly texts: readonly { readonly file: string; readonly text: string }[];
}

/**
 * Formats Rego, including tests. Throws USAGE for a missing path, POLICY_INVALID for Rego that does not parse, and
 * OPA_MISSING if there is Rego and no opa.
 */
export async function formatRego({ paths, how, opa: option }: FormatRequest): Promise<FormatReport> {
  const found = (await Promise.all(paths.map(listFiles))).flat();
  const rego = [...new Set(found.filter((file) => file.endsWith('.rego')))].sort();
  const left = [...new Set(found.filter((file) => /\.ya?ml$/.test(file)))].sort();
  if (rego.length === 0) return { changed: [], files: 0, left, diffs: [], texts: [] };
  const opa = await findOpa(option);
  const run = async (files: readonly string[], ...flags: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await runOpa(
      opa,
      ['fmt', ...opa.flags, ...flags, ...files],
      path.parse(process.cwd()).root,
    );
    if (code !== 0)
      throw new TollgateError('POLICY_INVALID', {
        detail: firstLine(stderr || stdout, rego),
        next: 'Correct it first: `tollgate policy check` names every place.',
      });
    return stdout;
  };
  const changed = (await run(rego, '--list'))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => path.resolve('/', line));
  const diffs =
    how !== 'diff'
      ? []
      : changed.map(async (file) => ({
          file,
          lines: diffLines((await readFile(file, 'utf8')).split('\n'), (await run([file])).split('\n')),
        }));
  const texts = how !== 'text' ? [] : changed.map(async (file) => ({ file, text: await run([file]) }));
  return { changed, files: rego.length, left, diffs: await Promise.all(diffs), texts: await Promise.all(texts) };
}

async function listFiles(start: string): Promise<readonly string[]> {
  const top = await stat(start).catch(() => undefined);
  if (top === undefined)
    throw new TollgateError('USAGE', {
      detail: `${path.basename(start)} does not exist.`,
      next: 'Name files or folders of Rego.',
    });
  return top.isDirectory() ? listVisibleFiles(start) : [start];
}

/** Returns the first error of opa, without the folders of this machine. */
function firstLine(text: string, files: readonly string[]): string {
  const line = text.split('\n').find((one) => /\.rego:\d+/.test(one)) ?? 'opa cannot read the files';
  return files
    .reduce((shown, file) => shown.replaceAll(file, path.basename(file)), line)
    .replace(/^.*?(?=[\w.-]+\.rego:)/, '');
}

/** A line of a diff. `line` is its number in the first text, or the line that it is inserted before. */
interface DiffLine {
  readonly sign: ' ' | '-' | '+';
  readonly line: number;
  readonly text: string;
}

const CONTEXT = 2;

/**
 * Returns a shortest diff, by the longest common subsequence. The time is quadratic, so use it for hand-written files
 * only.
 */
export function diffLines(before: readonly string[], after: readonly string[]): readonly DiffLine[] {
  const common = commonLengths(before, after);
  const signAt = (i: number, j: number): DiffLine['sign'] => {
    if (i === before.length) return '+';
    if (j === after.length) return '-';
    if (before[i] === after[j]) return ' ';
    return (common[i + 1]?.[j] ?? 0) >= (common[i]?.[j + 1] ?? 0) ? '-' : '+';
  };
  const lines: DiffLine[] = [];
  for (let [i, j] = [0, 0]; i < before.length || j < after.length; ) {
    const sign = signAt(i, j);
    lines.push({ sign, line: i + 1, text: (sign === '+' ? after[j] : before[i]) ?? '' });
    if (sign !== '+') i += 1;
    if (sign !== '-') j += 1;
  }
  return lines.filter((_, at) =>
    lines.slice(Math.max(at - CONTEXT, 0), at + CONTEXT + 1).some(({ sign }) => sign !== ' '),
  );
}

/** Returns at [i][j] the length of the longest common subsequence of the lines from i and from j. */
function commonLengths(before: readonly string[], after: readonly string[]): readonly Uint32Array[] {
  const table = Array.from({ length: before.length + 1 }, () => new Uint32Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i -= 1) {
    for (let j = after.length - 1; j >= 0; j -= 1) {
      const [row, below] = [table[i], table[i + 1]] as [Uint32Array, Uint32Array];
      row[j] = before[i] === after[j] ? (below[j + 1] ?? 0) + 1 : Math.max(below[j] ?? 0, row[j + 1] ?? 0);
    }
  }
  return table;
}
