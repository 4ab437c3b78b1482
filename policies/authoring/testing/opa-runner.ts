/** Runs cases and Rego tests in the opa program. */

import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { definedFields } from '../../../catalogs/text/collections.ts';
import { readOpaProblems } from '../../rego/opa-errors.ts';
import { type Opa, type OpaRun, runOpa } from '../../rego/opa-program.ts';
import { prepareRego } from '../../rego/rego-build.ts';
import type { RegoFacts } from '../../rego/rego-facts.ts';
import { isRego, isTest, type SourceFile, STAGED_LIBRARY, stageFiles } from '../../rego/rego-files.ts';
import { refuseProblems } from '../../rules/policy-problems.ts';
import { LineCoverage, type OpaCoverage, type SourceLine } from './test-coverage.ts';

/** A query to the policy, with the same text that WebAssembly gets. */
export interface OpaQuery {
  readonly list: boolean;
  readonly input: string;
  /** RFC 3339. */
  readonly time: string;
}

/** The result of a Rego test. `detail` is the failed expression with its place. */
export interface RegoTest {
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly passed: boolean;
  readonly skipped: boolean;
  readonly detail?: string;
}

/** Minimum number of queries that justify a process of their own. */
const MIN_QUERIES = 40;

/** Returns the answers as an object by case number. A missing answer then does not move the others. */
const HARNESS = `package tollgate_harness

answers[number] := answer if {
	some number, asked in input.cases
	not asked.list
	answer := data.tollgate.call.decision with input as asked.input with time.now_ns as asked.now
}

answers[number] := answer if {
	some number, asked in input.cases
	asked.list
	answer := data.tollgate.list.decisions with input as asked.input with time.now_ns as asked.now
}
`;

/** A folder with everything that opa needs. */
interface StagedTests {
  readonly opa: Opa;
  readonly folder: string;
  /** The user's Rego as it was built. */
  readonly user: readonly SourceFile[];
  readonly tests: readonly SourceFile[];
  /** The user's line for each row of a staged file. */
  readonly places: ReadonlyMap<string, SourceLine>;
}

/** A folder in which opa runs. It contains the library, the user's Rego as built, and all data. */
export class OpaRunner {
  readonly coverage = new LineCoverage();
  readonly #staged: StagedTests;

  private constructor(staged: StagedTests) {
    this.#staged = staged;
  }

  /**
   * Stages everything in `folder`, which is empty; the caller removes it. `files` are the files of all sources, `tests`
   * the Rego tests, `data` the text of all data including the user's.
   */
  static async prepare(
    { opa, folder, tests }: Pick<StagedTests, 'opa' | 'folder' | 'tests'>,
    { files, data }: { readonly files: readonly SourceFile[]; readonly data: string },
  ): Promise<OpaRunner> {
    const user = files.filter((file) => isRego(file) && !isTest(file));
    await stageFiles([...user, ...tests], folder);
    const facts = user.length === 0 ? undefined : await prepareRego(user, { opa, staging: folder });
    await writeFile(path.join(folder, 'data.json'), data);
    await writeFile(path.join(folder, 'harness.rego'), HARNESS);
    const places = await Promise.all(
      user.map(async (file) =>
        placesOf(file, await readFile(path.join(folder, file.staged), 'utf8'), facts?.rules ?? []),
      ),
    );
    return new OpaRunner({ opa, folder, user, tests, places: new Map(places.flat()) });
  }

  /** Returns one answer per query; a string says why there is none. Many queries are divided among processes. */
  async answer(queries: readonly OpaQuery[]): Promise<readonly unknown[]> {
    const share = Math.max(MIN_QUERIES, Math.ceil(queries.length / availableParallelism()));
    const parts = Array.from({ length: Math.ceil(queries.length / share) }, (_, number) =>
      queries.slice(number * share, (number + 1) * share),
    );
    return (await Promise.all(parts.map((part) => this.#answer(part)))).flat();
  }

  /** If opa fails, the queries are halved until the failing case is found, so that it affects no other. */
  async #answer(queries: readonly OpaQuery[]): Promise<readonly unknown[]> {
    const { opa, folder, user, places } = this.#staged;
    const file = `cases-${randomUUID()}.json`;
    // Synchronous, so that opa is started before the caller continues.
    writeFileSync(path.join(folder, file), `{"cases":[${queries.map(asInput).join(',')}]}`);
    const files = [STAGED_LIBRARY, 'data.json', 'harness.rego', ...user.map(({ staged }) => staged)];
    const flags = [...opa.flags, '--format', 'json', ...(user.length === 0 ? [] : ['--coverage'])];
    const run = await runOpa(
      opa,
      ['eval', ...flags, '-i', file, ...files.flatMap((name) => ['-d', name]), 'data.tollgate_harness.answers'],
      folder,
    );
    if (run.code === 0) {
      const { result, coverage } = JSON.parse(run.stdout) as {
        result?: readonly [{ expressions: readonly [{ value: Readonly<Record<string, unknown>> }] }];
        coverage?: OpaCoverage;
      };
      this.coverage.add(coverage, places);
      const answers = result?.[0].expressions[0].value ?? {};
      return queries.map((_, number) => answers[String(number)] ?? 'there is no answer');
    }
    if (queries.length === 1) return [firstError(run.stdout) ?? 'opa failed'];
    const half = Math.ceil(queries.length / 2);
    return [...(await this.#answer(queries.slice(0, half))), ...(await this.#answer(queries.slice(half)))];
  }

  /** Runs the Rego tests with library, schema and capabilities. Throws POLICY_INVALID for tests that do not compile. */
  async test(): Promise<readonly RegoTest[]> {
    const { opa, folder, user, tests, places } = this.#staged;
    if (tests.length === 0) return [];
    const all = [...tests, ...user];
    const shown = new Map(all.map((file) => [file.staged, file.shown]));
    const files = [STAGED_LIBRARY, 'data.json', ...shown.keys()];
    const withCapabilities = [...opa.flags, '--capabilities', 'capabilities.json'];
    const run = (...options: readonly string[]) =>
      runOpa(opa, ['test', ...withCapabilities, ...options, ...files], folder);
    // The schema is that of calls. The library also reads other inputs, so only the user's files are checked with it.
    const checkOptions = [...withCapabilities, '--strict', '--format', 'json', '--schema', 'input.json'];
    const [checked, tested, covered] = await Promise.all([
      runOpa(opa, ['check', ...checkOptions, ...shown.keys()], folder),
      run('--format', 'json'),
      run('--format', 'json', '--coverage'),
    ]);
    if (checked.code !== 0) refuseProblems(readOpaProblems(checked.stderr, all));
    const results = readResults(tested.stdout);
    if (results === undefined) refuseProblems(readOpaProblems(tested.stderr + tested.stdout, all));
    if (covered.code === 0) this.coverage.add(JSON.parse(covered.stdout) as OpaCoverage, places);
    return explained(results ?? [], run, shown);
  }
}

/** Returns the results of tests, each failed one with the expression that failed. */
async function explained(
  results: readonly OpaTest[],
  run: (...options: readonly string[]) => Promise<OpaRun>,
  shown: ReadonlyMap<string, string>,
): Promise<readonly RegoTest[]> {
  const failed = results.filter(({ fail }) => fail === true);
  const names = failed.map((one) => fullName(one).replaceAll('.', '\\.')).join('|');
  const options = ['--verbose', '--explain', 'fails', '--var-values', '--run', `^data\\.(${names})$`];
  const trace = failed.length === 0 ? '' : (await run(...options)).stdout;
  return results.map((one): RegoTest => {
    const detail =
      one.fail === true ? (one.error?.message ?? failedExpression(trace, fullName(one), shown)) : undefined;
    const { file, row } = one.location;
    return {
      name: fullName(one),
      file: shown.get(file) ?? file,
      line: row,
      passed: one.fail !== true && one.skip !== true,
      skipped: one.skip === true,
      ...definedFields({ detail }),
    };
  });
}

/**
 * Returns the user's line for each row of a staged file. The rows of a copied rule (rule-copies.ts) are those of the
 * rule.
 */
function placesOf(
  { staged, shown, bytes }: SourceFile,
  text: string,
  rules: RegoFacts['rules'],
): readonly (readonly [string, SourceLine])[] {
  const own = bytes.toString('utf8').split('\n').length;
  let copied: number | undefined;
  return text.split('\n').map((line, index) => {
    const number = index < own ? undefined : /^tollgate_\w+(?:\["[^"]*"\])? contains \["(\d+)"/.exec(line)?.[1];
    if (number !== undefined) copied = index + 1 - (rules[Number(number)]?.line ?? 1);
    return [`${staged}:${index + 1}`, { file: shown, line: index < own ? index + 1 : index + 1 - (copied ?? 0) }];
  });
}

/** Writes the clock in nanoseconds as text, because a double cannot represent them. */
function asInput({ list, input, time }: OpaQuery): string {
  return `{"list":${String(list)},"now":${Date.parse(time)}000000,"input":${input}}`;
}

function firstError(stdout: string): string | undefined {
  try {
    return (JSON.parse(stdout) as { errors?: readonly { message: string }[] }).errors?.[0]?.message;
  } catch {
    return undefined;
  }
}

interface OpaTest {
  readonly location: { readonly file: string; readonly row: number };
  readonly package: string;
  readonly name: string;
  readonly fail?: boolean;
  readonly skip?: boolean;
  readonly error?: { readonly message: string };
}

/** Returns undefined if opa did not run the tests. If there are no tests, opa writes null. */
function readResults(stdout: string): readonly OpaTest[] | undefined {
  try {
    return (JSON.parse(stdout) as readonly OpaTest[] | null) ?? [];
  } catch {
    return undefined;
  }
}

function fullName({ package: name, name: test }: OpaTest): string {
  return `${name.replace(/^data\./, '')}.${test}`;
}

/** Returns the part of opa's trace for a test: `file:line:`, and below it the expression with its values. */
function failedExpression(trace: string, name: string, shown: ReadonlyMap<string, string>): string | undefined {
  const section = trace.slice(Math.max(trace.indexOf(`data.${name}: FAIL`), 0)).split(/^data\.\S+: FAIL/m)[1] ?? '';
  const found = /^ {2}(\S+\.rego):(\d+):\n((?: {4}.*\n)+)/m.exec(section);
  if (found === null) return undefined;
  const lines = (found[3] ?? '')
    .split('\n')
    .map((line) => line.replace(/^ {4}\t*/, '').trimEnd())
    .filter((line) => line !== '');
  return [`${shown.get(found[1] ?? '') ?? ''}:${found[2] ?? ''}`, ...lines].join('\n');
}
