/** Owns what the opa program itself says of cases and of Rego tests: one process for all cases; refuses nothing that the built wasm would not. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import { readOpaProblems } from '../../rego/opa-errors.ts';
import { type Opa, type OpaRun, runOpa } from '../../rego/opa-program.ts';
import { prepareRego } from '../../rego/rego-build.ts';
import type { RegoFacts } from '../../rego/rego-facts.ts';
import { isRego, isTest, type SourceFile, STAGED_LIBRARY, stageFiles } from '../../rego/rego-files.ts';
import { refuseProblems } from '../../rules/policy-problems.ts';
import { LineCoverage, type OpaCoverage, type SourceLine } from './test-coverage.ts';

/** A question of the policy: the very text that wasm is asked with. */
export interface OpaQuery {
  readonly list: boolean;
  readonly input: string;
  /** RFC 3339. */
  readonly time: string;
}

/** What a test of Rego came to; `detail` is the expression that failed, with its place. */
export interface RegoTest {
  readonly name: string;
  readonly file: string;
  readonly line: number;
  readonly passed: boolean;
  readonly skipped: boolean;
  readonly detail?: string;
}

/** Questions for which a process of their own is worth its start. */
const LEAST = 40;

/** Answers of every case in its own object: one that has no answer is missing, and the others keep their places. */
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

/** A folder in which opa runs: the library, the user's Rego as it was built, all data, and nothing else. */
export class OpaRunner {
  readonly coverage = new LineCoverage();
  readonly #opa: Opa;
  readonly #folder: string;
  readonly #user: readonly SourceFile[];
  readonly #tests: readonly SourceFile[];
  readonly #places: ReadonlyMap<string, SourceLine>;

  private constructor(given: {
    readonly opa: Opa;
    readonly folder: string;
    readonly user: readonly SourceFile[];
    readonly tests: readonly SourceFile[];
    readonly places: ReadonlyMap<string, SourceLine>;
  }) {
    this.#opa = given.opa;
    this.#folder = given.folder;
    this.#user = given.user;
    this.#tests = given.tests;
    this.#places = given.places;
  }

  /** `folder` is empty and the caller's to remove; `files` what the sources hold, `tests` the Rego tests; `data` the text of all data, the user's included. */
  static async prepare(
    opa: Opa,
    {
      folder,
      files,
      tests,
      data,
    }: {
      readonly folder: string;
      readonly files: readonly SourceFile[];
      readonly tests: readonly SourceFile[];
      readonly data: string;
    },
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

  /** One answer for each question; a text says why there is none. Many questions are shared out among processes. */
  async answer(questions: readonly OpaQuery[]): Promise<readonly unknown[]> {
    const share = Math.max(LEAST, Math.ceil(questions.length / availableParallelism()));
    const parts = Array.from({ length: Math.ceil(questions.length / share) }, (_, number) =>
      questions.slice(number * share, (number + 1) * share),
    );
    return (await Promise.all(parts.map((part) => this.#answer(part)))).flat();
  }

  /** A case that stops opa is found by halving, so that it spoils no other. */
  async #answer(questions: readonly OpaQuery[]): Promise<readonly unknown[]> {
    const file = `cases-${randomUUID()}.json`;
    // At once, so that opa runs before whoever called goes on.
    writeFileSync(path.join(this.#folder, file), `{"cases":[${questions.map(asInput).join(',')}]}`);
    const files = [STAGED_LIBRARY, 'data.json', 'harness.rego', ...this.#user.map(({ staged }) => staged)].flatMap(
      (name) => ['-d', name],
    );
    const run = await runOpa(
      this.#opa,
      [
        'eval',
        ...this.#opa.flags,
        '--format',
        'json',
        ...(this.#user.length === 0 ? [] : ['--coverage']),
        '-i',
        file,
        ...files,
        'data.tollgate_harness.answers',
      ],
      this.#folder,
    );
    if (run.code === 0) {
      const { result, coverage } = JSON.parse(run.stdout) as {
        result?: readonly [{ expressions: readonly [{ value: Readonly<Record<string, unknown>> }] }];
        coverage?: OpaCoverage;
      };
      this.coverage.add(coverage, this.#places);
      const answers = result?.[0].expressions[0].value ?? {};
      return questions.map((_, number) => answers[String(number)] ?? 'it has no answer');
    }
    if (questions.length === 1) return [firstError(run.stdout) ?? 'it stops'];
    const half = Math.ceil(questions.length / 2);
    return [...(await this.#answer(questions.slice(0, half))), ...(await this.#answer(questions.slice(half)))];
  }

  /** Runs the Rego tests with library, schemas and capabilities. Throws POLICY_INVALID for tests that do not compile. */
  async test(): Promise<readonly RegoTest[]> {
    if (this.#tests.length === 0) return [];
    const all = [...this.#tests, ...this.#user];
    const shown = new Map(all.map((file) => [file.staged, file.shown]));
    const files = [STAGED_LIBRARY, 'data.json', ...shown.keys()];
    const run = (...options: readonly string[]) =>
      runOpa(
        this.#opa,
        ['test', ...this.#opa.flags, '--capabilities', 'capabilities.json', ...options, ...files],
        this.#folder,
      );
    // The library reads other inputs than calls, so the schema of calls is for the user's files alone.
    const check = [
      'check',
      ...this.#opa.flags,
      '--strict',
      '--format',
      'json',
      '--capabilities',
      'capabilities.json',
      '--schema',
      'input.json',
      ...shown.keys(),
    ];
    const [checked, told, covered] = await Promise.all([
      runOpa(this.#opa, check, this.#folder),
      run('--format', 'json'),
      run('--format', 'json', '--coverage'),
    ]);
    if (checked.code !== 0) refuseProblems(readOpaProblems(checked.stderr, all));
    const results = readResults(told.stdout);
    if (results === undefined) refuseProblems(readOpaProblems(told.stderr + told.stdout, all));
    if (covered.code === 0) this.coverage.add(JSON.parse(covered.stdout) as OpaCoverage, this.#places);
    return this.#explained(results ?? [], { run, shown });
  }

  async #explained(
    results: readonly OpaTest[],
    {
      run,
      shown,
    }: {
      readonly run: (...options: readonly string[]) => Promise<OpaRun>;
      readonly shown: ReadonlyMap<string, string>;
    },
  ): Promise<readonly RegoTest[]> {
    const failed = results.filter(({ fail }) => fail === true);
    const trace =
      failed.length === 0
        ? ''
        : (
            await run(
              '--verbose',
              '--explain',
              'fails',
              '--var-values',
              '--run',
              `^data\\.(${failed.map((one) => fullName(one).replaceAll('.', '\\.')).join('|')})$`,
            )
          ).stdout;
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
        ...(detail === undefined ? {} : { detail }),
      };
    });
  }
}

/** Where each row of a staged file stands in the file that the user wrote: rows of copied rules (policies/rego/rule-copies.ts) are those of the rule itself. */
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

/** The clock is given in nanoseconds, which no double can hold: it is written as text. */
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

/** Undefined where opa did not come to run them; no tests at all are told as nothing. */
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

/** The part of a trace that opa prints for people: `file:line:` and below it the expression with the values in it. */
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
