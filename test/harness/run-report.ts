/**
 * Ends the output of a test run: what could not run here and why, whether the run started more processes than its
 * budget, and the last line `N passed, N failed, N skipped` for readers and scripts. TOLLGATE_REPORT names a file that
 * gets the costs of each test file, for test/harness/cost-table.mjs.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Reporter, TestModule, TestSpecification, Vitest } from 'vitest/node';
import { parse } from 'yaml';
import type { FileCosts } from './file-costs.ts';

/** One test file in the report of a run. Times in ms. */
export interface FileReport extends Partial<FileCosts> {
  readonly file: string;
  readonly tests: number;
  readonly wallMs: number;
}

/** The most that a complete run may start: test/harness/budgets.yaml. */
export interface RunBudget {
  readonly processes: number;
  readonly nodes: number;
}

const HERE = import.meta.dirname;

export default class RunReport implements Reporter {
  #vitest: Vitest | undefined;
  #isComplete = false;

  onInit(vitest: Vitest): void {
    this.#vitest = vitest;
  }

  async onTestRunStart(specifications: readonly TestSpecification[]): Promise<void> {
    const all = (await this.#vitest?.globTestSpecifications([])) ?? [];
    this.#isComplete = specifications.length === all.length;
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    const ended = countTests(modules, unhandled.length);
    const files = modules.map(reportOf);
    const file = process.env.TOLLGATE_REPORT;
    if (file !== undefined) {
      mkdirSync(path.dirname(file), { recursive: true });
      writeFileSync(file, JSON.stringify({ ...ended, files }));
    }
    const faults = [
      ...(process.env.TOLLGATE_GATE === undefined ? [] : unlistedSkips(ended.skipped, listedSkips())),
      ...(this.#isComplete ? excessOf(files, budgetOf(process.env.TOLLGATE_TESTS)) : []),
    ];
    for (const [reason, count] of ended.skipped) process.stdout.write(`\n${count} skipped: ${reason}`);
    for (const fault of faults) process.stdout.write(`\n${fault}`);
    if (faults.length > 0) process.exitCode = 1;
    const skipped = [...ended.skipped.values()].reduce((sum, count) => sum + count, 0);
    const more = skipped === 0 ? '' : `, ${skipped} skipped`;
    process.stdout.write(`\n${ended.passed} passed, ${ended.failed + faults.length} failed${more}\n`);
  }
}

/** Counts tests by how they ended. A file that fails before its first test counts as one. */
function countTests(modules: readonly TestModule[], unhandled: number) {
  const skipped = new Map<string, number>();
  let [passed, failed] = [0, unhandled];
  for (const module of modules) {
    const tests = [...module.children.allTests()];
    if (module.state() === 'failed' && tests.every((test) => test.result().state !== 'failed')) failed += 1;
    for (const test of tests) {
      const result = test.result();
      if (result.state === 'passed') passed += 1;
      else if (result.state === 'failed') failed += 1;
      else {
        const reason = (result.state === 'skipped' && result.note) || 'without a reason';
        skipped.set(reason, (skipped.get(reason) ?? 0) + 1);
      }
    }
  }
  return { passed, failed, skipped };
}

function reportOf(module: TestModule): FileReport {
  const { duration, collectDuration } = module.diagnostic();
  return {
    file: module.relativeModuleId,
    tests: [...module.children.allTests()].length,
    wallMs: Math.round(duration + collectDuration),
    ...module.meta().costs,
  };
}

/** Returns a sentence for each reason of skipped tests that is not in the list. */
export function unlistedSkips(skipped: ReadonlyMap<string, number>, listed: readonly string[]): readonly string[] {
  return [...skipped]
    .filter(([reason]) => !listed.includes(reason))
    .map(
      ([reason, count]) =>
        `${count} tests were skipped for a reason that test/harness/skips.yaml does not list: ${reason}`,
    );
}

/** Returns a sentence for each count of a complete run that exceeds its budget. */
export function excessOf(files: readonly FileReport[], budget: RunBudget | undefined): readonly string[] {
  if (budget === undefined) return [];
  const started = files.flatMap(({ processes = {} }) => Object.entries(processes));
  const sum = (of: readonly (readonly [string, number])[]): number => of.reduce((total, [, count]) => total + count, 0);
  const counts = { processes: sum(started), nodes: sum(started.filter(([name]) => name === 'node')) };
  return (Object.keys(counts) as (keyof RunBudget)[])
    .filter((key) => counts[key] > budget[key])
    .map((key) => `This run started ${counts[key]} ${key}, and test/harness/budgets.yaml allows ${budget[key]}.`);
}

function budgetOf(tests = 'part'): RunBudget | undefined {
  const budgets = parse(readFileSync(path.join(HERE, 'budgets.yaml'), 'utf8')) as Record<string, RunBudget>;
  return budgets[tests];
}

function listedSkips(): readonly string[] {
  return parse(readFileSync(path.join(HERE, 'skips.yaml'), 'utf8')) as readonly string[];
}
