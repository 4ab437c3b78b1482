/** Runs all tests of a policy: every case in opa and in the built WebAssembly. Measures what they cover. */

import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { asTollgateError, TollgateError } from '../../../catalogs/errors/error-table.ts';
import type { CompiledParts, PolicyParts } from '../../engine/compiled-parts.ts';
import { callInputText, listInputText } from '../../engine/policy-input.ts';
import { compileParts, policySourceName, startPolicy } from '../../engine/policy-loader.ts';
import type { Policy } from '../../port.ts';
import { findOpa, INSTALL_LINES, type Opa } from '../../rego/opa-program.ts';
import { readRegoSources, type SourceFile } from '../../rego/rego-files.ts';
import { inTemporaryFolder } from '../../rego/temporary-folder.ts';
import { refuseProblems } from '../../rules/policy-problems.ts';
import { compileMode } from '../../rules/rule-modes.ts';
import { type CaseAnswer, type CaseResult, checkCase, readCaseAnswer } from './case-result.ts';
import { OpaAnswerCache } from './opa-answer-cache.ts';
import { type OpaQuery, OpaRunner, type RegoTest } from './opa-runner.ts';
import { DEFAULT_CASE_TIME, type DraftedCase, type Drafting, draftCase } from './test-case.ts';
import { type Coverage, ruleCoverage } from './test-coverage.ts';
import { findTests, type TestFile } from './test-files.ts';
import { readSuites } from './test-suite.ts';

export type { CaseResult } from './case-result.ts';
export type { RegoTest } from './opa-runner.ts';
export type { Coverage, Uncovered } from './test-coverage.ts';

/** The tests to run. */
export interface TestRequest {
  readonly parts: PolicyParts;
  /** Suites, Rego tests, and folders of them, absolute. Empty: those next to the policies. */
  readonly paths: readonly string[];
  /** The sources next to which tests are, if `parts` has a draft from elsewhere. */
  readonly nextTo?: PolicyParts['sources'];
  readonly draft: Drafting;
  /** Rules that Tollgate adds. They need no case. */
  readonly ownRules: readonly string[];
}

/** The results of all tests. */
export interface TestReport {
  readonly cases: readonly CaseResult[];
  readonly rego: readonly RegoTest[];
  /** Why opa did not run, if it did not. */
  readonly notCompared?: string;
  readonly coverage: { readonly rules: Coverage; readonly rego?: Coverage };
}

/** Milliseconds for one decision: a busy machine must not fail a case, but an endless loop must end. */
const DEADLINE_MS = 2_000;
/** Number of cases between two pauses. */
const PAUSE_AFTER = 4;

/**
 * Runs suites and Rego tests. Throws POLICY_INVALID for faults of suites, tests and policy, USAGE if there is nothing
 * to run, and OPA_MISSING if there is Rego and no opa.
 */
export async function runTests(request: TestRequest): Promise<TestReport> {
  const { parts } = request;
  const files = await findTests({ ...parts, sources: request.nextTo ?? parts.sources }, request.paths);
  const sources = parts.sources
    .filter((source) => source.kind === 'rego' && compileMode(source) !== 'off')
    .map((source) => ({ path: source.path, shown: policySourceName(source, parts) }));
  // Started first, because another process answers.
  const search = searchOpa(parts, { isNeeded: sources.length > 0 || files.rego.length > 0 });
  search.catch(() => undefined);
  const suites = await readSuites(files.suites, parts.readYaml);
  const drafted = suites.cases.map((one) => draftCase(one, request.draft, parts.workspace));
  refuseProblems([...suites.problems, ...drafted.flatMap((one) => ('message' in one ? [one] : []))]);
  const cases = drafted.filter((one): one is DraftedCase => !('message' in one));
  const found = await search;
  const opa = typeof found === 'string' ? undefined : found;
  const compiled = await compileParts({ ...parts, ...(opa === undefined ? {} : { opa: opa.program }) });
  const subject = {
    user: await readRegoSources(sources),
    tests: await readTests(files.rego),
    compiled,
    cache: parts.cache,
  };
  const both = opa === undefined ? undefined : await runInBoth(cases, opa, subject);
  const wasm = both?.wasm ?? (await runInWasm(cases, compiled));
  const results = cases.map((one, number) =>
    checkCase(one, {
      wasm: wasm[number] ?? { failed: 'there is no answer' },
      ...(both === undefined ? {} : { opa: both.answers[number] ?? { failed: 'there is no answer' } }),
    }),
  );
  const decisions = wasm.flatMap((answer) => ('decision' in answer ? [answer.decision] : []));
  const rules = ruleCoverage(compiled.rules, {
    decisions,
    isOurs: (id) => request.ownRules.includes(id),
    hasServers: parts.settings.servers.length > 0,
  });
  const rego = both === undefined || both.coverage.total === 0 ? {} : { rego: both.coverage };
  return {
    cases: results,
    rego: both?.rego ?? [],
    coverage: { rules, ...rego },
    ...(typeof found === 'string' ? { notCompared: found } : {}),
  };
}

/** Returns opa, or why there is none. Throws if opa is needed, or if the user named one that does not work. */
async function searchOpa(parts: PolicyParts, { isNeeded }: { readonly isNeeded: boolean }): Promise<Opa | string> {
  if (parts.sources.some(({ kind, mode }) => kind === 'bundle' && mode !== 'off'))
    return 'A bundle is compared with opa when it is built.';
  try {
    return await findOpa(parts.opa);
  } catch (thrown) {
    const isNamed = parts.opa !== undefined || (process.env.TOLLGATE_OPA ?? '') !== '';
    if (isNeeded || isNamed || asTollgateError(thrown).code !== 'OPA_MISSING') throw thrown;
    return `opa is not installed. To install it: ${INSTALL_LINES.slice(0, 3).join('; or ')}.`;
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

/** Runs the built policy as a running facade does. */
async function runInWasm(cases: readonly DraftedCase[], compiled: CompiledParts): Promise<readonly CaseAnswer[]> {
  const policy = await startPolicy(compiled, DEADLINE_MS);
  try {
    const answers: CaseAnswer[] = [];
    for (const [number, one] of cases.entries()) {
      // The library decides in this thread. Without pauses, the output of opa would be read only after the last case.
      if (number % PAUSE_AFTER === 0) await setImmediate();
      answers.push(await runCase(policy, one));
    }
    return answers;
  } finally {
    policy.close();
  }
}

async function runCase(policy: Policy, drafted: DraftedCase): Promise<CaseAnswer> {
  try {
    return 'input' in drafted
      ? { decision: await policy.call(drafted.input) }
      : { list: await policy.list(drafted.principal, drafted.tools) };
  } catch (thrown) {
    return { failed: asTollgateError(thrown).message };
  }
}

interface TestSubject {
  readonly user: readonly SourceFile[];
  readonly tests: readonly SourceFile[];
  readonly compiled: CompiledParts;
  /** Folder for stored answers of opa. */
  readonly cache: string;
}

/** Starts opa first: it runs in processes of its own while WebAssembly runs in this one. */
async function runInBoth(
  cases: readonly DraftedCase[],
  opa: Opa,
  { user, tests, compiled, cache }: TestSubject,
): Promise<{
  readonly answers: readonly CaseAnswer[];
  readonly wasm: readonly CaseAnswer[];
  readonly rego: readonly RegoTest[];
  readonly coverage: Coverage;
}> {
  return inTemporaryFolder('test', async (folder) => {
    const runner = await OpaRunner.prepare({ opa, folder, tests }, { files: user, data: compiled.data });
    const queries = cases.map((one) =>
      'input' in one
        ? {
            list: false,
            input: callInputText(one.input, { project: !compiled.foreign, zones: compiled.rules.zones }),
            time: one.input.time,
          }
        : { list: true, input: listInputText(one.principal, one.tools), time: DEFAULT_CASE_TIME },
    );
    const stored = user.length === 0 ? await OpaAnswerCache.read(cache, { opa, data: compiled.data }) : undefined;
    const ask = (unknown: readonly OpaQuery[]): Promise<readonly unknown[]> => runner.answer(unknown);
    const [values, rego, wasm] = await Promise.all([
      stored === undefined ? ask(queries) : stored.answer(queries, ask),
      runner.test(),
      runInWasm(cases, compiled),
    ]);
    const answers = values.map((value, number) => readCaseAnswer(value, cases[number]));
    return { answers, wasm, rego, coverage: runner.coverage.result };
  });
}
