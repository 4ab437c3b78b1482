/** Runs `policy diff`: compares two policies, and prints the differences. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Difference, DiffSide } from '../../../policies/authoring/authoring-port.ts';
import { loadConfig } from '../../config/load-config.ts';
import { readYaml } from '../../config/reading/yaml-document.ts';
import { EXIT, type Io } from '../command-io.ts';
import { type Cell, type Colour, table } from '../print.ts';
import type { Wiring } from '../wiring.ts';
import { isConfiguration, sourcesAt } from './written-policy.ts';

interface DiffOptions {
  /** Relative to the current folder. */
  readonly before: string;
  readonly after: string;
  readonly json?: true;
  readonly opa?: string;
}

const COLOURS: Readonly<Record<Difference['change'], Colour>> = { added: 'green', removed: 'red', changed: 'yellow' };

/** Exit code 1 if the two policies differ. Throws USAGE, CONFIG_INVALID, and what `Authoring.diff` throws. */
export async function runPolicyDiff(
  { before, after, opa, json }: DiffOptions,
  io: Io,
  { authoring }: Pick<Wiring, 'authoring'>,
): Promise<number> {
  const differences = await authoring.diff({
    before: readSide(before, io),
    after: readSide(after, io),
    readYaml,
    ...(opa !== undefined && { opa }),
  });
  if (json === true) io.stdout(`${JSON.stringify({ same: differences.length === 0, differences })}\n`);
  else if (differences.length === 0) io.stderr('The two policies are equal.\n');
  else io.stdout(table(io, ['CHANGE', 'WHAT', 'NAME', 'PLACE', 'DETAIL'], differences.map(rowOf)));
  return differences.length === 0 ? EXIT.ok : EXIT.unexpected;
}

function rowOf({ kind, change, name, file, line, detail }: Difference): readonly Cell[] {
  const place = file === undefined ? '' : `${file}:${line ?? 1}`;
  return [{ text: change, colour: COLOURS[change] }, kind, name, place, detail ?? ''];
}

function readSide(shown: string, io: Io): DiffSide {
  const file = path.resolve(io.cwd, shown);
  if (!isConfiguration(file, shown))
    return {
      sources: sourcesAt(file, shown).map(({ kind, at }) => ({ kind, path: at, shown: nameIn(file, at, kind) })),
    };
  const config = loadConfig(file, { env: io.env, home: io.home });
  // The text as written: without defaults, and with variables not replaced.
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

/** Returns a name that is the same on both sides, whatever their folders are. */
function nameIn(top: string, file: string, kind: string): string {
  return path.relative(top, file) || (kind === 'rego' && !file.endsWith('.rego') ? '' : path.basename(file));
}
