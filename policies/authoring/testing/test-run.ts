/** Owns a run of all tests of a policy: every case in opa and in the built wasm, and what they have covered; decides no call. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CompiledParts, PolicyParts } from '../../engine/compiled-parts.ts';
import { callInputText, listInputText } from '../../engine/policy-input.ts';
import { compileParts, policySourceName, startPolicy } from '../../engine/policy-loader.ts';
import type { Policy } from '../../port.ts';
import { findOpa, INSTALL_LINES, type Opa } from '../../rego/opa-program.ts';
import { readRegoSources, type SourceFile } from '../../rego/rego-files.ts';
import { refuseProblems } from '../../rules/policy-problems.ts';
import { compileMode } from '../../rules/rule-modes.ts';
import { type CaseAnswer, type CaseResult, judgeCase, readCaseAnswer } from './case-result.ts';
import { OpaAnswerCache } from './opa-answer-cache.ts';
import { type OpaQuery, OpaRunner, type RegoTest } from './opa-runner.ts';
import { DEFAULT_CASE_TIME, type DraftedCase, type Drafting, draftCase } from './test-case.ts';
import { type Coverage, ruleCoverage } from './test-coverage.ts';
import { findTests, type TestFile } from './test-files.ts';
import { readSuites } from './test-suite.ts';

export type { CaseResult } from './case-result.ts';
export type { RegoTest } from './opa-runner.ts';
export type { Coverage, Uncovered } from './test-coverage.ts';

/** What a run of tests is asked for. */
export interface TestRequest {
  readonly parts: PolicyParts;
  /** Absolute: suites, Rego tests, folders of them; none: those beside the policies. */
  readonly paths: readonly string[];
  readonly draft: Drafting;
  /** Rules that Tollgate itself adds: they need no case. */
  readonly ownRules: readonly string[];
}

/** What became of all tests. */
export interface TestReport {
  readonly cases: readonly CaseResult[];
  readonly rego: readonly RegoTest[];
  /** Why opa was not asked, where it was not. */
  readonly notCompared?: string;
  readonly coverage: { readonly rules: Coverage; readonly rego?: Coverage };
}

/** Milliseconds for one decision here: a busy machine must not fail a case, and a runaway loop must still end. */
const DEADLINE_MS = 2_000;
/** Cases that are asked in one go. */
const PAUSE_AFTER = 4;

/**
 * Runs suites and Rego tests. Throws POLICY_INVALID for faults of suites, of tests and of the policy, USAGE where there is nothing to
 * run, OPA_MISSING where there is Rego and no opa.
 */
export async function runTests(request: TestRequest): Promise<TestReport> {
  const { parts } = request;
  const files = await findTests(parts, request.paths);
  const sources = parts.sources
    .filter((source) => source.kind === 'rego' && compileMode(source) !== 'off')
    .map((source) => ({ path: source.path, shown: policySourceName(source, parts) }));
  // Asked for first, since it is another process that answers.
  const looking = lookForOpa(parts, { isNeeded: sources.length > 0 || files.rego.length > 0 });
  looking.catch(() => undefined);
  const suites = await readSuites(files.suites, parts.readYaml);
  const drafted = suites.cases.map((one) => draftCase(one, request.draft));
  refuseProblems([...suites.problems, ...drafted.flatMap((one) => ('message' in one ? [one] : []))]);
  const cases = drafted.filter((one): one is DraftedCase => !('message' in one));
  const found = await looking;
  const opa = typeof found === 'string' ? undefined : found;
  const compiled = await compileParts({ ...parts, ...(opa === undefined ? {} : { opa: opa.program }) });
  const bench = {
    user: await readRegoSources(sources),
    tests: await readTests(files.rego),
    compiled,
    cache: parts.cache,
  };
  const told = opa === undefined ? undefined : await askBoth(cases, opa, bench);
  const wasm = told?.wasm ?? (await askWasm(cases, compiled));
  const results = cases.map((one, number) =>
    judgeCase(one, {
      wasm: wasm[number] ?? { failed: 'it has no answer' },
      ...(told === undefined ? {} : { opa: told.answers[number] ?? { failed: 'it has no answer' } }),
    }),
  );
  const decisions = wasm.flatMap((answer) => ('decision' in answer ? [answer.decision] : []));
  const rules = ruleCoverage(compiled.rules, {
    decisions,
    isOurs: (id) => request.ownRules.includes(id),
    hasServers: parts.settings.servers.length > 0,
  });
  const rego = told === undefined || told.coverage.total === 0 ? {} : { rego: told.coverage };
  return {
    cases: results,
    rego: told?.rego ?? [],
    coverage: { rules, ...rego },
    ...(typeof found === 'string' ? { notCompared: found } : {}),
  };
}

/** opa, or why there is none. What was named expressly and does not work is refused. */
async function lookForOpa(parts: PolicyParts, { isNeeded }: { readonly isNeeded: boolean }): Promise<Opa | string> {
  if (parts.sources.some(({ kind, mode }) => kind === 'bundle' && mode !== 'off'))
    return 'A bundle is compared with opa where it is built.';
  try {
    return await findOpa(parts.opa);
  } catch (thrown) {
    const isNamed = parts.opa !== undefined || (process.env.TOLLGATE_OPA ?? '') !== '';
    if (isNeeded || isNamed || asTollgateError(thrown).code !== 'OPA_MISSING') throw thrown;
    return `There is no opa. To get it: ${INSTALL_LINES.slice(0, 3).join('; or ')}.`;
  }
}

async function readTests(files: readonly TestFile[]): Promise<readonly SourceFile[]> {
  return Promise.all(
    files.map(async ({ path: file, shown }, number) => {
      const bytes = await readFile(file).catch((cause: unknown) => {
        throw new TollgateError('POLICY_INVALID', { detail: `The test ${shown} cannot be read.`, cause });
      });
      return { staged: path.join('tests', `${number}_${path.basename(file)}`), source: -1, shown, bytes };
    }),
  );
}

/** The built policy as a running facade has it. */
async function askWasm(cases: readonly DraftedCase[], compiled: CompiledParts): Promise<readonly CaseAnswer[]> {
  const policy = await startPolicy(compiled, DEADLINE_MS);
  try {
    const answers: CaseAnswer[] = [];
    for (const [number, one] of cases.entries()) {
      // The library answers in this thread: without a pause, nobody would read what opa says before the last case.
      if (number % PAUSE_AFTER === 0) await setImmediate();
      answers.push(await askOne(policy, one));
    }
    return answers;
  } finally {
    policy.close();
  }
}

async function askOne(policy: Policy, asked: DraftedCase): Promise<CaseAnswer> {
  try {
    return 'input' in asked
      ? { decision: await policy.call(asked.input) }
      : { list: await policy.list(asked.principal, asked.tools) };
  } catch (thrown) {
    return { failed: asTollgateError(thrown).message };
  }
}

interface Bench {
  readonly user: readonly SourceFile[];
  readonly tests: readonly SourceFile[];
  readonly compiled: CompiledParts;
  /** Where answers of opa are kept. */
  readonly cache: string;
}

/** opa is asked first: it answers in processes of its own, while wasm decides in this one. */
async function askBoth(
  cases: readonly DraftedCase[],
  opa: Opa,
  { user, tests, compiled, cache }: Bench,
): Promise<{
  readonly answers: readonly CaseAnswer[];
  readonly wasm: readonly CaseAnswer[];
  readonly rego: readonly RegoTest[];
  readonly coverage: Coverage;
}> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tollgate-test-'));
  try {
    const bench = await OpaRunner.prepare(opa, { folder, files: user, tests, data: compiled.data });
    const questions = cases.map((one) =>
      'input' in one
        ? {
            list: false,
            input: callInputText(one.input, { project: !compiled.foreign, zones: compiled.rules.zones }),
            time: one.input.time,
          }
        : { list: true, input: listInputText(one.principal, one.tools), time: DEFAULT_CASE_TIME },
    );
    const known = user.length === 0 ? await OpaAnswerCache.read(cache, { opa, data: compiled.data }) : undefined;
    const ask = (unknown: readonly OpaQuery[]): Promise<readonly unknown[]> => bench.answer(unknown);
    const [values, rego, wasm] = await Promise.all([
      known === undefined ? ask(questions) : known.answer(questions, ask),
      bench.test(),
      askWasm(cases, compiled),
    ]);
    const answers = values.map((value, number) => readCaseAnswer(value, cases[number]));
    return { answers, wasm, rego, coverage: bench.coverage.result };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
