/** Owns the check of all sources of a policy at once: YAML as at a start, Rego by opa and by our own lint; refuses nothing itself, and tells everything. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PRIMITIVE_SEMANTICS } from '../../catalogs/primitives/primitive-semantics.ts';
import { isBeneath } from '../../catalogs/readers/path-location.ts';
import type { PolicyParts, SourceSettings } from '../engine/compiled-parts.ts';
import { compileParts, readRules } from '../engine/policy-loader.ts';
import { findOpa } from '../rego/opa-program.ts';
import { checkRego } from '../rego/rego-build.ts';
import type { ParsedFile } from '../rego/rego-facts.ts';
import { isRego, readRegoSources, stageFiles } from '../rego/rego-files.ts';
import { type LocatedRule, readConfiguredNames } from '../rules/configured-names.ts';
import { findUncheckedRules } from '../rules/offered-tools.ts';
import type { PolicyProblem } from '../rules/policy-problems.ts';
import { compileRules } from '../rules/rule-compiler.ts';
import { lintInput } from './input-lint.ts';
import { lintRego, type PolicyFinding } from './rego-lint.ts';

export type { PolicyFinding } from './rego-lint.ts';

/** What a check came to. */
export interface CheckReport {
  /** Ordered by file and line. Without an error the policy starts. */
  readonly findings: readonly PolicyFinding[];
  /** Files of Rego, tests too. */
  readonly regoFiles: number;
  /** Rules of the sets in Rego. */
  readonly regoRules: number;
  /** Rules in YAML, those of tollgate.yaml too, without those that are off. */
  readonly yamlRules: number;
}

/** Checks all sources, but for bundles on servers. Throws OPA_MISSING when there is Rego without opa, after YAML was found sound. */
export async function checkSources(parts: PolicyParts): Promise<CheckReport> {
  const local = parts.sources.filter(({ server }) => server === undefined);
  const yaml = await compileOrTell({ ...parts, sources: local.filter(({ kind }) => kind === 'yaml') });
  const rego = await checkAllRego(
    parts,
    local.filter(({ kind }) => kind === 'rego'),
    yaml.problems,
  );
  const found = [...yaml.problems.map(asError), ...yaml.warnings, ...rego.findings];
  // What each part is told alone is not told again by all of them together.
  const whole = found.some(({ severity }) => severity === 'error')
    ? []
    : (await compileOrTell({ ...parts, sources: local })).problems.map(asError);
  return {
    ...rego,
    yamlRules: yaml.rules,
    findings: [...found, ...whole].sort((a, b) => (a.file === b.file ? a.line - b.line : a.file < b.file ? -1 : 1)),
  };
}

function asError(problem: PolicyProblem): PolicyFinding {
  return { ...problem, severity: 'error' };
}

/** Compiles as a start does, and gives the problems instead of throwing them. */
async function compileOrTell(parts: PolicyParts): Promise<{
  readonly problems: readonly PolicyProblem[];
  readonly warnings: readonly PolicyFinding[];
  readonly rules: number;
}> {
  try {
    const { rules } = await compileParts(parts);
    return {
      problems: [],
      warnings: [...findBlindRules(rules.rules), ...unjudged(parts, rules.rules)],
      rules: rules.list.length,
    };
  } catch (thrown) {
    if (!(thrown instanceof TollgateError) || thrown.code !== 'POLICY_INVALID') throw thrown;
    const problems = thrown.data.problems as readonly PolicyProblem[] | undefined;
    return {
      problems: problems ?? [{ file: 'policies', line: 1, column: 1, message: thrown.message }],
      warnings: [],
      rules: 0,
    };
  }
}

/** Servers that somebody approved are known; the others are told of once. */
function unjudged({ settings, offered }: PolicyParts, rules: readonly LocatedRule[]): readonly PolicyFinding[] {
  if (offered === undefined) return [];
  return findUncheckedRules(
    rules,
    settings.servers.map(({ name }) => name).filter((name) => !offered.has(name)),
  ).map((problem) => ({ ...problem, severity: 'warning' }));
}

async function checkAllRego(
  parts: PolicyParts,
  sources: readonly SourceSettings[],
  faults: readonly PolicyProblem[],
): Promise<Omit<CheckReport, 'yamlRules'>> {
  if (sources.length === 0) return { findings: [], regoFiles: 0, regoRules: 0 };
  const opa = await findOpa(parts.opa).catch((thrown: unknown) => {
    // Faults of YAML are told first: they can be mended without opa.
    if (faults.length > 0) return undefined;
    throw thrown;
  });
  if (opa === undefined) return { findings: [], regoFiles: 0, regoRules: 0 };
  const staging = await mkdtemp(path.join(tmpdir(), 'tollgate-check-'));
  try {
    const files = await readRegoSources(
      sources.map((source) => ({ path: source.path, shown: showName(source.path, parts.folder) })),
    );
    await stageFiles(files, staging);
    const { problems, files: parsed, rules } = await checkRego(files, { opa, staging });
    const taken = new Set(problems.map(({ file, line }) => `${file}:${line}`));
    const linted = [...lintRego(parsed, rules), ...(await lintInputs(parsed, parts))].filter(
      ({ file, line }) => !taken.has(`${file}:${line}`),
    );
    return {
      findings: [...problems.map(asError), ...firstOfLine(linted), ...(await findUnread(parts, sources))],
      regoFiles: files.filter(isRego).length,
      regoRules: rules.length,
    };
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
}

async function lintInputs(files: readonly ParsedFile[], parts: PolicyParts): Promise<readonly PolicyFinding[]> {
  // Labels that rules in YAML give are known too; what is wrong with these rules is told elsewhere.
  const yaml = await readRules(parts).then(
    (documents) => compileRules(documents, parts.workspace).rules,
    () => [],
  );
  const { settings, offered = new Map() } = parts;
  const world = { offered, ...(settings.profiles.length === 0 ? {} : { known: readConfiguredNames(settings, yaml) }) };
  return files.flatMap((file) =>
    lintInput(file, world).map(
      ({ where, message, isDoubt }): PolicyFinding => ({
        file: file.shown,
        line: where?.row ?? 1,
        column: where?.col ?? 1,
        severity: isDoubt === true ? 'warning' : 'error',
        message,
      }),
    ),
  );
}

/** Of two findings at one line the first says enough; an error before a warning. */
function firstOfLine(findings: readonly PolicyFinding[]): readonly PolicyFinding[] {
  const found = new Map<string, PolicyFinding>();
  for (const finding of findings.toSorted(
    (a, b) => Number(a.severity === 'warning') - Number(b.severity === 'warning'),
  )) {
    const key =
      finding.severity === 'warning'
        ? `${finding.file}:${finding.line}:${finding.message}`
        : `${finding.file}:${finding.line}`;
    if (!found.has(key)) found.set(key, finding);
  }
  return [...found.values()];
}

/** Rules in YAML that lie in a folder of Rego: the folder brings its Rego only, and the rules would be missing in silence. */
async function findUnread(
  { sources: all, folder, readYaml }: PolicyParts,
  sources: readonly SourceSettings[],
): Promise<readonly PolicyFinding[]> {
  const read = new Set(all.map((source) => source.path));
  const names = await Promise.all(
    sources.map(async (source) =>
      (await readdir(source.path, { recursive: true }).catch(() => [])).map((name) => path.join(source.path, name)),
    ),
  );
  const unread = names
    .flat()
    .filter((name) => /\.ya?ml$/.test(name) && !read.has(name) && !name.split(path.sep).includes('node_modules'));
  const findings = await Promise.all(
    unread.map(async (name): Promise<readonly PolicyFinding[]> => {
      const { value } = readYaml(showName(name, folder), await readFile(name, 'utf8'));
      if (typeof value !== 'object' || value === null || !('rules' in value)) return [];
      return [
        {
          file: showName(name, folder),
          line: 1,
          column: 1,
          severity: 'warning',
          message: 'these rules are not read: name the file under `policies` of tollgate.yaml',
        },
      ];
    }),
  );
  return findings.flat();
}

/** As messages name a file: relative to the configuration, else by its last name. */
function showName(file: string, folder: string): string {
  return isBeneath(folder, file) ? path.relative(folder, file) || '.' : path.basename(file);
}

const ABOUT = {
  paths: 'only its `cwd` is a path',
  insideWorkspace: 'only its `cwd` is a path',
  hosts: 'no host is known',
  schemes: 'no URL is known',
  urls: 'no URL is known',
} as const;
const COMMANDS = [...PRIMITIVE_SEMANTICS].flatMap(([tool, { command }]) =>
  command === undefined ? [] : [`workspace.${tool}`],
);

/** Rules that deny or ask, are about commands alone, and ask for what commands do not show: `cat .env` names no path. */
export function findBlindRules(rules: readonly LocatedRule[]): readonly PolicyFinding[] {
  return rules
    .filter(({ rule, mode }) => rule.outcome !== 'allow' && mode !== 'off' && isOfCommands(rule.when))
    .flatMap(({ rule, at }) => {
      const fields = (Object.keys(ABOUT) as (keyof typeof ABOUT)[])
        .filter((field) => rule.when[field] !== undefined)
        .slice(0, 1);
      return fields.map(
        (field): PolicyFinding => ({
          ...at(['when', field], 'key'),
          severity: 'warning',
          message: `of a command ${ABOUT[field]}: what its words name is not seen here. Close it in the sandbox of bash, or match \`commands\``,
        }),
      );
    });
}

function isOfCommands({ verbs, tools }: LocatedRule['rule']['when']): boolean {
  return verbs?.join() === 'execute' || (tools?.every((tool) => COMMANDS.includes(tool)) ?? false);
}
