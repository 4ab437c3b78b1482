/** Owns the formatting of Rego, which is opa's; leaves YAML and data as people wrote them. */
import { readdir, readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { findOpa, runOpa } from '../rego/opa-program.ts';

/** What to format and how. */
export interface FormatRequest {
  /** Files and folders, absolute. */
  readonly paths: readonly string[];
  /** `text` also returns the whole formatted files, `diff` the lines that differ. No file is written. */
  readonly how: 'text' | 'check' | 'diff';
  /** The command line's --opa. */
  readonly opa?: string;
}

/** What was found. Files are absolute. */
export interface FormatReport {
  /** Rego that is not as opa writes it. */
  readonly changed: readonly string[];
  /** Files of Rego in all. */
  readonly files: number;
  /** YAML, which keeps the form that its author gave it. */
  readonly left: readonly string[];
  /** With `diff`: what would change. */
  readonly diffs: readonly { readonly file: string; readonly lines: readonly DiffLine[] }[];
  /** With `text`: what to write. */
  readonly texts: readonly { readonly file: string; readonly text: string }[];
}

/** Formats Rego, tests too. Throws USAGE for what is not there, POLICY_INVALID for what does not parse, OPA_MISSING when there is Rego and no opa. */
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
      detail: `${path.basename(start)} is not there.`,
      next: 'Name files or folders of Rego.',
    });
  if (!top.isDirectory()) return [start];
  const entries = (await readdir(start, { withFileTypes: true })).filter(
    ({ name }) => !name.startsWith('.') && name !== 'node_modules',
  );
  return (
    await Promise.all(
      entries.map(async (entry) =>
        entry.isDirectory() ? listFiles(path.join(start, entry.name)) : [path.join(start, entry.name)],
      ),
    )
  ).flat();
}

/** The first thing that opa says, without the folders of this machine. */
function firstLine(text: string, files: readonly string[]): string {
  const line = text.split('\n').find((one) => /\.rego:\d+/.test(one)) ?? 'opa cannot read the files';
  return files
    .reduce((shown, file) => shown.replaceAll(file, path.basename(file)), line)
    .replace(/^.*?(?=[\w.-]+\.rego:)/, '');
}

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
