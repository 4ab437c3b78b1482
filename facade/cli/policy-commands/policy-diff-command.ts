/** Owns `policy diff`: which two policies are compared, and how the differences are shown. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Difference, DiffSide } from '../../../policies/authoring/authoring-port.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type Cell, type Colour, table } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { isConfiguration, sourcesAt } from './replay-target.ts';

interface DiffOptions {
  /** Relative to the current folder. */
  readonly before: string;
  readonly after: string;
  readonly json?: true;
  readonly opa?: string;
}

const COLOURS: Readonly<Record<Difference['change'], Colour>> = { added: 'green', removed: 'red', changed: 'yellow' };

/** Exit code 0 when both say the same, 1 when not. Throws what `Authoring.diff` throws, USAGE and CONFIG_INVALID. */
export async function runPolicyDiff(
  options: DiffOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const [before, after] = [readSide(options.before, io), readSide(options.after, io)];
  const differences = await authoring.diff({
    before,
    after,
    readYaml,
    ...(options.opa === undefined ? {} : { opa: options.opa }),
  });
  if (options.json === true) io.stdout(`${JSON.stringify({ same: differences.length === 0, differences })}\n`);
  else if (differences.length > 0)
    io.stdout(table(io, ['CHANGE', 'WHAT', 'NAME', 'PLACE', 'DETAIL'], differences.map(row)));
  else io.stderr('Both say the same.\n');
  return differences.length === 0 ? EXIT.ok : EXIT.unexpected;
}

function row({ kind, change, name, file, line, detail }: Difference): readonly Cell[] {
  return [
    { text: change, colour: COLOURS[change] },
    kind,
    name,
    file === undefined ? '' : `${file}:${line ?? 1}`,
    detail ?? '',
  ];
}

function readSide(shown: string, io: Io): DiffSide {
  const file = path.resolve(io.cwd, shown);
  if (!isConfiguration(file, shown))
    return {
      sources: sourcesAt(file, shown).map(({ kind, at }) => ({ kind, path: at, shown: nameIn(file, at, kind) })),
    };
  const config = loadConfig(file, { env: io.env, home: io.home });
  // As it is written, so that defaults are no differences, and variables are not filled in.
  const { value } = readYaml(shown, readFileSync(file, 'utf8'));
  const { rules: _rules, policies: _policies, ...settings } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const sources = config.policies
    .filter(({ server }) => server === undefined)
    .map(({ path: at, kind, mode, modes }) => ({
      path: at,
      kind,
      shown: path.relative(config.folder, at),
      mode: modes === undefined ? mode : { mode, modes },
    }));
  return { settings, sources: [{ path: file, kind: 'yaml', shown: path.basename(file) }, ...sources] };
}

/** The same in both, wherever they lie. */
function nameIn(top: string, file: string, kind: string): string {
  return path.relative(top, file) || (kind === 'rego' && !file.endsWith('.rego') ? '' : path.basename(file));
}
