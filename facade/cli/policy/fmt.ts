/** Owns `policy fmt`: which files are formatted, and what is said of those that are not. */
import path from 'node:path';
import { TollgateError } from '../../../catalogs/errors.ts';
import { EXIT, type Io } from '../io.ts';
import { readConfig } from '../open.ts';
import { plural, printable } from '../print.ts';
import type { Wiring } from '../program.ts';
import type { PathOptions } from './written.ts';

interface FmtOptions extends PathOptions {
  readonly check?: true;
  readonly diff?: true;
}

/** Exit code 1 when `check` or `diff` finds what is not formatted. Throws what `Authoring.format` throws. */
export async function runPolicyFmt(options: FmtOptions, io: Io, { authoring }: Pick<Wiring, 'authoring'>): Promise<number> {
  if (options.check === true && options.diff === true) throw new TollgateError('USAGE', { detail: '--check and --diff exclude one another.', next: 'Use --diff alone: its exit code says the same.' });
  const how = options.check === true ? 'check' : options.diff === true ? 'diff' : 'write';
  const named = options.paths.map((shown) => path.resolve(io.cwd, shown));
  const paths = named.length > 0 ? named : readConfig(options, io).policies.filter(({ kind }) => kind !== 'bundle').map((source) => source.path);
  const report = await authoring.format({ paths, how, ...(options.opa === undefined ? {} : { opa: options.opa }) });
  const [changed, left] = [report.changed, report.left].map((files) => files.map((file) => path.relative(io.cwd, file)));
  const code = how !== 'write' && report.changed.length > 0 ? EXIT.unexpected : EXIT.ok;
  if (options.json === true) {
    io.stdout(`${JSON.stringify({ changed, left, files: report.files })}\n`);
    return code;
  }
  if (how === 'diff') io.stdout(report.diff.replaceAll(`${io.cwd}${path.sep}`, '').replaceAll(`${io.cwd}${path.sep}`.slice(1), ''));
  else io.stdout((changed ?? []).map((file) => `${printable(file)}\n`).join(''));
  const done = how === 'write' ? 'formatted' : 'not formatted';
  io.stderr(`${changed?.length ?? 0} of ${plural(report.files, 'file')} of Rego ${done}${left?.length === 0 ? '' : `; ${plural(left?.length ?? 0, 'file')} of YAML left as written`}\n`);
  return code;
}
