/** Orders the test files: the most expensive first, so that no worker runs alone with one of them at the end. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { parse } from 'yaml';

const ROOT = path.join(import.meta.dirname, '..', '..');
/** Seconds by file, written by `node test/harness/cost-table.mjs --write REPORT`. */
const costs = parse(readFileSync(path.join(import.meta.dirname, 'file-costs.yaml'), 'utf8')) as Record<string, number>;

const costOf = ({ moduleId }: TestSpecification): number => costs[path.relative(ROOT, moduleId)] ?? 0;

/** Runs expensive files first, and the rest in the order of Vitest. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    return [...sorted].sort((a, b) => costOf(b) - costOf(a));
  }
}
