/** Checks all sources of a policy: YAML as at a start, Rego by opa and by our own checks. */

import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { TollgateError } from '../../catalogs/errors/error-table.ts';
import { PRIMITIVE_SEMANTICS } from '../../catalogs/primitives/primitive-semantics.ts';
import { type PolicyParts, pathInMessages, type SourceSettings } from '../engine/compiled-parts.ts';
import { compileParts, readRules } from '../engine/policy-loader.ts';
import { findOpa } from '../rego/opa-program.ts';
import { checkRego } from '../rego/rego-build.ts';
import type { ParsedFile } from '../rego/rego-facts.ts';
import { isRego, readRegoSources, stageFiles } from '../rego/rego-files.ts';
import { inTemporaryFolder } from '../rego/temporary-folder.ts';
import { type LocatedRule, readConfiguredNames } from '../rules/configured-names.ts';
import { findUncheckedRules } from '../rules/offered-tools.ts';
import { comparePlaces, type PolicyProblem } from '../rules/policy-problems.ts';
import { compileRules } from '../rules/rule-compiler.ts';
import { lintInput } from './input-lint.ts';
import { lintRego, type PolicyFinding } from './rego-lint.ts';

export type { PolicyFinding } from './rego-lint.ts';

/** The result of a check. */
export interface CheckReport {
  /** Ordered by place. If there is no error, the policy can start. */
  readonly findings: readonly PolicyFinding[];
  /** Number of Rego files, including tests. */
  readonly regoFiles: number;
  /** Number of rules of the sets in Rego. */
  readonly regoRules: number;
  /** Number of YAML rules, including those of tollgate.yaml, without rules that are off. */
  readonly yamlRules: number;
}

/** Checks all sources but bundles on servers. Throws OPA_MISSING if there is Rego, no opa, and no error in YAML. */
export async function checkSources(parts: PolicyParts): Promise<CheckReport> {
  const local = parts.sources.filter(({ server }) => server === undefined);
  const yaml = await tryCompile({ ...parts, sources: local.filter(({ kind }) => kind === 'yaml') });
  const rego = await checkAllRego(
    parts,
    local.filter(({ kind }) => kind === 'rego'),
    yaml.problems,
  );
  const found = [...yaml.problems.map(asError), ...yaml.warnings, ...rego.findings];
  // All sources together are compiled only if they have no errors separately. Otherwise errors would be reported twice.
  const together = found.some(({ severity }) => severity === 'error')
    ? []
    : (await tryCompile({ ...parts, sources: local })).problems.map(asError);
  return {
    ...rego,
    yamlRules: yaml.rules,
    findings: [...found, ...together].sort(comparePlaces),
  };
}

/** A YAML rule with its place and its mode. */
export interface WrittenRule {
  readonly id: string;
  readonly outcome: string;
  readonly mode: string;
  readonly file: string;
  readonly line: number;
}

/** Returns all YAML rules, with those that are off, in the order of their files. Throws POLICY_INVALID. */
export async function listRules(parts: PolicyParts): Promise<readonly WrittenRule[]> {
  const { rules } = compileRules(await readRules(parts), parts.workspace);
  return rules.map(({ rule, mode, at }) => {
    const { file, line } = at([], 'value');
    return { id: rule.id, outcome: rule.outcome, mode: typeof mode === 'string' ? mode : 'by caller', file, line };
  });
}

function asError(problem: PolicyProblem): PolicyFinding {
  return { ...problem, severity: 'error' };
}

/** Compiles as a start does, and returns the problems instead of throwing them. */
async function tryCompile(parts: PolicyParts): Promise<{
  readonly problems: readonly PolicyProblem[];
  readonly warnings: readonly PolicyFinding[];
  readonly rules: number;
}> {
  try {
    const { rules } = await compileParts(parts);
    return {
      problems: [],
      warnings: [...findBlindRules(rules.rules), ...findTopGlobs(rules.rules), ...findUnchecked(parts, rules.rules)],
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

/** Returns one warning for each server that is not approved, because its tools are unknown. */
function findUnchecked({ settings, offered }: PolicyParts, rules: readonly LocatedRule[]): readonly PolicyFinding[] {
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
    // Report errors of YAML first: they can be corrected without opa.
    if (faults.length > 0) return undefined;
    throw thrown;
  });
  if (opa === undefined) return { findings: [], regoFiles: 0, regoRules: 0 };
  return inTemporaryFolder('check', async (staging) => {
    const files = await readRegoSources(
      sources.map((source) => ({ path: source.path, shown: pathInMessages(source.path, parts.folder) })),
    );
    await stageFiles(files, staging);
    const { problems, files: parsed, rules } = await checkRego(files, { opa, staging });
    const reported = new Set(problems.map(({ file, line }) => `${file}:${line}`));
    const linted = [...lintRego(parsed, rules), ...(await lintInputs(parsed, parts))].filter(
      ({ file, line }) => !reported.has(`${file}:${line}`),
    );
    return {
      findings: [...problems.map(asError), ...firstOfLine(linted), ...(await findUnreadRules(parts, sources))],
      regoFiles: files.filter(isRego).length,
      regoRules: rules.length,
    };
  });
}

async function lintInputs(files: readonly ParsedFile[], parts: PolicyParts): Promise<readonly PolicyFinding[]> {
  // YAML rules may add labels, which are then known too. Their own problems are reported elsewhere.
  const yaml = await readRules(parts).then(
    (documents) => compileRules(documents, parts.workspace).rules,
    () => [],
  );
  const { settings, offered = new Map() } = parts;
  const context = {
    offered,
    ...(settings.profiles.length === 0 ? {} : { known: readConfiguredNames(settings, yaml) }),
  };
  return files.flatMap((file) =>
    lintInput(file, context).map(
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

/** Keeps one error per line, and warnings without a repeated message. Errors go before warnings. */
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

/** Returns a warning for YAML rules in a folder of Rego. Only the Rego of that folder is read. */
async function findUnreadRules(
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
      const { value } = readYaml(pathInMessages(name, folder), await readFile(name, 'utf8'));
      if (typeof value !== 'object' || value === null || !('rules' in value)) return [];
      return [
        {
          file: pathInMessages(name, folder),
          line: 1,
          column: 1,
          severity: 'warning',
          message: 'these rules are not read; name the file under `policies` of tollgate.yaml',
        },
      ];
    }),
  );
  return findings.flat();
}

/** Facts that rules cannot see in the words of a command, by the condition that reads them. */
const UNSEEN = {
  paths: 'paths other than `cwd`',
  insideWorkspace: 'paths other than `cwd`',
  hosts: 'hosts',
  schemes: 'URLs',
  urls: 'URLs',
} as const;
const COMMANDS = [...PRIMITIVE_SEMANTICS].flatMap(([tool, { command }]) =>
  command === undefined ? [] : [`workspace.${tool}`],
);

/**
 * Returns a warning for rules that deny or ask, are only about commands, and read such facts: `cat .env` has no path
 * fact.
 */
function findBlindRules(rules: readonly LocatedRule[]): readonly PolicyFinding[] {
  return rules
    .filter(({ rule, mode }) => rule.outcome !== 'allow' && mode !== 'off' && isAboutCommands(rule.when))
    .flatMap(({ rule, at }) => {
      const fields = (Object.keys(UNSEEN) as (keyof typeof UNSEEN)[])
        .filter((field) => rule.when[field] !== undefined)
        .slice(0, 1);
      return fields.map(
        (field): PolicyFinding => ({
          ...at(['when', field], 'key'),
          severity: 'warning',
          message:
            `rules cannot see ${UNSEEN[field]} in the words of a command; close them in the sandbox of ` +
            `bash, or match \`commands\``,
        }),
      );
    });
}

/** Finds globs such as `*.pem`, which look as if they matched in every folder. */
function findTopGlobs(rules: readonly LocatedRule[]): readonly PolicyFinding[] {
  return rules.flatMap(({ rule, at }) =>
    (['paths', 'except'] as const).flatMap((field) =>
      (rule.when[field] ?? []).flatMap((glob, index): readonly PolicyFinding[] =>
        /^\*\.[^/*]+$/.test(glob)
          ? [
              {
                ...at(['when', field, index]),
                severity: 'warning',
                message: `"${glob}" matches only at the top of the workspace; write "**/${glob}" for every folder`,
              },
            ]
          : [],
      ),
    ),
  );
}

function isAboutCommands({ verbs, tools }: LocatedRule['rule']['when']): boolean {
  return verbs?.join() === 'execute' || (tools?.every((tool) => COMMANDS.includes(tool)) ?? false);
}
