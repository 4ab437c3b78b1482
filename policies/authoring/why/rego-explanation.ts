/** Explains the user's Rego: which expression failed first in each rule, as opa traces it. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { callInputText } from '../../engine/policy-input.ts';
import type { CallInput, Reason } from '../../port.ts';
import { findOpa, type Opa, runOpa } from '../../rego/opa-program.ts';
import {
  isRego,
  isTest,
  type RegoSource,
  readRegoSources,
  type SourceFile,
  stagedRoots,
  stageFiles,
} from '../../rego/rego-files.ts';
import { type Module, packagePath, parseModules, type Rule, sourceOf } from '../../rego/syntax-tree.ts';
import type { ExpressionWhy } from './explanation-format.ts';

const SETS: ReadonlySet<string> = new Set(['deny', 'ask', 'allow']);

/** A file of the user with its syntax tree. */
interface ParsedSource extends SourceFile {
  readonly module: Module;
}

/** The user's Rego in a folder of its own, where opa evaluates it. */
export interface StagedRego {
  readonly files: readonly ParsedSource[];
  /** Returns the first failed expression of each rule of the sets that gave no reason. */
  failures(input: CallInput, given: readonly Reason[]): Promise<readonly ExpressionWhy[]>;
  close(): Promise<void>;
}

/** Stages and parses the sources. Throws OPA_MISSING, POLICY_INVALID. */
export async function stageRego(sources: readonly RegoSource[], option: string | undefined): Promise<StagedRego> {
  const opa = await findOpa(option);
  const folder = await mkdtemp(path.join(tmpdir(), 'tollgate-why-'));
  const read = (await readRegoSources(sources)).filter((file) => !isTest(file));
  await stageFiles(read, folder);
  const files = await parseModules(opa, folder, read.filter(isRego));
  return {
    files,
    failures: async (input, given) => {
      await writeFile(path.join(folder, 'call.json'), callInputText(input, { project: false }));
      const events = await trace({ opa, folder, roots: stagedRoots(read) }, input.time, packagesOf(files));
      return files.flatMap((file) => firstFailures(file, events, given));
    },
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

/** A row where an expression failed. */
interface Failure {
  readonly file: string;
  readonly row: number;
}

interface Event {
  readonly Op: string;
  readonly Location?: Failure;
}

/** Runs without the rule index, which would skip rules without a trace. The clock is the time of the call. */
async function trace(
  at: { readonly opa: Opa; readonly folder: string; readonly roots: readonly string[] },
  time: string,
  packages: readonly string[],
): Promise<readonly Failure[]> {
  const failures: Failure[] = [];
  for (const name of packages) {
    const query = `data.${name} with time.now_ns as ${Date.parse(time)}000000`;
    const args = [
      'eval',
      ...at.opa.flags,
      '--disable-indexing',
      '--explain=fails',
      '-f',
      'json',
      '-i',
      'call.json',
      ...at.roots.flatMap((root) => ['-d', root]),
      query,
    ];
    const { code, stdout } = await runOpa(at.opa, args, at.folder);
    const { explanation = [] } = code === 0 ? (JSON.parse(stdout) as { explanation?: readonly Event[] }) : {};
    failures.push(
      ...explanation.flatMap(({ Op, Location }) => (Op === 'Fail' && Location !== undefined ? [Location] : [])),
    );
  }
  return failures;
}

function packagesOf(files: readonly ParsedSource[]): readonly string[] {
  return [...new Set(files.filter(({ module }) => hasSets(module)).map(({ module }) => packagePath(module).join('.')))];
}

function hasSets(module: Module): boolean {
  return (
    packagePath(module)[0] === 'policy' && (module.rules ?? []).some(({ head }) => SETS.has(String(head.ref[0]?.value)))
  );
}

function firstFailures(
  { module, staged, shown, bytes }: ParsedSource,
  failures: readonly Failure[],
  given: readonly Reason[],
): readonly ExpressionWhy[] {
  if (!hasSets(module)) return [];
  const lines = bytes.toString('utf8').split('\n');
  const rules = (module.rules ?? []).filter(({ head }) => SETS.has(String(head.ref[0]?.value)));
  return rules.flatMap((rule) => {
    const [from, to] = rowsOf(rule);
    if (given.some(({ file, line }) => file === shown && line === from)) return [];
    const row = failures.find((failure) => failure.file === staged && failure.row >= from && failure.row <= to)?.row;
    return row === undefined
      ? []
      : [
          {
            rule: `${packagePath(module).join('.')}.${String(rule.head.ref[0]?.value)}`,
            file: shown,
            line: row,
            text: expressionAt(lines[row - 1] ?? ''),
          },
        ];
  });
}

/** Returns first and last row of a rule. */
function rowsOf(rule: Rule): readonly [number, number] {
  const from = rule.head.location.row;
  const rows = rule.body.map(
    ({ location }) => (location?.row ?? from) + (sourceOf(location)?.split('\n').length ?? 1) - 1,
  );
  return [from, Math.max(from, ...rows)];
}

/** Removes the head, if it is on the same line. */
function expressionAt(line: string): string {
  return line
    .replace(/^.*\bif\s+(?=\S)/, '')
    .replace(/^\{\s*|\s*\}\s*$/g, '')
    .trim();
}
