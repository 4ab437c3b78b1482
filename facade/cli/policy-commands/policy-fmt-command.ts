/** Owns `policy fmt`: which files are formatted, and what is said of those that are not. */
import { lstatSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { FormatReport } from '../../../policies/authoring/authoring-port.ts';
import { replaceFile } from '../../config/reading/file-replacement.ts';
import { readConfig } from '../command-facade.ts';
import { EXIT, type Io } from '../command-io.ts';
import { paint, plural, printable } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import type { PathOptions } from './written-policy.ts';

interface FmtOptions extends PathOptions {
  readonly check?: true;
  readonly diff?: true;
}

/** Exit code 1 when `check` or `diff` finds what is not formatted. Throws what `Authoring.format` throws. */
export async function runPolicyFmt(
  options: FmtOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  if (options.check === true && options.diff === true)
    throw new TollgateError('USAGE', {
      detail: '--check and --diff exclude one another.',
      next: 'Use --diff alone: its exit code says the same.',
    });
  const how = options.check === true ? 'check' : options.diff === true ? 'diff' : 'text';
  const named = options.paths.map((shown) => path.resolve(io.cwd, shown));
  const paths =
    named.length > 0
      ? named
      : readConfig(options, io)
          .policies.filter(({ kind }) => kind !== 'bundle')
          .map((source) => source.path);
  const report = await authoring.format({ paths, how, ...(options.opa === undefined ? {} : { opa: options.opa }) });
  for (const { file, text } of report.texts)
    replaceFile(lstatSync(file).isSymbolicLink() ? realpathSync(file) : file, text);
  const names = (files: readonly string[]): readonly string[] => files.map((file) => path.relative(io.cwd, file));
  const [changed, left] = [names(report.changed), names(report.left)];
  const code = how !== 'text' && report.changed.length > 0 ? EXIT.unexpected : EXIT.ok;
  if (options.json === true) {
    io.stdout(`${JSON.stringify({ changed, left, files: report.files })}\n`);
    return code;
  }
  const text =
    how === 'diff'
      ? report.diffs.map((one) => showDiff(path.relative(io.cwd, one.file), one.lines, io))
      : changed.map((file) => `${printable(file)}\n`);
  io.stdout(text.join(''));
  const count =
    changed.length === 0
      ? `${plural(report.files, 'file')} of Rego, all formatted`
      : `${changed.length} of ${plural(report.files, 'file')} of Rego ${how === 'text' ? 'formatted' : 'not formatted'}`;
  io.stderr(`${count}${left.length === 0 ? '' : `; ${plural(left.length, 'file')} of YAML left as written`}\n`);
  return code;
}

const COLOURS = { '-': 'red', '+': 'green', ' ': 'dim' } as const;

function showDiff(file: string, lines: FormatReport['diffs'][number]['lines'], io: Io): string {
  return [
    `${printable(file)}\n`,
    ...lines.map(
      ({ sign, line, text }) => `${paint(io, COLOURS[sign], `${String(line).padStart(5)} ${sign} ${text}`)}\n`,
    ),
  ].join('');
}
