/** Runs `policy fmt`: formats Rego, or reports which files are not formatted. */
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

/**
 * Exit code 1 if `--check` or `--diff` finds a file that is not formatted. Throws USAGE, and what `Authoring.format`
 * throws.
 */
export async function runPolicyFmt(
  options: FmtOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const { check, diff, opa } = options;
  if (check === true && diff === true)
    throw new TollgateError('USAGE', {
      detail: '--check and --diff cannot be used together.',
      next: 'Use --diff alone. Its exit code is the same.',
    });
  const how = check === true ? 'check' : diff === true ? 'diff' : 'text';
  const report = await authoring.format({ paths: pathsOf(options, io), how, ...(opa !== undefined && { opa }) });
  for (const { file, text } of report.texts)
    replaceFile(lstatSync(file).isSymbolicLink() ? realpathSync(file) : file, text);
  const shown = (file: string): string => path.relative(io.cwd, file);
  const [changed, left] = [report.changed.map(shown), report.left.map(shown)];
  const code = how !== 'text' && changed.length > 0 ? EXIT.unexpected : EXIT.ok;
  if (options.json === true) {
    io.stdout(`${JSON.stringify({ changed, left, files: report.files })}\n`);
    return code;
  }
  const lines =
    how === 'diff'
      ? report.diffs.flatMap((one) => [printable(shown(one.file)), ...one.lines.map((line) => diffLine(line, io))])
      : changed.map(printable);
  io.stdout(lines.map((line) => `${line}\n`).join(''));
  const files = `${plural(report.files, 'file')} of Rego`;
  const verb = how === 'text' ? 'formatted' : 'not formatted';
  const count = changed.length === 0 ? `${files}, all formatted` : `${changed.length} of ${files} ${verb}`;
  io.stderr(`${count}${left.length === 0 ? '' : `; ${plural(left.length, 'file')} of YAML not changed`}\n`);
  return code;
}

function pathsOf(options: FmtOptions, io: Io): readonly string[] {
  if (options.paths.length > 0) return options.paths.map((shown) => path.resolve(io.cwd, shown));
  const { policies } = readConfig(options, io);
  return policies.filter(({ kind }) => kind !== 'bundle').map((source) => source.path);
}

const COLOURS = { '-': 'red', '+': 'green', ' ': 'dim' } as const;

function diffLine({ sign, line, text }: FormatReport['diffs'][number]['lines'][number], io: Io): string {
  return paint(io, COLOURS[sign], `${String(line).padStart(5)} ${sign} ${text}`);
}
